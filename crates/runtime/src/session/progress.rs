//! What happens in a session, told while it happens: for the eyes of its owner. The journal is the
//! evidence; this is not.

use std::fmt;
use std::sync::Arc;

use governance::{PreparedCall, RecordedOutcome, Refusal};
use model::CallId;

use crate::session::desk::HeldCall;

/// Is told what happens, on the thread on which it happens: it must not block.
pub trait RunObserver: Send + Sync {
    /// What is in `progress` may come from the agent: it is not escaped.
    fn see(&self, progress: &Progress<'_>);
}

/// One thing that happened.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A call, or the launch, came to its next step.
    Call {
        call_id: &'a str,
        tool: &'a str,
        step: CallStep<'a>,
    },
    /// The next bytes of the agent's standard output.
    AgentSaid(&'a [u8]),
    /// A request of the agent to its model came to its next step.
    Model(ModelStep<'a>),
}

/// How far a call is.
#[derive(Debug)]
pub enum CallStep<'a> {
    /// Its whole effect is frozen.
    Prepared {
        call: &'a PreparedCall,
        /// Attempts that the session has used up.
        spent: u64,
    },
    /// It waits for a person.
    Held(&'a HeldCall),
    /// Its worker runs.
    Running,
    /// It ended before any effect.
    Refused { refusal: &'a Refusal, spent: u64 },
    /// It ended, and its outcome is recorded.
    Ended(&'a RecordedOutcome),
}

/// How far a request to the model is.
#[derive(Debug)]
pub enum ModelStep<'a> {
    /// It was not let through.
    Refused { reason: &'a str },
    /// It is recorded and goes out.
    Asked {
        request: u64,
        reserved_output_tokens: u64,
    },
    /// The answer came to its end; or, with a reason, did not.
    Answered {
        request: u64,
        status: u16,
        incomplete: Option<&'a str>,
    },
}

/// Who is told, if anybody is.
#[derive(Clone, Default)]
pub(crate) struct Observed(Option<Arc<dyn RunObserver>>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.0.is_some()).finish()
    }
}

impl Observed {
    pub(crate) const fn new(observer: Option<Arc<dyn RunObserver>>) -> Self {
        Self(observer)
    }

    pub(crate) fn tell(&self, progress: &Progress<'_>) {
        if let Some(observer) = &self.0 {
            observer.see(progress);
        }
    }

    pub(crate) fn model(&self, step: ModelStep<'_>) {
        self.tell(&Progress::Model(step));
    }

    pub(crate) fn call(&self, id: &CallId, tool: &str, step: CallStep<'_>) {
        self.tell(&Progress::Call {
            call_id: id.as_str(),
            tool,
            step,
        });
    }
}
