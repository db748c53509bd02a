//! What holds for every text, every JSON value and every argument.

#![expect(clippy::panic, reason = "helpers of tests")]

use model::JsonObject;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolclad::{Contract, ProjectRules};

const TYPES: [&str; 21] = [
    "type = \"string\"",
    "type = \"string\"\nallow_whitespace = true\nallow_leading_dash = true",
    "type = \"integer\"\nallow_leading_dash = true",
    "type = \"integer\"\nmin = 3\nmax = 90\nclamp = true",
    "type = \"number\"\nallow_leading_dash = true",
    "type = \"boolean\"",
    "type = \"enum\"\nallowed = [\"a\", \"b\", \"true\", \"1\"]",
    "type = \"path\"",
    "type = \"path\"\nallow_whitespace = true",
    "type = \"port\"",
    "type = \"duration\"",
    "type = \"ip_address\"",
    "type = \"cidr\"",
    "type = \"url\"",
    "type = \"literal_text\"",
    "type = \"agent_summary\"",
    "type = \"scope_target\"",
    "type = \"url\"\nscope_check = true\nblock_internal = true",
    "type = \"cidr\"\nscope_check = true\nsensitive = true",
    "type = \"msf_options\"",
    "type = \"regex_match\"\npattern = \"[a-z]+( [a-z]+)*\"\nallow_whitespace = true",
];

fn rules() -> ProjectRules {
    let scope = "[scope]\ntargets = [\"10.0.0.0/8\", \"::/1\"]\ndomains = [\"*.example.com\"]\n\
                 exclude = [\"10.0.0.1\"]";
    ProjectRules::parse(None, Some(("scope.toml", scope))).unwrap_or_default()
}

fn contract(argument: &str) -> Contract {
    let text = format!(
        "[tool]\nname = \"t\"\nversion = \"1\"\ndescription = \"x\"\nbinary = \"echo\"\n[args.v]\n{argument}\n\
         [command]\nexec = [\"echo\", \"{{v}}\", \"--v={{v}}\", \"end\"]\n"
    );
    Contract::parse_with("t.clad.toml", &text, &rules()).unwrap_or_else(|error| panic!("{error}"))
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        any::<String>().prop_map(Value::String),
        "[-+ a-z0-9./]{0,12}".prop_map(Value::String),
        "-?[0-9]{1,6}(\\.[0-9]{1,4})?".prop_map(Value::String),
        prop::sample::select(vec![
            "true",
            "a",
            "1",
            "data/x.csv",
            "1h30m",
            "10.0.0.0/8",
            "::1",
            "https://example.com/a?b#c",
            "https://10.1.2.3/",
            "www.example.com",
            "10.1.0.0/16",
            "set RPORT 445",
            "set RHOSTS 10.1.2.3",
            "two words",
            "<b>text</b> <!-- hidden -->\u{200b}",
        ])
        .prop_map(Value::from),
        "https?://[a-z0-9.:@\\[\\]]{0,9}/[a-z%?#.]{0,9}".prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            btree_map(".{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Lines that a manifest could have, in any order.
fn manifest_like() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        prop::sample::select(vec![
            "[tool]",
            "name = \"t\"",
            "version = \"1\"",
            "description = \"x\"",
            "binary = \"echo\"",
            "[args]",
            "[args.v]",
            "type = \"integer\"",
            "type = \"enum\"",
            "type = 1",
            "min = 1",
            "max = -1",
            "allowed = [\"a\", 1]",
            "default = 1979-05-27",
            "pattern = \"(\"",
            "[command]",
            "[command.defaults]",
            "exec = [\"echo\", \"{v}\", \"{\"]",
            "exec = \"x\"",
            "[command.mappings.v]",
            "a = \"b\"",
            "[command.conditionals.c]",
            "end_of_options = \"--\"",
            "[mcp]",
            "[mcp.field_map]",
            "server = \"s\"",
            "tool = \"t\"",
            "v = \"w\"",
            "[source]",
            "query = \"read_file\"",
            "[session]",
            "startup_command = \"echo {v}\"",
            "ready_pattern = \">\"",
            "[session.commands.c]",
            "[http]",
            "url = \"https://{v}/{_secret:x}\"",
            "[browser]",
            "mode = \"session\"",
            "[tool.evidence]",
            "output_dir = \"{evidence_dir}/{scan_id}\"",
            "[output.schema]",
            "type = \"object\"",
            "format = \"csv\"",
            "parser = \"custom:/x\"",
            "sensitive = true",
            "when = \"v ==\"",
            "template = [\"{v}\", 1]",
            "[filesystem]",
            "read = [\"{v}\"]",
            "create = [[]]",
            "[output]",
            "format = \"json\"",
            "[tool.limits]",
            "cpus = nan",
            "[tool.cedar]",
            "action = \"::\\\"\"",
        ])
        .prop_map(str::to_owned),
        "[a-z.]{1,8} = [0-9\"a-z{}]{0,8}",
    ];
    vec(line, 0..24).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn parsing_never_panics_on_any_text(text in any::<String>()) {
        if let Err(errors) = Contract::parse("t.clad.toml", &text) {
            prop_assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn parsing_never_panics_on_nearly_manifests(text in manifest_like()) {
        if let Err(errors) = Contract::parse("t.clad.toml", &text) {
            prop_assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn binding_never_panics_and_never_shows_a_control(
        kind in prop::sample::select(TYPES.to_vec()),
        key in prop_oneof![Just("v".to_owned()), any::<String>()],
        value in json_value(),
    ) {
        let mut map = Map::new();
        map.insert(key, value);
        if let Err(error) = contract(kind).bind(&JsonObject::from_map(map)) {
            let message = error.to_string();
            let shown = |c: char| c == '…' || (' '..='~').contains(&c);
            prop_assert!(message.chars().all(shown), "{message:?}");
        }
    }

    #[test]
    fn no_accepted_value_changes_the_number_of_entries_and_policy_sees_argvs_bytes(
        kind in prop::sample::select(TYPES.to_vec()),
        value in json_value(),
    ) {
        let mut map = Map::new();
        map.insert("v".into(), value);
        if let Ok(bound) = contract(kind).bind(&JsonObject::from_map(map)) {
            prop_assert_eq!(bound.argv.len(), 4);
            let first = bound.arguments.values().next();
            let printed = first.map(ToString::to_string).unwrap_or_default();
            prop_assert_eq!(&bound.argv[1], &printed);
            prop_assert_eq!(&bound.argv[2], &format!("--v={printed}"));
            prop_assert!(!printed.contains('\0'));
            let literal = kind.contains("literal_text") || kind.contains("agent_summary");
            prop_assert_eq!(bound.shown_argv.len(), bound.argv.len());
            if kind.contains("sensitive") {
                prop_assert_eq!(&bound.shown_argv[2], "--v=[sensitive]");
            }
            prop_assert!(literal || !printed.contains(['\n', '\'', '"', '\\', ';', '$', '`']));
        }
    }

    #[test]
    fn an_accepted_value_binds_again_from_its_own_print(
        kind in prop::sample::select(TYPES.to_vec()),
        value in json_value(),
    ) {
        let contract = contract(kind);
        let bind = |value: Value| {
            let mut map = Map::new();
            map.insert("v".into(), value);
            contract.bind(&JsonObject::from_map(map))
        };
        if let Ok(first) = bind(value) {
            let again = bind(Value::String(first.argv[1].clone())).unwrap();
            prop_assert_eq!(first.argv, again.argv);
            prop_assert_eq!(first.arguments, again.arguments);
        }
    }
}
