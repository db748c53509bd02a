//! A provider request between its two records.

use std::convert::Infallible;

use inference::{Refusal, RefusalKind};
use journal::{InferenceCompleted, InferenceRequested, Journal, JournalError};
use model::Digest;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli_executor::limits::PROVIDER_WIND_UP_MAX;
use crate::session::{ModelStep, Observed};

/// Held by each request until its completion is recorded.
#[derive(Debug, Clone)]
pub(crate) struct UnderWay(#[expect(dead_code, reason = "its drop is the sign")] Sign);

type Sign = mpsc::Sender<Infallible>;

/// Ends when no request is under way any more.
#[derive(Debug)]
pub(crate) struct WindUp(mpsc::Receiver<Infallible>);

pub(crate) fn wind_up() -> (UnderWay, WindUp) {
    let (sign, gone) = mpsc::channel(1);
    (UnderWay(sign), WindUp(gone))
}

impl WindUp {
    /// Waits for the records of what was interrupted, at most [`PROVIDER_WIND_UP_MAX`].
    pub(crate) async fn finished(mut self) {
        let _ = timeout(PROVIDER_WIND_UP_MAX, self.0.recv()).await;
    }
}

/// A request whose completion is still to be recorded. Dropped without one (its connection was
/// aborted), it records that it is incomplete.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    journal: Option<Journal>,
    number: u64,
    observed: Observed,
    _under_way: UnderWay,
}

impl OpenRequest {
    /// Records that the request goes out. It may go only after this.
    pub(crate) async fn record(
        journal: &Journal,
        event: InferenceRequested,
        under_way: &UnderWay,
        observed: &Observed,
    ) -> Result<Self, Refusal> {
        let asked = ModelStep::Asked {
            request: event.request,
            reserved_output_tokens: event.reserved_output_tokens,
        };
        let told = observed.clone();
        let journal = journal.clone();
        let mut open = Self {
            journal: None,
            number: event.request,
            observed: observed.clone(),
            _under_way: under_way.clone(),
        };
        // Where the agent goes away meanwhile, what this returns is dropped, and so completed.
        append(move || {
            journal.record(event).map(drop)?;
            open.journal = Some(journal);
            Ok(open)
        })
        .await
        .inspect(|_| told.model(asked))
    }

    /// Records the end: `whole` is the size and digest of an answer that came to its end.
    pub(crate) async fn complete(
        mut self,
        status: u16,
        whole: Option<(u64, Digest)>,
        reason: Option<&str>,
    ) -> Result<(), Refusal> {
        let Some(journal) = self.journal.take() else {
            return Ok(());
        };
        self.tell(status, reason);
        let event = completed(self.number, status, whole, reason);
        append(move || {
            let written = journal.record(event).map(drop);
            drop(self);
            written
        })
        .await
    }

    /// The outcome is not known: no record may claim one.
    pub(crate) fn leave_open(mut self, reason: &str) {
        self.tell(0, Some(reason));
        self.journal = None;
    }

    fn tell(&self, status: u16, incomplete: Option<&str>) {
        self.observed.model(ModelStep::Answered {
            request: self.number,
            status,
            incomplete,
        });
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            let reason = Some("interrupted by the end of its connection");
            self.tell(0, reason);
            let _ = journal.record(completed(self.number, 0, None, reason));
        }
    }
}

fn completed(
    request: u64,
    status: u16,
    whole: Option<(u64, Digest)>,
    reason: Option<&str>,
) -> InferenceCompleted {
    let (body_bytes, body_sha256) = whole.unwrap_or_else(|| (0, Digest::of(b"")));
    InferenceCompleted {
        request,
        status,
        body_sha256,
        body_bytes,
        complete: whole.is_some(),
        reason: reason.map(str::to_owned),
    }
}

/// Appends off the async threads: an append waits for the disk.
async fn append<T: Send + 'static>(
    append: impl FnOnce() -> Result<T, JournalError> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(append).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(refusal(&format!(
            "the run's journal takes no more records: {error}"
        ))),
        Err(_) => Err(refusal("the run is ending")),
    }
}

pub(crate) fn refusal(reason: &str) -> Refusal {
    Refusal::new(RefusalKind::Permission, reason)
}
