//! The rules of a session: bounds, single-use identities, budget, and how it ends.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::Duration;

use journal::Stage;
use model::{CallId, Digest, RunId, ToolName};

use crate::executor::ToolDefinition;
use crate::limits::{
    CALLS_DEFAULT, CALLS_MAX, HOLDS_PER_HOUR_DEFAULT, LIFETIME_DEFAULT, LIFETIME_MAX,
    TOOL_SET_BYTES_MAX, TOOLS_MAX,
};
use crate::proposal::{BrokerToolCall, ProposedCall};
use crate::refusal::{Refusal, RefusalKind};

/// Who the session acts for. Set by the trusted owner; a client cannot change a letter of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopState {
    pub run: RunId,
    /// The `NAME` of `Agent::"NAME"`.
    pub principal: String,
    /// Facts that policy may rely on.
    pub trusted: BTreeMap<String, String>,
}

/// The bounds of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopConfig {
    pub max_calls: u64,
    pub lifetime: Duration,
    /// Upper bound of every tool's own time limit.
    pub tool_time_limit: Duration,
    /// How long a held call waits for a person.
    pub approval_timeout: Duration,
    /// How many calls of one tool are held for a person in an hour.
    pub holds_per_hour: u64,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            max_calls: CALLS_DEFAULT,
            lifetime: LIFETIME_DEFAULT,
            tool_time_limit: Duration::from_secs(600),
            approval_timeout: Duration::from_secs(300),
            holds_per_hour: HOLDS_PER_HOUR_DEFAULT,
        }
    }
}

/// Why a session does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartRefusal {
    Calls { asked: u64, max: u64 },
    Lifetime { asked: Duration, max: Duration },
    ToolTime { asked: Duration, max: Duration },
    ApprovalTime { asked: Duration, max: Duration },
    NoTools,
    TooManyTools { count: usize, max: usize },
    DuplicateTool { name: String },
    ToolSetTooLarge { bytes: usize, max: usize },
    Principal { reason: String },
}

impl fmt::Display for StartRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calls { asked, max } => {
                write!(f, "a session takes 1 to {max} calls, not {asked}")
            }
            Self::Lifetime { asked, max } => write!(
                f,
                "a session lives up to {} s, and longer than zero, not {} s",
                max.as_secs(),
                asked.as_secs_f64()
            ),
            Self::ToolTime { asked, max } => write!(
                f,
                "the tools' time limit is up to {} s, and longer than zero, not {} s",
                max.as_secs(),
                asked.as_secs_f64()
            ),
            Self::ApprovalTime { asked, max } => write!(
                f,
                "the approval timeout is up to {} s, and longer than zero, not {} s",
                max.as_secs(),
                asked.as_secs_f64()
            ),
            Self::NoTools => f.write_str("the session has no tools"),
            Self::TooManyTools { count, max } => {
                write!(
                    f,
                    "the session has {count} tools, more than the {max} allowed"
                )
            }
            Self::DuplicateTool { name } => write!(f, "two tools are named `{name}`"),
            Self::ToolSetTooLarge { bytes, max } => write!(
                f,
                "the tool definitions have {bytes} bytes in all, more than the {max} allowed"
            ),
            Self::Principal { reason } => write!(f, "the principal is not valid: {reason}"),
        }
    }
}

impl std::error::Error for StartRefusal {}

/// Why a session ended other than completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndCause {
    /// One call more than the budget came.
    Budget {
        max_calls: u64,
    },
    Deadline {
        lifetime: Duration,
    },
    Cancelled,
    /// The owner closed it while a call was held or ran.
    ClosedWithCall,
    /// The owner dropped a call after its dispatch.
    AbandonedCall {
        call_id: String,
    },
    RegistryChanged,
    Journal {
        reason: String,
    },
    Unconfirmed {
        call_id: String,
        reason: String,
    },
    /// A violation of the transport's bounds.
    Transport {
        reason: String,
    },
    /// The inference channel failed in a way that leaves its outcome open.
    Inference {
        reason: String,
    },
    /// It completed, and was closed before.
    Closed,
    /// The session's own thread ended without a terminal record.
    Lost,
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget { max_calls } => {
                write!(f, "the budget of {max_calls} calls is spent")
            }
            Self::Deadline { lifetime } => {
                write!(
                    f,
                    "the session's deadline of {} s has passed",
                    lifetime.as_secs_f64()
                )
            }
            Self::Cancelled => f.write_str("cancelled by the owner"),
            Self::ClosedWithCall => f.write_str("closed by the owner while a call was under way"),
            Self::AbandonedCall { call_id } => {
                write!(f, "the owner abandoned call `{call_id}` after its dispatch")
            }
            Self::RegistryChanged => f.write_str("the tool registry changed during the session"),
            Self::Journal { reason } => write!(f, "the journal failed: {reason}"),
            Self::Unconfirmed { call_id, reason } => {
                write!(f, "the outcome of call `{call_id}` is not known: {reason}")
            }
            Self::Transport { reason } => write!(f, "transport: {reason}"),
            Self::Inference { reason } => write!(f, "inference: {reason}"),
            Self::Closed => f.write_str("the session is closed"),
            Self::Lost => f.write_str("the session is gone"),
        }
    }
}

impl std::error::Error for EndCause {}

/// What became of a call at the door.
#[derive(Debug)]
pub enum Admission {
    Admitted(ProposedCall),
    Refused(Box<Refusal>),
    /// Over the budget: the session ends.
    OverBudget,
}

/// The session's memory, free of I/O and clocks.
#[derive(Debug)]
pub struct SessionRules {
    max_calls: u64,
    spent: u64,
    used: HashSet<CallId>,
    tools: Vec<ToolDefinition>,
    tool_set: Digest,
    launched: bool,
    cause: Option<EndCause>,
}

impl SessionRules {
    /// Checks the bounds and the registry.
    ///
    /// # Errors
    /// [`StartRefusal`] says which bound is broken.
    pub fn new(
        state: &LoopState,
        config: &LoopConfig,
        tools: &[ToolDefinition],
    ) -> Result<Self, StartRefusal> {
        if config.max_calls == 0 || config.max_calls > CALLS_MAX {
            return Err(StartRefusal::Calls {
                asked: config.max_calls,
                max: CALLS_MAX,
            });
        }
        if config.lifetime.is_zero() || config.lifetime > LIFETIME_MAX {
            return Err(StartRefusal::Lifetime {
                asked: config.lifetime,
                max: LIFETIME_MAX,
            });
        }
        let outside = |time: Duration| time.is_zero() || time > LIFETIME_MAX;
        let max = LIFETIME_MAX;
        if outside(config.tool_time_limit) {
            let asked = config.tool_time_limit;
            return Err(StartRefusal::ToolTime { asked, max });
        }
        if outside(config.approval_timeout) {
            let asked = config.approval_timeout;
            return Err(StartRefusal::ApprovalTime { asked, max });
        }
        model::AgentName::new(state.principal.as_str()).map_err(|error| {
            StartRefusal::Principal {
                reason: error.to_string(),
            }
        })?;
        Ok(Self {
            max_calls: config.max_calls,
            spent: 0,
            used: HashSet::new(),
            tool_set: tool_set_digest(tools)?,
            tools: tools.to_vec(),
            launched: false,
            cause: None,
        })
    }

    /// Digest of the advertised tools.
    #[must_use]
    pub const fn tool_set(&self) -> Digest {
        self.tool_set
    }

    /// Calls that reached the session.
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// Takes a client's call. Whatever becomes of it, it spends one attempt and its identity.
    #[must_use]
    pub fn admit(&mut self, call: BrokerToolCall) -> Admission {
        if self.spent >= self.max_calls {
            self.end(EndCause::Budget {
                max_calls: self.max_calls,
            });
            return Admission::OverBudget;
        }
        self.spent += 1;
        let proposed = match ProposedCall::parse(call) {
            Ok(proposed) => proposed,
            Err(refusal) => {
                self.used.insert(refusal.call_id.clone());
                return Admission::Refused(Box::new(refusal));
            }
        };
        if !self.used.insert(proposed.id().clone()) {
            let reason = "the call id was used before; every identity is single-use, no reuse";
            return Admission::Refused(Box::new(Refusal::new(
                proposed.id(),
                proposed.tool(),
                Stage::Parse,
                RefusalKind::Invalid,
                reason,
            )));
        }
        match self.objection(&proposed) {
            Some(refusal) => Admission::Refused(Box::new(refusal)),
            None => Admission::Admitted(proposed),
        }
    }

    /// What the session as a whole has against a well-formed call.
    fn objection(&self, call: &ProposedCall) -> Option<Refusal> {
        let refuse = |reason: &str| {
            let kind = RefusalKind::Invalid;
            Refusal::new(call.id(), call.tool(), Stage::Prepare, kind, reason)
        };
        if let Some(cause) = &self.cause {
            return Some(refuse(&format!("the session has ended: {cause}")));
        }
        let known = self.tools.iter().map(|tool| tool.name.as_str());
        if known.clone().any(|name| name == call.tool()) {
            return None;
        }
        let known = known.collect::<Vec<_>>().join(", ");
        let advice = format!("the tools of this session are: {known}");
        Some(refuse("there is no such tool").advice(advice))
    }

    /// Takes the owner's launch: once, and before any tool call.
    ///
    /// # Errors
    /// A [`Refusal`] for a second launch, or one after a call.
    pub fn admit_launch(&mut self, executor: &str) -> Result<ProposedCall, Refusal> {
        let id = launch_id();
        let refuse =
            |reason: &str| Refusal::new(&id, executor, Stage::Parse, RefusalKind::Invalid, reason);
        if let Some(cause) = &self.cause {
            return Err(refuse(&format!("the session has ended: {cause}")));
        }
        if self.launched {
            return Err(refuse("the session has launched its agent already"));
        }
        if self.spent > 0 {
            return Err(refuse(
                "the agent is launched before any tool call, not after",
            ));
        }
        let name = ToolName::new(executor).map_err(|error| refuse(&error.to_string()))?;
        self.launched = true;
        self.used.insert(id.clone());
        Ok(ProposedCall::launch(name, id))
    }

    /// Compares the registry with the one that the session started with.
    ///
    /// # Errors
    /// [`EndCause::RegistryChanged`], which also ends the session.
    pub fn check_registry(&mut self, tools: &[ToolDefinition]) -> Result<(), EndCause> {
        if tools == self.tools {
            return Ok(());
        }
        self.end(EndCause::RegistryChanged);
        Err(EndCause::RegistryChanged)
    }

    /// Ends the session. The first cause stays: it is the most specific one.
    pub fn end(&mut self, cause: EndCause) {
        self.cause.get_or_insert(cause);
    }

    /// Why it ended, if it did other than by a clean close.
    #[must_use]
    pub const fn cause(&self) -> Option<&EndCause> {
        self.cause.as_ref()
    }
}

/// The launch's own identity. No client can send it: a wire identity has a connection's number.
fn launch_id() -> CallId {
    CallId::new("launch").unwrap_or_else(|_| CallId::of_unusable("launch"))
}

/// Digest of the advertised tools, as the run's first record and a launch name it.
///
/// # Errors
/// [`StartRefusal`] where no session can advertise them: none, too many, too large, or a name
/// twice.
pub fn tool_set_digest(tools: &[ToolDefinition]) -> Result<Digest, StartRefusal> {
    if tools.is_empty() {
        return Err(StartRefusal::NoTools);
    }
    if tools.len() > TOOLS_MAX {
        return Err(StartRefusal::TooManyTools {
            count: tools.len(),
            max: TOOLS_MAX,
        });
    }
    let mut names = HashSet::new();
    for tool in tools {
        if !names.insert(&tool.name) {
            return Err(StartRefusal::DuplicateTool {
                name: tool.name.to_string(),
            });
        }
    }
    let text = model::Canonical::of(&tools).map_err(|_| StartRefusal::ToolSetTooLarge {
        bytes: usize::MAX,
        max: TOOL_SET_BYTES_MAX,
    })?;
    if text.as_str().len() > TOOL_SET_BYTES_MAX {
        let bytes = text.as_str().len();
        return Err(StartRefusal::ToolSetTooLarge {
            bytes,
            max: TOOL_SET_BYTES_MAX,
        });
    }
    Ok(text.digest())
}
