//! How a text writes a character otherwise than plain, and what a reader of it takes it for.

/// A way to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    Plain,
    /// With backslashes, as in JSON and most programs' text: `\n`, `\"`, `\u00e4`.
    Escaped,
    /// A quotation mark twice, as in CSV.
    Doubled,
    /// As in XML and HTML: `&lt;`, `&#60;`, `&#x3c;`.
    Entities,
    /// As in addresses: `%3c`.
    Percent,
}

/// What a reader takes at once: up to four bytes, and how many of the text write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    bytes: [u8; 4],
    count: usize,
    length: usize,
}

impl Piece {
    const fn byte(byte: u8, length: usize) -> Self {
        Self {
            bytes: [byte, 0, 0, 0],
            count: 1,
            length,
        }
    }

    fn character(character: char, length: usize) -> Self {
        let mut bytes = [0; 4];
        let count = character.encode_utf8(&mut bytes).len();
        Self {
            bytes,
            count,
            length,
        }
    }

    /// The bytes that are meant.
    pub(super) fn meant(&self) -> &[u8] {
        self.bytes.get(..self.count).unwrap_or_default()
    }

    /// The bytes that are written: as many as are meant, or more.
    pub(super) const fn length(&self) -> usize {
        self.length
    }
}

impl Writing {
    pub(super) const ALL: [Self; 5] = [
        Self::Plain,
        Self::Escaped,
        Self::Doubled,
        Self::Entities,
        Self::Percent,
    ];

    /// The byte that all begins with which is not plain, and the most bytes that it takes.
    const fn mark(self) -> Option<(u8, usize)> {
        match self {
            Self::Plain => None,
            Self::Escaped => Some((b'\\', 12)),
            Self::Doubled => Some((b'"', 2)),
            Self::Entities => Some((b'&', 12)),
            Self::Percent => Some((b'%', 3)),
        }
    }

    fn begins(self, byte: u8) -> bool {
        self.mark().is_some_and(|(mark, _)| mark == byte)
    }

    /// Whether it differs from the plain reading of `text` anywhere.
    pub(super) fn may_be_in(self, text: &[u8]) -> bool {
        let mark = self.mark();
        mark.is_none_or(|(mark, _)| text.contains(&mark))
    }

    /// How far it is to the next piece that could mean `byte`.
    pub(super) fn until(self, byte: u8, rest: &[u8]) -> usize {
        let next = rest.iter().position(|at| *at == byte || self.begins(*at));
        next.unwrap_or(rest.len())
    }

    /// The piece that `rest` begins with.
    pub(super) fn next(self, rest: &[u8]) -> Piece {
        let first = rest.first().copied().unwrap_or_default();
        let special = match self {
            _ if !self.begins(first) => None,
            Self::Plain => None,
            Self::Escaped => escaped(rest),
            Self::Doubled => (rest.get(1) == Some(&first)).then_some(Piece::byte(first, 2)),
            Self::Entities => entity(rest),
            Self::Percent => percent(rest),
        };
        special.unwrap_or(Piece::byte(first, 1))
    }

    /// Whether `rest`, which is the end of a text, may be a piece that was cut.
    pub(super) fn is_cut(self, rest: &[u8]) -> bool {
        self.mark().is_some_and(|(mark, most)| {
            rest.first() == Some(&mark) && rest.len() < most && self.next(rest).length == 1
        })
    }
}

fn escaped(rest: &[u8]) -> Option<Piece> {
    let byte = match *rest.get(1)? {
        same @ (b'"' | b'\'' | b'\\' | b'/') => same,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'f' => 12,
        b'r' => b'\r',
        b'u' => return by_units(rest),
        _ => return None,
    };
    Some(Piece::byte(byte, 2))
}

/// `\u00e4`, or two of them for one character.
fn by_units(rest: &[u8]) -> Option<Piece> {
    let unit = |at: usize| {
        let digits = rest.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::try_from(number(digits, 16)?).ok()
    };
    let first = unit(0)?;
    let units = [first, unit(6).unwrap_or_default()];
    let character = char::decode_utf16(units).next()?.ok()?;
    Some(Piece::character(character, 6 * character.len_utf16()))
}

fn entity(rest: &[u8]) -> Option<Piece> {
    let (_, most) = Writing::Entities.mark()?;
    let end = rest.iter().take(most).position(|byte| *byte == b';')?;
    let character = match rest.get(1..end)? {
        b"lt" => '<',
        b"gt" => '>',
        b"amp" => '&',
        b"quot" => '"',
        b"apos" => '\'',
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(number(digits, 16)?)?,
        [b'#', digits @ ..] => char::from_u32(number(digits, 10)?)?,
        _ => return None,
    };
    Some(Piece::character(character, end + 1))
}

fn percent(rest: &[u8]) -> Option<Piece> {
    let byte = number(rest.get(1..3)?, 16)?;
    Some(Piece::byte(u8::try_from(byte).ok()?, 3))
}

/// Digits alone, at least one.
fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok()?;
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(writing: Writing, text: &str) -> String {
        let (mut rest, mut meant) = (text.as_bytes(), Vec::new());
        while !rest.is_empty() {
            let piece = writing.next(rest);
            meant.extend_from_slice(piece.meant());
            rest = &rest[piece.length()..];
        }
        String::from_utf8_lossy(&meant).into_owned()
    }

    #[test]
    fn what_is_written_is_read_as_its_readers_do() {
        for (writing, text, meant) in [
            (Writing::Plain, r#"\n""&lt;%41"#, r#"\n""&lt;%41"#),
            (
                Writing::Escaped,
                r#"\"\\\/\'\n\r\t\b\f"#,
                "\"\\/'\n\r\t\u{8}\u{c}",
            ),
            (Writing::Escaped, r"\u00e4\u00E4\ud83d\ude00\u003c", "ää😀<"),
            (
                Writing::Escaped,
                r"\q\u12\ud83d\u0041\u+041\",
                r"\q\u12\ud83dA\u+041\",
            ),
            (Writing::Doubled, r#"""a"b"""""#, r#""a"b"""#),
            (Writing::Entities, "&lt;&gt;&amp;&quot;&apos;", "<>&\"'"),
            (Writing::Entities, "&#60;&#x3C;&#X3c;&#128512;", "<<<😀"),
            (
                Writing::Entities,
                "&no;&#;&#x110000;&#-1;&&lt",
                "&no;&#;&#x110000;&#-1;&&lt",
            ),
            (Writing::Percent, "%3c%C3%A4%4%%zz", "<ä%4%%zz"),
        ] {
            assert_eq!(read(writing, text), meant, "{writing:?}");
        }
    }

    #[test]
    fn a_piece_that_a_text_ends_within_may_be_cut_and_a_whole_one_is_not() {
        for (writing, whole) in [
            (Writing::Escaped, r"\n"),
            (Writing::Escaped, r"\u00e4"),
            (Writing::Escaped, r"\ud83d\ude00"),
            (Writing::Doubled, "\"\""),
            (Writing::Entities, "&#x10ffff;"),
            (Writing::Percent, "%3c"),
        ] {
            assert!(!writing.is_cut(whole.as_bytes()), "{whole}");
            for length in 1..whole.len() {
                assert!(
                    writing.is_cut(&whole.as_bytes()[..length]),
                    "{whole} {length}"
                );
            }
        }
        assert!(!Writing::Escaped.is_cut(br"\q 3456789ab"));
        assert!(!Writing::Plain.is_cut(b"\\"));
    }

    proptest! {
        #[test]
        fn a_piece_is_a_part_of_any_text_and_never_means_more_than_it_writes(
            bytes in proptest::collection::vec(any::<u8>(), 1..16), mark in 0_usize..4,
        ) {
            let mut bytes = bytes;
            bytes[0] = b"\\\"&%"[mark];
            for writing in Writing::ALL {
                let piece = writing.next(&bytes);
                prop_assert!((1..=bytes.len()).contains(&piece.length()));
                prop_assert!((1..=piece.length()).contains(&piece.meant().len()));
            }
        }
    }
}
