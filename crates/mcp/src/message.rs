//! What a client's frame says: the JSON-RPC 2.0 envelope and the parameters of our methods.
//!
//! Read strictly: a member or parameter that we do not know is an error, never ignored, so that
//! a client cannot believe to have told us more than it did.

use model::JsonObject;
use model::json::parse_strict;
use serde_json::{Map, Value};

use crate::fault::{ErrorCode, Fault};
use crate::identity::{ProgressToken, WireId};
use crate::limits::{FRAME_BYTES_MAX, FRAME_VALUES_MAX};
use crate::revision::Revision;
use crate::stateless::{CAPABILITIES_META, REVISION_META};
use crate::text::quote;

#[derive(Debug)]
pub(crate) enum Message {
    Request(Request),
    Notification(Notification),
    /// An answer. We never ask, so nobody waits for it.
    Response,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: WireId,
    pub(crate) method: String,
    pub(crate) params: Params,
}

#[derive(Debug)]
pub(crate) struct Notification {
    pub(crate) method: String,
    pub(crate) params: Params,
}

/// A frame that is no message or may not be taken, and the id to answer where it has a valid one.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(crate) id: Option<WireId>,
    pub(crate) fault: Fault,
}

impl Message {
    /// Reads a frame that has `values` JSON values at most.
    pub(crate) fn parse(frame: &[u8], values: usize) -> Result<Self, Invalid> {
        let nameless = |fault| Invalid { id: None, fault };
        if values > FRAME_VALUES_MAX {
            let message = format!("the frame has more than the {FRAME_VALUES_MAX} values allowed");
            return Err(nameless(Fault::request(&message)));
        }
        let value = parse_strict(frame, FRAME_BYTES_MAX)
            .map_err(|error| nameless(Fault::new(ErrorCode::Parse, &error.to_string())))?;
        let mut members = match value {
            Value::Object(members) => members,
            Value::Array(_) => {
                return Err(nameless(Fault::request("batches are not supported")));
            }
            _ => return Err(nameless(Fault::request("the frame is not an object"))),
        };
        let is_answer = !members.contains_key("method")
            && (members.contains_key("result") || members.contains_key("error"));
        if is_answer {
            return Ok(Self::Response);
        }
        let id = match members.remove("id") {
            None => None,
            Some(value) => Some(
                WireId::from_value(&value)
                    .map_err(|error| nameless(Fault::request(&format!("`id` {error}"))))?,
            ),
        };
        match (envelope(members), id) {
            (Ok((method, params)), Some(id)) => match Params::from_value(params) {
                Ok(params) => Ok(Self::Request(Request { id, method, params })),
                Err(fault) => Err(Invalid {
                    id: Some(id),
                    fault,
                }),
            },
            (Ok((method, params)), None) => Ok(Self::Notification(Notification {
                method,
                params: Params::from_value(params).unwrap_or_default(),
            })),
            (Err(fault), id) => Err(Invalid { id, fault }),
        }
    }
}

/// The method and the parameters out of an envelope whose id is already taken.
fn envelope(members: Map<String, Value>) -> Result<(String, Option<Value>), Fault> {
    let (mut version, mut method, mut params) = (None, None, None);
    for (key, value) in members {
        match key.as_str() {
            "jsonrpc" => version = Some(value),
            "method" => method = Some(value),
            "params" => params = Some(value),
            _ => {
                let message = format!("{} is not a member of a request", quote(&key));
                return Err(Fault::request(&message));
            }
        }
    }
    if version != Some(Value::String("2.0".to_owned())) {
        return Err(Fault::request("`jsonrpc` must be \"2.0\""));
    }
    match method {
        Some(Value::String(method)) => Ok((method, params)),
        _ => Err(Fault::request("`method` must be a string")),
    }
}

/// A message's parameters, by name. Absent ones are none.
#[derive(Debug, Default)]
pub(crate) struct Params(Map<String, Value>);

impl Params {
    fn from_value(value: Option<Value>) -> Result<Self, Fault> {
        match value {
            None => Ok(Self::default()),
            Some(Value::Object(map)) => Ok(Self(map)),
            Some(_) => Err(Fault::params("`params` must be an object")),
        }
    }

    /// `initialize`: what else a client tells of itself decides nothing.
    pub(crate) fn into_initialize(self) -> Result<Revision, Fault> {
        for (key, value) in &self.0 {
            let known = matches!(key.as_str(), "capabilities" | "clientInfo");
            if known && !value.is_object() {
                return Err(Fault::params(&format!("`{key}` must be an object")));
            }
        }
        match self.0.get("protocolVersion") {
            Some(Value::String(asked)) => Ok(Revision::negotiate(asked)),
            _ => Err(Fault::params("`protocolVersion` must be a string")),
        }
    }

    /// Whether the request is one of the era in which each names its revision.
    pub(crate) fn names_revision(&self) -> bool {
        self.meta(REVISION_META).is_some() || self.meta(CAPABILITIES_META).is_some()
    }

    /// A member of `_meta`.
    pub(crate) fn meta(&self, name: &str) -> Option<&Value> {
        self.0.get("_meta")?.as_object()?.get(name)
    }

    /// The revision that an `initialize` asks for.
    pub(crate) fn protocol_version(&self) -> Option<&str> {
        self.0.get("protocolVersion")?.as_str()
    }

    /// `server/discover`: it has nothing of its own.
    pub(crate) fn into_discover(self) -> Result<(), Fault> {
        let own = self.0.into_iter().find(|(key, _)| key != "_meta");
        own.map_or(Ok(()), |(key, _)| Err(unknown(&key)))
    }

    /// `tools/list`: one page holds all, so no cursor was ever given out.
    pub(crate) fn into_list(self) -> Result<(), Fault> {
        for (key, value) in self.0 {
            match key.as_str() {
                "_meta" => drop(object("_meta", value)?),
                "cursor" => return Err(Fault::params("no such `cursor`: the list has one page")),
                _ => return Err(unknown(&key)),
            }
        }
        Ok(())
    }

    pub(crate) fn into_call(self) -> Result<CallParams, Fault> {
        let (mut name, mut arguments, mut meta) = (None, Map::new(), Map::new());
        for (key, value) in self.0 {
            match key.as_str() {
                "name" => name = Some(value),
                "arguments" => arguments = object("arguments", value)?,
                "_meta" => meta = object("_meta", value)?,
                _ => return Err(unknown(&key)),
            }
        }
        let Some(Value::String(name)) = name else {
            return Err(Fault::params("`name` must be a string"));
        };
        let progress_token = match meta.get("progressToken") {
            None => None,
            Some(value) => Some(
                ProgressToken::from_value(value)
                    .map_err(|error| Fault::params(&format!("`_meta.progressToken` {error}")))?,
            ),
        };
        Ok(CallParams {
            name,
            arguments: JsonObject::from_map(arguments),
            progress_token,
        })
    }

    /// `notifications/cancelled`: the request meant, where one is named.
    pub(crate) fn cancelled_request(&self) -> Option<WireId> {
        let value = self.0.get("requestId")?;
        WireId::from_value(value).ok()
    }
}

/// The parameters of `tools/call`. `_meta` may hold anything; only the progress token is read.
#[derive(Debug)]
pub(crate) struct CallParams {
    pub(crate) name: String,
    pub(crate) arguments: JsonObject,
    pub(crate) progress_token: Option<ProgressToken>,
}

fn object(key: &str, value: Value) -> Result<Map<String, Value>, Fault> {
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(Fault::params(&format!("`{key}` must be an object"))),
    }
}

fn unknown(key: &str) -> Fault {
    Fault::params(&format!("there is no parameter {}", quote(key)))
}
