//! What a decision and a load cost. Run with `cargo bench -p policy --bench decide`.
//!
//! Bounds: 64 one-condition policies that apply, with the request built, under 200 µs; 64 tools
//! with a policy each at most 1.2 times one tool with one.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench reports and may fail"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use policy::{Policies, Verdict};

mod api {
    pub(crate) use policy::{LaunchShape, PolicySource, PolicyType, Request, ToolKind, ToolShape};
}
#[expect(dead_code, reason = "the tests use the rest")]
#[path = "../src/tests/fixture.rs"]
mod fixture;
use fixture::*;

const ROUNDS: usize = 4000;

fn main() {
    let trusted = BTreeMap::new();
    let call = command(copy_call());
    let asked = request("operator", &call, &trusted);

    let one = load(1, &permits_for_tools(1));
    let each = load(64, &permits_for_tools(64));
    let applying = load(1, &permits_for_one(64));
    let unscoped = load(64, &unscoped_forbids(64));
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        // Interleaved, so that a busy moment of the machine meets all of them.
        for (policies, times) in [&one, &each, &applying, &unscoped]
            .into_iter()
            .zip(&mut times)
        {
            let start = Instant::now();
            let verdict = policies.decide(black_box(&asked));
            times.push(start.elapsed());
            assert!(matches!(verdict, Verdict::Permit { .. } | Verdict::Deny(_)));
        }
    }
    let [one, each, applying, unscoped] = times.map(summary);
    report("decide, 1 tool with 1 policy", one);
    report("decide, 64 tools with 1 policy each", each);
    report("decide, 64 policies that apply", applying);
    report(
        "decide (deny with advice), 64 tools, 64 unscoped forbids",
        unscoped,
    );
    println!(
        "64 tools to 1: {:.2}",
        each.0.as_secs_f64() / one.0.as_secs_f64()
    );

    for (name, tools, text) in [
        ("1 tool, 1 policy", 1, permits_for_tools(1)),
        ("64 tools, 64 policies", 64, permits_for_tools(64)),
        ("64 tools, 64 unscoped policies", 64, unscoped_forbids(64)),
    ] {
        report(
            &format!("load, {name}"),
            summary(timed(30, || load(tools, &text))),
        );
    }
    let text = permits_for_tools(64);
    report(
        "load_validated, 1 tool of 64, 64 policies",
        summary(timed(30, || {
            let sources = [source("p.cedar", &text)];
            Policies::load_validated(&sources, &tools(1), &[], &principals(), &[]).unwrap()
        })),
    );
    let first = Instant::now();
    drop(black_box(load(1, &permits_for_tools(1))));
    println!("warm single load: {:?}", first.elapsed());
}

fn tools(count: usize) -> Vec<api::ToolShape> {
    (0..count)
        .map(|index| copy_tool(&tool_name(index)))
        .collect()
}

fn tool_name(index: usize) -> String {
    if index == 0 {
        "copy_csv".into()
    } else {
        format!("copy_csv{index}")
    }
}

fn load(count: usize, text: &str) -> Policies {
    Policies::load(
        &[source("p.cedar", text)],
        &tools(count),
        &[],
        &principals(),
        &[],
    )
    .unwrap()
}

fn permits_for_tools(count: usize) -> String {
    (0..count)
        .map(|index| permit(index, &tool_name(index)))
        .collect()
}

fn permits_for_one(count: usize) -> String {
    (0..count).map(|index| permit(index, "copy_csv")).collect()
}

fn permit(index: usize, tool: &str) -> String {
    format!(
        "@id(\"p{index}\") permit(principal == Agent::\"operator\", \
         action == Action::\"tool_call::{tool}\", resource) when \
         {{ context.invocation.resolved.command_boundary.filesystem.read.input.parent == \"data\" }};\n"
    )
}

fn unscoped_forbids(count: usize) -> String {
    let files = "context.invocation.resolved.command_boundary.filesystem";
    (0..count)
        .map(|index| {
            format!(
                "forbid(principal, action, resource) when \
                 {{ {files}.read has input && {files}.read.input.parent == \"secret{index}\" }};\n"
            )
        })
        .collect()
}

fn timed<T>(rounds: usize, mut work: impl FnMut() -> T) -> Vec<Duration> {
    let once = |_| {
        let start = Instant::now();
        black_box(work());
        start.elapsed()
    };
    (0..rounds).map(once).collect()
}

/// Fastest and median: the rest is the machine's.
fn summary(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    let at = |part: usize| {
        times
            .get(times.len() * part / 100)
            .copied()
            .unwrap_or_default()
    };
    (at(0), at(50))
}

fn report(name: &str, (fastest, median): (Duration, Duration)) {
    println!("{name}: fastest {fastest:?}, median {median:?}");
}
