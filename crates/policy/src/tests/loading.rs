use super::fixture::*;
use crate::limits::{
    ANNOTATION_BYTES_MAX, NESTING_DEPTH_MAX, POLICIES_COUNT_MAX, POLICY_FILE_BYTES_MAX,
    POLICY_ID_BYTES_MAX, POLICY_TOKENS_MAX,
};
use crate::{LaunchShape, Policies, PolicySource, PolicyType, ToolShape};
use model::{SourceError, SourceErrors};
use proptest::prelude::*;

fn load(sources: &[PolicySource]) -> Result<Policies, SourceErrors> {
    let tools = [copy_tool("copy_csv"), echo_tool()];
    Policies::load(
        sources,
        &tools,
        &launches(),
        &principals(),
        &["team".to_owned()],
    )
}

/// The one fault of the file `p.cedar` with `text`.
#[track_caller]
fn fault(text: &str) -> SourceError {
    let faults = load(&[source("p.cedar", text)]).unwrap_err().into_vec();
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.into_iter().next().unwrap()
}

fn tools_fault(
    tools: &[ToolShape],
    launches: &[LaunchShape],
    principals: &[String],
    keys: &[String],
) -> String {
    Policies::load(&[], tools, launches, principals, keys)
        .unwrap_err()
        .to_string()
}

/// A condition for a permit of `copy_csv`, or a whole policy; what is marked; what the message
/// and the help contain.
const BAD_POLICIES: [(&str, &str, &str, &str); 17] = [
    (
        "permit(principal, action, resource) when { context.x = 3 };",
        "context.x = 3",
        "'='",
        "==",
    ),
    (
        "ARGS.input < 5",
        "ARGS.input",
        "unexpected type: expected Long but saw String",
        "",
    ),
    (
        "FILES.read.imput.parent == \"x\"",
        "FILES.read.imput",
        "imput",
        "did you mean `input`?",
    ),
    (
        "ARGS.limit < 5",
        "ARGS.limit",
        "optional attribute",
        "ARGS has limit && ..",
    ),
    (
        "FILES.overwrite && false",
        "permit(",
        "impossible",
        "would never act",
    ),
    (
        "permit(principal == Agent::\"opertor\", action, resource);",
        "Agent::\"opertor\"",
        "there is no agent Agent::\"opertor\"",
        "the agents are \"mcp\", \"operator\", \"reviewer\"",
    ),
    (
        "permit(principal, action == Action::\"tool_call::copy_cvs\", resource);",
        "Action::\"tool_call::copy_cvs\"",
        "copy_cvs",
        "tool_call::copy_csv",
    ),
    (
        "permit(principal, action, resource == Tool::\"copy_cvs\");",
        "Tool::\"copy_cvs\"",
        "there is no tool Tool::\"copy_cvs\"",
        "did you mean `Tool::\"copy_csv\"`",
    ),
    (
        "permit(principal, action == Action::\"tool_call::copy_csv\", resource == Tool::\"echo\");",
        "Tool::\"echo\"",
        "its action never has the resource",
        "tool_call::echo",
    ),
    (
        "permit(principal == ?principal, action, resource);",
        "?principal",
        "template",
        "fills in a template",
    ),
    (
        "@id(\"\") permit(principal, action, resource);",
        "@id",
        "@id",
        "",
    ),
    (
        "@reason permit(principal, action, resource);",
        "@reason",
        "@reason",
        "",
    ),
    (
        "@advise(\"x\") permit(principal, action, resource);",
        "@advise",
        "unknown annotation",
        "did you mean `@advice`",
    ),
    (
        "context.trusted.taem == \"x\"",
        "context.trusted.taem",
        "taem",
        "did you mean `team`?",
    ),
    (
        "context.trusted.team == \"p\u{430}ypal\"",
        "\"p\u{430}",
        "script",
        "one script",
    ),
    (
        "decimal(\"1.55555\").lessThan(decimal(\"2.0\"))",
        "decimal(\"1.55555\")",
        "1.55555",
        "",
    ),
    (
        "permit(principal is User, action, resource);",
        "User",
        "User",
        "",
    ),
];

#[test]
fn every_kind_of_bad_policy_points_at_its_line() {
    let long = |text: &str| {
        text.replace("ARGS", "context.invocation.arguments")
            .replace(
                "FILES",
                "context.invocation.resolved.command_boundary.filesystem",
            )
    };
    let copy = r#"permit(principal, action == Action::"tool_call::copy_csv", resource)"#;
    for (text, marked, message, help) in BAD_POLICIES {
        let line = match text.ends_with(';') {
            true => text.to_owned(),
            false => format!("{copy} when {{ {} }};", long(text)),
        };
        let (marked, help) = (long(marked), long(help));
        let column = line.find(&marked).unwrap() + 1;
        let fault = fault(&format!("// first line\n{line}\n"));
        assert_eq!((fault.file.as_str(), fault.line), ("p.cedar", 2), "{fault}");
        assert_eq!(fault.text, line, "{fault}");
        assert!(fault.message.contains(message), "{message:?}: {fault}");
        assert!(
            fault.help.clone().unwrap_or_default().contains(&help),
            "{help:?}: {fault}"
        );
        assert_eq!(fault.column, column, "{fault}");
    }
}

#[test]
fn an_attribute_that_another_tool_lacks_gets_its_fix() {
    let files = "context.invocation.resolved.command_boundary.filesystem";
    let bare = format!(
        "forbid(principal, action, resource) when {{ {files}.read.input.parent == \"secret\" }};"
    );
    let found = fault(&bare);
    assert_eq!(
        found.message,
        "policy `p.cedar#1`: `context.invocation.resolved.command_boundary.filesystem.read.input` is \
         missing for `Action::\"tool_call::claude_code\"`, `Action::\"tool_call::echo\"`"
    );
    assert_eq!(
        found.help.as_deref(),
        Some(
            "the policy applies to these actions too; name the action in its scope, as in \
             `action == Action::\"tool_call::copy_csv\"`, or ask first: \
             `context.invocation.resolved.command_boundary.filesystem.read has input && ...`"
        )
    );
    let fixed = format!(
        "forbid(principal, action, resource) when {{ {files}.read has input && {files}.read.input.parent == \"secret\" }};"
    );
    load(&[source("p.cedar", &fixed)]).unwrap();
    let chained = format!(
        "forbid(principal, action, resource) when {{ context has invocation.arguments.count && context.invocation.arguments.count > 5 && {files}.max_file_bytes > 5 }};"
    );
    load(&[source("p.cedar", &chained)]).unwrap();
}

#[test]
fn nested_optional_attributes_can_be_asked_for_and_used() {
    let text = r#"permit(principal, action == Action::"tool_call::copy_csv", resource) when {
        context has invocation.resolved.command_boundary.filesystem.read.extra.extension &&
        context.invocation.resolved.command_boundary.filesystem.read.extra.extension == "csv" &&
        context.invocation.resolved.command_boundary.filesystem.read has "0" &&
        context.invocation.resolved.command_boundary.filesystem.read["0"].bytes < 5 };"#;
    load(&[source("p.cedar", text)]).unwrap();
}

#[test]
fn all_faults_of_all_files_are_reported_in_order() {
    let bad = "permit(principal, action, resource) when { 1 < \"a\" };\n";
    let faults = load(&[source("b.cedar", bad), source("a.cedar", &bad.repeat(2))]).unwrap_err();
    let places: Vec<(String, usize)> = faults.iter().map(|it| (it.file.clone(), it.line)).collect();
    assert_eq!(
        places,
        [
            ("a.cedar".into(), 1),
            ("a.cedar".into(), 2),
            ("b.cedar".into(), 1)
        ]
    );
}

#[test]
fn ids_are_written_or_counted_and_never_twice() {
    let twice = "@id(\"x\")\npermit(principal, action, resource);\n\n@id(\"x\")\nforbid(principal, action, resource);";
    let found = fault(twice);
    assert_eq!((found.line, found.column), (4, 1));
    assert_eq!(found.message, "the policy id `x` is used twice");
    assert!(found.help.unwrap().contains("p.cedar:1"));
    let one = "@id(\"x\") permit(principal, action, resource);";
    assert!(load(&[source("a.cedar", one), source("b.cedar", one)]).is_err());
    let posing = "@id(\"p.cedar#2\") permit(principal, action, resource);permit(principal, action, resource);";
    assert_eq!(
        fault(posing).message,
        "the policy id `p.cedar#2` is used twice"
    );
}

#[test]
fn policies_are_placed_in_their_order_beyond_ten() {
    let mut text = "permit(principal, action, resource);\n".repeat(11);
    text.push_str("permit(principal, action, resource) when { 1 < \"a\" };");
    let found = fault(&text);
    assert_eq!(found.line, 12);
    assert!(
        found.message.starts_with("policy `p.cedar#12`: "),
        "{found}"
    );
}

#[test]
fn the_digest_depends_on_names_and_texts_and_not_on_order() {
    let a = source("a.cedar", "permit(principal, action, resource);");
    let b = source("b.cedar", "");
    let digest = load(&[a.clone(), b.clone()]).unwrap().digest();
    assert_eq!(load(&[b.clone(), a.clone()]).unwrap().digest(), digest);
    assert_ne!(
        load(&[source("c.cedar", &a.text), b.clone()])
            .unwrap()
            .digest(),
        digest
    );
    assert_ne!(
        load(&[source("a.cedar", &format!("{} ", a.text)), b])
            .unwrap()
            .digest(),
        digest
    );
    assert_ne!(
        Policies::digest_of(&[source("a", "bc")]),
        Policies::digest_of(&[source("ab", "c")])
    );
}

#[test]
fn the_schema_does_not_depend_on_the_order_of_tools() {
    let one = Policies::load(&[], &[copy_tool("a"), echo_tool()], &[], &principals(), &[]).unwrap();
    let two = Policies::load(&[], &[echo_tool(), copy_tool("a")], &[], &principals(), &[]).unwrap();
    assert_eq!(one.schema_text(), two.schema_text());
}

#[test]
fn limits_of_a_policy_file_hold_at_and_past_the_bound() {
    let permit = "permit(principal, action, resource);";
    let padded = |bytes: usize| format!("{permit}{}", " ".repeat(bytes - permit.len()));
    let accepts = |text: &str| load(&[source("p.cedar", text)]).is_ok();
    assert!(
        accepts(&padded(POLICY_FILE_BYTES_MAX)) && !accepts(&padded(POLICY_FILE_BYTES_MAX + 1))
    );
    let id = |bytes| format!("@id(\"{}\"){permit}", "a".repeat(bytes));
    assert!(accepts(&id(POLICY_ID_BYTES_MAX)) && !accepts(&id(POLICY_ID_BYTES_MAX + 1)));
    let reason = |bytes| format!("@reason(\"{}\"){permit}", "a".repeat(bytes));
    assert!(accepts(&reason(ANNOTATION_BYTES_MAX)) && !accepts(&reason(ANNOTATION_BYTES_MAX + 1)));
    assert!(accepts(&permit.repeat(POLICIES_COUNT_MAX)));
    assert!(!accepts(&permit.repeat(POLICIES_COUNT_MAX + 1)));
    let nested = |depth: usize| {
        let (open, close) = ("(".repeat(depth), ")".repeat(depth));
        format!(
            "permit(principal, action, resource) when {{ {open}context.has_human_approval{close} }};"
        )
    };
    assert!(accepts(&nested(NESTING_DEPTH_MAX - 1)) && !accepts(&nested(NESTING_DEPTH_MAX)));
    // 20 tokens stand around the sum.
    let long = |tokens: usize| {
        let sum = "+1".repeat((tokens - 20) / 2);
        format!(
            "permit(principal, action == Action::\"tool_call::echo\", resource) when {{ 1{sum} < 9000 }};"
        )
    };
    assert!(accepts(&long(POLICY_TOKENS_MAX)) && !accepts(&long(POLICY_TOKENS_MAX + 2)));
}

#[test]
fn the_longest_policies_of_every_kind_are_handled_on_a_small_stack() {
    let levels = POLICY_TOKENS_MAX / 2 - 16;
    let chains = [
        format!("{}true", "true && ".repeat(levels * 2 / 3)),
        format!("{}true", "false || ".repeat(levels * 2 / 3)),
        format!("context{} == 1", ".a".repeat(levels)),
        format!("1{} == 1", "+1".repeat(levels)),
        format!("[1{}].contains(1)", ",1".repeat(levels)),
        format!("{}1 == 1", "if true then 1 else ".repeat(levels * 2 / 5)),
        format!(
            "true }}{} when {{ true",
            " when { true }".repeat(levels / 2)
        ),
    ];
    let handle = move || {
        for chain in chains {
            let text = format!("permit(principal,action,resource) when {{ {chain} }};");
            if let Err(faults) = load(&[source("p.cedar", &text)]) {
                assert!(!faults.to_string().contains("tokens"), "{}", &text[..60]);
            }
        }
    };
    let small = std::thread::Builder::new().stack_size(2 << 20);
    small.spawn(handle).unwrap().join().unwrap();
}

#[test]
fn hostile_policy_text_is_a_fault_and_never_a_crash() {
    for text in [
        "(".repeat(100_000),
        format!(
            "permit(principal,action,resource) when {{ {} }};",
            "!".repeat(100_000)
        ),
        format!(
            "permit(principal,action,resource) when {{ {}true }};",
            "true && ".repeat(20_000)
        ),
        format!(
            "permit(principal,action,resource) when {{ {}1 }};",
            "if true then 1 else ".repeat(10_000)
        ),
        format!(
            "permit(principal,action,resource) when {{ {}1 }};",
            "if\ntrue then 1 else ".repeat(10_000)
        ),
        format!(
            "permit(principal,action,resource){};",
            " when { true }".repeat(15_000)
        ),
        "\"".to_owned(),
        "\\\u{202e}\0".to_owned(),
        "@reason(\"\\u{1b}[31m\") permit(principal,action,resource);".to_owned(),
        "@id(\"\u{1b}[31m\") permit(principal,action,resource);".to_owned(),
    ] {
        let shown = load(&[source("p.cedar", &text)])
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            !shown.contains('\u{1b}') && !shown.contains('\u{202e}'),
            "{shown}"
        );
    }
}

#[test]
fn what_cedar_cannot_speak_about_is_refused_by_name() {
    let all = principals();
    let twice = tools_fault(&[echo_tool(), echo_tool()], &[], &all, &[]);
    assert!(
        twice.contains("two tools or launches have the name `echo`"),
        "{twice}"
    );
    let launch = [LaunchShape {
        executor: "echo".into(),
    }];
    assert!(
        tools_fault(&[echo_tool()], &launch, &all, &[])
            .contains("two tools or launches have the name `echo`")
    );
    assert!(tools_fault(&[], &[], &[], &[]).contains("at least one principal"));
    assert!(tools_fault(&[], &[], &["a\"b".into()], &[]).contains("agent name"));
    assert!(tools_fault(&[], &[], &all, &["a b".into()]).contains("trusted context name"));
    for (kind, action) in [
        ("Agent", "x"),
        ("MyAction", "x"),
        ("__cedar::Action", "x"),
        ("a b::Action", "x"),
        ("::Action", "x"),
        ("Action", ""),
        ("Action", "a\"b"),
        ("Action", "tool_call::copy"),
    ] {
        let mut tool = echo_tool();
        tool.action = Some((kind.into(), action.into()));
        let text = tools_fault(&[tool], &[], &all, &[]);
        assert!(text.starts_with("echo: "), "{text}");
    }
}

#[test]
fn a_resource_type_is_a_cedar_name_that_the_schema_has_not() {
    for kind in [
        "a b",
        "Agent",
        "X::Limit",
        "X::Tool",
        "X::Action",
        "__cedar::X",
        "X::",
    ] {
        let mut tool = echo_tool();
        tool.resource = Some(kind.into());
        let text = tools_fault(&[tool], &[], &principals(), &[]);
        assert!(text.starts_with("echo: "), "{kind}: {text}");
    }
    for kind in ["Tool", "Target", "X::Target", "X::Y::Target"] {
        let mut tool = echo_tool();
        tool.resource = Some(kind.into());
        Policies::load(&[], &[tool, copy_tool("one")], &[], &principals(), &[])
            .unwrap_or_else(|faults| panic!("{kind}: {faults}"));
    }
}

#[test]
fn tools_that_share_an_action_agree_in_their_types() {
    let mut one = copy_tool("one");
    let mut two = echo_tool();
    for tool in [&mut one, &mut two] {
        tool.action = Some(("Action".into(), "copy".into()));
    }
    let clash = (
        model::ArgumentName::new("count").unwrap(),
        PolicyType::Text,
        true,
    );
    let shared = Policies::load(&[], &[one.clone(), two.clone()], &[], &principals(), &[]).unwrap();
    assert!(
        shared.schema_text().contains("\"count\"?: Long"),
        "{}",
        shared.schema_text()
    );
    two.arguments.push(clash);
    let text = tools_fault(&[one, two], &[], &principals(), &[]);
    assert!(
        text.contains("the argument `count` is Long in one tool and String in `echo`"),
        "{text}"
    );
}

#[test]
fn odd_names_of_arguments_and_keys_fit_the_schema() {
    let mut tool = echo_tool();
    for name in [
        "if", "has", "in", "true", "__cedar", "__entity", "String", "0",
    ] {
        let name = model::ArgumentName::new(name).unwrap();
        tool.arguments.push((name, PolicyType::Text, false));
    }
    let text =
        r#"permit(principal, action, resource) when { context.invocation.arguments has "in" };"#;
    Policies::load(
        &[source("p.cedar", text)],
        &[tool],
        &[],
        &principals(),
        &["true".into()],
    )
    .unwrap();
}

#[test]
fn a_permit_that_demands_an_unasked_approval_is_warned_about() {
    let text = r#"permit(principal, action == Action::"tool_call::echo", resource)
when { context.has_human_approval };"#;
    let warned = load(&[source("p.cedar", text)]).unwrap();
    let [warning] = warned.warnings() else {
        panic!("{:?}", warned.warnings())
    };
    assert_eq!((warning.line, warning.column), (2, 16));
    assert!(
        warning
            .help
            .as_deref()
            .unwrap()
            .contains("human_approval = true")
    );
    let mut tool = echo_tool();
    tool.needs_approval = true;
    let quiet =
        Policies::load(&[source("p.cedar", text)], &[tool], &[], &principals(), &[]).unwrap();
    assert!(quiet.warnings().is_empty());
}

proptest! {
    #[test]
    fn no_text_makes_loading_panic(
        text in proptest::collection::vec(prop_oneof![
            Just("permit("), Just("principal"), Just(","), Just("action"), Just("resource"),
            Just(") when {"), Just("};"), Just("context"), Just("."), Just("invocation"),
            Just(" has "), Just("\""), Just("Tool::"), Just("==") , Just("@id("), Just("?principal"),
            Just(")"), Just("\u{e4}\u{202e}"), Just("1"), Just("//"), Just("\n"), Just(" in ["),
        ], 0..40)
    ) {
        let text = text.concat();
        if let Err(faults) = load(&[source("p.cedar", &text)]) {
            prop_assert!(!faults.to_string().contains('\u{202e}'), "unescaped");
        }
    }
}
