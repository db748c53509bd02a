//! URLs that every reader splits alike: what is accepted is its own normal form by the WHATWG URL
//! standard, so no reader changes or reinterprets a byte of it.

use crate::network::{Target, TargetFault, check_address, check_host_name};

/// Schemes with one syntax in the URL standard, and their default ports.
pub(crate) const SCHEMES: [(&str, u16); 5] = [
    ("http", 80),
    ("https", 443),
    ("ws", 80),
    ("wss", 443),
    ("ftp", 21),
];

/// Checks a URL after the characters that no argument may have were refused.
pub(crate) fn check_url(
    text: &str,
    schemes: &[String],
    block_internal: bool,
) -> Result<Target, TargetFault> {
    let refuse = |reason| Err(TargetFault::Url { reason });
    let scheme = text
        .split_once("://")
        .filter(|(scheme, _)| schemes.iter().any(|s| s == scheme));
    let Some((scheme, rest)) = scheme else {
        return Err(TargetFault::Scheme {
            allowed: schemes.to_vec(),
        });
    };
    if !rest.is_ascii() {
        return refuse("it has characters outside ASCII");
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if authority.contains('@') {
        return refuse("it names a user before the host");
    }
    if !tail.starts_with('/') {
        return refuse("the host is followed by `/`");
    }
    check_tail(tail)?;
    let host = check_port(authority, scheme)?;
    match host
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
    {
        Some(inner) if inner.contains(':') => check_address(inner, block_internal),
        Some(_) => refuse("brackets surround an IPv6 address"),
        None if host.starts_with(|c: char| c.is_ascii_digit())
            && host
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.') =>
        {
            check_address(host, block_internal)
        }
        None => check_host_name(host, block_internal),
    }
}

/// The host before an explicit port, which must not be the scheme's own.
fn check_port<'a>(authority: &'a str, scheme: &str) -> Result<&'a str, TargetFault> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((_, tail)) if tail.ends_with(']') => return Ok(authority),
        Some(parts) => parts,
        None => return Ok(authority),
    };
    let number = port
        .parse::<u16>()
        .ok()
        .filter(|number| number.to_string() == port);
    let default = SCHEMES
        .iter()
        .any(|(name, own)| *name == scheme && Some(*own) == number);
    match number {
        Some(0) | None => Err(TargetFault::Url {
            reason: "the port is not a number from 1 to 65535",
        }),
        Some(_) if default => Err(TargetFault::Url {
            reason: "the port is the scheme's own: leave it out",
        }),
        Some(_) => Ok(host),
    }
}

/// Path, query and fragment: plain characters and whole percent escapes, no dot segments.
fn check_tail(tail: &str) -> Result<(), TargetFault> {
    let refuse = |reason| Err(TargetFault::Url { reason });
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~&+,=:@/%?#".contains(&byte);
    if !tail.bytes().all(plain) {
        return refuse("a character must be percent-encoded");
    }
    for (index, _) in tail.match_indices('%') {
        let digits = tail
            .get(index + 1..index + 3)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            None => return refuse("`%` is followed by two hexadecimal digits"),
            Some(byte) if byte.is_ascii_control() => {
                return refuse("it has an encoded control character");
            }
            Some(_) => {}
        }
    }
    let path = tail
        .split(['?', '#'])
        .next()
        .unwrap_or(tail)
        .to_ascii_lowercase();
    let dots = |segment: &str| matches!(segment.replace("%2e", ".").as_str(), "." | "..");
    if path.split('/').any(dots) {
        return refuse("its path has a `.` or `..` segment");
    }
    if tail.matches('#').count() > 1 {
        return refuse("it has a second `#`");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_their_own_normal_form() {
        let both = ["http".to_owned(), "https".to_owned()];
        for good in [
            "https://example.com/",
            "https://example.com/a/b.c?x=1&y=%20#top",
            "http://93.184.216.34:8080/x",
            "https://[2606:4700::1111]/",
            "https://[2606:4700::1111]:8443/",
            "https://example.com/~u/@x:y",
        ] {
            assert!(check_url(good, &both, false).is_ok(), "{good}");
        }
        for bad in [
            "https://example.com",
            "https://example.com?x",
            "HTTPS://example.com/",
            "https:/example.com/",
            "https://user@example.com/",
            "https://user:pw@example.com/",
            "https://example.com:443/",
            "http://example.com:080/",
            "http://example.com:/",
            "http://example.com:0/",
            "http://example.com:65536/",
            "http://2130706433/",
            "http://127.1/",
            "http://0x7f.1/",
            "http://[::ffff:127.0.0.1]/",
            "http://[1.2.3.4]/",
            "http://[::1/",
            "http://::1/",
            "https://example.com/a/../b",
            "https://example.com/%2E%2e/b",
            "https://example.com/%",
            "https://example.com/%zz",
            "https://example.com/%00",
            "https://example.com/%0d%0a",
            "https://example.com/a#b#c",
            "https://ex\u{e4}mple.com/",
            "https://example.com/\u{e4}",
            "ftp://example.com/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://localhost/",
            "http://169.254.169.254/",
            "https:///x",
            "https://example.com\\@evil.com/",
            "https://EXAMPLE.com/",
            "https://example.com./",
        ] {
            assert!(check_url(bad, &both, false).is_err(), "{bad}");
        }
        assert!(check_url("http://127.0.0.1:2375/x", &both, true).is_err());
        assert!(check_url("https://93.184.216.34/x", &both, true).is_ok());
    }
}
