//! Every injection vector by its id, through the entry points that calls use.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;

use model::JsonObject;
use serde_json::{Map, Value};
use toolclad::{BindError, Contract, ProjectRules, TargetFault, ValueFault};

/// Vectors whose verdict here differs on purpose, with the reason.
const DIFFERENT: [(&str, &str); 1] = [(
    "msf-options-accept",
    "one argument is one option, `set KEY VALUE`: the console would read `;` as a second command",
)];

/// All that any vector names is in scope, so that a refusal is the type's own.
const SCOPE: &str = r#"
[scope]
targets = ["0.0.0.0/0", "::/0"]
domains = [
    "localhost", "*.localhost", "*.internal", "*.io", "*.com",
    "example.com", "*.nip.io",
]
"#;

fn rules() -> ProjectRules {
    ProjectRules::parse(None, Some(("scope/scope.toml", SCOPE))).unwrap()
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors/toolclad_injection.json")).unwrap()
}

fn manifest_for(arg: &Map<String, Value>) -> String {
    let mut text = String::from(
        "[tool]\nname = \"t\"\nversion = \"1\"\nbinary = \"echo\"\ndescription = \"x\"\n\
         [command]\nexec = [\"echo\", \"{v}\"]\n[args.v]\nrequired = true\n",
    );
    for (key, value) in arg {
        // JSON strings, booleans and arrays of strings are TOML too.
        text.push_str(&format!("{key} = {value}\n"));
    }
    text
}

fn field<'v>(vector: &'v Value, key: &str) -> &'v str {
    vector[key].as_str().unwrap()
}

#[test]
fn every_argument_vector_has_its_stated_verdict() {
    let (vectors, rules) = (vectors(), rules());
    let mut wrong = Vec::new();
    let mut different = BTreeSet::new();
    for vector in vectors["arg_vectors"].as_array().unwrap() {
        let id = field(vector, "id");
        let text = manifest_for(vector["arg"].as_object().unwrap());
        let parsed = Contract::parse_with("t.clad.toml", &text, &rules);
        let contract = parsed.unwrap_or_else(|error| panic!("{id}: {error}"));
        let mut arguments = Map::new();
        arguments.insert("v".into(), vector["value"].clone());
        let bound = contract.bind(&JsonObject::from_map(arguments));
        if let Ok(bound) = &bound {
            assert_eq!(bound.argv.len(), 2, "{id}");
        }
        let about_scope =
            |fault: &TargetFault| matches!(fault, TargetFault::NoScope | TargetFault::OutOfScope);
        if let Err(BindError::Value {
            fault: ValueFault::Target(fault),
            ..
        }) = &bound
        {
            assert!(!about_scope(fault), "{id}: {fault}");
        }
        let as_stated = bound.is_ok() == (field(vector, "expect") == "accept");
        match DIFFERENT.iter().find(|(different, _)| *different == id) {
            Some((id, _)) if !as_stated => drop(different.insert(*id)),
            None if as_stated => {}
            _ => wrong.push(format!("{id}: {bound:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        different.len(),
        DIFFERENT.len(),
        "an id of the list is no vector"
    );
}

#[test]
fn every_manifest_vector_has_its_stated_verdict() {
    for vector in vectors()["manifest_vectors"].as_array().unwrap() {
        let id = field(vector, "id");
        let parsed = Contract::parse("t.clad.toml", field(vector, "manifest"));
        assert_eq!(
            parsed.is_ok(),
            field(vector, "expect") == "accept",
            "{id}: {parsed:?}"
        );
    }
}
