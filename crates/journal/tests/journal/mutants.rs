//! The verifier against journals that were changed at random: what a fuzz target would try,
//! without a compiler that the rest of the workspace does not need.

use crate::proofs::three_calls;
use crate::rotation::Project;
use crate::support::*;
use journal::*;
use model::RunId;
use proptest::prelude::*;
use proptest::sample::Index;
use std::io::Cursor;
use std::sync::LazyLock;

#[derive(Debug, Clone)]
enum Change {
    Flip(Index, u8),
    Cut(Index),
    Remove(Index, Index),
    Repeat(Index, Index),
    Insert(Index, Vec<u8>),
    SwapLines(Index, Index),
    /// Lines of another good file in this one's place.
    Splice(Index, Index),
    /// A digit or letter becomes another one: the form stays.
    Retype(Index, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        at().prop_map(Change::Cut),
        (at(), at()).prop_map(|(a, b)| Change::Remove(a, b)),
        (at(), at()).prop_map(|(a, b)| Change::Repeat(a, b)),
        (at(), proptest::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, more)| Change::Insert(at, more)),
        (at(), at()).prop_map(|(a, b)| Change::SwapLines(a, b)),
        (at(), at()).prop_map(|(a, b)| Change::Splice(a, b)),
        (at(), any::<u8>()).prop_map(|(at, to)| Change::Retype(at, to)),
    ]
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes
        .split_inclusive(|b| *b == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

fn apply(bytes: &mut Vec<u8>, other: &[u8], change: &Change) {
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    let range = |a: &Index, b: &Index| {
        let (a, b) = (a.index(len), b.index(len));
        a.min(b)..a.max(b)
    };
    match change {
        Change::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
        Change::Cut(at) => bytes.truncate(at.index(len)),
        Change::Remove(a, b) => drop(bytes.drain(range(a, b))),
        Change::Repeat(a, b) => {
            let range = range(a, b);
            let part = bytes[range.clone()].to_vec();
            bytes.splice(range.end..range.end, part);
        }
        Change::Insert(at, more) => {
            let at = at.index(len);
            bytes.splice(at..at, more.iter().copied());
        }
        Change::SwapLines(a, b) => {
            let mut all = lines(bytes);
            let count = all.len();
            all.swap(a.index(count), b.index(count));
            *bytes = all.concat();
        }
        Change::Splice(a, b) => {
            let (mut all, theirs) = (lines(bytes), lines(other));
            let count = all.len();
            all[a.index(count)] = theirs[b.index(theirs.len())].clone();
            *bytes = all.concat();
        }
        Change::Retype(at, to) => {
            let byte = &mut bytes[at.index(len)];
            *byte = match *byte {
                b'0'..=b'9' => b'0' + to % 10,
                b'a'..=b'z' => b'a' + to % 26,
                b'A'..=b'Z' => b'A' + to % 26,
                other => other,
            };
        }
    }
}

struct Good {
    run: Vec<u8>,
    other: Vec<u8>,
    ledger: Vec<u8>,
    ledger_key: PublicKey,
    proof: Vec<u8>,
    other_proof: Vec<u8>,
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let (key, run) = (key(1), RunId::new());
    let (bytes, other) = (three_calls(&key, run), three_calls(&key, run));
    let project = Project::new();
    project.run();
    rotate_key(&project.state, &project.key).unwrap();
    project.run();
    let proof = |bytes: &[u8]| {
        let proof = prove_call(bytes, None, Some(key.public()), "c1").unwrap();
        serde_json::to_vec_pretty(&proof).unwrap()
    };
    Good {
        proof: proof(&bytes),
        other_proof: proof(&other),
        run: bytes,
        other,
        ledger: project.ledger(),
        ledger_key: project.key().public().clone(),
    }
});

/// The lines that hold records.
fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
    lines(bytes).into_iter().step_by(2).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_changed_journal_is_never_intact(changes in proptest::collection::vec(change(), 1..4)) {
        let good = &GOOD.run;
        let mut bytes = good.clone();
        changes.iter().for_each(|change| apply(&mut bytes, &GOOD.other, change));
        let options = options(&key(1));
        let every = verify_run(bytes.as_slice(), &options).unwrap();
        prop_assert_eq!(every.verdict == Verdict::Intact, bytes == *good);
        prop_assert_eq!(every.file_bytes, bytes.len() as u64);
        // The last signature alone still vouches for every record line.
        let quick = VerifyOptions { depth: Depth::Last, ..options };
        let last = verify_run(bytes.as_slice(), &quick).unwrap();
        if last.verdict == Verdict::Intact {
            prop_assert_eq!(records(&bytes), records(good));
        }
        if every.verdict == Verdict::Intact || every.verdict == Verdict::Unterminated {
            let same = VerifyOptions { depth: Depth::Every, ..quick };
            let again = Report { depth: Depth::Every, ..last };
            prop_assert_eq!(again, every, "{:?}", same);
        }
        let whole = read_run(bytes.as_slice(), None, Some(key(1).public())).flatten().count();
        prop_assert!(whole as u64 <= records(good).len() as u64);
    }

    #[test]
    fn a_changed_ledger_is_never_believed_further_than_its_change(
        changes in proptest::collection::vec(change(), 1..4)
    ) {
        let good = &GOOD.ledger;
        let mut bytes = good.clone();
        changes.iter().for_each(|change| apply(&mut bytes, &GOOD.run, change));
        let report = read_ledger(Cursor::new(&bytes), Some(&GOOD.ledger_key)).unwrap();
        let (ours, theirs) = (lines(good), lines(&bytes));
        let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
        prop_assert!(report.records <= same as u64 / 2);
        let whole = bytes == *good;
        let cut = report.records * 2 < ours.len() as u64;
        prop_assert!(whole || cut || report.fault.is_some() || report.tail.is_some());
    }

    #[test]
    fn a_changed_proof_proves_nothing_else(changes in proptest::collection::vec(change(), 1..4)) {
        let good = &GOOD.proof;
        let mut bytes = good.clone();
        changes.iter().for_each(|change| apply(&mut bytes, &GOOD.other_proof, change));
        let key = key(1);
        let check = |bytes: &[u8]| {
            CallProof::parse(bytes).and_then(|it| it.check(Some(key.public())))
        };
        let known = check(good).unwrap().records;
        if let Ok(checked) = check(&bytes) {
            // Spaces may differ; what is proved may only be less.
            prop_assert!(checked.records.iter().all(|record| known.contains(record)));
        }
    }
}
