//! Frames: lines of at most 1 MiB out of chunks of any size.

use std::borrow::Cow;
use std::mem;

use crate::limits::FRAME_BYTES_MAX;

/// A line that passed [`FRAME_BYTES_MAX`] before its line feed came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// The beginning of a frame whose line feed has not come yet.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    partial: Vec<u8>,
}

impl Frames {
    /// The next whole frame of `bytes`, without its line feed; `bytes` is then what follows it.
    /// `None` once all of `bytes` is kept.
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &mut &'a [u8],
    ) -> Result<Option<Cow<'a, [u8]>>, TooLong> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (head, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        *bytes = rest.strip_prefix(b"\n").unwrap_or_default();
        if self.partial.len() + head.len() > FRAME_BYTES_MAX {
            self.partial = Vec::new();
            return Err(TooLong);
        }
        if end.is_some() && self.partial.is_empty() {
            return Ok(Some(Cow::Borrowed(head)));
        }
        self.partial.extend_from_slice(head);
        Ok(end.map(|_| Cow::Owned(mem::take(&mut self.partial))))
    }

    /// Bytes of a frame that has no line feed yet.
    pub(crate) fn pending(&self) -> usize {
        self.partial.len()
    }
}

/// How many JSON values `frame` has at most, counted without parsing it: all that makes room
/// for a value outside a string. Up to its first fault a frame has no more.
pub(crate) fn values(frame: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for byte in frame {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_strings_only() {
        for (text, count) in [
            ("", 1),
            ("1", 1),
            ("[]", 2),
            ("[1,2]", 3),
            (r#"{"a":1,"b":[{}]}"#, 5),
            (r#"",[{\",[{""#, 1),
            (r#"["\\",1]"#, 3),
        ] {
            assert_eq!(values(text.as_bytes()), count, "{text}");
        }
    }

    fn frames(chunks: &[&[u8]]) -> Vec<Result<Vec<u8>, TooLong>> {
        let mut reader = Frames::default();
        let mut found = Vec::new();
        for chunk in chunks {
            let mut rest = *chunk;
            loop {
                match reader.next(&mut rest) {
                    Ok(Some(frame)) => found.push(Ok(frame.into_owned())),
                    Ok(None) => break,
                    Err(error) => {
                        found.push(Err(error));
                        break;
                    }
                }
            }
        }
        found
    }

    #[test]
    fn lines_are_found_across_chunks_and_inside_one() {
        let expected = vec![Ok(b"a".to_vec()), Ok(vec![]), Ok(b"bcd".to_vec())];
        assert_eq!(frames(&[b"a\n\nbcd\n"]), expected);
        assert_eq!(frames(&[b"a", b"\n", b"\nb", b"", b"c", b"d\ne"]), expected);
    }

    #[test]
    fn a_frame_is_accepted_at_the_limit_and_refused_one_past_it() {
        let mut line = vec![b'x'; FRAME_BYTES_MAX];
        line.push(b'\n');
        assert!(matches!(frames(&[&line])[..], [Ok(_)]));
        let (head, tail) = line.split_at(FRAME_BYTES_MAX);
        assert!(matches!(frames(&[head, tail])[..], [Ok(_)]));

        assert_eq!(frames(&[head, b"x"]), [Err(TooLong)]);
        line.insert(0, b'x');
        assert_eq!(frames(&[&line]), [Err(TooLong)]);
    }
}
