//! What a manifest promises beyond its command: a parser of its own, kept output, sensitive values,
//! an identity in the command, names that are looked up.

use std::path::Path;
use std::time::Duration;

use governance::{Outcome, RecordedOutcome, RefusalKind};
use model::{Digest, RunId};
use serde_json::json;
use symbi_runtime::envelope::Envelope;
use symbi_runtime::reasoning::governed_session::Answer;
use testkit::tier::{Happened, Play};
use worker::{Ending, LimitReached};

use crate::support::refused;
use crate::support::session::{Governed, Setup, settled, succeeded};

const SECRET: &str = "s3cr3t-0f-the-operator";

/// Prints its argument, which `parser` reads.
fn parsed(parser: &str, more: &str) -> String {
    format!(
        "timeout_seconds = 10\n{more}[args.text]\ntype = \"literal_text\"\nrequired = true\n\
         [args.output]\ntype = \"path\"\n[command]\nexec = [\"printf\", \"%s\", \"{{text}}\"]\n\
         [filesystem]\ncreate = [\"{{output}}\"]\n[output]\nformat = \"text\"\n\
         parser = \"custom:{parser}\"\n"
    )
}

fn with_parser(parser: &str, more: &str) -> Setup {
    Setup::default().manifest("read", "printf", &parsed(parser, more))
}

fn reason(outcome: &RecordedOutcome) -> &str {
    outcome.outcome.reason().unwrap_or_default()
}

fn envelope(outcome: RecordedOutcome) -> serde_json::Value {
    let answer = Answer::Settled(outcome);
    let envelope = Envelope::of(&answer, RunId::new(), String::new());
    serde_json::from_str(&envelope.to_json()).unwrap()
}

/// Every byte below a folder, names included.
fn all_bytes(folder: &Path, into: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        into.extend_from_slice(entry.file_name().as_encoded_bytes());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            all_bytes(&entry.path(), into);
        } else if kind.is_file() {
            into.extend(std::fs::read(entry.path()).unwrap());
        }
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn a_parser_of_its_own_reads_the_output_in_a_fresh_worker_and_both_are_gone() {
    let governed = with_parser("/usr/bin/cat", "").namespace().start_durable();
    let arguments = json!({"text": "{\"n\": 1}", "output": "out/b"});
    let outcome = succeeded(governed.call("1", "read", arguments).await);
    assert_eq!(outcome.value, Some(json!({"n": 1})));
    assert_eq!(outcome.output.stdout, b"{\"n\": 1}");
    governed.close().await.unwrap();
    let dispatched = &governed.of_kind("CallDispatching")[0]["descriptor"];
    assert_eq!(dispatched["parser"]["program"]["path"], "/usr/bin/cat");
    assert_eq!(
        dispatched["parser"]["boundary"]["filesystem"]["create"],
        json!({})
    );
    let settled = &governed.of_kind("CallSettled")[0];
    assert_eq!(settled["parser"]["exit_code"], 0);
    assert_eq!(settled["parser"]["stdout"]["bytes"], 8);
    let (first, second) = (&settled["worker"], &settled["parser"]["worker"]);
    assert!(first.is_string() && second.is_string() && first != second);
    assert!(governed.project.exists("out/b"));
}

#[tokio::test]
async fn a_parser_sees_no_file_of_its_command() {
    let governed = with_parser("/usr/bin/ls", "").namespace().start();
    let arguments = json!({"text": "x"});
    let outcome = settled(governed.call("1", "read", arguments).await);
    assert_eq!(outcome.parsed.unwrap().stdout, b"");
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_parser_that_fails_or_says_too_much_or_no_json_publishes_nothing() {
    let limits = "[tool.limits]\nmax_output_bytes = 4096\n";
    for (parser, text, why) in [
        (
            "/usr/bin/false",
            "1",
            "its output parser: exited with code 1",
        ),
        (
            "/usr/bin/yes",
            "1",
            "its output parser: wrote more output than its stream limit",
        ),
        (
            "/usr/bin/cat",
            "{\"a\": 1, \"a\": 2}",
            "not of its manifest's format",
        ),
        ("/usr/bin/cat", "no json", "not of its manifest's format"),
    ] {
        let governed = with_parser(parser, limits).namespace().start_durable();
        let arguments = json!({"text": text, "output": "out/b"});
        let outcome = settled(governed.call("1", "read", arguments).await);
        assert!(
            matches!(outcome.outcome, Outcome::Failed { .. }),
            "{outcome:?}"
        );
        assert!(reason(&outcome).contains(why), "{}", reason(&outcome));
        assert!(!governed.project.exists("out/b") && governed.project.candidates().is_empty());
        governed.close().await.unwrap();
        assert_eq!(governed.of_kind("FilePublicationPrepared").len(), 0);
    }
}

#[tokio::test]
async fn a_result_that_breaks_its_schema_fails_and_keeps_the_raw_output() {
    let schema = "[output.schema]\ntype = \"object\"\nrequired = [\"n\"]\n";
    let governed = with_parser("/usr/bin/cat", schema)
        .namespace()
        .start_durable();
    let arguments = json!({"text": "{\"m\": 1}", "output": "out/b"});
    let outcome = settled(governed.call("1", "read", arguments).await);
    assert!(reason(&outcome).contains("schema"), "{}", reason(&outcome));
    let told = envelope(outcome);
    assert_eq!(told["schema_error"], "{\"m\": 1}");
    assert_eq!(told["results"], json!(null));
    assert!(!governed.project.exists("out/b"));
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_parser_that_no_operator_allows_is_refused_before_any_worker() {
    let governed = with_parser("/opt/evil", "").start();
    let refusal = refused(governed.call("1", "read", json!({"text": "x"})).await);
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(
        refusal.reason.contains("`[sandbox.parsers] allow`"),
        "{refusal}"
    );
    assert_eq!(governed.tier.started(), 0);
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_parser_has_only_what_is_left_of_the_time() {
    let governed = with_parser("/usr/bin/cat", "")
        .tool_time(Duration::from_millis(300))
        .start();
    governed.tier.next_runs(Play::exits(0).stdout("1"));
    governed.tier.next_runs(Play::runs_on());
    let begin = std::time::Instant::now();
    let outcome = settled(governed.call("1", "read", json!({"text": "x"})).await);
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert!(
        reason(&outcome).contains("time limit"),
        "{}",
        reason(&outcome)
    );
    let happened = governed.tier.log();
    for wanted in [
        Happened::Removed { worker: 0 },
        Happened::Stopped { worker: 1 },
        Happened::Removed { worker: 1 },
    ] {
        assert!(happened.contains(&wanted), "{happened:?}");
    }
    let started = happened
        .iter()
        .position(|it| matches!(it, Happened::Started { worker: 1, .. }));
    let removed = happened
        .iter()
        .position(|it| *it == Happened::Removed { worker: 0 });
    assert!(
        removed < started,
        "the parser starts when the command is gone: {happened:?}"
    );
    governed.close().await.unwrap();
}

#[tokio::test]
async fn only_a_command_that_ended_well_comes_to_its_parser() {
    for play in [
        Play::exits(3),
        Play::ends(Ending::Signaled { signal: 9 }),
        Play::exits(0).limit(LimitReached::StreamBytes),
    ] {
        let governed = with_parser("/usr/bin/cat", "").start();
        governed.tier.next_runs(play);
        let outcome = settled(governed.call("1", "read", json!({"text": "x"})).await);
        assert!(
            matches!(outcome.outcome, Outcome::Failed { .. }),
            "{outcome:?}"
        );
        assert_eq!(governed.tier.started(), 1);
        governed.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_removal_that_fails_or_names_another_call_is_unconfirmed() {
    let well = || Play::exits(0).stdout("1");
    let strange = Digest::of(b"another call");
    for plays in [
        [well().removal_fails("stuck"), well()],
        [well(), well().removal_fails("stuck")],
        [well().serves(strange), well()],
        [well(), well().serves(strange)],
    ] {
        let governed = with_parser("/usr/bin/cat", "").start();
        plays
            .into_iter()
            .for_each(|play| governed.tier.next_runs(play));
        let outcome = settled(governed.call("1", "read", json!({"text": "x"})).await);
        assert!(
            matches!(outcome.outcome, Outcome::Unconfirmed { .. }),
            "{outcome:?}"
        );
        assert!(governed.close().await.is_err());
    }
}

#[tokio::test]
async fn evidence_keeps_the_whole_output_and_only_what_is_shown_is_shortened() {
    let rest = "timeout_seconds = 10\n[tool.evidence]\ncapture = true\n[command]\n\
                exec = [\"seq\", \"1000\"]\n[output]\nformat = \"text\"\nmax_bytes = 16\n";
    let setup = Setup::default().manifest("count", "seq", rest).namespace();
    let governed = setup.start_durable();
    let outcome = succeeded(governed.call("1", "count", json!({})).await);
    let whole = outcome.output.stdout.clone();
    let sha256 = Digest::of(&whole);
    assert_eq!(outcome.evidence_sha256, Some(sha256));
    let told = envelope(outcome);
    assert!(told["results"].as_str().unwrap().starts_with("1\n2\n3\n"));
    assert_eq!(told["output_truncated"], true);
    assert_eq!(told["evidence_sha256"], sha256.to_hex());
    governed.close().await.unwrap();
    assert_eq!(
        governed.of_kind("CallSettled")[0]["evidence_sha256"],
        sha256.to_hex()
    );
    let folder = governed.project.state().join("evidence");
    assert_eq!(std::fs::read(folder.join(sha256.to_hex())).unwrap(), whole);
    for (path, mode) in [
        (folder.clone(), 0o700),
        (folder.join(sha256.to_hex()), 0o600),
    ] {
        let found = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(path).unwrap().permissions(),
        );
        assert_eq!(found & 0o777, mode);
    }
}

#[tokio::test]
async fn a_call_whose_output_must_be_kept_is_refused_where_there_is_no_place_for_it() {
    let rest = "[tool.evidence]\ncapture = true\n[command]\nexec = [\"seq\", \"3\"]\n";
    let governed = Setup::default().manifest("count", "seq", rest).start();
    let refusal = refused(governed.call("1", "count", json!({})).await);
    assert!(refusal.reason.contains("evidence"), "{refusal}");
    assert_eq!(governed.tier.started(), 0);
    governed.close().await.unwrap();
}

fn sensitive() -> Setup {
    let rest = "timeout_seconds = 10\nhuman_approval = true\n[tool.evidence]\ncapture = true\n\
                [args.token]\ntype = \"string\"\nrequired = true\nsensitive = true\n\
                [args.pin]\ntype = \"integer\"\nmax = 99999\nclamp = true\nsensitive = true\n\
                [args.user]\ntype = \"string\"\nrequired = true\n\
                [command]\nexec = [\"echo\", \"--token={token}\", \"{user}\", \"{pin}\"]\n";
    Setup::default().manifest("login", "echo", rest)
}

fn login() -> serde_json::Value {
    json!({"token": SECRET, "user": "ada", "pin": 123_456_789})
}

async fn approved_login(governed: &Governed) -> RecordedOutcome {
    let pending = governed.spawn("1", "login", login());
    let held = governed.held().await;
    let shown = held.review.text().to_owned();
    assert!(
        !shown.contains(SECRET) && shown.contains("--token=[sensitive]"),
        "{shown}"
    );
    assert!(shown.contains("\"token\": \""), "{shown}");
    governed.approve(&held);
    settled(pending.await.unwrap())
}

#[tokio::test]
async fn a_sensitive_value_reaches_its_worker_and_nothing_that_stays() {
    let governed = sensitive().namespace().start_durable();
    let outcome = approved_login(&governed).await;
    assert_eq!(outcome.outcome, Outcome::Succeeded);
    assert_eq!(
        outcome.output.stdout,
        b"--token=[sensitive] ada [sensitive]\n"
    );
    assert_eq!(outcome.evidence_sha256, None, "it would repeat the value");
    // Only what the worker really printed can say so.
    assert!(outcome.notes["evidence"].contains("repeats a sensitive value"));
    let told = envelope(outcome);
    assert_eq!(
        told["argv"],
        json!(["echo", "--token=[sensitive]", "ada", "[sensitive]"])
    );
    assert_eq!(told["results"], "--token=[sensitive] ada [sensitive]\n");
    assert!(!told.to_string().contains(SECRET) && !told.to_string().contains("123456789"));
    governed.close().await.unwrap();
    let descriptor = &governed.of_kind("CallDispatching")[0]["descriptor"];
    assert_eq!(descriptor["arguments"].as_object().unwrap().len(), 1);
    let sealed = &descriptor["sealed"];
    assert!(sealed["arguments"]["token"].is_string() && sealed["argv"]["1"].is_string());
    let printed = Digest::of(format!("--token={SECRET} ada 99999\n").as_bytes());
    let mut bytes = Vec::new();
    all_bytes(governed.project.root(), &mut bytes);
    for text in [SECRET, "99999", "123456789", &printed.to_hex()] {
        assert!(!holds(&bytes, text), "{text}");
    }
    assert!(holds(&bytes, "--token=[sensitive]"));
}

#[tokio::test]
async fn a_sensitive_value_that_names_a_field_or_is_cut_by_a_limit_is_nowhere_told() {
    let tool = |limits: &str, exec: &str, output: &str| {
        format!(
            "timeout_seconds = 10\n{limits}[tool.evidence]\ncapture = true\n\
             [args.token]\ntype = \"string\"\nrequired = true\nsensitive = true\n\
             [command]\nexec = {exec}\n{output}"
        )
    };
    let texts = "[output]\nformat = \"json\"\n[output.schema]\n\
                 additionalProperties = { type = \"string\" }\n";
    let json = "[output]\nformat = \"json\"\n";
    let schema = tool("", "['printf', '{{\"{token}\": 5}}']", texts);
    let format = tool("", "['printf', '{{\"{token}\": 5, \"{token}\": 6}}']", json);
    // All of the value but its last byte comes before the limit.
    let limit = format!("[tool.limits]\nmax_output_bytes = {}\n", 5 + SECRET.len());
    let cut = tool(&limit, "['echo', 'said:', '{token}', 'x']", "");
    let mut setup = Setup::default();
    for (name, binary, rest) in [
        ("schema", "printf", &schema),
        ("format", "printf", &format),
        ("cut", "echo", &cut),
    ] {
        setup = setup.manifest(name, binary, rest);
    }
    let governed = setup.namespace().start_durable();
    for (name, why) in [
        ("schema", "breaks its manifest's schema"),
        ("format", "not what its manifest promises"),
        ("cut", "more output than its stream limit"),
    ] {
        let outcome = settled(governed.call(name, name, json!({ "token": SECRET })).await);
        let reason = outcome.outcome.reason().unwrap_or_default().to_owned();
        assert!(reason.contains(why), "{reason}");
        let told = envelope(outcome).to_string();
        assert!(told.contains("[sensitive]"), "{told}");
        assert!(!told.contains(&SECRET[..SECRET.len() - 1]), "{told}");
    }
    governed.close().await.unwrap();
    let mut bytes = Vec::new();
    all_bytes(governed.project.root(), &mut bytes);
    assert!(!holds(&bytes, &SECRET[..SECRET.len() - 1]));
}

#[tokio::test]
async fn equal_sensitive_values_have_other_hashes_in_every_call() {
    let governed = sensitive().start_durable();
    for id in ["1", "2"] {
        let pending = governed.spawn(id, "login", login());
        let held = governed.held().await;
        governed.approve(&held);
        settled(pending.await.unwrap());
    }
    governed.close().await.unwrap();
    let calls = governed.of_kind("CallDispatching");
    let sealed: Vec<_> = calls.iter().map(|it| &it["descriptor"]["sealed"]).collect();
    assert_ne!(
        sealed[0]["arguments"]["token"],
        sealed[1]["arguments"]["token"]
    );
    assert_ne!(sealed[0]["argv"]["1"], sealed[1]["argv"]["1"]);
    assert_ne!(calls[0]["call_sha256"], calls[1]["call_sha256"]);
}

#[tokio::test]
async fn a_refusal_says_nothing_of_a_sensitive_value_and_policies_see_only_its_name() {
    let names = "permit(principal, action == Action::\"tool_call::login\", resource)\n\
                 when { context.invocation.sensitive.contains(\"token\") && \
                 !context.invocation.sensitive.contains(\"pin\") };";
    let governed = sensitive().policies(names).start_durable();
    let bad = json!({"token": format!("{SECRET};"), "user": "ada"});
    let refusal = refused(governed.call("1", "login", bad).await);
    assert!(refusal.reason.contains("it is sensitive"), "{refusal}");
    assert!(!refusal.reason.contains("metacharacter"), "{refusal}");
    let denied = refused(governed.call("2", "login", login()).await);
    assert_eq!(denied.kind, RefusalKind::Denied);
    let pending = governed.spawn("3", "login", json!({"token": SECRET, "user": "ada"}));
    let held = governed.held().await;
    governed.approve(&held);
    assert_eq!(settled(pending.await.unwrap()).outcome, Outcome::Succeeded);
    governed.close().await.unwrap();
    assert!(
        !serde_json::to_string(&governed.events())
            .unwrap()
            .contains(SECRET)
    );
}

#[tokio::test]
async fn a_command_can_name_its_call_and_no_two_calls_have_one_name() {
    let rest = "[command]\nexec = [\"echo\", \"{_scan_id}\"]\n";
    let governed = Setup::default().manifest("scan", "echo", rest).start();
    let mut seen = std::collections::BTreeSet::new();
    for id in ["1", "2"] {
        let outcome = succeeded(governed.call(id, "scan", json!({})).await);
        assert_eq!(outcome.argv.len(), 2);
        seen.insert(outcome.argv[1].clone());
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    governed.close().await.unwrap();
}

#[tokio::test]
async fn a_host_name_is_looked_up_only_in_scope_and_must_be_public() {
    let rest = "[args.host]\ntype = \"scope_target\"\nblock_internal = true\nrequired = true\n\
                [command]\nexec = [\"echo\", \"{host}\"]\n";
    let governed = Setup::default().manifest("reach", "echo", rest).start();
    let inside = refused(
        governed
            .call("1", "reach", json!({"host": "localhost"}))
            .await,
    );
    assert!(inside.reason.contains("host"), "{inside}");
    let outside = json!({"host": "data.attacker.example.org"});
    refused(governed.call("2", "reach", outside).await);
    assert_eq!(governed.tier.started(), 0);
    governed.close().await.unwrap();
}
