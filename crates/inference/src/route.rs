//! The three routes of the provider that an agent may reach.

use crate::refusal::{Refusal, quoted};

/// A route that exists. `beta` says that the client wrote `?beta=true`, which is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `HEAD /`: the client asks whether anybody is there.
    Head,
    /// `POST /v1/messages`
    Messages { beta: bool },
    /// `POST /v1/messages/count_tokens`
    CountTokens { beta: bool },
}

impl Route {
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Head => "HEAD",
            Self::Messages { .. } | Self::CountTokens { .. } => "POST",
        }
    }

    /// Path and query, to be appended to the provider's base URL.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Head => "/",
            Self::Messages { beta: false } => "/v1/messages",
            Self::Messages { beta: true } => "/v1/messages?beta=true",
            Self::CountTokens { beta: false } => "/v1/messages/count_tokens",
            Self::CountTokens { beta: true } => "/v1/messages/count_tokens?beta=true",
        }
    }
}

/// Every route, as it is written on the wire.
const ROUTES: [Route; 5] = [
    Route::Head,
    Route::Messages { beta: false },
    Route::Messages { beta: true },
    Route::CountTokens { beta: false },
    Route::CountTokens { beta: true },
];

/// The route that a request line names, compared byte for byte: no decoding, no normalization,
/// so that no second spelling of a path exists.
///
/// # Errors
/// A 403 for every other method or target.
pub fn parse_route(method: &str, path_and_query: &str) -> Result<Route, Refusal> {
    ROUTES
        .into_iter()
        .find(|route| route.method() == method && route.path() == path_and_query)
        .ok_or_else(|| {
            Refusal::permission(&format!(
                "{} {} is not a route of this provider: only HEAD /, POST /v1/messages and \
                 POST /v1/messages/count_tokens are served",
                quoted(method),
                quoted(path_and_query)
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_routes_are_served_with_and_without_beta() {
        for route in ROUTES {
            assert_eq!(parse_route(route.method(), route.path()), Ok(route));
        }
    }

    #[test]
    fn every_other_method_path_or_query_is_refused() {
        for (method, target) in [
            ("GET", "/"),
            ("HEAD", "/?beta=true"),
            ("HEAD", "/v1/messages"),
            ("GET", "/v1/messages"),
            ("post", "/v1/messages"),
            ("POST", "/v1/messages/"),
            ("POST", "//v1/messages"),
            ("POST", "/v1/../v1/messages"),
            ("POST", "/v1/%6dessages"),
            ("POST", "/v1/messages?"),
            ("POST", "/v1/messages?beta=false"),
            ("POST", "/v1/messages?beta=true&x=1"),
            ("POST", "/v1/messages?beta=true#f"),
            ("POST", "http://other/v1/messages"),
            ("POST", "/v1/messages/batches"),
            ("POST", "/v1/files"),
            ("GET", "/v1/models"),
            ("CONNECT", "example.org:443"),
            ("", ""),
        ] {
            let refusal = parse_route(method, target).unwrap_err();
            assert_eq!(refusal.status, 403, "{method} {target}");
        }
    }
}
