//! The inference channel over real sockets: one destination, the operator's key and terms, and a
//! record before and after every request.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

#[path = "protected_services/adapter.rs"]
mod adapter;
#[path = "protected_services/answers.rs"]
mod answers;
#[path = "protected_services/codings.rs"]
mod codings;
#[path = "protected_services/ends.rs"]
mod ends;
#[path = "protected_services/framing.rs"]
mod framing;
#[path = "protected_services/requests.rs"]
mod requests;
