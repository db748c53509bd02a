//! Calls on the container tiers that do not end well, or are many. `./test` has their engine.

use std::fs;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::containers::{nothing_is_left, on, on_both, told};
use crate::desk::{Desk, Ended, wait};
use sandbox::engine::{ContainerFilter, Engine};

/// Calls of the crowd, the processes that start them, and the user's workers.
const CALLS: usize = 32;
const STARTERS: usize = 4;
const WORKERS: usize = 8;
/// Exit code of a refusal.
const REFUSED: i32 = 3;

/// A project with one more tool.
fn with_tool(tier: &str, name: &str, manifest: &str, more: &str) -> Desk {
    let desk = on(tier, &told("SYMBI_TEST_IMAGE"), more);
    let head =
        format!("[tool]\nname = \"{name}\"\nversion = \"1.0.0\"\ndescription = \"A test\"\n");
    let file = format!("tools/{name}.clad.toml");
    fs::write(desk.project().join(file), head + manifest).unwrap();
    let policy = format!(
        "permit(principal, action == Action::\"tool_call::{name}\", resource)\n\
         when {{ context.invocation.resolved.command_boundary.network == \"none\" }};\n"
    );
    fs::write(desk.project().join("policies/call/more.cedar"), policy).unwrap();
    desk.trust();
    desk
}

fn call(desk: &Desk, name: &str) -> Ended {
    desk.symbi(&["--project", "project", "--json", "call", name])
}

/// What it prints is JSON only after the parser has turned its lines around.
const PARSED: &str = "binary = \"printf\"\n[command]\n\
                      exec = [\"printf\", \"2}}\\\\n{{\\\"rows\\\":\\\\n\"]\n\
                      [output]\nparser = \"custom:/usr/bin/tac\"\n";

fn a_parser_of_the_image_reads_the_output_in_a_container_of_its_own(tier: &str) {
    let allow = "[sandbox.parsers]\nallow = [\"/usr/bin/tac\"]\n";
    let desk = with_tool(tier, "parsed", PARSED, allow);
    let ended = call(&desk, "parsed").expect(0);
    assert!(ended.stdout.contains("{\"rows\":2}"), "{}", ended.stdout);
    let journal = desk.verified_journal();
    assert!(journal.contains("/usr/bin/tac"), "{journal}");
    nothing_is_left(&desk);
}

fn a_parser_that_is_not_in_the_image_publishes_nothing_and_is_named(tier: &str) {
    let absent = PARSED.replace("/usr/bin/tac", "/usr/bin/none-of-it");
    let allow = "[sandbox.parsers]\nallow = [\"/usr/bin/none-of-it\"]\n";
    let desk = with_tool(tier, "parsed", &absent, allow);
    let ended = call(&desk, "parsed").expect(1);
    ended.says(
        "its output parser: the worker did not start: run the program: it is not in the image",
    );
    desk.verified_journal();
    nothing_is_left(&desk);
}

fn a_call_past_its_time_is_recorded_as_that_and_its_container_is_gone(tier: &str) {
    let slow = "binary = \"sleep\"\ntimeout_seconds = 2\n[command]\nexec = [\"sleep\", \"600\"]\n";
    let desk = with_tool(tier, "slow", slow, "");
    let ended = call(&desk, "slow").expect(1);
    ended.says("stopped at its time limit of 2 s");
    desk.verified_journal();
    nothing_is_left(&desk);
}

fn a_worker_that_takes_more_memory_than_it_has_is_told_so(tier: &str) {
    // It looks for the beginning of the last line, which never ends.
    let greedy = "binary = \"tail\"\n[tool.limits]\nmemory_mib = 64\n[command]\n\
                  exec = [\"tail\", \"/dev/zero\"]\n";
    let desk = with_tool(tier, "greedy", greedy, "");
    let ended = call(&desk, "greedy").expect(1);
    ended.says("ran out of memory (`memory_mib`)");
    desk.verified_journal();
    nothing_is_left(&desk);
}

/// A worker starts only where the engine says that the container is in that network alone.
fn a_bridge_is_seen_by_policies_and_in_the_journal_and_a_worker_starts_with_it(tier: &str) {
    let still = "binary = \"true\"\n[command]\nexec = [\"true\"]\n";
    let bridge = "network = \"bridge\"\n[project]\nproduction = false\n";
    let desk = with_tool(tier, "still", still, bridge);
    call(&desk, "still")
        .expect(REFUSED)
        .says("`policies/call/more.cedar#1`, whose condition is not met");
    let policy = desk.project().join("policies/call/more.cedar");
    let text = fs::read_to_string(&policy).unwrap();
    fs::write(&policy, text.replace("\"none\"", "\"bridge\"")).unwrap();
    desk.trust();
    call(&desk, "still").expect(0);
    let journals = desk.journals().into_iter();
    let journals = journals.map(|path| fs::read_to_string(path).unwrap());
    let of_bridge = journals.filter(|it| it.contains("\"network\":\"bridge\""));
    assert_eq!(of_bridge.count(), 1);
    nothing_is_left(&desk);
}

/// Calls one after the other until each was let in and has ended well.
fn let_in(desk: &Desk, mut waiting: Vec<usize>) {
    while !waiting.is_empty() {
        let words = ["--project", "project", "--json", "call", "brief"];
        let started: Vec<(usize, Child)> =
            waiting.drain(..).map(|n| (n, desk.start(&words))).collect();
        for (number, child) in started {
            let ended = wait(child);
            match ended.code {
                Some(0) => {}
                Some(REFUSED) => {
                    drop(ended.says("8 of 8 workers"));
                    waiting.push(number);
                }
                _ => drop(ended.expect(0)),
            }
        }
    }
}

fn thirty_two_calls_of_four_starters_share_eight_workers_and_none_is_lost(tier: &str) {
    let brief = "binary = \"sleep\"\n[command]\nexec = [\"sleep\", \"0.3\"]\n";
    let desk = with_tool(tier, "brief", brief, "");
    let is_over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let (desk, is_over) = (&desk, &is_over);
        let watching = scope.spawn(move || most_at_once(desk, is_over));
        let starters: Vec<_> = (0..STARTERS)
            .map(|_| scope.spawn(|| let_in(desk, (0..CALLS / STARTERS).collect())))
            .collect();
        for starter in starters {
            starter.join().unwrap();
        }
        is_over.store(true, Ordering::Release);
        watching.join().unwrap()
    });
    assert!((1..=WORKERS).contains(&most), "{most}");
    let ended = desk
        .journals()
        .into_iter()
        .map(|it| fs::read_to_string(it).unwrap());
    let done = ended.filter(|it| it.contains("\"worker\":\"symbi-"));
    assert_eq!(done.count(), CALLS);
    nothing_is_left(&desk);
}

/// The most containers of this user's supervisor that the engine had at one time.
pub(crate) fn most_at_once(desk: &Desk, is_over: &AtomicBool) -> usize {
    let engine = Engine::at(told("SYMBI_TEST_ENGINE"));
    let name = desk.path("state/symbi/supervisor/store");
    let mut most = 0;
    while !is_over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(20));
        let Ok(store) = fs::read_to_string(&name) else {
            continue;
        };
        let all = engine
            .list(&ContainerFilter::default().with_label("symbi.lease"))
            .unwrap();
        let ours = all
            .iter()
            .filter(|it| it.labels["symbi.lease"].starts_with(store.trim()));
        most = most.max(ours.count());
    }
    most
}

on_both!(
    a_parser_of_the_image_reads_the_output_in_a_container_of_its_own,
    a_parser_that_is_not_in_the_image_publishes_nothing_and_is_named,
    a_call_past_its_time_is_recorded_as_that_and_its_container_is_gone,
    a_worker_that_takes_more_memory_than_it_has_is_told_so,
    a_bridge_is_seen_by_policies_and_in_the_journal_and_a_worker_starts_with_it,
);

/// Connects to the one host that the bridge of the tests' engine leads to.
const REACH: &str = "binary = \"python3\"\n[command]\nallow_interpreter = true\n\
    exec = [\"python3\", \"-c\", \"\"\"import socket\n\
    try: print(socket.create_connection(('203.0.113.1', 4715), 10).recv(9))\n\
    except OSError as error: print(error)\"\"\"]\n[output]\nformat = \"text\"\n";

#[test]
#[ignore = "needs docker: run ./test"]
fn a_worker_on_a_bridge_that_leads_out_reaches_a_host_there_and_a_default_one_does_not() {
    let bridge = "network = \"bridge\"\n[project]\nproduction = false\n";
    for (tier, more, network, seen) in [
        ("docker", "", "none", "Network is unreachable"),
        ("docker", bridge, "bridge", "b'outside'"),
        ("gvisor", "", "none", "No route to host"),
        // The tests' runsc has `--network=none`.
        ("gvisor", bridge, "bridge", "No route to host"),
    ] {
        let desk = with_tool(tier, "reach", REACH, more);
        let policy = desk.project().join("policies/call/more.cedar");
        let text = fs::read_to_string(&policy).unwrap();
        fs::write(&policy, text.replace("\"none\"", &format!("\"{network}\""))).unwrap();
        desk.trust();
        let ended = call(&desk, "reach").expect(0);
        let said = &ended.stdout;
        assert!(said.contains(seen), "{tier}, {network}: {said}");
        nothing_is_left(&desk);
    }
}

#[test]
#[ignore = "needs docker: run ./test"]
fn thirty_two_calls_of_four_starters_share_eight_docker_workers_and_none_is_lost() {
    thirty_two_calls_of_four_starters_share_eight_workers_and_none_is_lost("docker");
}
