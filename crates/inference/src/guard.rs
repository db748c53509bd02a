//! Admits requests of one run: checks each, charges it, and rebuilds what will be sent.
//!
//! Nothing of the client's bytes goes on: the body is written again from the checked value, the
//! headers are the operator's. A charge is made when a request is admitted and is never
//! returned, whatever becomes of it.

use model::json::{JsonError, parse_object};
use serde_json::Value;

use crate::grammar::{COUNT_TOKENS, MESSAGES};
use crate::limits::{REQUEST_BYTES_MAX, REQUEST_HEADER_BYTES_MAX, REQUEST_HEADERS_MAX};
use crate::refusal::{Refusal, quoted};
use crate::route::Route;
use crate::shape::{Fault, check};
use crate::terms::{Terms, TermsError};

/// The accounts of one run.
#[derive(Debug)]
pub struct Guard {
    terms: Terms,
    requests: u64,
    reserved_output_tokens: u64,
}

/// A request that may be sent, charged to the run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Admitted {
    /// From 1, unique in the run.
    pub number: u64,
    pub route: Route,
    /// Path and query, below the provider's base URL.
    pub path: String,
    /// Lower-case names; all that is sent besides `host`, `content-length` and the credential.
    pub headers: Vec<(String, String)>,
    /// Compact JSON with sorted keys; empty for `HEAD`.
    pub body: Vec<u8>,
    /// The client asked for an event stream.
    pub streaming: bool,
    pub reserved_output_tokens: u64,
}

impl Guard {
    /// Opens the accounts.
    ///
    /// # Errors
    /// [`TermsError`] where the terms cannot be used.
    pub fn new(terms: Terms) -> Result<Self, TermsError> {
        terms.check()?;
        Ok(Self {
            terms,
            requests: 0,
            reserved_output_tokens: 0,
        })
    }

    #[must_use]
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Requests admitted so far.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Output tokens reserved so far.
    #[must_use]
    pub const fn reserved_output_tokens(&self) -> u64 {
        self.reserved_output_tokens
    }

    /// Checks one request and charges it. A refused request is not charged: nothing is sent.
    ///
    /// # Errors
    /// A 400 that names the field, or a 403 where the run's budget is spent.
    pub fn admit(
        &mut self,
        route: Route,
        headers: &[(String, Vec<u8>)],
        body: &[u8],
    ) -> Result<Admitted, Refusal> {
        check_headers(headers)?;
        let request = self.check_body(route, body)?;
        self.charge(request.max_tokens)?;
        Ok(Admitted {
            number: self.requests,
            route,
            path: route.path().to_owned(),
            headers: self.headers(route, request.streaming),
            body: request.body,
            streaming: request.streaming,
            reserved_output_tokens: request.max_tokens,
        })
    }

    fn check_body(&self, route: Route, body: &[u8]) -> Result<Request, Refusal> {
        let shape = match route {
            Route::Head if body.is_empty() => return Ok(Request::default()),
            Route::Head => return Err(Refusal::request("a HEAD request has no body")),
            Route::Messages { .. } => &MESSAGES,
            Route::CountTokens { .. } => &COUNT_TOKENS,
        };
        let object = parse_object(body, REQUEST_BYTES_MAX).map_err(|error| refuse_json(&error))?;
        let value = Value::Object(object.into_map());
        check(&value, shape).map_err(|fault| refuse_shape(&fault))?;
        self.check_terms(&value)?;
        Ok(Request {
            max_tokens: count(&value, "/max_tokens"),
            streaming: value.get("stream").and_then(Value::as_bool) == Some(true),
            body: rebuild(value)?,
        })
    }

    fn check_terms(&self, value: &Value) -> Result<(), Refusal> {
        let model = value.get("model").and_then(Value::as_str).unwrap_or("");
        if model != self.terms.model {
            return Err(Refusal::request(&format!(
                "`model` is {}; this run may use only {}",
                quoted(model),
                quoted(&self.terms.model)
            )));
        }
        for (field, place) in [
            ("max_tokens", "/max_tokens"),
            ("thinking.budget_tokens", "/thinking/budget_tokens"),
        ] {
            let wanted = count(value, place);
            if wanted > self.terms.max_output_tokens {
                return Err(Refusal::request(&format!(
                    "`{field}` is {wanted}; this run allows at most {} a request",
                    self.terms.max_output_tokens
                )));
            }
        }
        Ok(())
    }

    fn charge(&mut self, max_tokens: u64) -> Result<(), Refusal> {
        if self.requests >= self.terms.max_requests {
            return Err(Refusal::permission(&format!(
                "this run may send {} requests to its provider, and has sent them",
                self.terms.max_requests
            )));
        }
        let reserved = self.reserved_output_tokens.saturating_add(max_tokens);
        if reserved > self.terms.max_total_output_tokens {
            return Err(Refusal::permission(&format!(
                "`max_tokens` is {max_tokens}, but of the {} output tokens of this run {} are \
                 already reserved",
                self.terms.max_total_output_tokens, self.reserved_output_tokens
            )));
        }
        self.requests += 1;
        self.reserved_output_tokens = reserved;
        Ok(())
    }

    fn headers(&self, route: Route, streaming: bool) -> Vec<(String, String)> {
        let accept = if streaming {
            "text/event-stream"
        } else {
            "application/json"
        };
        let mut headers = vec![
            ("accept", accept.to_owned()),
            ("accept-encoding", "identity".to_owned()),
            ("anthropic-version", self.terms.anthropic_version.clone()),
        ];
        if !self.terms.beta_headers.is_empty() {
            headers.push(("anthropic-beta", self.terms.beta_headers.join(",")));
        }
        if route != Route::Head {
            headers.push(("content-type", "application/json".to_owned()));
        }
        headers.push((
            "user-agent",
            concat!("symbi/", env!("CARGO_PKG_VERSION")).to_owned(),
        ));
        headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// What the checked body says.
#[derive(Debug, Default)]
struct Request {
    max_tokens: u64,
    streaming: bool,
    body: Vec<u8>,
}

/// The client's headers are never sent; they may only not contradict how we read the body.
fn check_headers(headers: &[(String, Vec<u8>)]) -> Result<(), Refusal> {
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.len().saturating_add(value.len()))
        .fold(0, usize::saturating_add);
    if headers.len() > REQUEST_HEADERS_MAX || bytes > REQUEST_HEADER_BYTES_MAX {
        return Err(Refusal::request(&format!(
            "the request has {} headers of {bytes} bytes; at most {REQUEST_HEADERS_MAX} of \
             {REQUEST_HEADER_BYTES_MAX} bytes are accepted",
            headers.len()
        )));
    }
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value).trim().to_ascii_lowercase();
        let good = match name.to_ascii_lowercase().as_str() {
            "content-encoding" => value == "identity",
            "content-type" => value.split(';').next().map(str::trim) == Some("application/json"),
            _ => true,
        };
        if !good {
            return Err(Refusal::request(&format!(
                "the header {} is {}, which is not accepted: send plain `application/json`",
                quoted(name),
                quoted(&value)
            )));
        }
    }
    Ok(())
}

fn count(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn refuse_json(error: &JsonError) -> Refusal {
    Refusal::request(&format!("the request body is refused: {error}"))
}

fn refuse_shape(fault: &Fault) -> Refusal {
    Refusal::request(&fault.message())
}

/// One text for one value: sorted keys, no white space. Unlike RFC 8785 it keeps integers
/// beyond 2^53 exact, since a tool's input may hold such a number.
fn rebuild(mut value: Value) -> Result<Vec<u8>, Refusal> {
    value.sort_all_objects();
    serde_json::to_vec(&value)
        .map_err(|_| Refusal::request("the request body cannot be written again"))
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
