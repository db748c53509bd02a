//! Where the provider is. The parser is narrow on purpose: what it does not know it refuses.
//!
//! A URL that carries a credential is refused without being repeated, so no error here holds
//! any part of the text.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::limits::{BASE_URL_BYTES_MAX, HOST_BYTES_MAX};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Loopback only.
    Http,
    Https,
}

impl Scheme {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The base URL of a provider, normalized: lower-case host, no default port, no final slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    scheme: Scheme,
    host: Host,
    port: u16,
    /// Empty, or `/a/b` without a final slash.
    prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

impl Host {
    fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost",
            Self::V4(address) => address.is_loopback(),
            Self::V6(address) => address.is_loopback(),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::V4(address) => write!(f, "{address}"),
            Self::V6(address) => write!(f, "[{address}]"),
        }
    }
}

/// Why a text is not a base URL that a credential may be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseUrlError {
    TooLong,
    Characters,
    Scheme,
    PlainHttp,
    Credentials,
    Query,
    Fragment,
    Host,
    Port,
    Path,
}

impl fmt::Display for BaseUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self {
            Self::TooLong => "it is too long",
            Self::Characters => "it holds a space, a backslash, a control or a non-ASCII character",
            Self::Scheme => "it must start with `https://`, or `http://` for a loopback address",
            Self::PlainHttp => "plain `http` is accepted for a loopback address only: use `https`",
            Self::Credentials => {
                "it holds credentials: name the key with `api_key_env` or `api_key_file` instead"
            }
            Self::Query => "it has a query",
            Self::Fragment => "it has a fragment",
            Self::Host => "its host is neither a host name nor an IP address",
            Self::Port => "its port is not a number between 1 and 65535",
            Self::Path => {
                "its path has an empty, `.` or `..` segment, or a character other than letters, \
                 digits and `-._~`"
            }
        };
        write!(f, "the base URL is not usable: {reason}")
    }
}

impl std::error::Error for BaseUrlError {}

impl BaseUrl {
    /// Reads `https://host[:port][/prefix]`, or `http://` with a loopback host.
    ///
    /// # Errors
    /// [`BaseUrlError`], which never holds any part of `text`.
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        if text.len() > BASE_URL_BYTES_MAX {
            return Err(BaseUrlError::TooLong);
        }
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        {
            return Err(BaseUrlError::Characters);
        }
        let (scheme, rest) = split_scheme(text)?;
        if rest.contains('#') {
            return Err(BaseUrlError::Fragment);
        }
        if rest.contains('?') {
            return Err(BaseUrlError::Query);
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(BaseUrlError::Credentials);
        }
        let (host, port) = parse_authority(authority, scheme)?;
        if scheme == Scheme::Http && !host.is_loopback() {
            return Err(BaseUrlError::PlainHttp);
        }
        Ok(Self {
            scheme,
            host,
            port,
            prefix: parse_prefix(path)?,
        })
    }

    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host, an IPv6 address without brackets: for name lookup and TLS.
    #[must_use]
    pub fn host(&self) -> String {
        match &self.host {
            Host::V6(address) => address.to_string(),
            other => other.to_string(),
        }
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host.is_loopback()
    }

    /// The value of the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.to_string()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The request target for `path` (which starts with a slash), below the prefix.
    #[must_use]
    pub fn target(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    /// The whole URL of `path` (which starts with a slash).
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        format!(
            "{}://{}{}",
            self.scheme.as_str(),
            self.authority(),
            self.target(path)
        )
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.join(""))
    }
}

impl std::str::FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<Self, BaseUrlError> {
        Self::parse(text)
    }
}

fn split_scheme(text: &str) -> Result<(Scheme, &str), BaseUrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(BaseUrlError::Scheme)?;
    match scheme.to_ascii_lowercase().as_str() {
        "https" => Ok((Scheme::Https, rest)),
        "http" => Ok((Scheme::Http, rest)),
        _ => Err(BaseUrlError::Scheme),
    }
}

fn parse_authority(text: &str, scheme: Scheme) -> Result<(Host, u16), BaseUrlError> {
    if let Some(inner) = text.strip_prefix('[') {
        let (address, rest) = inner.split_once(']').ok_or(BaseUrlError::Host)?;
        let address = address.parse().map_err(|_| BaseUrlError::Host)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => parse_port(port)?,
            None if rest.is_empty() => scheme.default_port(),
            None => return Err(BaseUrlError::Host),
        };
        return Ok((Host::V6(address), port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, parse_port(port)?),
        None => (text, scheme.default_port()),
    };
    Ok((parse_host(host)?, port))
}

fn parse_port(text: &str) -> Result<u16, BaseUrlError> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or(BaseUrlError::Port)
    } else {
        Err(BaseUrlError::Port)
    }
}

/// A host name (RFC 1123 section 2.1) or an IPv4 address in four decimal parts. A last label of
/// digits, or one like `0x7f`, is an address to some resolvers: only the plain form is accepted.
fn parse_host(text: &str) -> Result<Host, BaseUrlError> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::V4(address));
    }
    let label_is_good = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let last = text.rsplit('.').next().unwrap_or(text);
    if text.len() > HOST_BYTES_MAX
        || !text.split('.').all(label_is_good)
        || last.starts_with(|first: char| first.is_ascii_digit())
    {
        return Err(BaseUrlError::Host);
    }
    Ok(Host::Name(text.to_ascii_lowercase()))
}

fn parse_prefix(path: &str) -> Result<String, BaseUrlError> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let segment_is_good = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
            })
    };
    match path.strip_prefix('/') {
        None => Ok(String::new()),
        Some(segments) if segments.split('/').all(segment_is_good) => Ok(path.to_owned()),
        Some(_) => Err(BaseUrlError::Path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn https_and_loopback_http_are_accepted_and_normalized() {
        for (text, normal) in [
            ("https://api.anthropic.com", "https://api.anthropic.com"),
            (
                "HTTPS://API.Anthropic.com:443/",
                "https://api.anthropic.com",
            ),
            ("https://gw.example/a/b/", "https://gw.example/a/b"),
            ("https://10.0.0.1:8443", "https://10.0.0.1:8443"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.9.8.7:80/", "http://127.9.8.7"),
            ("http://localhost:1", "http://localhost:1"),
            ("http://[::1]:9/x", "http://[::1]:9/x"),
        ] {
            let url = BaseUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), normal);
            assert_eq!(BaseUrl::parse(normal).unwrap(), url);
        }
    }

    #[test]
    fn a_path_joins_below_the_prefix() {
        let url = BaseUrl::parse("https://gw.example:8443/team/").unwrap();
        assert_eq!(
            url.join("/v1/messages?beta=true"),
            "https://gw.example:8443/team/v1/messages?beta=true"
        );
        assert_eq!(url.target("/"), "/team/");
        assert_eq!((url.host(), url.port()), ("gw.example".to_owned(), 8443));
        assert_eq!(url.authority(), "gw.example:8443");
        assert_eq!(BaseUrl::parse("http://[::1]").unwrap().host(), "::1");
    }

    #[test]
    fn what_could_leak_or_mislead_is_refused_without_repeating_it() {
        use BaseUrlError as E;
        for (text, expected) in [
            ("https://key:s3cret@host", E::Credentials),
            ("https://s3cret@host/", E::Credentials),
            ("https://host/?key=s3cret", E::Query),
            ("https://host?", E::Query),
            ("https://host/#s3cret", E::Fragment),
            ("http://host.example", E::PlainHttp),
            ("http://10.0.0.1", E::PlainHttp),
            ("http://0.0.0.0", E::PlainHttp),
            ("http://localhost.s3cret", E::PlainHttp),
            ("http://[::ffff:127.0.0.1]", E::PlainHttp),
            ("ftp://host", E::Scheme),
            ("unix:/s3cret", E::Scheme),
            ("s3cret", E::Scheme),
            ("", E::Scheme),
            ("https://", E::Host),
            ("https:///path", E::Host),
            ("https://[::1", E::Host),
            ("https://[::1]x", E::Host),
            ("https://127.1", E::Host),
            ("https://0x7f000001", E::Host),
            ("https://2130706433", E::Host),
            ("https://a..b", E::Host),
            ("https://host.", E::Host),
            ("https://-a.b", E::Host),
            ("https://a_b", E::Host),
            ("https://ho%73t", E::Host),
            ("https://host:", E::Port),
            ("https://host:0", E::Port),
            ("https://host:65536", E::Port),
            ("https://host:+80", E::Port),
            ("https://host:80:80", E::Port),
            ("https://host//a", E::Path),
            ("https://host/a/../b", E::Path),
            ("https://host/./a", E::Path),
            ("https://host/%2e%2e/", E::Path),
            ("https://host/a;s3cret", E::Path),
            ("https://host\\@other", E::Characters),
            ("https://ho st", E::Characters),
            ("https://host\r\nx: y", E::Characters),
            ("https://höst", E::Characters),
        ] {
            let error = BaseUrl::parse(text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            assert!(!format!("{error} {error:?}").contains("s3cret"));
        }
    }

    #[test]
    fn the_length_is_accepted_at_the_limit_and_refused_one_past_it() {
        let start = "https://h/";
        let at_limit = format!("{start}{}", "a".repeat(BASE_URL_BYTES_MAX - start.len()));
        assert!(BaseUrl::parse(&at_limit).is_ok());
        assert_eq!(
            BaseUrl::parse(&format!("{at_limit}a")),
            Err(BaseUrlError::TooLong)
        );
        let label = "a".repeat(63);
        let host = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(host.len(), HOST_BYTES_MAX);
        assert!(BaseUrl::parse(&format!("https://{host}")).is_ok());
        assert!(BaseUrl::parse(&format!("https://{host}a")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic_and_what_it_accepts_is_stable(text in "(https?://)?[a-z0-9:./@?#\\[\\]%-]{0,30}") {
            if let Ok(url) = BaseUrl::parse(&text) {
                prop_assert_eq!(BaseUrl::parse(&url.to_string()).unwrap(), url);
            }
        }
    }
}
