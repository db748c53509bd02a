//! The era without a handshake: revision 2026-07-28. Every request names its revision and what
//! its client can do, and nothing is remembered of the one before.

use serde_json::Value;

use crate::era::Asked;
use crate::fault::Fault;
use crate::message::Params;
use crate::revision::Revision;

/// The member of a request's `_meta` that names its revision.
pub(crate) const REVISION_META: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of a request's `_meta` that says what its client can do.
pub(crate) const CAPABILITIES_META: &str = "io.modelcontextprotocol/clientCapabilities";
/// The member of a request's `_meta` that says what its client is.
const CLIENT_META: &str = "io.modelcontextprotocol/clientInfo";

pub(crate) fn request(method: &str, params: Params) -> Result<Asked, Fault> {
    check_meta(&params)?;
    match method {
        "server/discover" => params.into_discover().map(|()| Asked::Discover),
        "tools/list" => params.into_list().map(|()| Asked::List),
        "tools/call" => params.into_call().map(Asked::Call),
        other => Err(Fault::no_method(other)),
    }
}

/// Answers `initialize` on a connection of this era.
pub(crate) fn no_initialize(params: &Params) -> Fault {
    let asked = params.protocol_version().unwrap_or_default();
    Fault::revision(
        asked,
        "this connection speaks 2026-07-28, which has no `initialize`: connect again to use it",
        &[Revision::V2026_07_28],
    )
}

fn check_meta(params: &Params) -> Result<(), Fault> {
    let meta = |name: &str| params.meta(name);
    let missing = |name| Fault::params(&format!("`_meta` must have `{name}`"));
    let asked = match meta(REVISION_META) {
        Some(Value::String(asked)) => asked,
        Some(_) => {
            let message = format!("`{REVISION_META}` must be a string");
            return Err(Fault::params(&message));
        }
        None => return Err(missing(REVISION_META)),
    };
    if meta(CAPABILITIES_META).is_none() {
        return Err(missing(CAPABILITIES_META));
    }
    for name in [CAPABILITIES_META, CLIENT_META] {
        if meta(name).is_some_and(|value| !value.is_object()) {
            return Err(Fault::params(&format!("`{name}` must be an object")));
        }
    }
    if asked != Revision::V2026_07_28.as_str() {
        let message = "a request in this form is served in 2026-07-28 alone; the other revisions \
                       begin with `initialize`";
        return Err(Fault::revision(asked, message, &Revision::newest_first()));
    }
    Ok(())
}
