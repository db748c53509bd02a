//! The time of what an untrusted author or client chooses is bounded: the largest manifest, the
//! most tools, patterns that make other engines run for years.

use std::time::{Duration, Instant};

use model::JsonObject;
use toolclad::limits::{MANIFEST_BYTES_MAX, PATTERN_BYTES_MAX, TOOLS_MAX, VALUE_BYTES_MAX};
use toolclad::{Contract, ContractSet};

/// Far more than any of it takes, also without optimization on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(20);

const HEAD: &str = "version = \"1\"\ndescription = \"T\"\nbinary = \"echo\"\n";

fn manifest(name: &str, rest: &str) -> (String, String) {
    let text = format!("[tool]\nname = \"{name}\"\n{HEAD}{rest}");
    (format!("tools/{name}.clad.toml"), text)
}

fn within(what: &str, work: impl FnOnce()) {
    let begin = Instant::now();
    work();
    let took = begin.elapsed();
    assert!(took < PATIENCE, "{what} took {took:?}");
}

#[test]
fn a_manifest_of_the_largest_size_is_read_or_refused_in_bounded_time() {
    let fill = |unit: &str| {
        let (_, head) = manifest("t", "");
        let room = MANIFEST_BYTES_MAX - head.len() - 64;
        unit.repeat(room / unit.len())
    };
    let texts = [
        format!("[command]\nexec = [\"echo\", \"{}\"]\n", fill("{a}")),
        format!("[command]\nexec = [{}]\n", fill("\"x\", ")),
        fill("[args.a]\n"),
        fill("a.b.c.d.e.f = 1\n"),
        format!("x = {}", fill("[")),
        format!("x = \"\"\"{}\"\"\"", fill("\\\\")),
        fill("# comment\n"),
    ];
    for (index, rest) in texts.into_iter().enumerate() {
        let (file, text) = manifest("t", &rest);
        assert!(text.len() <= MANIFEST_BYTES_MAX);
        within(&format!("manifest {index}"), || {
            let _ = Contract::parse(&file, &text);
        });
    }
}

#[test]
fn the_most_tools_with_the_largest_schemas_are_read_in_bounded_time() {
    let properties: String = (0..64)
        .map(|n| {
            format!("[output.schema.properties.p{n}]\ntype = \"string\"\npattern = \"^a+$\"\n")
        })
        .collect();
    let rest = format!(
        "[command]\nexec = [\"echo\"]\n[output]\nformat = \"json\"\n[output.schema]\n\
         type = \"object\"\n{properties}"
    );
    let files: Vec<_> = (0..TOOLS_MAX)
        .map(|n| manifest(&format!("t{n}"), &rest))
        .collect();
    within("256 tools", || {
        assert_eq!(ContractSet::parse(files).unwrap().len(), TOOLS_MAX);
    });
}

#[test]
fn a_hostile_pattern_matches_in_linear_time_or_is_refused() {
    let nested = format!("{}a{}", "(".repeat(30), ")*".repeat(30));
    let long = "(a|aa)+".repeat(PATTERN_BYTES_MAX / 7);
    for pattern in [
        "(a*)*b",
        "(a|a)*b",
        "(.*a){20}",
        "(a?){500}a{500}",
        "(\\\\w{1,100}){1,100}",
        nested.as_str(),
        long.as_str(),
    ] {
        let rest = format!(
            "[args.a]\ntype = \"string\"\npattern = \"{pattern}\"\n[command]\nexec = [\"echo\", \"{{a}}\"]\n"
        );
        let (file, text) = manifest("t", &rest);
        within(pattern, || {
            let Ok(contract) = Contract::parse(&file, &text) else {
                return;
            };
            let value = "a".repeat(VALUE_BYTES_MAX);
            let json = serde_json::json!({ "a": value });
            let map = json.as_object().expect("an object").clone();
            for _ in 0..8 {
                let _ = contract.bind(&JsonObject::from_map(map.clone()));
            }
        });
    }
}
