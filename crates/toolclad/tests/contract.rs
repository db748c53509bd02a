//! What a manifest says, what it may not say, and what a bound call becomes.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use model::{ArgumentName, ArgumentValue, JsonObject, RiskTier, ToolName};
use serde_json::{Value, json};
use toolclad::{BindError, BoundCall, Contract, ContractSet, PolicyType, limits};

const COPY: &str = r#"
[tool]
name = "copy_csv"
version = "1.0.0"
description = "Copy one CSV file"
binary = "cp"
timeout_seconds = 10
[args.input]
position = 1
required = true
type = "path"
[args.output]
position = 2
required = true
type = "path"
[command]
exec = ["cp", "{input}", "{output}"]
[filesystem]
read = ["{input}"]
create = ["{output}"]
[output]
format = "text"
"#;

/// A manifest named `t` with `rest` after its `[tool]` table.
fn manifest(rest: &str) -> String {
    format!(
        "[tool]\nname = \"t\"\nversion = \"1\"\ndescription = \"x\"\nbinary = \"echo\"\n{rest}\n"
    )
}

fn parse(rest: &str) -> Contract {
    let text = manifest(rest);
    Contract::parse("tools/t.clad.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// The faults. Whatever is wrong, each says what to do.
fn refused(rest: &str) -> String {
    let text = manifest(rest);
    let Err(errors) = Contract::parse("tools/t.clad.toml", &text) else {
        panic!("accepted:\n{text}");
    };
    for fault in &errors {
        assert!(fault.help.is_some(), "no remedy: {fault}");
    }
    errors.to_string()
}

/// A contract with the one argument `v` that its command prints.
fn one(argument: &str) -> Contract {
    parse(&format!(
        "[args.v]\n{argument}\n[command]\nexec = [\"echo\", \"{{v}}\"]"
    ))
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(map) => JsonObject::from_map(map),
        other => panic!("{other}"),
    }
}

fn bind(contract: &Contract, value: Value) -> Result<BoundCall, BindError> {
    contract.bind(&object(value))
}

fn argument(name: &str) -> ArgumentName {
    ArgumentName::new(name).unwrap()
}

#[test]
fn the_design_example_parses_and_binds_its_files() {
    let contract = Contract::parse("tools/copy_csv.clad.toml", COPY).unwrap();
    assert_eq!(contract.name().as_str(), "copy_csv");
    assert_eq!(contract.program(), "cp");
    assert_eq!(contract.time_limit_ms(), 10_000);
    assert_eq!(contract.max_file_bytes(), limits::FILE_BYTES_DEFAULT);
    assert_eq!(contract.digest(), model::Digest::of(COPY.as_bytes()));
    assert_eq!(contract.risk_tier(), RiskTier::Low);
    assert!(!contract.needs_approval());
    let bound = bind(
        &contract,
        json!({"input": "data/a.csv", "output": "out/b.csv"}),
    )
    .unwrap();
    assert_eq!(bound.argv, ["cp", "data/a.csv", "out/b.csv"]);
    assert_eq!(bound.reads["input"].as_str(), "data/a.csv");
    assert_eq!(bound.creates["output"].as_str(), "out/b.csv");
    let files = contract.file_arguments();
    assert_eq!(
        (files.len(), files[1].key.as_str(), files[1].creates),
        (2, "output", true)
    );
    assert!(files.iter().all(|file| !file.optional));
}

#[test]
fn every_fault_is_reported_with_its_place_and_the_nearest_key() {
    let text = COPY
        .replace("timeout_seconds", "timeout_second")
        .replace(
            "required = true\ntype = \"path\"\n[command]",
            "required = 1\ntype = \"pth\"\n[command]",
        )
        .replace(
            "{input}\", \"{output}\"]\n[file",
            "{inptu}\", \"{output}\"]\n[file",
        );
    let errors = Contract::parse("copy_csv.clad.toml", &text).unwrap_err();
    let shown = errors.to_string();
    assert_eq!(errors.iter().count(), 4, "{shown}");
    for part in [
        "copy_csv.clad.toml:7:1: unknown key `tool.timeout_second`\n  7 | timeout_second = 10",
        "did you mean `timeout_seconds`?",
        ":14:12: `args.output.required` must be `true` or `false`, not an integer",
        ":15:8: `args.output.type` has the unknown value `pth`",
        "did you mean `path`?",
        ":17:16: the placeholder `{inptu}` names nothing",
        "did you mean `input`?",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn a_fault_that_is_found_twice_is_told_once() {
    let told = refused("[args.x]\ntype = [\"path\"]\n[command]\nexec = [\"echo\"]");
    let fault = "`args.x.type` must be a string, not an array";
    assert_eq!(told.matches(fault).count(), 1, "{told}");
    let scope = toolclad::Scope::parse("scope.toml", "x = 1").unwrap_err();
    assert!(!scope.to_string().contains("`scope`, `scope`"), "{scope}");
}

#[test]
fn a_syntax_fault_has_its_place() {
    let errors = Contract::parse("t.clad.toml", "[tool]\nname = \n").unwrap_err();
    let fault = errors.iter().next().unwrap();
    assert_eq!((fault.line, fault.column), (2, 8), "{errors}");
    let twice = Contract::parse("t.clad.toml", "[tool]\nname=\"a\"\nname=\"b\"").unwrap_err();
    assert!(
        twice.to_string().contains("`name` is given twice"),
        "{twice}"
    );
    for rest in [
        "x = ",
        "x = yes",
        "x = [1 2]",
        "x",
        "x = \"a",
        "x = \"\\c\"",
        "x = \'\'\'a",
        "[x",
        "[x]\n[x]",
    ] {
        assert!(!refused(rest).is_empty());
    }
}

#[test]
fn tables_of_thousands_of_levels_and_a_byte_order_mark_are_refused_where_they_stand() {
    let deep = refused(&format!("[tool{}]\na = 1", ".x".repeat(5000)));
    assert!(
        deep.starts_with("tools/t.clad.toml:6:1: tables or lists are nested too deep"),
        "{deep}"
    );
    let lists = refused(&format!("a = {}1{}", "[".repeat(5000), "]".repeat(5000)));
    assert!(lists.contains(":6:"), "{lists}");
    assert!(lists.contains("nested too deep"), "{lists}");
    let marked = format!("\u{feff}{}", manifest("[command]\nexec = [\"echo\"]"));
    let errors = Contract::parse("tools/t.clad.toml", &marked).unwrap_err();
    let fault = errors.iter().next().unwrap();
    assert_eq!((fault.line, fault.column), (1, 1));
    assert!(errors.to_string().contains("without a byte order mark"));
}

#[test]
fn the_file_is_named_as_its_tool() {
    let fault = |file: &str| Contract::parse(file, COPY).unwrap_err().to_string();
    assert!(fault("tools/other.clad.toml").contains("name the file `copy_csv.clad.toml`"));
    assert!(fault("tools/copy_csv.toml").contains("ends in `.clad.toml`"));
}

#[test]
fn names_of_launch_executors_are_reserved() {
    for name in ["claude_code", "command"] {
        let text = COPY.replace("copy_csv", name);
        let error = Contract::parse(&format!("{name}.clad.toml"), &text).unwrap_err();
        assert!(error.to_string().contains("reserved"), "{error}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let errors = Contract::parse("t.clad.toml", "[tool]\n")
        .unwrap_err()
        .to_string();
    for key in [
        "tool.name",
        "tool.version",
        "tool.description",
        "tool.binary",
        "command",
    ] {
        assert!(
            errors.contains(&format!("`{key}` is missing")),
            "{key}\n{errors}"
        );
    }
    assert!(Contract::parse("t.clad.toml", "").is_err());
    assert!(refused("[command]").contains("`command.exec` is missing"));
}

#[test]
fn the_environment_and_executor_scripts_are_refused() {
    assert!(refused("[command]\nexec = [\"echo\"]\nenv = {A = \"b\"}").contains("environment"));
    assert!(refused("[command]\nexecutor = \"x.sh\"").contains("no executor script"));
}

#[test]
fn keys_of_another_type_are_refused() {
    for rest in [
        "type = \"string\"\nmin = 1",
        "type = \"integer\"\npattern = \"a\"",
        "type = \"boolean\"\nallowed = [\"true\"]",
        "type = \"path\"\nschemes = [\"http\"]",
        "type = \"port\"\nallow_leading_dash = true",
        "type = \"integer\"\nmin_float = 1.0",
    ] {
        let error = refused(&format!("[args.v]\n{rest}\n[command]\nexec = [\"echo\"]"));
        assert!(error.contains("does not apply to type"), "{error}");
    }
}

#[test]
fn argv_0_is_the_binary_and_no_interpreter_by_accident() {
    assert!(refused("[command]\nexec = [\"cat\"]").contains("`tool.binary` is `echo`"));
    assert!(refused("[command]\nexec = []").contains("is empty"));
    let exec = |binary: &str, more: &str| {
        let text = format!(
            "[tool]\nname = \"t\"\nversion = \"1\"\ndescription = \"x\"\nbinary = \"{binary}\"\n\
             [command]\nexec = [\"{binary}\", \"x\"]\n{more}"
        );
        Contract::parse("t.clad.toml", &text).map_err(|error| error.to_string())
    };
    for interpreter in ["sh", "/bin/bash", "python3", "python3.12", "env", "busybox"] {
        let error = exec(interpreter, "").unwrap_err();
        assert!(error.contains("allow_interpreter"), "{error}");
        assert!(
            exec(interpreter, "allow_interpreter = true").is_ok(),
            "{interpreter}"
        );
    }
    for good in ["cp", "/usr/bin/cp", "g++", "x86_64-linux-gnu-gcc"] {
        assert!(exec(good, "").is_ok(), "{good}");
    }
    for bad in [
        "{v}",
        "bin/cp",
        "../cp",
        "/bin/../cp",
        "-cp",
        "a b",
        "",
        "/",
        "cp;",
    ] {
        assert!(exec(bad, "").is_err(), "{bad}");
    }
}

#[test]
fn an_absent_optional_argument_is_absent_and_keeps_its_slot() {
    let contract = parse(
        "[args.a]\ntype = \"string\"\n[args.b]\ntype = \"integer\"\ndefault = 4\n\
         [command]\nexec = [\"echo\", \"{a}\", \"--n={b}\", \"{{{a}}}\"]",
    );
    let bound = bind(&contract, json!({})).unwrap();
    assert_eq!(bound.argv, ["echo", "", "--n=4", "{}"]);
    assert!(!bound.arguments.contains_key(&argument("a")));
    assert_eq!(bound.arguments[&argument("b")], ArgumentValue::Integer(4));
    let bound = bind(&contract, json!({"a": "", "b": "5"})).unwrap();
    assert_eq!(bound.argv, ["echo", "", "--n=5", "{}"]);
    assert!(bound.arguments.contains_key(&argument("a")));
}

#[test]
fn undeclared_and_missing_arguments_are_named() {
    let contract = Contract::parse("copy_csv.clad.toml", COPY).unwrap();
    let error = bind(&contract, json!({"inptu": "a", "output": "b"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tool `copy_csv` has no argument `inptu`; did you mean `input`?; valid arguments are \
         `input`, `output`"
    );
    let error = bind(&contract, json!({"input": "a"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "argument `output` is required; give it a value"
    );
    let hostile = bind(&contract, json!({"a\u{1b}\u{202e}": 1}))
        .unwrap_err()
        .to_string();
    assert!(hostile.contains("`a\\u{1b}\\u{202e}`"), "{hostile}");
}

#[test]
fn numbers_and_booleans_are_accepted_as_json_and_as_their_spelling() {
    let integer = one("type = \"integer\"");
    for value in [json!(42), json!("42")] {
        let bound = bind(&integer, json!({"v": value})).unwrap();
        assert_eq!(bound.arguments[&argument("v")], ArgumentValue::Integer(42));
        assert_eq!(bound.argv[1], "42");
    }
    for bad in [
        json!(1.5),
        json!(5.0),
        json!(-1),
        json!("007"),
        json!("+1"),
        json!(""),
        json!("1e3"),
        json!("٣"),
        json!(u64::MAX),
        json!("99999999999999999999"),
        json!(true),
        json!(null),
        json!([1]),
        json!({"a": 1}),
        json!("1 "),
        json!("1\n"),
        json!("-0"),
    ] {
        assert!(bind(&integer, json!({"v": bad})).is_err(), "{bad}");
    }
    let number = one("type = \"number\"");
    for (value, argv) in [
        (json!(1.5), "1.5"),
        (json!("3"), "3.0"),
        (json!(3), "3.0"),
        (json!(0.1), "0.1"),
    ] {
        assert_eq!(bind(&number, json!({"v": value})).unwrap().argv[1], argv);
    }
    for bad in [
        json!(1.00001),
        json!(1e20),
        json!("NaN"),
        json!("1e3"),
        json!("0x1p3"),
    ] {
        assert!(bind(&number, json!({"v": bad})).is_err(), "{bad}");
    }
    let boolean = one("type = \"boolean\"");
    for value in [json!(true), json!("true")] {
        assert_eq!(bind(&boolean, json!({"v": value})).unwrap().argv[1], "true");
    }
    for bad in [json!(1), json!("True"), json!("yes"), json!("")] {
        assert!(bind(&boolean, json!({"v": bad})).is_err(), "{bad}");
    }
}

#[test]
fn bounds_refuse_or_clamp_and_the_change_is_told() {
    let bounded = one("type = \"integer\"\nmin = 1\nmax = 64");
    for (value, fits) in [(0, false), (1, true), (64, true), (65, false)] {
        assert_eq!(bind(&bounded, json!({"v": value})).is_ok(), fits, "{value}");
    }
    let error = bind(&bounded, json!({"v": 65})).unwrap_err().to_string();
    assert_eq!(error, "argument `v` must be from 1 to 64");
    let clamped = one("type = \"integer\"\nmin = 1\nmax = 64\nclamp = true");
    let bound = bind(&clamped, json!({"v": 100})).unwrap();
    assert_eq!(bound.argv[1], "64");
    assert_eq!(bound.arguments[&argument("v")], ArgumentValue::Integer(64));
    let change = &bound.clamped[0];
    assert_eq!(
        (&change.asked, &change.used),
        (&ArgumentValue::Integer(100), &ArgumentValue::Integer(64))
    );
    assert!(bind(&clamped, json!({"v": 64})).unwrap().clamped.is_empty());
    let number = one("type = \"number\"\nmin_float = 0.5\nmax = 2\nclamp = true");
    assert_eq!(bind(&number, json!({"v": "0.1"})).unwrap().argv[1], "0.5");
    assert_eq!(bind(&number, json!({"v": 9})).unwrap().argv[1], "2.0");
}

#[test]
fn contradictory_rules_are_refused() {
    for argument in [
        "type = \"integer\"\nmin = 5\nmax = 4",
        "type = \"integer\"\nclamp = true",
        "type = \"integer\"\nmin = -1",
        "type = \"number\"\nmin_float = -0.5",
        "type = \"number\"\nmin = 1\nmin_float = 1.0",
        "type = \"number\"\nmax_float = 1e3",
        "type = \"port\"\nmax = 65536",
        "type = \"port\"\nmin = 0",
        "type = \"enum\"",
        "type = \"enum\"\nallowed = []",
        "type = \"enum\"\nallowed = [\"a\", \"a\"]",
        "type = \"enum\"\nallowed = [\"-a\"]",
        "type = \"enum\"\nallowed = [\"\"]",
        "type = \"enum\"\nallowed = [\"a b\"]",
        "type = \"string\"\npattern = \"(\"",
        "type = \"string\"\nsanitize = [\"none\"]",
        "type = \"string\"\ndefault = \"a;b\"",
        "type = \"string\"\ndefault = 5",
        "type = \"integer\"\nmax = 3\ndefault = 4",
        "type = \"integer\"\nmax = 3\nclamp = true\ndefault = 4",
        "type = \"string\"\nrequired = true\ndefault = \"a\"",
        "type = \"string\"\nposition = 0",
        "required = true",
    ] {
        refused(&format!(
            "[args.v]\n{argument}\n[command]\nexec = [\"echo\"]"
        ));
    }
    refused(
        "[args.a]\ntype=\"string\"\nposition=1\n[args.b]\ntype=\"string\"\nposition=1\n[command]\nexec=[\"echo\"]",
    );
    for name in ["_a", "1a", "a-b", "\"\"", "ä"] {
        refused(&format!(
            "[args.{name}]\ntype = \"string\"\n[command]\nexec = [\"echo\"]"
        ));
    }
}

#[test]
fn enums_patterns_and_opt_ins_hold() {
    let choice = one("type = \"enum\"\nallowed = [\"-sS\", \"ping\"]\nallow_leading_dash = true");
    assert_eq!(bind(&choice, json!({"v": "-sS"})).unwrap().argv[1], "-sS");
    let error = bind(&choice, json!({"v": "Ping"})).unwrap_err().to_string();
    assert_eq!(error, "argument `v` must be one of `-sS`, `ping`");
    let pattern = one("type = \"string\"\npattern = \"[a-z]+|x1\"");
    assert!(bind(&pattern, json!({"v": "abc"})).is_ok());
    for bad in ["ab1", "x12", "", "Abc"] {
        assert!(bind(&pattern, json!({"v": bad})).is_err(), "{bad}");
    }
    let words = one("type = \"string\"\nallow_whitespace = true");
    assert_eq!(
        bind(&words, json!({"v": "two words"})).unwrap().argv[1],
        "two words"
    );
    assert!(bind(&words, json!({"v": "a\tb"})).is_err());
    let dash = one("type = \"string\"\nallow_leading_dash = true");
    assert!(bind(&dash, json!({"v": "-x"})).is_ok());
    let plain = one("type = \"string\"");
    let error = bind(&plain, json!({"v": "ab\u{202e}c"}))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "argument `v` has a character that hides or reorders text, right-to-left override \
         (U+202E), at position 3; take it out"
    );
    let error = bind(&plain, json!({"v": "\u{1b}[2J"}))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "argument `v` has a control, escape (U+001B), at position 1; take it out"
    );
}

#[test]
fn values_are_accepted_at_their_length_limit_and_refused_one_past_it() {
    let plain = one("type = \"string\"");
    assert!(bind(&plain, json!({"v": "a".repeat(limits::VALUE_BYTES_MAX)})).is_ok());
    assert!(
        bind(
            &plain,
            json!({"v": "a".repeat(limits::VALUE_BYTES_MAX + 1)})
        )
        .is_err()
    );
}

#[test]
fn a_command_longer_than_its_limit_is_refused_before_it_grows() {
    let element = "{v}".repeat(10_000);
    let exec = vec![format!("\"{element}\""); 30].join(",");
    let contract = parse(&format!(
        "[args.v]\ntype = \"string\"\n[command]\nexec = [\"echo\", {exec}]"
    ));
    let error = bind(&contract, json!({"v": "a".repeat(4096)})).unwrap_err();
    assert_eq!(
        error,
        BindError::ArgvTooLong {
            bytes_max: limits::ARGV_BYTES_MAX
        }
    );
}

#[test]
fn braces_and_placeholders_are_exact() {
    for (element, part) in [
        ("{", "`{` without `}`"),
        ("a}", "`}` without `{`"),
        ("{}", "names nothing"),
        ("{nope}", "names nothing"),
        ("{ v }", "names nothing"),
        ("a\\u0000", "NUL"),
        ("a\\u202E", "right-to-left override"),
    ] {
        let error = refused(&format!(
            "[args.v]\ntype = \"string\"\n[command]\nexec = [\"echo\", \"{element}\"]"
        ));
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn mappings_are_total_and_stand_for_fixed_entries() {
    let text = "[args.scan]\nrequired = true\ntype = \"enum\"\nallowed = [\"ping\", \"syn\"]\n\
        [command]\nexec = [\"echo\", \"{_scan_flags}\", \"end\"]\n\
        [command.mappings.scan]\nping = \"-sn -PE\"\nsyn = [\"--a b\"]\n";
    let contract = parse(text);
    assert_eq!(
        bind(&contract, json!({"scan": "ping"})).unwrap().argv,
        ["echo", "-sn", "-PE", "end"]
    );
    assert_eq!(
        bind(&contract, json!({"scan": "syn"})).unwrap().argv,
        ["echo", "--a b", "end"]
    );
    for (from, to, part) in [
        ("syn = [\"--a b\"]\n", "", "no entry for `syn`"),
        ("syn = [", "sin = [", "`sin` is not a value"),
        ("\"{_scan_flags}\"", "\"x{_scan_flags}\"", "whole element"),
        ("\"{_scan_flags}\", ", "", "never used"),
        (
            "type = \"enum\"\nallowed = [\"ping\", \"syn\"]",
            "type = \"string\"",
            "not an enum",
        ),
        ("mappings.scan]", "mappings.scam]", "names no argument"),
        ("-sn -PE", "-sn '-PE'", "write an array"),
    ] {
        assert_ne!(text, text.replace(from, to), "{from}");
        let error = refused(&text.replace(from, to));
        assert!(error.contains(part), "{part}\n{error}");
    }
}

#[test]
fn conditionals_add_their_entries_only_where_they_hold() {
    let text = "[args.port]\ntype = \"port\"\n[args.verbose]\ntype = \"boolean\"\n\
        [command]\nexec = [\"echo\", \"{_p}\", \"{rate}\"]\n[command.defaults]\nrate = 10\n\
        [command.conditionals]\np = { when = \"port != '' and verbose == true\", template = \"-s {port}\" }\n";
    let contract = parse(text);
    assert_eq!(
        bind(&contract, json!({"port": 80, "verbose": true}))
            .unwrap()
            .argv,
        ["echo", "-s", "80", "10"]
    );
    assert_eq!(
        bind(&contract, json!({"port": 80})).unwrap().argv,
        ["echo", "10"]
    );
    for (from, to, part) in [
        (
            "verbose == true",
            "verbose == yes",
            "`verbose` is never `yes`",
        ),
        (
            "verbose == true",
            "verbos == true",
            "did you mean `verbose`?",
        ),
        (" and ", " or ", "is not a condition"),
        ("-s {port}", "-s {prot}", "names nothing"),
        (
            "when =",
            "wen =",
            "`command.conditionals.p.when` is missing",
        ),
        ("\"{_p}\", ", "", "never used"),
        ("rate = 10", "port = 10", "`port` is an argument"),
    ] {
        assert_ne!(text, text.replace(from, to), "{from}");
        let error = refused(&text.replace(from, to));
        assert!(error.contains(part), "{part}\n{error}");
    }
}

fn files(filesystem: &str) -> String {
    format!(
        "[args.p]\ntype = \"path\"\n[args.q]\ntype = \"path\"\n[args.s]\ntype = \"string\"\n\
         [command]\nexec = [\"echo\", \"{{p}}\"]\n[filesystem]\n{filesystem}\n"
    )
}

#[test]
fn a_grant_is_a_literal_path_or_one_whole_path_argument() {
    let contract = parse(&files(
        "read = [\"{p}\", \"data/x.csv\"]\ncreate = [\"{q}\"]\nmax_file_bytes = 10\ncreate_mode = \"fresh\"",
    ));
    let bound = bind(&contract, json!({"p": "a"})).unwrap();
    assert_eq!(bound.reads.keys().collect::<Vec<_>>(), ["1", "p"]);
    assert!(bound.creates.is_empty());
    let keys: Vec<_> = contract
        .file_arguments()
        .into_iter()
        .map(|f| (f.key, f.creates, f.optional))
        .collect();
    assert_eq!(
        keys,
        [
            ("p".into(), false, true),
            ("1".into(), false, false),
            ("q".into(), true, true)
        ]
    );
    for bad in [
        "x/{p}",
        "{p}/x",
        "{p}{q}",
        "{{p}}",
        "{}",
        "{s}",
        "{nope}",
        "/etc/passwd",
        "../x",
        "a//b",
        "a:b",
        "a,b",
        "a\\\\b",
        "",
        ".",
    ] {
        refused(&files(&format!("read = [\"{bad}\"]")));
    }
}

#[test]
fn the_same_file_twice_is_refused_at_load_and_after_binding() {
    refused(&files("read = [\"{p}\", \"{p}\"]"));
    refused(&files("read = [\"a\", \"a\"]"));
    refused(&files("read = [\"{p}\"]\ncreate = [\"{p}\"]"));
    let contract = parse(&files("read = [\"{p}\", \"lit\"]\ncreate = [\"{q}\"]"));
    for same in [
        json!({"p": "x", "q": "x"}),
        json!({"p": "lit"}),
        json!({"q": "lit"}),
    ] {
        let error = bind(&contract, same).unwrap_err();
        assert!(matches!(error, BindError::SamePath { .. }), "{error}");
    }
}

#[test]
fn file_limits_hold_at_and_past_the_bound() {
    let list = |count: usize| {
        let paths: Vec<String> = (0..count).map(|n| format!("\"f{n}\"")).collect();
        files(&format!("read = [{}]", paths.join(",")))
    };
    parse(&list(limits::READS_MAX));
    assert!(refused(&list(limits::READS_MAX + 1)).contains("more than the 32 allowed"));
    assert!(refused(&files("create = [\"a\", \"b\"]")).contains("more than the 1 allowed"));
    for (bytes, fits) in [
        (0, false),
        (1, true),
        (16 << 20, true),
        ((16 << 20) + 1, false),
    ] {
        let text = manifest(&files(&format!("max_file_bytes = {bytes}")));
        assert_eq!(
            Contract::parse("t.clad.toml", &text).is_ok(),
            fits,
            "{bytes}"
        );
    }
    refused(&files("create_mode = \"fresh\""));
    refused(&files("create = [\"a\"]\ncreate_mode = \"truncate\""));
}

#[test]
fn paths_outside_the_working_directory_never_bind() {
    let contract = one("type = \"path\"\nallow_leading_dash = true\nallow_whitespace = true");
    for bad in [
        "",
        "/",
        "/etc/shadow",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "./a",
        "a//b",
        "a/",
        "C:\\x",
        "a:b",
        "a\0",
        "a\nb",
        "~/x",
        "a*",
        "$HOME",
        "{v}",
    ] {
        assert!(bind(&contract, json!({"v": bad})).is_err(), "{bad:?}");
    }
    assert!(bind(&contract, json!({"v": "-in put/ä.csv"})).is_ok());
}

#[test]
fn risk_approval_limits_and_cedar_names_are_read() {
    const EXEC: &str = "[command]\nexec = [\"echo\"]";
    for (rest, needs) in [
        ("", false),
        ("human_approval = true", true),
        ("risk_tier = \"medium\"", false),
        ("risk_tier = \"high\"", true),
        ("risk_tier = \"critical\"", true),
    ] {
        assert_eq!(
            parse(&format!("{rest}\n{EXEC}")).needs_approval(),
            needs,
            "{rest}"
        );
    }
    refused(&format!("risk_tier = \"extreme\"\n{EXEC}"));
    let limited = parse(&format!(
        "[tool.limits]\nmemory_mib = 64\ncpus = 0.25\npids = 4\nmax_output_bytes = 100\n{EXEC}\n[output]\nmax_bytes = 10"
    ));
    let limits = limited.limits();
    assert_eq!(
        (
            limits.memory_mib,
            limits.cpu_milli,
            limits.pids,
            limits.max_output_bytes
        ),
        (Some(64), Some(250), Some(4), Some(100))
    );
    assert_eq!(limited.output_max_bytes(), Some(10));
    for bad in [
        "cpus = 0",
        "cpus = 0.0001",
        "cpus = -1",
        "pids = 0",
        "memory_mib = \"1\"",
        "disk = 1",
    ] {
        refused(&format!("[tool.limits]\n{bad}\n{EXEC}"));
    }
    let cedar = |line: &str| {
        parse(&format!("[tool.cedar]\n{line}\n{EXEC}"))
            .cedar_action()
            .unwrap()
    };
    assert_eq!(
        cedar("action = \"execute_tool\""),
        ("Action".into(), "execute_tool".into())
    );
    assert_eq!(
        cedar("action = 'Scan::Action::\"run\"'\nresource = \"PenTest::ScanTarget\""),
        ("Scan::Action".into(), "run".into())
    );
    for bad in [
        "action = \"\"",
        "action = 'Agent::\"x\"'",
        "action = \"a b\"",
        "resource = \"T\"",
        "action = \"x\"\nresource = \"a b\"",
    ] {
        refused(&format!("[tool.cedar]\n{bad}\n{EXEC}"));
    }
    for (seconds, fits) in [(0, false), (1, true), (86_400, true), (86_401, false)] {
        let text = manifest(&format!("timeout_seconds = {seconds}\n{EXEC}"));
        assert_eq!(
            Contract::parse("t.clad.toml", &text).is_ok(),
            fits,
            "{seconds}"
        );
    }
    assert_eq!(parse(EXEC).time_limit_ms(), 30_000);
}

#[test]
fn a_definition_describes_what_binds() {
    let contract = parse(
        "[args.n]\nposition = 2\ntype = \"integer\"\nmin = 1\nmax = 9\ndefault = 2\ndescription = \"How many.\"\n\
         [args.f]\nposition = 1\nrequired = true\ntype = \"number\"\nmax_float = 1.5\nclamp = true\n\
         [args.e]\ntype = \"enum\"\nallowed = [\"a\", \"b\"]\n[args.s]\ntype = \"string\"\npattern = \"[a-z]+\"\n\
         [command]\nexec = [\"echo\", \"{n}\"]",
    );
    let definition = contract.definition();
    assert!(definition.read_only_hint && !definition.destructive_hint);
    assert_eq!(
        Value::Object(definition.input_schema.into_map()),
        json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2, "description": "How many."},
                "f": {"type": "number", "description": "Brought to at most 1.5. At most four fractional digits."},
                "e": {"type": "string", "enum": ["a", "b"]},
                "s": {"type": "string", "pattern": "^(?:[a-z]+)$"},
            },
            "required": ["f"],
            "additionalProperties": false,
        })
    );
    let kinds: Vec<_> = contract
        .arguments()
        .map(|spec| (spec.name().as_str(), spec.kind(), spec.required()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("f", PolicyType::Decimal, true),
            ("n", PolicyType::Integer, false),
            ("e", PolicyType::Text, false),
            ("s", PolicyType::Text, false)
        ]
    );
    let copy = Contract::parse("copy_csv.clad.toml", COPY)
        .unwrap()
        .definition();
    assert!(!copy.read_only_hint && !copy.destructive_hint);
}

fn tool(name: &str, rest: &str) -> (String, String) {
    let text = format!(
        "[tool]\nname = \"{name}\"\nversion = \"1\"\ndescription = \"x\"\nbinary = \"echo\"\n\
         {rest}\n[command]\nexec = [\"echo\"]\n"
    );
    (format!("tools/{name}.clad.toml"), text)
}

#[test]
fn a_set_is_ordered_and_one_bad_manifest_fails_it() {
    let set = ContractSet::parse([tool("b", ""), tool("a", "")]).unwrap();
    let names: Vec<_> = set
        .iter()
        .map(|contract| contract.name().as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert!(set.get(&ToolName::new("a").unwrap()).is_some());
    assert!(set.get(&ToolName::new("c").unwrap()).is_none());
    let bad =
        ContractSet::parse([tool("a", ""), tool("b", "x = 1"), tool("c", "y = 1")]).unwrap_err();
    assert_eq!(bad.iter().count(), 2, "{bad}");
    let twice = [tool("a", ""), ("more/a.clad.toml".into(), tool("a", "").1)];
    let error = ContractSet::parse(twice).unwrap_err().to_string();
    assert_eq!(
        error,
        "more/a.clad.toml: the tool `a` is defined in `tools/a.clad.toml` already\n  \
         help: rename one of the two, or move it away"
    );
}

#[test]
fn a_set_holds_at_most_256_tools() {
    let tools = |count: usize| {
        (0..count)
            .map(|n| tool(&format!("t{n}"), ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ContractSet::parse(tools(limits::TOOLS_MAX)).unwrap().len(),
        256
    );
    let error = ContractSet::parse(tools(limits::TOOLS_MAX + 1)).unwrap_err();
    assert!(error.to_string().contains("at most 256"), "{error}");
}

#[test]
fn tools_that_share_an_action_agree_in_their_argument_types() {
    let shared = |kind: &str| format!("[tool.cedar]\naction = \"x\"\n[args.v]\ntype = \"{kind}\"");
    assert!(ContractSet::parse([tool("a", &shared("string")), tool("b", &shared("path"))]).is_ok());
    let error = ContractSet::parse([tool("a", &shared("string")), tool("b", &shared("port"))]);
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("shares a Cedar action")
    );
}

#[test]
fn a_manifest_is_refused_one_byte_past_its_limit() {
    let mut text = manifest("[command]\nexec = [\"echo\"]");
    text.push('#');
    text.push_str(&"x".repeat(limits::MANIFEST_BYTES_MAX - text.len()));
    assert!(Contract::parse("t.clad.toml", &text).is_ok());
    text.push('x');
    let error = Contract::parse("t.clad.toml", &text).unwrap_err();
    assert!(
        error.to_string().contains("more than the 1048576 allowed"),
        "{error}"
    );
}

#[test]
fn durations_become_whole_seconds() {
    let contract = one("type = \"duration\"\nmax = 7200");
    for (text, seconds) in [
        ("0", "0"),
        ("90", "90"),
        ("90s", "90"),
        ("5m", "300"),
        ("1h30m", "5400"),
        ("1h1s", "3601"),
    ] {
        let bound = bind(&contract, json!({"v": text})).unwrap();
        assert_eq!(bound.argv[1], seconds, "{text}");
    }
    assert_eq!(bind(&contract, json!({"v": 45})).unwrap().argv[1], "45");
    for bad in [
        "",
        "1_000",
        "1.5h",
        "30m1h",
        "1m1m",
        "h",
        "05m",
        "-5",
        "1h 30m",
        "2h1s",
        "1d",
        "99999999999999999999h",
    ] {
        assert!(bind(&contract, json!({"v": bad})).is_err(), "{bad}");
    }
}

#[test]
fn literal_text_is_data_as_it_is_but_no_option_and_no_nul() {
    let contract = one("type = \"literal_text\"");
    let text = "It's \"quoted\";\n$(x) `y` \\ {z} | a > b\u{202e}";
    let bound = bind(&contract, json!({"v": text})).unwrap();
    assert_eq!(bound.argv, ["echo", text]);
    for bad in ["a\0b", "-rf", "+x"] {
        assert!(bind(&contract, json!({"v": bad})).is_err(), "{bad:?}");
    }
    let dash = one("type = \"literal_text\"\nallow_leading_dash = true");
    assert!(bind(&dash, json!({"v": "- item"})).is_ok());
    for (bytes, fits) in [
        (limits::LITERAL_TEXT_BYTES_MAX, true),
        (limits::LITERAL_TEXT_BYTES_MAX + 1, false),
    ] {
        assert_eq!(
            bind(&contract, json!({"v": "a".repeat(bytes)})).is_ok(),
            fits
        );
    }
}

#[test]
fn network_types_have_their_rules() {
    let address = one("type = \"ip_address\"\nblock_internal = true");
    assert_eq!(
        address.arguments().next().unwrap().kind(),
        PolicyType::IpAddress
    );
    assert!(bind(&address, json!({"v": "93.184.216.34"})).is_ok());
    let error = bind(&address, json!({"v": "10.0.0.1"}))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "argument `v` reaches private addresses, and `block_internal` refuses what is not public; \
         choose a public one"
    );
    let url = one("type = \"url\"\nschemes = [\"https\"]");
    assert!(bind(&url, json!({"v": "https://example.com/a?b=c&d#e"})).is_ok());
    for bad in [
        "http://example.com/",
        "https://example.com/a b",
        "https://example.com/'",
        "https://example.com/$x",
    ] {
        assert!(bind(&url, json!({"v": bad})).is_err(), "{bad}");
    }
    for argument in [
        "type = \"url\"\nschemes = [\"file\"]",
        "type = \"url\"\nschemes = []",
        "type = \"url\"\nallow_whitespace = true",
        "type = \"regex_match\"",
    ] {
        refused(&format!(
            "[args.v]\n{argument}\n[command]\nexec = [\"echo\"]"
        ));
    }
}

#[test]
fn hostile_manifests_are_refused_with_a_bounded_number_of_faults() {
    let lines = |count: usize, line: fn(usize) -> String| (0..count).map(line).collect::<String>();
    let defaults = |count: usize| {
        let names = lines(count, |n| format!("k{n} = 1\n"));
        let used = lines(count, |n| format!(", \"{{k{n}}}\""));
        format!("[command]\nexec = [\"echo\"{used}]\n[command.defaults]\n{names}")
    };
    parse(&defaults(limits::PLACEHOLDERS_MAX));
    assert!(refused(&defaults(limits::PLACEHOLDERS_MAX + 1)).contains("more than the 64 allowed"));
    for text in [
        "[".repeat(1 << 20),
        format!("{}=1", "a".repeat((1 << 20) - 2)),
        lines(100_000, |n| format!("k{n}=1\n")),
        lines(60_000, |n| format!("[t{n}]\nx=1\n")),
        lines(50_000, |n| format!("[args.x{n}]\n")),
        format!(
            "[args.x]\ntype = \"enum\"\nallowed = [{}]",
            "\"a\",".repeat(200_000)
        ),
        format!("[filesystem]\nread = [{}]", "\"a\",".repeat(200_000)),
        format!(
            "[command]\nexec = [\"echo\",{}]",
            "\"{nope}\",".repeat(100_000)
        ),
    ] {
        let errors = Contract::parse("t.clad.toml", &text).unwrap_err();
        assert!(errors.iter().count() <= limits::FAULTS_MAX);
    }
}

#[test]
fn arguments_and_exec_hold_at_their_limits_and_not_past_them() {
    let arguments = |count: usize| {
        let tables: String = (0..count)
            .map(|n| format!("[args.a{n}]\ntype = \"string\"\n"))
            .collect();
        format!("{tables}[command]\nexec = [\"echo\"]")
    };
    parse(&arguments(limits::ARGUMENTS_MAX));
    refused(&arguments(limits::ARGUMENTS_MAX + 1));
    let exec = |count: usize| format!("[command]\nexec = [\"echo\"{}]", ",\"x\"".repeat(count - 1));
    parse(&exec(limits::EXEC_ELEMENTS_MAX));
    refused(&exec(limits::EXEC_ELEMENTS_MAX + 1));
    let element = |bytes: usize| format!("[command]\nexec = [\"echo\", \"{}\"]", "x".repeat(bytes));
    parse(&element(limits::EXEC_ELEMENT_BYTES_MAX));
    refused(&element(limits::EXEC_ELEMENT_BYTES_MAX + 1));
    let allowed = |count: usize| {
        let values: Vec<String> = (0..count).map(|n| format!("\"v{n}\"")).collect();
        format!(
            "[args.v]\ntype = \"enum\"\nallowed = [{}]\n[command]\nexec = [\"echo\"]",
            values.join(",")
        )
    };
    parse(&allowed(limits::ALLOWED_VALUES_MAX));
    refused(&allowed(limits::ALLOWED_VALUES_MAX + 1));
    let described = |bytes: usize| {
        let description = "d".repeat(bytes);
        format!(
            "[args.v]\ntype = \"string\"\ndescription = \"{description}\"\n[command]\nexec = [\"echo\"]"
        )
    };
    parse(&described(limits::DESCRIPTION_BYTES_MAX));
    refused(&described(limits::DESCRIPTION_BYTES_MAX + 1));
}

#[test]
fn a_template_is_split_before_any_value_exists() {
    let contract =
        parse("[args.v]\ntype = \"string\"\n[command]\ntemplate = \"echo -n  --v={v} {v}\"");
    let bound = bind(&contract, json!({"v": "a"})).unwrap();
    assert_eq!(bound.argv, ["echo", "-n", "--v=a", "a"]);
    assert_eq!(
        bind(&contract, json!({})).unwrap().argv,
        ["echo", "-n", "--v=", ""]
    );
    for (command, part) in [
        ("template = \"echo '{v}'\"", "write an array"),
        ("template = \"echo {nope}\"", "names nothing"),
        ("template = \"\"", "is empty"),
        ("template = [\"echo\"]", "is named `exec`"),
        ("template = \"echo\"\nexec = [\"echo\"]", "keep `exec`"),
        ("template = \"cat {v}\"", "`tool.binary` is `echo`"),
    ] {
        let error = refused(&format!(
            "[args.v]\ntype = \"string\"\n[command]\n{command}"
        ));
        assert!(error.contains(part), "{part}\n{error}");
    }
    for argument in [
        "type = \"string\"\nallow_whitespace = true",
        "type = \"literal_text\"",
        "type = \"enum\"\nallow_whitespace = true\nallowed = [\"a b\"]",
    ] {
        let error = refused(&format!(
            "[args.v]\n{argument}\n[command]\ntemplate = \"echo {{v}}\""
        ));
        assert!(error.contains("as an `exec` array"), "{error}");
    }
}

#[test]
fn what_a_shell_would_understand_is_refused_with_what_to_write_instead() {
    let command = |exec: &str| refused(&format!("[command]\n{exec}\n"));
    for operator in ["|", "||", "&&", "&", ";", ">", ">>", "<", "2>", "2>&1"] {
        let error = command(&format!("template = \"echo a {operator} b\""));
        assert!(error.contains("no shell reads the command"), "{error}");
    }
    // As an element of its own it is what the manifest's author wants.
    parse("[command]\nexec = [\"echo\", \"|\"]");
    let error = command("exec = \"echo a b\"");
    assert!(
        error.contains("write each word in quotes, all in brackets: [\"echo\", \"a\", \"b\"]"),
        "{error}"
    );
    let error = command("exec = [\"echo -n\"]");
    assert!(error.contains("write each word as an element"), "{error}");
    let error = command("exec = [\"echo\", 5]");
    assert!(
        error.contains("`command.exec[1]` must be a string, not an integer"),
        "{error}"
    );
    let granted = |path: &str| {
        refused(&format!(
            "[command]\nexec = [\"echo\"]\n[filesystem]\nread = [\"{path}\"]\n"
        ))
    };
    for pattern in ["data/*.csv", "data/?.csv"] {
        let error = granted(pattern);
        assert!(error.contains("nothing expands a pattern"), "{error}");
    }
}
