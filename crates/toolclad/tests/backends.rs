//! Other backends, output, evidence and custom types: what parses, what is refused, and when.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests")]

use std::net::IpAddr;

use model::{ArgumentName, Digest, JsonObject, OutputFormat, RiskTier};
use serde_json::{Value, json};
use toolclad::{
    Advice, Backend, BindError, BoundCall, Contract, ProjectRules, RecordedValue, Resolver,
    ResultFault, ScanId, SourceQuery, Surroundings, Unserved, limits, salted_digest,
};

fn manifest(rest: &str) -> String {
    format!(
        "[tool]\nname = \"t\"\nversion = \"1\"\ndescription = \"x\"\nbinary = \"echo\"\n{rest}\n"
    )
}

fn parse_with(rest: &str, rules: &ProjectRules) -> Contract {
    Contract::parse_with("t.clad.toml", &manifest(rest), rules)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn parse(rest: &str) -> Contract {
    parse_with(rest, &ProjectRules::default())
}

fn refused_with(rest: &str, rules: &ProjectRules) -> String {
    let text = manifest(rest);
    let Err(errors) = Contract::parse_with("t.clad.toml", &text, rules) else {
        panic!("accepted:\n{text}");
    };
    for fault in &errors {
        assert!(fault.help.is_some(), "no remedy: {fault}");
    }
    errors.to_string()
}

fn refused(rest: &str) -> String {
    refused_with(rest, &ProjectRules::default())
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

fn scoped(scope: &str) -> ProjectRules {
    ProjectRules::parse(None, Some(("scope/scope.toml", scope))).unwrap()
}

fn typed(types: &str) -> ProjectRules {
    ProjectRules::parse(Some(("toolclad.toml", types)), None).unwrap()
}

fn one(kind: &str) -> String {
    format!("[args.v]\n{kind}\n[command]\nexec = [\"echo\", \"{{v}}\"]")
}

const MCP: &str = "[args.repo]\ntype = \"string\"\n[args.body]\ntype = \"literal_text\"\n\
    [mcp]\nserver = \"github-mcp\"\ntool = \"create_issue\"\n[mcp.field_map]\nrepo = \"repository\"";

#[test]
fn an_mcp_manifest_parses_whole_and_is_refused_at_the_call_with_one_line() {
    let contract = parse(MCP);
    let Backend::Mcp(mcp) = contract.backend() else {
        panic!("{contract:?}");
    };
    assert_eq!((mcp.server(), mcp.tool()), ("github-mcp", "create_issue"));
    assert_eq!(mcp.field(&argument("repo")), Some("repository"));
    assert_eq!(mcp.field(&argument("body")), Some("body"));
    let error = bind(&contract, json!({})).unwrap_err();
    assert_eq!(error, BindError::Unserved(Unserved::Mcp));
    assert_eq!(
        error.to_string(),
        "the tool needs an `[mcp]` server, which is not served yet"
    );
    assert!(!contract.definition().read_only_hint);
    for (from, to, part) in [
        ("repo = \"repo", "rpo = \"repo", "did you mean `repo`?"),
        (
            "\"repository\"",
            "\"body\"",
            "two arguments are sent as `body`",
        ),
        ("server = \"github-mcp\"\n", "", "`mcp.server` is missing"),
        (
            "tool = \"create",
            "toool = \"create",
            "did you mean `tool`?",
        ),
        (
            "[mcp]",
            "[command]\nexec = [\"echo\"]\n[mcp]",
            "two backends",
        ),
        ("github-mcp", "github mcp", "is no name"),
    ] {
        assert_ne!(MCP, MCP.replace(from, to), "{from}");
        let error = refused(&MCP.replace(from, to));
        assert!(error.contains(part), "{part}\n{error}");
    }
    parse(&format!("{MCP}\n[filesystem]\nread = [\"data/x\"]"));
}

#[test]
fn a_source_query_takes_its_own_arguments_and_no_grants() {
    let read = "[args.path]\ntype = \"path\"\nrequired = true\n[source]\nquery = \"read_file\"";
    let contract = parse(read);
    assert!(matches!(
        contract.backend(),
        Backend::Source(SourceQuery::ReadFile)
    ));
    assert_eq!(contract.unserved(), Some(Unserved::Source));
    assert!(contract.definition().read_only_hint);
    for (text, part) in [
        (
            read.replace("read_file", "read_fil"),
            "did you mean `read_file`?",
        ),
        (
            read.replace("required = true\n", ""),
            "must be a path and required",
        ),
        (
            read.replace("\"path\"\nreq", "\"string\"\nreq"),
            "must be a path",
        ),
        (
            read.replace("args.path", "args.file"),
            "needs an argument `path`",
        ),
        (
            read.replace("args.path", "args.file"),
            "takes no argument `file`",
        ),
        (
            format!("{read}\n[filesystem]\nread = [\"{{path}}\"]"),
            "reads by itself",
        ),
        ("[source]".to_owned(), "`source.query` is missing"),
    ] {
        let error = refused(&text);
        assert!(error.contains(part), "{part}\n{error}");
    }
}

const SESSION: &str = "mode = \"session\"\n[args.db]\ntype = \"string\"\nrequired = true\n\
    [session]\nstartup_command = \"echo -d {db}\"\nready_pattern = \"^[a-z]+=> $\"\nmax_interactions = 7\n\
    [session.interaction]\ninput_sanitize = [\"injection\"]\noutput_wait_ms = 10\n\
    [session.commands.select]\npattern = \"^SELECT .+$\"\ndescription = \"Read rows\"\n\
    [session.commands.drop]\npattern = \"DROP [a-z]+\"\ndescription = \"Drop\"\nrisk_tier = \"high\"\nfinalize = true\n";

#[test]
fn a_session_manifest_parses_whole_and_is_refused_at_the_call() {
    let contract = parse(SESSION);
    let Backend::Session(session) = contract.backend() else {
        panic!("{contract:?}");
    };
    assert_eq!(contract.program(), "echo");
    assert_eq!(session.ready_pattern(), "^[a-z]+=> $");
    assert_eq!(
        (
            session.limits().interactions,
            session.limits().output_wait_ms
        ),
        (7, 10)
    );
    let commands: Vec<_> = session.commands().collect();
    let (name, drop) = commands[0];
    assert_eq!(
        (name, drop.description(), drop.risk_tier()),
        ("drop", "Drop", RiskTier::High)
    );
    assert!(drop.needs_approval() && drop.finalize() && !drop.extract_target());
    assert!(drop.accepts("DROP x") && !drop.accepts("DROP x;") && drop.arguments().len() == 0);
    assert_eq!(
        bind(&contract, json!({"db": "x"})),
        Err(BindError::Unserved(Unserved::Session))
    );
    for (from, to, part) in [
        ("mode = \"session\"\n", "", "`tool.mode` is missing"),
        (
            "mode = \"session\"",
            "mode = \"oneshot\"",
            "backend is `session`",
        ),
        (
            "mode = \"session\"",
            "mode = \"sesion\"",
            "did you mean `session`?",
        ),
        ("\"echo -d", "\"cat -d", "`tool.binary` is `echo`"),
        ("{db}", "{bd}", "names nothing"),
        (
            "ready_pattern",
            "redy_pattern",
            "`session.ready_pattern` is missing",
        ),
        ("DROP [a-z]+", "DROP [", "pattern is not valid"),
        (
            "description = \"Drop\"\n",
            "",
            "`session.commands.drop.description` is missing",
        ),
        ("\"injection\"", "\"none\"", "unknown value `none`"),
        (
            "max_interactions = 7",
            "max_interactions = 0",
            "is 0, which is out of range",
        ),
    ] {
        assert_ne!(SESSION, SESSION.replace(from, to), "{from}");
        let error = refused(&SESSION.replace(from, to));
        assert!(error.contains(part), "{part}\n{error}");
    }
    let files = format!("{SESSION}[filesystem]\ncreate = [\"out/x\"]\n");
    parse(&files);
    assert!(refused(&files.replace("finalize = true", "")).contains("finalize = true"));
    let error = refused("mode = \"session\"\n[command]\nexec = [\"echo\"]");
    assert!(error.contains("backend is `oneshot`"), "{error}");
}

#[test]
fn session_commands_and_interactions_hold_at_their_limits() {
    let commands = |count: usize| {
        let tables: String = (0..count)
            .map(|n| format!("[session.commands.c{n}]\npattern = \"c{n}\"\ndescription = \"x\"\n"))
            .collect();
        let head =
            "mode = \"session\"\n[session]\nstartup_command = [\"echo\"]\nready_pattern = \">\"\n";
        manifest(&format!("{head}{tables}"))
    };
    assert!(Contract::parse("t.clad.toml", &commands(limits::SESSION_COMMANDS_MAX)).is_ok());
    assert!(Contract::parse("t.clad.toml", &commands(limits::SESSION_COMMANDS_MAX + 1)).is_err());
    for (key, from, max) in [
        (
            "max_interactions",
            "max_interactions = 7",
            limits::INTERACTIONS_MAX,
        ),
        (
            "output_wait_ms",
            "output_wait_ms = 10",
            limits::OUTPUT_WAIT_MS_MAX,
        ),
    ] {
        parse(&SESSION.replace(from, &format!("{key} = {max}")));
        refused(&SESSION.replace(from, &format!("{key} = {}", max + 1)));
    }
}

#[test]
fn http_and_browser_manifests_are_read_whole_and_refused_at_load() {
    let http = "[args.ip]\ntype = \"ip_address\"\n[http]\nmethod = \"POST\"\nurl = \"https://x.example/{ip}\"\n\
        headers = { \"Authorization\" = \"Bearer {_secret:token}\" }\n\
        body_template = '{\"a\": \"{ip}\"}'\nsuccess_status = [200]\nerror_status = [404]";
    let error = refused(http);
    assert_eq!(
        error
            .lines()
            .filter(|line| line.contains("t.clad.toml"))
            .count(),
        1,
        "{error}"
    );
    assert!(error.contains("nothing serves `[http]` tools"), "{error}");
    for (from, to, part) in [
        ("POST", "POTS", "did you mean `POST`?"),
        ("/{ip}", "/{pi}", "`pi` names no argument"),
        ("\"{ip}\"}", "\"{pi}\"}", "`pi` names no argument"),
        ("[200]", "[20]", "status codes"),
        (
            "error_status",
            "error_statuses",
            "did you mean `error_status`?",
        ),
        ("_secret:token", "_secret:", "names no argument"),
    ] {
        assert_ne!(http, http.replace(from, to), "{from}");
        let error = refused(&http.replace(from, to));
        assert!(error.contains(part), "{part}\n{error}");
    }
    let browser = "mode = \"browser\"\n[browser]\nengine = \"cdp-direct\"\nconnect = \"launch\"\nheadless = true\n\
        extract_mode = \"text\"\nmax_interactions = 3\n[browser.scope]\nallowed_domains = [\"*.example.com\"]\n\
        [browser.state]\nfields = [\"url\"]\n[browser.commands.navigate]\ndescription = \"Go\"\n\
        args.url = { type = \"url\", schemes = [\"https\"] }";
    let error = refused(browser);
    assert_eq!(
        error
            .lines()
            .filter(|line| line.contains("t.clad.toml"))
            .count(),
        1,
        "{error}"
    );
    assert!(
        error.contains("nothing serves `[browser]` tools"),
        "{error}"
    );
    for (from, to, part) in [
        ("launch", "lunch", "did you mean `launch`?"),
        ("headless", "headles", "did you mean `headless`?"),
        ("type = \"url\"", "type = \"uri\"", "unknown value `uri`"),
    ] {
        let error = refused(&browser.replace(from, to));
        assert!(error.contains(part), "{part}\n{error}");
    }
    for other in [http, browser] {
        let error = refused(&format!("{other}\n[filesystem]\nread = [\"a\"]"));
        assert!(error.contains("`[filesystem]` cannot go with"), "{error}");
    }
}

const EXEC: &str = "[command]\nexec = [\"echo\"]\n";

#[test]
fn outputs_are_read_by_their_format() {
    for format in OutputFormat::ALL {
        let name = format.as_str();
        let text = format!(
            "{EXEC}[output]\nformat = \"{name}\"\nparser = \"builtin:{name}\"\nenvelope = true"
        );
        assert_eq!(parse(&text).output_format(), format);
    }
    let csv = parse(&format!("{EXEC}[output]\nformat = \"csv\""));
    assert_eq!(
        csv.result(b"a,b\n1,2\n").unwrap(),
        json!([{"a": "1", "b": "2"}])
    );
    assert!(matches!(
        csv.result(b"a,b\n1\n"),
        Err(ResultFault::Format(_))
    ));
    for output in [
        "format = \"yaml\"",
        "format = \"json\"\nparser = \"builtin:text\"",
        "format = \"json\"\nparser = \"scripts/parse.py\"",
        "parser = \"custom:parse\"",
        "parser = \"custom:/a/../b\"",
        "parser = \"custom:/a b\"",
        "envelope = false",
        "schema = 1",
        "schema = { type = \"objekt\" }",
        "schema = { pattern = \"(\" }",
        "schema = { \"$ref\" = \"https://example.com/schema.json\" }",
        "schema = { const = 1979-05-27 }",
    ] {
        refused(&format!("{EXEC}[output]\n{output}"));
    }
}

#[test]
fn a_custom_parser_makes_json_whatever_the_command_prints() {
    let contract = parse(&format!(
        "{EXEC}[output]\nformat = \"xml\"\nparser = \"custom:/opt/parse\""
    ));
    assert_eq!(contract.custom_parser(), Some("/opt/parse"));
    assert!(bind(&contract, json!({})).is_ok() && contract.unserved().is_none());
    assert_eq!(contract.result(b"{\"n\": 1}").unwrap(), json!({"n": 1}));
    assert!(contract.result(b"<n>1</n>").is_err());
}

#[test]
fn a_result_that_breaks_its_schema_is_told_by_places_only() {
    let schema = "[output]\nformat = \"json\"\n[output.schema]\ntype = \"object\"\nrequired = [\"n\"]\n\
        additionalProperties = false\n[output.schema.properties.n]\ntype = \"integer\"\nmaximum = 5\n\
        [output.schema.properties.s]\npattern = \"^[a-z]+$\"";
    let contract = parse(&format!("{EXEC}{schema}"));
    assert_eq!(
        contract.result(b"{\"n\": 5, \"s\": \"ab\"}").unwrap(),
        json!({"n": 5, "s": "ab"})
    );
    for bad in [
        "{\"n\": 6}",
        "{\"n\": \"SECRET\"}",
        "{}",
        "[]",
        "{\"n\": 1, \"SECRET\": 1}",
        "{\"n\": 1, \"s\": \"SECRET\"}",
    ] {
        let error = contract.result(bad.as_bytes()).unwrap_err();
        assert!(
            matches!(error, ResultFault::Schema { .. }),
            "{bad}: {error}"
        );
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    assert_eq!(
        contract.output_schema().unwrap()["properties"]["n"]["maximum"],
        json!(5)
    );
    let text = parse(&format!(
        "{EXEC}[output.schema]\ntype = \"object\"\n[output.schema.properties.raw_output]\nmaxLength = 3"
    ));
    assert_eq!(text.result(b"abc").unwrap(), json!("abc"));
    assert!(text.result(b"abcd").is_err());
}

#[test]
fn at_most_eight_faults_of_a_result_are_told() {
    let contract = parse(&format!(
        "{EXEC}[output]\nformat = \"json\"\n[output.schema]\nitems = {{ type = \"string\" }}"
    ));
    let Err(ResultFault::Schema { faults }) = contract.result(b"[1,1,1,1,1,1,1,1,1,1]") else {
        panic!("accepted");
    };
    assert_eq!(faults.len(), limits::SCHEMA_FAULTS_MAX);
}

#[test]
fn evidence_says_whether_and_where_the_output_is_kept() {
    let evidence = |text: &str| manifest(&format!("[tool.evidence]\n{text}\n{EXEC}"));
    let text =
        evidence("capture = true\nhash = \"sha256\"\noutput_dir = \"{evidence_dir}/{scan_id}-x\"");
    let contract = Contract::parse("t.clad.toml", &text).unwrap();
    let kept = contract.evidence().unwrap();
    assert_eq!((kept.capture(), kept.folder()), (true, Some("{scan_id}-x")));
    for bad in [
        "hash = \"md5\"",
        "output_dir = \"/tmp/x\"",
        "output_dir = \"{evidence_dir}/../x\"",
        "output_dir = \"{evidence_dir}/{nope}\"",
        "captur = true",
    ] {
        assert!(
            Contract::parse("t.clad.toml", &evidence(bad)).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn the_end_of_options_stands_before_the_first_operand() {
    let contract = parse(
        "[args.p]\ntype = \"string\"\nallow_leading_dash = true\n[args.n]\ntype = \"integer\"\n\
         [command]\nexec = [\"echo\", \"-n\", \"--count={n}\", \"{p}\", \"x{n}\", \"end\"]\nend_of_options = \"--\"",
    );
    let bound = bind(&contract, json!({"p": "-rf", "n": 1})).unwrap();
    assert_eq!(
        bound.argv,
        ["echo", "-n", "--count=1", "--", "-rf", "x1", "end"]
    );
    for (exec, part) in [
        ("[\"echo\", \"x\"]", "without an entry"),
        ("[\"echo\", \"--\", \"{p}\"]", "has `--` already"),
        ("[\"echo\", \"{p}\", \"-n\"]", "an option stands behind"),
    ] {
        let error = refused(&format!(
            "[args.p]\ntype = \"string\"\n[command]\nexec = {exec}\nend_of_options = \"--\""
        ));
        assert!(error.contains(part), "{part}\n{error}");
    }
    refused(&format!("{EXEC}end_of_options = \"++\""));
}

#[test]
fn a_command_can_name_its_call() {
    let contract = parse("[command]\nexec = [\"echo\", \"--id={_scan_id}\"]");
    assert_eq!(bind(&contract, json!({})), Err(BindError::NoScanId));
    let id = ScanId::new("run-1").unwrap();
    let surroundings = Surroundings {
        scan_id: Some(&id),
        ..Surroundings::default()
    };
    let bound = contract
        .bind_with(&object(json!({})), &surroundings)
        .unwrap();
    assert_eq!(bound.argv, ["echo", "--id=run-1"]);
    for name in ["_secret:x", "_output_file", "_evidence_dir"] {
        refused(&format!("[command]\nexec = [\"echo\", \"{{{name}}}\"]"));
    }
}

#[test]
fn a_sensitive_value_is_recorded_as_a_salted_hash_and_never_shown() {
    let contract = parse(
        "[args.token]\ntype = \"string\"\nsensitive = true\n[args.who]\ntype = \"string\"\n\
         [command]\nexec = [\"echo\", \"--token={token}\", \"{who}\"]",
    );
    let bound = bind(&contract, json!({"token": "hunter2", "who": "me"})).unwrap();
    assert_eq!(bound.argv, ["echo", "--token=hunter2", "me"]);
    assert_eq!(bound.shown_argv, ["echo", "--token=[sensitive]", "me"]);
    let record = |salt: &[u8; 32]| bound.recorded(salt)[&argument("token")].clone();
    assert_eq!(record(&[1; 32]), record(&[1; 32]));
    assert_ne!(record(&[1; 32]), record(&[2; 32]));
    assert_ne!(
        record(&[1; 32]),
        RecordedValue::Salted(Digest::of(b"hunter2"))
    );
    let value = &bound.arguments[&argument("token")];
    let digest = salted_digest(&[1; 32], &argument("token"), value);
    assert_eq!(record(&[1; 32]), RecordedValue::Salted(digest));
    assert_ne!(digest, salted_digest(&[1; 32], &argument("who"), value));
    assert!(matches!(
        bound.recorded(&[1; 32])[&argument("who")],
        RecordedValue::Plain(_)
    ));
    let bound = bind(&contract, json!({"who": "me"})).unwrap();
    assert!(bound.sensitive.is_empty());
    let error = refused(
        "[args.p]\ntype = \"path\"\nsensitive = true\n[command]\nexec = [\"echo\"]\n[filesystem]\nread = [\"{p}\"]",
    );
    assert!(error.contains("is sensitive"), "{error}");
}

#[test]
fn free_text_that_feeds_a_decision_is_flagged() {
    let flags = |kind: &str| parse(&one(&format!("{kind}\nfeeds_decision = true"))).advice();
    for kind in [
        "type = \"string\"",
        "type = \"literal_text\"",
        "type = \"agent_summary\"",
    ] {
        let argument = argument("v");
        assert_eq!(
            flags(kind),
            [Advice::FreeTextFeedsDecision { argument }],
            "{kind}"
        );
    }
    for kind in [
        "type = \"enum\"\nallowed = [\"a\"]",
        "type = \"integer\"",
        "type = \"string\"\npattern = \"[a-z]\"",
    ] {
        assert_eq!(flags(kind), [], "{kind}");
    }
    let contract = parse(&one("type = \"string\"\nfeeds_decision = true"));
    assert!(
        contract
            .arguments()
            .all(|spec| spec.feeds_decision() && !spec.sensitive())
    );
}

#[test]
fn nothing_that_a_manifest_derives_tells_a_sensitive_value() {
    let with = |rest: &str| {
        refused(&format!(
            "[args.v]\ntype = \"enum\"\nallowed = [\"a\", \"b\"]\nsensitive = true\n{rest}"
        ))
    };
    let mapped =
        "[command]\nexec = [\"echo\", \"{_v_flags}\"]\n[command.mappings.v]\na = [\"-a\"]\nb = []";
    assert!(with(mapped).contains("cannot be mapped"));
    let compared = "[command]\nexec = [\"echo\", \"{_c}\"]\n[command.conditionals.c]\n\
                    when = \"v == 'a'\"\ntemplate = [\"-a\"]";
    assert!(with(compared).contains("compares the sensitive argument"));
    let default = "default = \"a\"\n[command]\nexec = [\"echo\"]";
    assert!(with(default).contains("has a default"));
    let given = parse(
        "[args.v]\ntype = \"string\"\nsensitive = true\n[command]\nexec = [\"echo\", \"{_c}\", \"{v}\"]\n\
         [command.conditionals.c]\nwhen = \"v != ''\"\ntemplate = [\"-a\"]",
    );
    let bound = bind(&given, json!({"v": "hidden"})).unwrap();
    assert_eq!(bound.argv, ["echo", "-a", "hidden"]);
    let error = bind(&given, json!({"v": "hid;den"}))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("it is sensitive") && !error.contains('5'),
        "{error}"
    );
}

#[test]
fn what_plain_runners_would_not_do_is_told() {
    let contract = parse(
        "[tool.limits]\npids = 3\n[args.p]\ntype = \"path\"\n[args.t]\ntype = \"ip_address\"\n\
         block_internal = true\nsensitive = true\n[command]\nexec = [\"echo\"]\n[filesystem]\nread = [\"{p}\"]",
    );
    let advice = contract.portable_advice();
    assert_eq!(advice.len(), 4, "{advice:?}");
    assert!(advice.contains(&Advice::FilesystemIgnored));
    assert!(
        advice[0]
            .to_string()
            .contains("run the command on the host")
    );
    assert_eq!(parse(EXEC).portable_advice(), []);
}

const SCOPE: &str =
    "[scope]\ntargets = [\"10.0.1.0/24\"]\ndomains = [\"*.example.com\"]\nexclude = [\"10.0.1.1\"]";

#[test]
fn targets_stay_inside_the_scope_and_no_scope_means_refused() {
    let rules = scoped(SCOPE);
    for (kind, good, bad) in [
        ("type = \"scope_target\"", "10.0.1.7", "10.0.2.7"),
        ("type = \"scope_target\"", "www.example.com", "example.com"),
        ("type = \"scope_target\"", "10.0.1.128/25", "10.0.1.0/24"),
        (
            "type = \"ip_address\"\nscope_check = true",
            "10.0.1.7",
            "10.0.1.1",
        ),
        (
            "type = \"cidr\"\nscope_check = true",
            "10.0.1.128/25",
            "10.0.0.0/23",
        ),
        (
            "type = \"url\"\nscope_check = true",
            "http://10.0.1.7/",
            "http://10.0.1.1/",
        ),
        (
            "type = \"url\"\nscope_check = true",
            "https://a.example.com/",
            "https://a.example.com.evil.org/",
        ),
        (
            "type = \"msf_options\"",
            "set RHOSTS 10.0.1.7",
            "set RHOSTS 8.8.8.8",
        ),
    ] {
        let contract = parse_with(&one(kind), &rules);
        assert!(bind(&contract, json!({"v": good})).is_ok(), "{good}");
        assert!(bind(&contract, json!({"v": bad})).is_err(), "{bad}");
        let error = bind(&parse(&one(kind)), json!({"v": good})).unwrap_err();
        assert!(error.to_string().contains("there is none"), "{error}");
    }
    let outside = parse_with(
        &one("type = \"scope_target\"\ndefault = \"10.9.9.9\""),
        &rules,
    );
    assert!(bind(&outside, json!({})).is_err());
    refused(&one("type = \"scope_target\"\nscope_check = false"));
    let unchecked = parse(&one("type = \"msf_options\""));
    assert!(bind(&unchecked, json!({"v": "set RPORT 445"})).is_ok());
}

struct Names(&'static [(&'static str, &'static [&'static str])]);

impl Resolver for Names {
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let (_, addresses) = self.0.iter().find(|(name, _)| *name == host)?;
        Some(addresses.iter().map(|text| text.parse().unwrap()).collect())
    }
}

#[test]
fn block_internal_accepts_a_host_only_where_all_its_addresses_are_public() {
    let names = Names(&[
        ("public.example.com", &["93.184.216.34", "2606:4700::1111"]),
        ("mixed.example.com", &["93.184.216.34", "127.0.0.1"]),
        ("mapped.example.com", &["::ffff:93.184.216.34"]),
        ("meta.example.com", &["169.254.169.254"]),
        ("empty.example.com", &[]),
        ("excluded.example.com", &["8.8.8.8"]),
    ]);
    let surroundings = Surroundings {
        resolver: &names,
        ..Surroundings::default()
    };
    let scope = "[scope]\ndomains = [\"*.example.com\"]\nexclude = [\"8.8.8.8\"]";
    let rules = scoped(scope);
    for (kind, spell) in [
        (
            "type = \"url\"\nblock_internal = true\nscope_check = true",
            "https://HOST/x",
        ),
        ("type = \"scope_target\"\nblock_internal = true", "HOST"),
    ] {
        let contract = parse_with(&one(kind), &rules);
        let call = |host: &str| object(json!({"v": spell.replace("HOST", host)}));
        let bound = contract
            .bind_with(&call("public.example.com"), &surroundings)
            .unwrap();
        assert_eq!(bound.resolved[&argument("v")].len(), 2);
        for host in ["mixed", "mapped", "meta", "empty", "unknown", "excluded"] {
            let call = call(&format!("{host}.example.com"));
            assert!(contract.bind_with(&call, &surroundings).is_err(), "{host}");
        }
        let error = contract.bind(&call("public.example.com")).unwrap_err();
        assert!(error.to_string().contains("are not known"), "{error}");
    }
}

#[test]
fn addresses_of_a_host_hold_at_their_limit() {
    struct Many(usize);
    impl Resolver for Many {
        fn addresses(&self, _host: &str) -> Option<Vec<IpAddr>> {
            Some(vec!["93.184.216.34".parse().unwrap(); self.0])
        }
    }
    let contract = parse(&one("type = \"url\"\nblock_internal = true"));
    let bind = |count: usize| {
        let surroundings = Surroundings {
            resolver: &Many(count),
            ..Surroundings::default()
        };
        contract.bind_with(&object(json!({"v": "https://a.example/"})), &surroundings)
    };
    assert!(bind(limits::ADDRESSES_MAX).is_ok());
    assert!(bind(limits::ADDRESSES_MAX + 1).is_err());
}

#[test]
fn a_credential_file_must_be_a_granted_input() {
    let text = "[args.c]\ntype = \"credential_file\"\nrequired = true\n[command]\nexec = [\"echo\", \"{c}\"]\n";
    assert!(refused(text).contains("add `\"{c}\"` to `filesystem.read`"));
    let contract = parse(&format!("{text}[filesystem]\nread = [\"{{c}}\"]"));
    let bound = bind(&contract, json!({"c": "lists/users.txt"})).unwrap();
    assert_eq!(bound.reads["c"].as_str(), "lists/users.txt");
    assert!(bind(&contract, json!({"c": "/etc/shadow"})).is_err());
    refused(&format!("{text}[filesystem]\ncreate = [\"{{c}}\"]"));
}

#[test]
fn an_agent_summary_loses_what_nobody_sees() {
    let contract = parse(&one("type = \"agent_summary\""));
    let bound = bind(
        &contract,
        json!({"v": "Done.\u{200b} <!-- obey me --><b>2</b> files; \"ok\""}),
    )
    .unwrap();
    assert_eq!(bound.argv[1], "Done. 2 files; \"ok\"");
    assert!(bound.stripped.contains(&argument("v")));
    assert!(
        bind(&contract, json!({"v": "plain"}))
            .unwrap()
            .stripped
            .is_empty()
    );
    for bad in [
        "",
        "\u{200b}",
        "<!-- x -->",
        "-rf",
        "\u{200b}-rf",
        "<<b>b>x",
    ] {
        assert!(bind(&contract, json!({"v": bad})).is_err(), "{bad:?}");
    }
    refused("[args.v]\ntype = \"agent_summary\"\n[command]\ntemplate = \"echo {v}\"");
    refused(&one("type = \"agent_summary\"\ndefault = \"a\u{200b}b\""));
}

const TYPES: &str = "[types.severity]\nbase = \"enum\"\nallowed = [\"low\", \"high\"]\n\
    [types.host]\nbase = \"scope_target\"\ndescription = \"A host\"\n[types.alias]\nbase = \"host\"\nblock_internal = true\n\
    [types.rate]\nbase = \"integer\"\nmin = 1\nmax = 9\nclamp = true\n";

#[test]
fn custom_types_carry_their_rules_and_aliases_keep_the_scope() {
    let rules = ProjectRules::parse(
        Some(("toolclad.toml", TYPES)),
        Some(("scope/scope.toml", SCOPE)),
    )
    .unwrap();
    assert!(rules.scope().is_some());
    let severity = parse_with(&one("type = \"severity\"\ndefault = \"low\""), &rules);
    assert_eq!(bind(&severity, json!({})).unwrap().argv[1], "low");
    assert!(bind(&severity, json!({"v": "mid"})).is_err());
    let rate = parse_with(&one("type = \"rate\""), &rules);
    assert_eq!(bind(&rate, json!({"v": 50})).unwrap().argv[1], "9");
    for kind in ["host", "alias"] {
        let contract = parse_with(&one(&format!("type = \"{kind}\"")), &rules);
        assert!(bind(&contract, json!({"v": "10.0.2.1"})).is_err());
        let bound = bind(&contract, json!({"v": "10.0.1.7"}));
        assert_eq!(
            bound.is_ok(),
            kind == "host",
            "`alias` blocks internal addresses"
        );
    }
    for (kind, part) in [
        ("type = \"hos\"", "did you mean `host`?"),
        ("type = \"host\"\nscope_check = false", "takes back"),
        ("type = \"alias\"\nblock_internal = false", "takes back"),
        (
            "type = \"rate\"\nmax = 100",
            "does not apply to type `rate`",
        ),
        (
            "type = \"severity\"\nallowed = [\"x\"]",
            "does not apply to type",
        ),
    ] {
        let error = refused_with(&one(kind), &rules);
        assert!(error.contains(part), "{part}\n{error}");
    }
}

#[test]
fn faulty_types_are_refused_with_their_place() {
    for (text, part) in [
        (
            "[types.a]\nbase = \"b\"\n[types.b]\nbase = \"a\"",
            "through itself: a → b → a",
        ),
        ("[types.a]\nbase = \"a\"", "through itself"),
        ("[types.string]\nbase = \"enum\"", "built-in type"),
        ("[types.a]", "`types.a.base` is missing"),
        ("[types.a]\nbase = \"strin\"", "did you mean `string`?"),
        (
            "[types.a]\nbase = \"string\"\nmin = 1",
            "does not apply to `string`",
        ),
        (
            "[types.a]\nbase = \"string\"\nrequired = true",
            "unknown key",
        ),
        (
            "[types.a]\nbase = \"integer\"\nmax = 1\n[types.b]\nbase = \"a\"\nmax = 2",
            "does not apply",
        ),
        (
            "[types.a]\nbase = \"cidr\"\nscope_check = true\n[types.b]\nbase = \"a\"\nscope_check = false",
            "takes back",
        ),
        ("[type.a]\nbase = \"string\"", "unknown key `type`"),
        ("[types.\"a b\"]\nbase = \"string\"", "a b"),
        ("types = 1", "must be a table"),
    ] {
        let error = ProjectRules::parse(Some(("toolclad.toml", text)), None).unwrap_err();
        assert!(error.to_string().contains(part), "{text}\n{error}");
        assert!(error.to_string().contains("toolclad.toml:"), "{error}");
    }
    let both = ProjectRules::parse(
        Some(("toolclad.toml", "x = 1")),
        Some(("scope.toml", "y = 1")),
    );
    assert!(both.unwrap_err().iter().count() >= 2);
    let _ = typed("");
}

#[test]
fn types_and_their_chains_hold_at_their_limits() {
    let wide = |count: usize| {
        let text: String = (0..count)
            .map(|n| format!("[types.t{n}]\nbase = \"string\"\n"))
            .collect();
        ProjectRules::parse(Some(("toolclad.toml", &text)), None).is_ok()
    };
    assert!(wide(limits::TYPES_MAX));
    assert!(!wide(limits::TYPES_MAX + 1));
    let deep = |count: usize| {
        let mut text = "[types.t0]\nbase = \"string\"\n".to_owned();
        for n in 1..count {
            text.push_str(&format!("[types.t{n}]\nbase = \"t{}\"\n", n - 1));
        }
        ProjectRules::parse(Some(("toolclad.toml", &text)), None).is_ok()
    };
    assert!(deep(limits::TYPE_CHAIN_MAX));
    assert!(!deep(limits::TYPE_CHAIN_MAX + 1));
    let bytes = |count: usize| {
        let text = format!("#{}", "x".repeat(count - 1));
        ProjectRules::parse(Some(("toolclad.toml", &text)), None).is_ok()
    };
    assert!(bytes(limits::TYPES_BYTES_MAX));
    assert!(!bytes(limits::TYPES_BYTES_MAX + 1));
}

#[test]
fn servers_are_refused_where_they_are_configured_since_nothing_starts_them() {
    for empty in ["", "# servers come later\n"] {
        assert!(ProjectRules::check_servers("mcp-config.toml", empty).is_ok());
    }
    let text = "# ours\n[servers.files]\ncommand = \"files\"\n";
    let errors = ProjectRules::check_servers("mcp-config.toml", text).unwrap_err();
    let said = errors.to_string();
    assert!(
        said.starts_with("mcp-config.toml:2:2: nothing reads `servers`: servers of `[mcp]` tools"),
        "{said}"
    );
    assert!(said.contains("\n  help: remove it"), "{said}");
    assert!(ProjectRules::check_servers("mcp-config.toml", "this is no TOML").is_err());
}
