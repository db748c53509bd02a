//! One call disclosed, and nothing else.

use crate::support::*;
use journal::limits::*;
use journal::*;
use model::RunId;
use serde_json::{Value, json};

/// A run of three calls: one that publishes, one that is refused, one that is running.
pub(crate) fn three_calls(key: &ProjectKey, run: RunId) -> Vec<u8> {
    let store = Store::default();
    let journal = durable(&store, key, run);
    let mut lent = journal.lend(digest("c1")).unwrap();
    let (_, dispatch) = journal.record2(started(), dispatching("c1")).unwrap();
    let _ = journal.record(refused("policy")).unwrap();
    let intent = lent.publication_prepared(prepared("c1")).unwrap();
    let _ = journal.record(requested(0)).unwrap();
    let _ = lent
        .publication_finished(&intent, finished(&intent))
        .unwrap();
    let _ = journal.record(completed(0)).unwrap();
    let settled = CallSettled {
        created_files: vec![receipt()],
        ..settled("c1", dispatch.seq())
    };
    let _ = lent.settle(settled).unwrap();
    let lent = journal.lend(digest("c2")).unwrap();
    let _ = journal.record(dispatching("c2")).unwrap();
    drop(lent);
    let _ = journal.record(ended(false)).unwrap();
    store.bytes()
}

fn prove(bytes: &[u8], key: &ProjectKey, call: &str) -> Result<CallProof, ProveError> {
    prove_call(bytes, None, Some(key.public()), call)
}

fn text(proof: &CallProof) -> String {
    serde_json::to_string(proof).unwrap()
}

fn kinds(proof: &CheckedProof) -> Vec<&'static str> {
    proof
        .records
        .iter()
        .map(|record| record.event.kind())
        .collect()
}

#[test]
fn a_proof_holds_the_records_of_its_call_and_no_others_and_checks_without_the_journal() {
    let (key, run) = (key(1), RunId::new());
    let bytes = three_calls(&key, run);
    let proof = prove(&bytes, &key, "c1").unwrap();
    let file = text(&proof);
    let checked = CallProof::parse(file.as_bytes())
        .unwrap()
        .check(Some(key.public()))
        .unwrap();
    assert_eq!(
        kinds(&checked),
        [
            "CallDispatching",
            "FilePublicationPrepared",
            "FilePublicationFinished",
            "CallSettled"
        ]
    );
    let head = verify_run(bytes.as_slice(), &options(&key))
        .unwrap()
        .checkpoint;
    assert_eq!((checked.run, checked.checkpoint), (run, head));
    assert!(checked.complete && !checked.self_consistent_only);
    for foreign in [
        "RunStarted",
        "CallRefused",
        "RunEnded",
        "Inference",
        "\"c2\"",
    ] {
        assert!(!file.contains(foreign), "{foreign}");
    }
    // By its digest the same.
    let by_digest = prove(&bytes, &key, &digest("c1").to_hex()).unwrap();
    let by_digest = by_digest.check(Some(key.public())).unwrap();
    assert_eq!(by_digest.records, checked.records);
    assert!(proof.check(None).unwrap().self_consistent_only);
}

#[test]
fn a_refusal_is_whole_and_a_call_without_an_outcome_is_not() {
    let key = key(1);
    let bytes = three_calls(&key, RunId::new());
    let refusal = prove(&bytes, &key, "r").unwrap().check(Some(key.public()));
    let refusal = refusal.unwrap();
    assert_eq!(
        (kinds(&refusal), refusal.complete),
        (vec!["CallRefused"], true)
    );
    let open = prove(&bytes, &key, "c2").unwrap().check(Some(key.public()));
    let open = open.unwrap();
    assert_eq!(
        (kinds(&open), open.complete),
        (vec!["CallDispatching"], false)
    );
    assert!(matches!(
        prove(&bytes, &key, "c9"),
        Err(ProveError::NoSuchCall { .. })
    ));
    let mut changed = bytes.clone();
    changed[200] ^= 1;
    assert!(matches!(
        prove(&changed, &key, "c1"),
        Err(ProveError::Fault(_))
    ));
    assert!(prove_call(&bytes[..], Some(RunId::new()), None, "c1").is_err());
}

#[test]
fn a_record_held_back_shows_as_an_incomplete_proof() {
    let key = key(1);
    let bytes = three_calls(&key, RunId::new());
    let proof = serde_json::to_value(prove(&bytes, &key, "c1").unwrap()).unwrap();
    for at in 0..4 {
        let mut less = proof.clone();
        less["records"].as_array_mut().unwrap().remove(at);
        let parsed = CallProof::parse(less.to_string().as_bytes()).unwrap();
        // Without its intent a publication's end belongs to nobody.
        match parsed.check(Some(key.public())) {
            Ok(checked) => assert!(!checked.complete, "{at}"),
            Err(error) => assert!(at < 2, "{at}: {error}"),
        }
    }
}

#[test]
fn a_changed_byte_anywhere_in_a_proof_is_found() {
    let key = key(1);
    let bytes = three_calls(&key, RunId::new());
    let good = text(&prove(&bytes, &key, "c1").unwrap());
    for at in 0..good.len() {
        let mut changed = good.clone().into_bytes();
        changed[at] ^= 1 << (at % 7);
        let checked = CallProof::parse(&changed).and_then(|it| it.check(Some(key.public())));
        assert!(checked.is_err(), "byte {at}: {}", &good[..at]);
    }
}

#[test]
fn a_proof_of_another_key_run_size_place_or_path_is_refused() {
    let (key, run) = (key(1), RunId::new());
    let bytes = three_calls(&key, run);
    let good = prove(&bytes, &key, "c1").unwrap();
    let other = prove(&three_calls(&key, RunId::new()), &key, "c1").unwrap();
    let value = |proof: &CallProof| serde_json::to_value(proof).unwrap();
    let check = |value: &Value| {
        CallProof::parse(value.to_string().as_bytes()).and_then(|it| it.check(Some(key.public())))
    };
    assert!(check(&value(&good)).is_ok());
    let strange = super::support::key(2);
    assert!(matches!(
        good.check(Some(strange.public())),
        Err(ProofError::Checkpoint(NoteError::OtherKey { .. }))
    ));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = value(&good);
        change(&mut changed);
        check(&changed).unwrap_err()
    };
    let error = with(&|it| it["checkpoint"] = value(&other)["checkpoint"].clone());
    assert!(matches!(error, ProofError::Origin { .. }), "{error}");
    let error = with(&|it| it["run"] = value(&other)["run"].clone());
    assert!(matches!(error, ProofError::Origin { .. }), "{error}");
    let error = with(&|it| it["records"] = value(&other)["records"].clone());
    assert!(matches!(error, ProofError::Path { .. }), "{error}");
    let error = with(&|it| it["records"][0]["index"] = json!(2));
    assert!(matches!(error, ProofError::OtherRecord { .. }), "{error}");
    let error = with(&|it| it["call"] = json!("c2"));
    assert!(matches!(error, ProofError::OtherRecord { .. }), "{error}");
    let error = with(&|it| it["records"][1]["path"] = json!([]));
    assert!(matches!(error, ProofError::Path { .. }), "{error}");
    let error = with(&|it| it["records"].as_array_mut().unwrap().swap(0, 1));
    assert!(matches!(error, ProofError::OtherRecord { .. }), "{error}");
    let error = with(&|it| {
        let first = it["records"][0].clone();
        it["records"].as_array_mut().unwrap().insert(0, first);
    });
    assert!(matches!(error, ProofError::OtherRecord { .. }), "{error}");
}

#[test]
fn a_proof_file_has_limits() {
    let key = key(1);
    let bytes = three_calls(&key, RunId::new());
    let good = serde_json::to_value(prove(&bytes, &key, "c1").unwrap()).unwrap();
    for (field, value) in [("v", json!(2)), ("kind", json!("x")), ("more", json!(1))] {
        let mut changed = good.clone();
        changed[field] = value;
        let error = CallProof::parse(changed.to_string().as_bytes()).unwrap_err();
        assert!(matches!(error, ProofError::Format(_)), "{error}");
    }
    for count in [0, PROOF_RECORDS_MAX + 1] {
        let mut changed = good.clone();
        changed["records"] = vec![good["records"][0].clone(); count].into();
        assert!(CallProof::parse(changed.to_string().as_bytes()).is_err());
    }
    let mut padded = good.to_string().into_bytes();
    padded.resize(PROOF_BYTES_MAX, b' ');
    assert!(CallProof::parse(&padded).is_ok());
    padded.push(b' ');
    assert!(matches!(
        CallProof::parse(&padded),
        Err(ProofError::TooLarge { .. })
    ));
}
