//! What the operator allows of one provider in one run.
//!
//! A credential pasted into the wrong field must not come back in a message: no error here
//! repeats a value that was read as text.

use std::fmt;

use crate::limits::{
    BETA_HEADERS_MAX, OUTPUT_TOKENS_MAX, REQUESTS_MAX, TOKEN_BYTES_MAX, TOTAL_OUTPUT_TOKENS_MAX,
};

/// The operator's terms. They have force only after [`Terms::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The one model that requests may name.
    pub model: String,
    /// Requests that may be sent in the run, of every route.
    pub max_requests: u64,
    /// Highest `max_tokens` of one request.
    pub max_output_tokens: u64,
    /// Highest sum of all `max_tokens` of the run; never refunded.
    pub max_total_output_tokens: u64,
    /// The values of `anthropic-beta`; the client's own are dropped.
    pub beta_headers: Vec<String>,
    /// The value of `anthropic-version`.
    pub anthropic_version: String,
}

/// Why terms cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermsError {
    /// A bound that must lie between 1 and `max`.
    OutOfRange {
        field: &'static str,
        value: u64,
        max: u64,
    },
    /// A text that must be a printable token of at most [`TOKEN_BYTES_MAX`] bytes.
    IllFormed {
        field: &'static str,
    },
    /// The beta header at this position (from 0) is not such a token.
    BetaHeader {
        index: usize,
    },
    /// The beta header at this position repeats an earlier one.
    RepeatedBetaHeader {
        index: usize,
    },
    TooManyBetaHeaders {
        count: usize,
    },
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { field, value, max } => {
                write!(f, "`{field}` is {value}; it must be between 1 and {max}")
            }
            Self::IllFormed { field } => write!(
                f,
                "`{field}` is not well formed: 1 to {TOKEN_BYTES_MAX} printable characters \
                 without a space, a comma or a quotation mark"
            ),
            Self::BetaHeader { index } => write!(
                f,
                "`beta_headers[{index}]` is not well formed: 1 to {TOKEN_BYTES_MAX} letters, \
                 digits and `-._` (the value is not shown: it could be a secret)"
            ),
            Self::RepeatedBetaHeader { index } => {
                write!(f, "`beta_headers[{index}]` repeats an earlier entry")
            }
            Self::TooManyBetaHeaders { count } => write!(
                f,
                "`beta_headers` has {count} entries; at most {BETA_HEADERS_MAX} are allowed"
            ),
        }
    }
}

impl std::error::Error for TermsError {}

impl Terms {
    /// Checks every bound and every text that would become a header.
    ///
    /// # Errors
    /// [`TermsError`] for the first field that cannot be used.
    pub fn check(&self) -> Result<(), TermsError> {
        let bounds = [
            ("max_requests", self.max_requests, REQUESTS_MAX),
            (
                "max_output_tokens",
                self.max_output_tokens,
                OUTPUT_TOKENS_MAX,
            ),
            (
                "max_total_output_tokens",
                self.max_total_output_tokens,
                TOTAL_OUTPUT_TOKENS_MAX,
            ),
        ];
        for (field, value, max) in bounds {
            if !(1..=max).contains(&value) {
                return Err(TermsError::OutOfRange { field, value, max });
            }
        }
        if !is_token(&self.model, |byte| {
            matches!(byte, b':' | b'/' | b'@' | b'[' | b']')
        }) {
            return Err(TermsError::IllFormed { field: "model" });
        }
        if !is_token(&self.anthropic_version, |_| false) {
            return Err(TermsError::IllFormed {
                field: "anthropic_version",
            });
        }
        check_beta_headers(&self.beta_headers)
    }
}

fn check_beta_headers(headers: &[String]) -> Result<(), TermsError> {
    if headers.len() > BETA_HEADERS_MAX {
        return Err(TermsError::TooManyBetaHeaders {
            count: headers.len(),
        });
    }
    for (index, header) in headers.iter().enumerate() {
        if !is_token(header, |_| false) {
            return Err(TermsError::BetaHeader { index });
        }
        if headers.iter().take(index).any(|earlier| earlier == header) {
            return Err(TermsError::RepeatedBetaHeader { index });
        }
    }
    Ok(())
}

fn is_token(text: &str, also: impl Fn(u8) -> bool) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') || also(byte)
        })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn terms() -> Terms {
        Terms {
            model: "claude-test-1".to_owned(),
            max_requests: 8,
            max_output_tokens: 100,
            max_total_output_tokens: 250,
            beta_headers: vec!["one-2025-01-01".to_owned(), "two-2025-02-02".to_owned()],
            anthropic_version: "2023-06-01".to_owned(),
        }
    }

    #[test]
    fn good_terms_are_accepted_at_their_limits() {
        assert_eq!(terms().check(), Ok(()));
        let highest = Terms {
            model: "m".repeat(TOKEN_BYTES_MAX),
            max_requests: REQUESTS_MAX,
            max_output_tokens: OUTPUT_TOKENS_MAX,
            max_total_output_tokens: TOTAL_OUTPUT_TOKENS_MAX,
            beta_headers: (0..BETA_HEADERS_MAX).map(|n| format!("b{n}")).collect(),
            ..terms()
        };
        assert_eq!(highest.check(), Ok(()));
    }

    #[test]
    fn zero_requests_and_too_large_outputs_are_refused() {
        let none = Terms {
            max_requests: 0,
            ..terms()
        };
        assert_eq!(
            none.check().unwrap_err().to_string(),
            "`max_requests` is 0; it must be between 1 and 1000"
        );
        for bad in [
            Terms {
                max_requests: REQUESTS_MAX + 1,
                ..terms()
            },
            Terms {
                max_output_tokens: 0,
                ..terms()
            },
            Terms {
                max_output_tokens: OUTPUT_TOKENS_MAX + 1,
                ..terms()
            },
            Terms {
                max_total_output_tokens: 0,
                ..terms()
            },
            Terms {
                max_total_output_tokens: TOTAL_OUTPUT_TOKENS_MAX + 1,
                ..terms()
            },
        ] {
            assert!(matches!(bad.check(), Err(TermsError::OutOfRange { .. })));
        }
    }

    #[test]
    fn an_ill_formed_beta_header_is_refused_and_not_repeated() {
        for bad in [
            "",
            "a b",
            "a,b",
            "a\r\nx-api-key: 1",
            "sk-secret\u{e4}",
            "sk secret",
            "a:b",
            "\"q\"",
            &"x".repeat(TOKEN_BYTES_MAX + 1),
        ] {
            let terms = Terms {
                beta_headers: vec!["ok".to_owned(), bad.to_owned()],
                ..terms()
            };
            let error = terms.check().unwrap_err();
            assert_eq!(error, TermsError::BetaHeader { index: 1 }, "{bad:?}");
            assert!(!error.to_string().contains("sk-secret"));
            assert!(!format!("{error:?}").contains("sk-secret"));
        }
        let twice = Terms {
            beta_headers: vec!["a".to_owned(), "a".to_owned()],
            ..terms()
        };
        assert_eq!(
            twice.check(),
            Err(TermsError::RepeatedBetaHeader { index: 1 })
        );
        let many = Terms {
            beta_headers: (0..=BETA_HEADERS_MAX).map(|n| format!("b{n}")).collect(),
            ..terms()
        };
        assert!(matches!(
            many.check(),
            Err(TermsError::TooManyBetaHeaders { .. })
        ));
    }

    #[test]
    fn an_ill_formed_model_or_version_is_refused_and_not_repeated() {
        for bad in ["", "a b", "a\n", &"m".repeat(TOKEN_BYTES_MAX + 1)] {
            let model = Terms {
                model: bad.to_owned(),
                ..terms()
            };
            let version = Terms {
                anthropic_version: bad.to_owned(),
                ..terms()
            };
            assert!(matches!(
                model.check(),
                Err(TermsError::IllFormed { field: "model" })
            ));
            assert!(version.check().is_err());
        }
    }
}
