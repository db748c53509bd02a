//! Random histories: whatever is asked, what is on disk is a whole prefix of what was said.

use crate::support::*;
use journal::*;
use model::RunId;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Action {
    Start,
    Note,
    Lend(u8),
    Dispatch(u8),
    Prepare(u8),
    Finish(u8),
    Settle(u8, bool),
    Drop(u8),
    Ask(u8),
    Answer(u8),
    Unconfirmed,
    End(bool),
}

fn action() -> impl Strategy<Value = Action> {
    let call = 0..3_u8;
    prop_oneof![
        1 => Just(Action::Start),
        3 => Just(Action::Note),
        6 => call.clone().prop_map(Action::Lend),
        6 => call.clone().prop_map(Action::Dispatch),
        4 => call.clone().prop_map(Action::Prepare),
        4 => call.clone().prop_map(Action::Finish),
        4 => (call.clone(), any::<bool>()).prop_map(|(c, u)| Action::Settle(c, u)),
        1 => call.clone().prop_map(Action::Drop),
        2 => call.clone().prop_map(Action::Ask),
        2 => call.prop_map(Action::Answer),
        1 => Just(Action::Unconfirmed),
        1 => any::<bool>().prop_map(Action::End),
    ]
}

/// What the test knows of one call.
#[derive(Default)]
struct Call {
    lent: Option<CallJournal>,
    seq: Option<u64>,
    prepared: Option<Recorded<FilePublicationPrepared>>,
    confirmed: bool,
}

struct History {
    journal: Journal,
    calls: [Call; 3],
    seqs: Vec<u64>,
}

impl History {
    fn act(&mut self, action: Action) {
        let name = |call: u8| format!("c{call}");
        match action {
            Action::Start => self.keep(self.journal.record(started())),
            Action::Note => self.keep(self.journal.record(custom())),
            Action::Ask(n) => self.keep(self.journal.record(requested(n.into()))),
            Action::Answer(n) => self.keep(self.journal.record(completed(n.into()))),
            Action::Unconfirmed => self.journal.mark_unconfirmed(),
            Action::End(whole) => self.keep(self.journal.record(ended(whole))),
            Action::Lend(n) => {
                if let Ok(lent) = self.journal.lend(digest(&name(n))) {
                    self.calls[usize::from(n)] = Call {
                        lent: Some(lent),
                        ..Call::default()
                    };
                }
            }
            Action::Dispatch(n) => {
                let recorded = self.journal.record(dispatching(&name(n)));
                if let Ok(recorded) = &recorded {
                    self.calls[usize::from(n)].seq = Some(recorded.seq());
                }
                self.keep(recorded);
            }
            Action::Drop(n) => self.calls[usize::from(n)] = Call::default(),
            Action::Prepare(n) => {
                let call = &mut self.calls[usize::from(n)];
                if let Some(Ok(recorded)) = call
                    .lent
                    .as_mut()
                    .map(|lent| lent.publication_prepared(prepared(&name(n))))
                {
                    self.seqs.push(recorded.seq());
                    call.prepared = Some(recorded);
                }
            }
            Action::Finish(n) => {
                let call = &mut self.calls[usize::from(n)];
                if let (Some(lent), Some(intent)) = (&mut call.lent, &call.prepared)
                    && let Ok(recorded) = lent.publication_finished(intent, finished(intent))
                {
                    call.confirmed = true;
                    self.seqs.push(recorded.seq());
                }
            }
            Action::Settle(n, unconfirmed) => {
                let call = std::mem::take(&mut self.calls[usize::from(n)]);
                let mut event = settled(&name(n), call.seq.unwrap_or(0));
                if unconfirmed {
                    event.outcome.status = OutcomeStatus::Unconfirmed;
                }
                if call.confirmed {
                    event.created_files = vec![receipt()];
                }
                if let Some(lent) = call.lent {
                    self.keep(lent.settle(event));
                }
            }
        }
    }

    fn keep<T>(&mut self, recorded: Result<Recorded<T>, JournalError>) {
        if let Ok(recorded) = recorded {
            self.seqs.push(recorded.seq());
        }
    }
}

/// What a reader of the whole journal may rely on.
fn check(events: &[Event]) {
    let mut dispatched = Vec::new();
    let mut intents = Vec::new();
    let mut unconfirmed = false;
    for (seq, event) in events.iter().enumerate() {
        let last = seq + 1 == events.len();
        match event {
            Event::RunStarted(_) => assert_eq!(seq, 0),
            Event::RunEnded(end) => assert!(last && !(end.completed && unconfirmed)),
            Event::CallDispatching(call) => {
                assert!(!unconfirmed);
                dispatched.push((call.call_sha256, seq as u64));
            }
            Event::FilePublicationPrepared(intent) => {
                assert!(!unconfirmed);
                assert!(
                    dispatched
                        .iter()
                        .any(|(call, _)| *call == intent.call_sha256)
                );
                intents.push(intent.publication_id);
            }
            Event::FilePublicationFinished(end) => {
                let at = intents
                    .iter()
                    .position(|id| *id == end.publication_id)
                    .unwrap();
                intents.remove(at);
            }
            Event::CallSettled(call) => {
                let at = (call.call_sha256, call.dispatched_seq);
                let index = dispatched.iter().position(|known| *known == at).unwrap();
                dispatched.remove(index);
                unconfirmed |= call.outcome.status == OutcomeStatus::Unconfirmed;
            }
            Event::InferenceRequested(_) => assert!(!unconfirmed),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn any_history_with_any_failure_leaves_a_whole_legal_prefix(
        actions in proptest::collection::vec(action(), 1..40),
        fail in proptest::option::of((0..60_usize, 0..3_usize)),
        starts in prop::bool::weighted(0.95),
    ) {
        let failures = [Failure::Refused, Failure::Short, Failure::After];
        let store = fail.map_or_else(Store::default, |(at, how)| Store::failing(at, failures[how]));
        let key = key(1);
        let journal = durable(&store, &key, RunId::new());
        let mut history =
            History { journal, calls: Default::default(), seqs: Vec::new() };
        if starts {
            history.act(Action::Start);
        }
        for action in actions {
            history.act(action);
        }
        let expected: Vec<u64> = (0..history.seqs.len() as u64).collect();
        prop_assert_eq!(&history.seqs, &expected, "acknowledged numbers have no gap");
        let bytes = store.bytes();
        let events: Vec<Event> = read_run(bytes.as_slice(), None, Some(key.public()))
            .map(|record| record.unwrap().event)
            .collect();
        prop_assert!(events.len() >= history.seqs.len(), "nothing acknowledged is lost");
        prop_assert!(events.len() <= history.seqs.len() + 1, "one attempt may be unknown");
        check(&events);
    }
}
