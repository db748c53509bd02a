//! What happened, as it is kept until it is shown.

use model::Digest;
use symbi_runtime::reasoning::governed_session::{CallStep, ModelStep, Progress};
use worker::Descriptor;

/// Identity of the agent's own launch among the calls.
const LAUNCH: &str = "launch";

/// One thing that happened. Texts are not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    Call {
        call_id: String,
        tool: String,
        step: Step,
    },
    /// The agent wrote this.
    Said(Vec<u8>),
    ModelRefused {
        reason: String,
    },
    ModelAsked {
        request: u64,
        reserved: u64,
    },
    ModelAnswered {
        request: u64,
        status: u16,
        incomplete: Option<String>,
    },
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Prepared {
        call_sha256: Digest,
        argv: Vec<String>,
        spent: u64,
    },
    Held {
        held_id: String,
        expires_at: String,
    },
    Running,
    Refused {
        stage: &'static str,
        reason: String,
        spent: u64,
    },
    Ended {
        status: &'static str,
        reason: Option<String>,
        millis: u64,
        created: Vec<(String, u64)>,
    },
}

impl Note {
    pub(super) fn of(progress: &Progress<'_>) -> Self {
        match progress {
            Progress::AgentSaid(bytes) => Self::Said(bytes.to_vec()),
            Progress::Call {
                call_id,
                tool,
                step,
            } => Self::Call {
                call_id: (*call_id).to_owned(),
                tool: (*tool).to_owned(),
                step: Step::of(step),
            },
            Progress::Model(ModelStep::Refused { reason }) => Self::ModelRefused {
                reason: (*reason).to_owned(),
            },
            Progress::Model(ModelStep::Asked {
                request,
                reserved_output_tokens,
            }) => Self::ModelAsked {
                request: *request,
                reserved: *reserved_output_tokens,
            },
            Progress::Model(ModelStep::Answered {
                request,
                status,
                incomplete,
            }) => Self::ModelAnswered {
                request: *request,
                status: *status,
                incomplete: incomplete.map(str::to_owned),
            },
        }
    }
}

impl Step {
    fn of(step: &CallStep<'_>) -> Self {
        match step {
            CallStep::Prepared { call, spent } => Self::Prepared {
                call_sha256: call.call_sha256(),
                argv: match call.descriptor() {
                    Descriptor::Command(command) => command.argv.clone(),
                    Descriptor::Launch(launch) => launch.argv.clone(),
                    Descriptor::Custom { .. } => Vec::new(),
                },
                spent: *spent,
            },
            CallStep::Held(held) => Self::Held {
                held_id: held.held_id.clone(),
                expires_at: held.expires_at.clone(),
            },
            CallStep::Running => Self::Running,
            CallStep::Refused { refusal, spent } => Self::Refused {
                stage: crate::story::stage_name(refusal.stage),
                reason: refusal.reason.clone(),
                spent: *spent,
            },
            CallStep::Ended(outcome) => Self::Ended {
                status: crate::story::status_name(outcome.outcome.status()),
                reason: outcome.outcome.reason().map(str::to_owned),
                millis: u64::try_from(outcome.output.ran_for.as_millis()).unwrap_or(u64::MAX),
                created: outcome
                    .created_files
                    .iter()
                    .map(|file| (file.path.to_string(), file.bytes))
                    .collect(),
            },
        }
    }
}

/// Whether `call_id` is the agent's own launch.
pub(super) fn is_launch(call_id: &str) -> bool {
    call_id == LAUNCH
}
