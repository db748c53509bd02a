//! Every injection vector by its id, through the entry points that calls use.

use std::collections::BTreeMap;

use model::JsonObject;
use serde_json::{Map, Value};
use toolclad::Contract;

/// Vectors whose argument type the crate does not serve yet. The manifest must be refused with a
/// line that says so; serving the type means deleting its line here.
const NOT_YET: [(&str, &str); 8] = [
    ("scope_target", "needs scope rules and a resolver"),
    ("msf_options", "comes with the session backends"),
    ("credential_file", "comes with the scope rules"),
    ("agent_summary", "comes with free-text flags"),
    ("url", "needs the network rules"),
    ("cidr", "needs the network rules"),
    ("duration", "next"),
    ("regex_match", "next"),
];

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

fn not_yet(type_name: &str) -> Option<&'static str> {
    NOT_YET
        .iter()
        .find(|(name, _)| *name == type_name)
        .map(|(_, reason)| *reason)
}

fn field<'v>(vector: &'v Value, key: &str) -> &'v str {
    vector[key].as_str().unwrap()
}

#[test]
fn every_argument_vector_has_its_stated_verdict() {
    let vectors = vectors();
    let mut wrong = Vec::new();
    let mut later = BTreeMap::<&str, usize>::new();
    for vector in vectors["arg_vectors"].as_array().unwrap() {
        let id = field(vector, "id");
        let type_name = field(&vector["arg"], "type");
        let text = manifest_for(vector["arg"].as_object().unwrap());
        let parsed = Contract::parse("t.clad.toml", &text);
        if not_yet(type_name).is_some() {
            let error = parsed.expect_err(id).to_string();
            let expected = format!("the argument type `{type_name}` is not supported yet");
            assert!(error.contains(&expected), "{id}: {error}");
            *later.entry(type_name).or_default() += 1;
            continue;
        }
        let contract = parsed.unwrap_or_else(|error| panic!("{id}: {error}"));
        let mut arguments = Map::new();
        arguments.insert("v".into(), vector["value"].clone());
        let bound = contract.bind(&JsonObject::from_map(arguments));
        let accepted = bound.is_ok();
        if let Ok(bound) = &bound {
            assert_eq!(bound.argv.len(), 2, "{id}");
        }
        if accepted != (field(vector, "expect") == "accept") {
            wrong.push(format!("{id}: {bound:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    eprintln!("not supported yet, refused at load: {later:?}");
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
