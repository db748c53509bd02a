//! What an agent may ask of its model provider, and what of the answer it may see.
//!
//! The agent talks to a loopback adapter; the runtime holds the credential and the socket. This
//! crate is the part between the two that decides, and it does no I/O: [`parse_route`] and
//! [`Guard`] admit a request and rebuild it from its checked value, [`admit_response`] and
//! [`ResponseGuard`] let an answer through. [`scripted`] makes provider replies for tests and
//! for the demonstration.

#![forbid(unsafe_code)]

mod base_url;
mod coding;
mod grammar;
mod guard;
pub mod limits;
mod refusal;
mod response;
mod route;
pub mod scripted;
mod shape;
mod terms;

pub use base_url::{BaseUrl, BaseUrlError, Scheme};
pub use coding::Coding;
pub use guard::{Admitted, Guard};
pub use refusal::{Refusal, RefusalKind};
pub use response::{
    AdmittedResponse, FinishedResponse, ResponseGuard, ResponseRefusal, admit_response,
};
pub use route::{Route, parse_route};
pub use terms::{Terms, TermsError};
