//! Random histories of one connection, of either era: any bytes in any chunks, mutated transcripts,
//! and calls that end, are cancelled or broken off at any time. Named invariants hold after each
//! event.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{Client, parse, text, with_meta};
use crate::limits::CALLS_OUTSTANDING_MAX;
use crate::{ConnectionLimits, ErrorCode, Output, Ticket, WireId};

const FRAMES_MAX: u64 = 60;

fn client() -> Client {
    Client::with(
        ConnectionLimits { frames: FRAMES_MAX },
        &["read_a", "write_b"],
    )
}

fn id() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => (0_i64..40).prop_map(|id| json!(id)),
        3 => (0_i64..20).prop_map(|id| json!(id.to_string())),
        1 => prop_oneof![Just(json!(null)), Just(json!(1.5)), Just(json!([])), Just(json!(""))],
    ]
}

fn request(method: &'static str, params: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    (id(), params).prop_map(
        move |(id, params)| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
    )
}

fn call_params() -> impl Strategy<Value = Value> {
    (any::<bool>(), "[a-z_]{0,8}", proptest::option::of(id())).prop_map(|(bare, name, token)| {
        if bare {
            return json!({"name": name});
        }
        let meta = token.map_or_else(|| json!({}), |token| json!({"progressToken": token}));
        json!({"name": name, "arguments": {"k": "v"}, "_meta": meta})
    })
}

fn initialize() -> Value {
    json!({"protocolVersion": "2025-11-25", "capabilities": {}})
}

/// How a client opens, and so what its requests mostly carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    Initialize,
    Stateless,
    Wrongly,
}

fn opening() -> impl Strategy<Value = Opening> {
    prop_oneof![
        4 => Just(Opening::Initialize),
        4 => Just(Opening::Stateless),
        2 => Just(Opening::Wrongly),
    ]
}

/// One well-formed frame for a client that opened so. A few are of the other era.
fn frame(opening: Opening) -> BoxedStrategy<Value> {
    let mostly = if opening == Opening::Stateless {
        0.95
    } else {
        0.05
    };
    (any_frame(), prop::bool::weighted(mostly))
        .prop_map(|(mut frame, named)| {
            if named && frame["params"].is_object() && frame["method"] != "initialize" {
                frame["params"] = with_meta(frame["params"].take());
            }
            frame
        })
        .boxed()
}

/// One well-formed frame, most often a call.
fn any_frame() -> impl Strategy<Value = Value> {
    let nothing = || Just(json!({})).boxed();
    prop_oneof![
        8 => request("tools/call", call_params().boxed()),
        3 => id().prop_map(|id| json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        })),
        1 => request("initialize", Just(initialize()).boxed()),
        1 => Just(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        1 => request("ping", nothing()),
        1 => request("tools/list", nothing()),
        1 => request("server/discover", nothing()),
        1 => id().prop_map(|id| json!({"jsonrpc": "2.0", "id": id, "result": {}})),
        1 => Just(json!([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])),
    ]
}

fn greeting(opening: Opening) -> Vec<Value> {
    let open = |id: &str, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    match opening {
        Opening::Initialize => vec![
            open("first", "initialize", initialize()),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ],
        Opening::Stateless => vec![
            open("probe", "server/discover", with_meta(json!({}))),
            open("first", "tools/list", with_meta(json!({}))),
        ],
        Opening::Wrongly => Vec::new(),
    }
}

/// A transcript of a client: usually it begins rightly.
fn transcript() -> impl Strategy<Value = Vec<u8>> {
    opening()
        .prop_flat_map(|opening| (Just(opening), prop::collection::vec(frame(opening), 0..40)))
        .prop_map(|(opening, frames)| {
            let lines = greeting(opening).into_iter().chain(frames);
            lines
                .flat_map(|frame| format!("{frame}\n").into_bytes())
                .collect()
        })
}

#[derive(Debug, Clone)]
enum Mutation {
    Put(u8),
    Insert(u8),
    Delete(usize),
    Repeat(usize),
}

fn mutation() -> impl Strategy<Value = (prop::sample::Index, Mutation)> {
    let byte = || prop_oneof![any::<u8>(), Just(b'\n'), Just(b'"'), Just(b'}'), Just(b'0')];
    let what = prop_oneof![
        byte().prop_map(Mutation::Put),
        byte().prop_map(Mutation::Insert),
        (1_usize..30).prop_map(Mutation::Delete),
        (1_usize..120).prop_map(Mutation::Repeat),
    ];
    (any::<prop::sample::Index>(), what)
}

fn mutate(mut bytes: Vec<u8>, mutations: Vec<(prop::sample::Index, Mutation)>) -> Vec<u8> {
    for (place, mutation) in mutations {
        if bytes.is_empty() {
            break;
        }
        let at = place.index(bytes.len());
        let until = |length: usize| bytes.len().min(at + length);
        match mutation {
            Mutation::Put(byte) => bytes[at] = byte,
            Mutation::Insert(byte) => bytes.insert(at, byte),
            Mutation::Delete(length) => drop(bytes.drain(at..until(length))),
            Mutation::Repeat(length) => {
                let piece = bytes[at..until(length)].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

fn mutated_transcript() -> impl Strategy<Value = Vec<u8>> {
    (transcript(), prop::collection::vec(mutation(), 0..6))
        .prop_map(|(bytes, mutations)| mutate(bytes, mutations))
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        "[\\[\\]{}\",:0-9a-z\\\\ \n]{0,200}".prop_map(String::into_bytes),
        mutated_transcript(),
    ]
}

fn in_chunks(bytes: &[u8], cuts: &[prop::sample::Index]) -> Vec<Output> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    let mut client = client();
    let mut out = Vec::new();
    for pair in places.windows(2) {
        client.connection.feed(&bytes[pair[0]..pair[1]], &mut out);
    }
    client.connection.eof(&mut out);
    out
}

#[derive(Debug, Clone)]
enum Event {
    Bytes(Vec<u8>),
    Answer(prop::sample::Index),
    Fail(prop::sample::Index),
    Progress(prop::sample::Index),
    EndOfInput,
}

fn event(opening: Opening) -> impl Strategy<Value = Event> {
    let line = |frame: Value| Event::Bytes(format!("{frame}\n").into_bytes());
    let spoiled =
        (frame(opening), prop::collection::vec(mutation(), 1..3)).prop_map(|(frame, changes)| {
            Event::Bytes(mutate(format!("{frame}\n").into_bytes(), changes))
        });
    let place = any::<prop::sample::Index>;
    prop_oneof![
        16 => frame(opening).prop_map(line),
        3 => spoiled,
        6 => place().prop_map(Event::Answer),
        2 => place().prop_map(Event::Fail),
        2 => place().prop_map(Event::Progress),
        1 => prop_oneof![9 => Just(Event::Bytes(b"\n".to_vec())), 1 => Just(Event::EndOfInput)],
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Waits,
    /// Withdrawn by the end of input: an answer can still be sent.
    Leaves,
    /// Nobody reads its answer.
    Lost,
    Ended,
}

/// What the owner of a connection sees, and the invariants of it.
#[derive(Debug, Default)]
struct Owner {
    calls: BTreeMap<Ticket, Call>,
    identities: BTreeSet<WireId>,
    bytes_out: u64,
    ended: bool,
    broken: bool,
    /// Whether the results are those of the stateless era, once one says so.
    stateless: Option<bool>,
}

impl Owner {
    fn take(&mut self, outputs: &[Output]) {
        for output in outputs {
            assert!(!self.ended, "nothing follows the end");
            match output {
                Output::Send(frame) => {
                    let answer = parse(frame);
                    assert_eq!(answer["jsonrpc"], "2.0");
                    if answer.get("id").is_none() {
                        assert!(answer["error"].is_object());
                        assert!(*self.stateless.get_or_insert(true));
                    }
                    self.is_of_one_era(&answer["result"]);
                    assert_ne!(
                        answer.get("result").is_some(),
                        answer.get("error").is_some()
                    );
                    self.bytes_out += frame.len() as u64;
                }
                Output::Call(call) => {
                    assert!(
                        self.identities.insert(call.identity.clone()),
                        "identity used twice"
                    );
                    let before = self.calls.insert(call.ticket, Call::Waits);
                    assert_eq!(before, None, "ticket used twice");
                }
                Output::Withdraw(ticket) => {
                    let call = self.calls.get_mut(ticket).unwrap();
                    assert_eq!(*call, Call::Waits, "only a call that waits is withdrawn");
                    *call = Call::Lost;
                }
                Output::End(reason) => {
                    self.ended = true;
                    self.broken = *reason != crate::EndReason::InputClosed;
                    let waiting = self.calls.values().filter(|call| **call == Call::Waits);
                    assert_eq!(waiting.count(), 0, "the end withdraws all that waits");
                }
            }
        }
    }

    /// A connection never changes its era; discovery and pings belong to none.
    fn is_of_one_era(&mut self, result: &Value) {
        let stamped = result.get("resultType").is_some();
        assert_eq!(stamped, result.get("_meta").is_some());
        assert!(!stamped || result["resultType"] == "complete");
        let of_none = result.is_null()
            || result == &json!({})
            || result["ttlMs"].is_u64() && result.get("tools").is_none();
        if !of_none {
            assert_eq!(*self.stateless.get_or_insert(stamped), stamped);
        }
    }

    fn end_of_input(&mut self, outputs: &[Output]) {
        self.take(outputs);
        for output in outputs {
            if let (Output::Withdraw(ticket), false) = (output, self.broken) {
                self.calls.insert(*ticket, Call::Leaves);
            }
        }
    }

    fn ticket(&self, place: &prop::sample::Index) -> Option<Ticket> {
        let tickets: Vec<Ticket> = self.calls.keys().copied().collect();
        (!tickets.is_empty()).then(|| *place.get(&tickets))
    }

    fn settle(&mut self, ticket: Ticket, frame: Option<&Vec<u8>>) {
        let call = self.calls.insert(ticket, Call::Ended).unwrap();
        let wanted = matches!(call, Call::Waits | Call::Leaves);
        assert_eq!(
            frame.is_some(),
            wanted,
            "an answer is given exactly where it is wanted"
        );
        if let Some(frame) = frame {
            self.is_of_one_era(&parse(frame)["result"]);
            self.bytes_out += frame.len() as u64;
        }
    }

    fn check(&self, client: &Client) {
        let waiting = self
            .calls
            .values()
            .filter(|call| **call != Call::Ended)
            .count();
        assert_eq!(client.connection.outstanding(), waiting);
        assert!(waiting <= CALLS_OUTSTANDING_MAX);
        assert_eq!(client.connection.bytes_out(), self.bytes_out);
    }
}

fn live(events: Vec<Event>) {
    let mut client = client();
    let mut owner = Owner::default();
    for event in events {
        match event {
            Event::Bytes(bytes) => owner.take(&client.raw(bytes)),
            Event::EndOfInput => {
                let outputs = client.eof();
                owner.end_of_input(&outputs);
            }
            Event::Answer(place) => {
                let Some(ticket) = owner.ticket(&place) else {
                    continue;
                };
                let frame = client.connection.answer(ticket, &text("x"));
                owner.settle(ticket, frame.as_ref());
            }
            Event::Fail(place) => {
                let Some(ticket) = owner.ticket(&place) else {
                    continue;
                };
                let frame = client
                    .connection
                    .protocol_error(ticket, ErrorCode::Internal, "x");
                owner.settle(ticket, frame.as_ref());
            }
            Event::Progress(place) => {
                let Some(ticket) = owner.ticket(&place) else {
                    continue;
                };
                if let Some(frame) = client.connection.progress(ticket, "x") {
                    assert!(matches!(owner.calls[&ticket], Call::Waits | Call::Leaves));
                    owner.bytes_out += frame.len() as u64;
                }
            }
        }
        owner.check(&client);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_in_any_chunks_give_the_same_outputs_as_one_chunk(
        bytes in anything(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        prop_assert_eq!(in_chunks(&bytes, &cuts), in_chunks(&bytes, &[]));
    }

    #[test]
    fn single_bytes_give_the_same_outputs_as_one_chunk(bytes in mutated_transcript()) {
        let mut client = client();
        let mut out = Vec::new();
        for byte in &bytes {
            client.connection.feed(&[*byte], &mut out);
        }
        client.connection.eof(&mut out);
        prop_assert_eq!(out, in_chunks(&bytes, &[]));
    }

    #[test]
    fn no_history_breaks_an_invariant(
        (opening, mut events) in opening().prop_flat_map(|opening| {
            (Just(opening), prop::collection::vec(event(opening), 0..90))
        }),
    ) {
        let greeting = greeting(opening).into_iter();
        let greeting = greeting.map(|frame| Event::Bytes(format!("{frame}\n").into_bytes()));
        events.splice(0..0, greeting);
        live(events);
    }

    #[test]
    fn every_request_gets_exactly_one_answer_or_call(
        (opening, frames) in opening().prop_flat_map(|opening| {
            (Just(opening), prop::collection::vec(frame(opening), 0..FRAMES_MAX as usize - 2))
        }),
    ) {
        let mut client = client();
        for frame in greeting(opening).into_iter().chain(frames) {
            let outputs = client.frame(&frame);
            let asks = frame.is_array() || frame.get("id").is_some() && frame.get("method").is_some();
            if asks {
                prop_assert!(
                    matches!(&outputs[..], [Output::Send(_) | Output::Call(_)]), "{:?}", outputs
                );
            } else {
                prop_assert!(matches!(&outputs[..], [] | [Output::Withdraw(_)]), "{:?}", outputs);
            }
        }
    }
}
