//! From what a client asked to work that an executor has frozen.

use std::collections::BTreeMap;
use std::time::Duration;

use filegrants::{OutputTarget, StagingCharge};
use journal::Stage;
use model::json::CanonicalError;
use model::limits::{CALL_BYTES_MAX, JSON_DEPTH_MAX};
use model::{CallId, Canonical, JsonObject, ToolName, Untrusted};
use serde::Deserialize;
use worker::{Descriptor, WorkerHoldings};

use crate::call::PreparedCall;
use crate::refusal::{Refusal, RefusalKind};
use crate::result::ResultTerms;

/// Most characters of an unusable tool name that a refusal repeats.
const SHOWN_CHARS_MAX: usize = 128;

/// A call as an untrusted client sends it. Nothing else can be said in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerToolCall {
    pub call_id: String,
    pub name: String,
    /// Must be an object.
    pub arguments: serde_json::Value,
}

/// A call with a valid identity, name and shape.
#[derive(Debug)]
pub struct ProposedCall {
    id: CallId,
    tool: ToolName,
    arguments: JsonObject,
    launch: bool,
}

impl ProposedCall {
    /// Checks the shape: identity, name, object-valued arguments, at most
    /// [`CALL_BYTES_MAX`] in all.
    ///
    /// # Errors
    /// A [`Refusal`] at stage `parse`.
    pub fn parse(call: BrokerToolCall) -> Result<Self, Refusal> {
        let escaped = Untrusted::new(call.name.as_str()).escaped();
        let shown: String = escaped.chars().take(SHOWN_CHARS_MAX).collect();
        let refused = |id: &CallId, reason: &str| {
            Refusal::new(id, &shown, Stage::Parse, RefusalKind::Invalid, reason)
        };
        let id = CallId::new(call.call_id.as_str())
            .map_err(|error| refused(&CallId::of_unusable(&call.call_id), &error.to_string()))?;
        let refuse = |reason: &str| refused(&id, reason);
        let tool = ToolName::new(call.name).map_err(|error| refuse(&error.to_string()))?;
        let serde_json::Value::Object(arguments) = call.arguments else {
            return Err(refuse("`arguments` is not an object"));
        };
        if !arguments
            .values()
            .all(|value| is_shallow(value, JSON_DEPTH_MAX - 1))
        {
            return Err(refuse(&format!(
                "`arguments` is nested deeper than {JSON_DEPTH_MAX} levels"
            )));
        }
        let arguments = JsonObject::from_map(arguments);
        let bytes = serde_json::to_vec(&arguments).map_or(usize::MAX, |text| text.len());
        let bytes = bytes.saturating_add(id.as_str().len() + tool.as_str().len());
        if bytes > CALL_BYTES_MAX {
            return Err(refuse(&format!(
                "the call has {bytes} bytes, more than the {CALL_BYTES_MAX} allowed"
            )));
        }
        Ok(Self {
            id,
            tool,
            arguments,
            launch: false,
        })
    }

    /// The launch of the contained agent: proposed by the trusted owner, never by a client.
    pub(crate) fn launch(executor: ToolName, id: CallId) -> Self {
        Self {
            id,
            tool: executor,
            arguments: JsonObject::default(),
            launch: true,
        }
    }

    #[must_use]
    pub const fn id(&self) -> &CallId {
        &self.id
    }

    #[must_use]
    pub fn tool(&self) -> &str {
        self.tool.as_str()
    }

    #[must_use]
    pub const fn arguments(&self) -> &JsonObject {
        &self.arguments
    }

    /// Whether the owner proposes its agent's launch. A client cannot make such a call.
    #[must_use]
    pub const fn is_launch(&self) -> bool {
        self.launch
    }

    /// Refuses at stage `prepare`.
    #[must_use]
    pub fn refuse(self, kind: RefusalKind, reason: &str) -> Refusal {
        Refusal::new(&self.id, self.tool.as_str(), Stage::Prepare, kind, reason)
    }

    /// Freezes what will run.
    ///
    /// # Errors
    /// A [`Refusal`] where the descriptor has no canonical form, or is not this call's.
    pub fn prepared(self, work: PreparedWork) -> Result<PreparedCall, Refusal> {
        if let Some(fault) = self.misfit(&work) {
            return Err(self.refuse(RefusalKind::Invalid, fault));
        }
        let canonical = match work.descriptor.canonical() {
            Ok(canonical) => canonical,
            Err(CanonicalError { .. }) => {
                return Err(self.refuse(RefusalKind::Invalid, "the call has no canonical form"));
            }
        };
        let call_sha256 = canonical.digest();
        Ok(PreparedCall {
            id: self.id,
            tool: self.tool,
            canonical,
            call_sha256,
            work,
        })
    }

    /// Why `work` cannot be this call's: what is approved and recorded would not be what runs.
    fn misfit(&self, work: &PreparedWork) -> Option<&'static str> {
        match &work.descriptor {
            Descriptor::Command(command) if self.launch || command.tool != self.tool => {
                return Some("the executor prepared another tool than the one that was called");
            }
            Descriptor::Launch(_) if !self.launch => {
                return Some("the executor prepared a launch, which only the owner may propose");
            }
            Descriptor::Custom { value, .. } if !is_readable(value) => {
                return Some("the prepared work is nested too deep for a record");
            }
            Descriptor::Command(_) | Descriptor::Launch(_) | Descriptor::Custom { .. } => {}
        }
        let boundary = work.descriptor.boundary();
        let mut creates = boundary.iter().flat_map(|it| it.filesystem.create.values());
        let fits = match (creates.next(), &work.target) {
            (None, None) => true,
            (Some(grant), Some(target)) => {
                grant.path == *target.path() && grant.parent == target.parent()
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        (!fits || creates.next().is_some())
            .then_some("the executor holds another new file than the descriptor names")
    }
}

/// Whether `value` nests at most `levels` deep.
fn is_shallow(value: &serde_json::Value, levels: usize) -> bool {
    let below = levels.checked_sub(1);
    match value {
        serde_json::Value::Array(items) => {
            below.is_some_and(|below| items.iter().all(|item| is_shallow(item, below)))
        }
        serde_json::Value::Object(map) => {
            below.is_some_and(|below| map.values().all(|item| is_shallow(item, below)))
        }
        _ => true,
    }
}

/// Whether `value`, one level down in its descriptor, can be read back from a record.
fn is_readable(value: &Canonical) -> bool {
    model::json::parse_strict(value.as_str().as_bytes(), usize::MAX)
        .is_ok_and(|value| is_shallow(&value, JSON_DEPTH_MAX - 1))
}

/// What an executor's preparation yields.
#[derive(Debug)]
pub struct PreparedWork {
    pub descriptor: Descriptor,
    pub holdings: WorkerHoldings,
    /// Where the worker's new file goes.
    pub target: Option<OutputTarget>,
    /// Staging space of its files.
    pub charge: Option<StagingCharge>,
    pub needs_approval: bool,
    /// `None` for a launch, which lives as long as its run.
    pub time_limit: Option<Duration>,
    /// Remarks for the caller: values that were clamped.
    pub notes: BTreeMap<String, String>,
    pub result: ResultTerms,
}
