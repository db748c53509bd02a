//! Every injection vector by its id, through the entry points that calls use.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;

use model::JsonObject;
use serde_json::{Map, Value};
use toolclad::Contract;

const SCOPE: &str = "`scope_target` needs scope rules, which come later";
const MSF: &str = "`msf_options` comes with the session backends";

/// Vectors of types that are not served yet, with the reason. Their manifest must be refused with a
/// line that says so; serving a type means deleting its lines here.
const NOT_YET: [(&str, &str); 16] = [
    ("scope-localhost", SCOPE),
    ("scope-localhost-suffix", SCOPE),
    ("scope-google-metadata-name", SCOPE),
    ("scope-embedded-imds-literal", SCOPE),
    ("scope-embedded-dashed-literal", SCOPE),
    ("scope-supernet-cidr-overlap", SCOPE),
    ("scope-trailing-dot", SCOPE),
    ("scope-numeric-tld", SCOPE),
    ("scope-overlong-host", SCOPE),
    ("scope-overlong-label", SCOPE),
    ("scope-punycode", SCOPE),
    ("scope-accept-hostname", SCOPE),
    ("scope-accept-cidr", SCOPE),
    ("scope-accept-public-ip-block-internal", SCOPE),
    ("msf-options-quote", MSF),
    ("msf-options-accept", MSF),
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

fn field<'v>(vector: &'v Value, key: &str) -> &'v str {
    vector[key].as_str().unwrap()
}

#[test]
fn every_argument_vector_has_its_stated_verdict() {
    let vectors = vectors();
    let mut wrong = Vec::new();
    let mut later = BTreeSet::new();
    for vector in vectors["arg_vectors"].as_array().unwrap() {
        let id = field(vector, "id");
        let type_name = field(&vector["arg"], "type");
        let text = manifest_for(vector["arg"].as_object().unwrap());
        let parsed = Contract::parse("t.clad.toml", &text);
        if let Some((id, _)) = NOT_YET.iter().find(|(later, _)| *later == id) {
            let error = parsed.expect_err(id).to_string();
            let expected = format!("the argument type `{type_name}` is not supported yet");
            assert!(error.contains(&expected), "{id}: {error}");
            later.insert(*id);
            continue;
        }
        let contract = parsed.unwrap_or_else(|error| panic!("{id}: {error}"));
        let mut arguments = Map::new();
        arguments.insert("v".into(), vector["value"].clone());
        let bound = contract.bind(&JsonObject::from_map(arguments));
        if let Ok(bound) = &bound {
            assert_eq!(bound.argv.len(), 2, "{id}");
        }
        if bound.is_ok() != (field(vector, "expect") == "accept") {
            wrong.push(format!("{id}: {bound:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(later.len(), NOT_YET.len(), "an id of the list is no vector");
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
