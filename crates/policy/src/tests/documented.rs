//! The requests in `docs/policies.md` are the ones that Cedar is asked.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use worker::Descriptor;

use super::fixture::{
    command, copy_call, copy_tool, echo_call, echo_tool, launch_call, launches, principals,
    request, source,
};
use crate::{Policies, ToolShape};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");
/// Widest line of a document.
const COLUMNS: usize = 110;

/// `value` with sorted keys: on one line where it fits, else one member a line.
fn write(value: &Value, indent: usize, out: &mut String) {
    let line = one_line(value);
    if indent + line.len() <= COLUMNS || !(value.is_object() || value.is_array()) {
        out.push_str(&line);
        return;
    }
    let (open, close, members) = match value {
        Value::Object(map) => {
            let sorted: BTreeMap<_, _> = map.iter().collect();
            let members = sorted
                .into_iter()
                .map(|(key, item)| (format!("\"{key}\": "), item));
            ('{', '}', members.collect::<Vec<_>>())
        }
        _ => {
            let items = value.as_array().into_iter().flatten();
            ('[', ']', items.map(|item| (String::new(), item)).collect())
        }
    };
    out.push(open);
    for (index, (key, item)) in members.into_iter().enumerate() {
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        out.push_str(&" ".repeat(indent + 2));
        out.push_str(&key);
        write(item, indent + 2, out);
    }
    out.push('\n');
    out.push_str(&" ".repeat(indent));
    out.push(close);
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<_, _> = map.iter().collect();
            let members = sorted.into_iter();
            let members = members.map(|(key, item)| format!("\"{key}\": {}", one_line(item)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", ")).replace("{  }", "{}")
        }
        Value::Array(items) => {
            let items = items.iter().map(one_line).collect::<Vec<_>>();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

fn shown(tool: ToolShape, descriptor: &Descriptor, principal: &str) -> String {
    let text = "permit(principal, action, resource);";
    let policies = Policies::load(
        &[source("p.cedar", text)],
        &[tool],
        &launches(),
        &principals(),
        &[],
    )
    .unwrap();
    let trusted = BTreeMap::new();
    let asked = request(principal, descriptor, &trusted);
    let shown = policies.show(&asked, false).unwrap().unwrap();
    let context: Value = serde_json::from_str(&shown.context).unwrap();
    let mut attributes: Value = serde_json::from_str(&shown.resource_attributes).unwrap();
    assert_eq!(attributes["fingerprint"], asked.call_sha256.to_hex());
    attributes["fingerprint"] = json!("the digest of all of the call, 64 hex digits");
    let mut out = String::new();
    let whole = json!({
        "principal": shown.principal, "action": shown.action, "resource": shown.resource,
        "resource_attributes": attributes, "context": context,
    });
    write(&whole, 0, &mut out);
    out
}

#[test]
fn the_document_shows_the_whole_request_of_each_kind_of_tool() {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let mut missing = String::new();
    for (title, tool, descriptor, principal) in [
        ("A command", echo_tool(), command(echo_call()), "operator"),
        (
            "A command with files",
            copy_tool("copy_csv"),
            command(copy_call()),
            "operator",
        ),
        (
            "A launch",
            echo_tool(),
            Descriptor::Launch(Box::new(launch_call())),
            "reviewer",
        ),
    ] {
        let wanted = format!(
            "#### {title}\n\n```json\n{}\n```\n",
            shown(tool, &descriptor, principal)
        );
        if !document.contains(&wanted) {
            missing.push_str(&wanted);
        }
    }
    assert!(missing.is_empty(), "docs/policies.md lacks:\n{missing}");
}
