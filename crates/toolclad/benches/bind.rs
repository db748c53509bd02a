//! How long a ten-argument call takes to bind, and 256 manifests to load.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use model::JsonObject;
use serde_json::{Value, json};
use toolclad::{ContractSet, ProjectRules};

const ROUNDS: u32 = 20_000;
const LOADS: usize = 20;

const ARGUMENTS: &str = r#"
[args.host]
type = "scope_target"
required = true
[args.url]
type = "url"
required = true
scope_check = true
[args.port]
type = "port"
default = 443
[args.rate]
type = "integer"
min = 1
max = 1000
clamp = true
[args.ratio]
type = "number"
max = 10
[args.verbose]
type = "boolean"
[args.mode]
type = "enum"
allowed = ["fast", "deep"]
required = true
[args.name]
type = "string"
pattern = "[a-z][a-z0-9_-]*"
[args.input]
type = "path"
required = true
[args.wait]
type = "duration"
[command]
exec = ["scan", "{_mode_flags}", "--port={port}", "--rate={rate}", "--ratio={ratio}",
    "--verbose={verbose}", "--name", "{name}", "--wait", "{wait}", "{url}", "{host}", "{input}"]
[command.mappings.mode]
fast = ["-f"]
deep = ["-d", "-d"]
[filesystem]
read = ["{input}"]
[output]
format = "json"
[output.schema]
type = "object"
[output.schema.properties.hosts]
type = "array"
"#;

fn manifests() -> Vec<(String, String)> {
    let one = |n: usize| {
        let head = format!(
            "[tool]\nname = \"scan_{n}\"\nversion = \"1.0.0\"\nbinary = \"scan\"\ndescription = \"Scan\"\n"
        );
        (
            format!("tools/scan_{n}.clad.toml"),
            format!("{head}{ARGUMENTS}"),
        )
    };
    (0..toolclad::limits::TOOLS_MAX).map(one).collect()
}

fn call() -> JsonObject {
    let value = json!({
        "host": "10.0.1.7", "url": "https://www.example.com/a/b?c=d", "port": 8443, "rate": "100",
        "ratio": 1.5, "verbose": true, "mode": "deep", "name": "first_scan",
        "input": "data/hosts.txt", "wait": "1m30s",
    });
    match value {
        Value::Object(map) => JsonObject::from_map(map),
        _ => JsonObject::default(),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn main() -> Result<(), Box<dyn Error>> {
    let scope = "[scope]\ntargets = [\"10.0.0.0/16\"]\ndomains = [\"*.example.com\"]\nexclude = [\"10.0.9.0/24\"]";
    let rules = ProjectRules::parse(None, Some(("scope/scope.toml", scope)))?;
    let files = manifests();
    let mut loads = Vec::new();
    for _ in 0..LOADS {
        let files = files.clone();
        let begin = Instant::now();
        black_box(ContractSet::parse_with(files, &rules)?);
        loads.push(begin.elapsed());
    }
    let set = ContractSet::parse_with(files, &rules)?;
    let contract = set.iter().next().ok_or("the set is empty")?;
    let arguments = call();
    let mut binds = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        black_box(contract.bind(black_box(&arguments))?);
        binds.push(begin.elapsed());
    }
    println!(
        "bind, ten arguments: {:.1} us",
        median(binds).as_secs_f64() * 1e6
    );
    println!(
        "load, 256 manifests: {:.1} ms",
        median(loads).as_secs_f64() * 1e3
    );
    Ok(())
}
