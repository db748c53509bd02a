//! Sessions that live while their calls come and go, on both container tiers: see `./test`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::client::Client;
use crate::container_calls::most_at_once;
use crate::containers::{add_tool, asker, nothing_is_left, on, on_both, told};
use crate::desk::{Desk, append};

/// The sessions, what each asks for at once, and what the user's workers are together.
const SESSIONS: usize = 4;
const CALLS: usize = 8;
const WORKERS: usize = 3;

fn permit(desk: &Desk, folder: &str, principal: &str, tool: &str) {
    let folder = desk.project().join("policies").join(folder);
    fs::create_dir_all(&folder).unwrap();
    let policy = format!(
        "permit(principal == Agent::\"{principal}\", action == Action::\"tool_call::{tool}\", \
         resource);\n"
    );
    fs::write(folder.join(format!("{tool}.cedar")), policy).unwrap();
}

fn an_agents_call_past_its_time_ends_alone_and_its_next_one_works(tier: &str) {
    let counted = json!({"input": "data/example.csv"});
    let calls = [("slow", json!({})), ("word_count", counted)];
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), "");
    append(
        &desk.project().join("symbiont.toml"),
        &asker(Path::new("/nowhere"), &calls),
    );
    add_tool(&desk, "slow", 2, &["sleep", "600"], "");
    permit(&desk, "run", "asker", "slow");
    let ended = desk.run("asker", &[]).expect(0).says("agent: succeeded");
    let late = "stopped at its time limit of 2 s";
    let (slow, next) = (
        ended.stdout.find(late).unwrap(),
        ended.stdout.rfind("succeeded").unwrap(),
    );
    assert!(slow < next, "{}", ended.stdout);
    let journal = desk.verified_journal();
    assert_eq!(journal.matches("\"kind\":\"CallDispatching\"").count(), 3);
    assert!(journal.contains("\"completed\":true"), "{journal}");
    nothing_is_left(&desk);
}

/// Asks for all its calls at once, and for those that found no room again, until each was let in.
fn let_in(desk: &Desk) {
    let mut client = Client::initialized(desk, &[]);
    let mut number = 0;
    let mut waiting = CALLS;
    while waiting > 0 {
        for _ in 0..waiting {
            number += 1;
            client.request(
                number,
                "tools/call",
                &json!({"name": "brief", "arguments": {}}),
            );
        }
        let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..waiting {
            let answer = client.answer();
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            let full = text.contains(&format!("{WORKERS} of {WORKERS} workers"));
            let envelope: serde_json::Value = serde_json::from_str(text).unwrap();
            let status = envelope["status"].as_str().unwrap();
            assert!(full || status == "succeeded", "{text}");
            *statuses.entry(status.to_owned()).or_default() += 1;
        }
        waiting -= statuses.get("succeeded").unwrap_or(&0);
        // A refusal takes no time at all, and each spends one of the session's attempts.
        std::thread::sleep(Duration::from_millis(300));
    }
    client.leave().expect(0).says("session: completed");
}

fn thirty_two_calls_of_four_sessions_share_three_workers_and_none_is_lost(tier: &str) {
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), "");
    desk.configure("config.toml", &format!("[capacity]\nworkers = {WORKERS}\n"));
    add_tool(&desk, "brief", 30, &["sleep", "0.3"], "");
    permit(&desk, "mcp", "mcp", "brief");
    desk.trust();
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let (desk, is_over) = (&desk, &is_over);
        let watching = scope.spawn(move || most_at_once(desk, is_over));
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|_| scope.spawn(move || let_in(desk)))
            .collect();
        let ends: Vec<_> = sessions.into_iter().map(|it| it.join()).collect();
        is_over.store(true, Ordering::Release);
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
        watching.join().unwrap()
    });
    assert_eq!(most, WORKERS);
    let journals = desk.journals();
    assert_eq!(journals.len(), SESSIONS);
    let texts = journals.iter().map(|it| fs::read_to_string(it).unwrap());
    let done = texts.map(|it| it.matches("\"worker\":\"symbi-").count());
    assert_eq!(done.sum::<usize>(), SESSIONS * CALLS);
    nothing_is_left(&desk);
}

on_both!(
    an_agents_call_past_its_time_ends_alone_and_its_next_one_works,
    thirty_two_calls_of_four_sessions_share_three_workers_and_none_is_lost,
);
