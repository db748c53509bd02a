use std::collections::BTreeMap;

use model::{ArgumentName, ArgumentValue, Canonical, Digest};
use proptest::prelude::*;
use worker::Descriptor;

use super::fixture::*;
use crate::{ApprovalFact, Denial, Policies, PolicyNote, Verdict};

fn policies(text: &str) -> Policies {
    let trusted = ["team".to_owned()];
    let tools = [copy_tool("copy_csv"), echo_tool(), notify_tool()];
    match Policies::load(
        &[source("p.cedar", text)],
        &tools,
        &launches(),
        &principals(),
        &trusted,
    ) {
        Ok(policies) => policies,
        Err(faults) => panic!("{faults}"),
    }
}

fn team() -> BTreeMap<String, String> {
    BTreeMap::from([("team".to_owned(), "data".to_owned())])
}

fn ask(policies: &Policies, principal: &str, descriptor: &Descriptor) -> Verdict {
    policies.decide(&request(principal, descriptor, &team()))
}

fn verdict(text: &str, descriptor: &Descriptor) -> Verdict {
    ask(&policies(text), "operator", descriptor)
}

#[track_caller]
fn denial(verdict: Verdict) -> Denial {
    match verdict {
        Verdict::Deny(denial) => denial,
        Verdict::Permit { policies } => panic!("permitted by {policies:?}"),
    }
}

#[track_caller]
fn permitted_by(verdict: Verdict) -> Vec<String> {
    match verdict {
        Verdict::Permit { policies } => policies.into_iter().map(|note| note.id).collect(),
        Verdict::Deny(denial) => panic!("{denial:?}"),
    }
}

const BOUNDARY: &str = "context.invocation.resolved.command_boundary";

/// A permit of `copy_csv` under one condition.
fn when(condition: &str) -> String {
    let condition = condition
        .replace("BOUNDARY", BOUNDARY)
        .replace("ARGS", "context.invocation.arguments");
    format!(
        "@id(\"it\") permit(principal == Agent::\"operator\", \
         action == Action::\"tool_call::copy_csv\", resource) when {{ {condition} }};"
    )
}

#[test]
fn nothing_permitted_is_denied_with_the_smallest_permit_to_paste() {
    let denial = denial(verdict("", &command(copy_call())));
    assert_eq!(
        denial.message,
        "denied: nothing permits `copy_csv` to `operator`"
    );
    let permit = r#"permit(principal == Agent::"operator", action == Action::"tool_call::copy_csv", resource);"#;
    assert_eq!(
        denial.advice.unwrap(),
        format!("to allow it, add a policy such as: {permit}")
    );
    assert_eq!(
        permitted_by(verdict(permit, &command(copy_call()))),
        ["p.cedar#1"]
    );
}

#[test]
fn a_permit_names_its_policies_with_reason_and_advice() {
    let text = r#"@id("b") permit(principal, action, resource);
        @id("a") @reason("why") @advice("then") permit(principal, action, resource);"#;
    let Verdict::Permit { policies } = verdict(text, &command(copy_call())) else {
        panic!()
    };
    let a = PolicyNote {
        id: "a".into(),
        reason: Some("why".into()),
        advice: Some("then".into()),
    };
    let b = PolicyNote {
        id: "b".into(),
        reason: None,
        advice: None,
    };
    assert_eq!(policies, [a, b]);
}

#[test]
fn a_forbid_wins_and_says_who_why_and_what_to_do() {
    let text = r#"permit(principal, action, resource);
        @id("no-secrets") @reason("secrets stay here") @advice("use data/")
        forbid(principal, action == Action::"tool_call::copy_csv", resource)
        when { context.invocation.arguments.input like "data/*" };"#;
    let denial = denial(verdict(text, &command(copy_call())));
    assert_eq!(
        denial.message,
        "denied: `no-secrets` forbids `copy_csv`: secrets stay here"
    );
    assert_eq!(denial.advice.as_deref(), Some("use data/"));
    assert_eq!(denial.policies.len(), 1);
    assert!(denial.errors.is_empty());
}

#[test]
fn an_error_while_evaluating_a_forbid_denies_and_is_listed() {
    let text = r#"permit(principal, action, resource);
        @id("sum") forbid(principal, action == Action::"tool_call::copy_csv", resource)
        when { context.invocation.arguments.count + 9223372036854775807 > 5 };"#;
    let denial = denial(verdict(text, &command(copy_call())));
    assert_eq!(
        denial.message,
        "denied: `sum` failed while it was evaluated for `copy_csv`"
    );
    assert_eq!(denial.errors.len(), 1);
    assert!(
        denial.errors[0].contains("`sum`") && denial.errors[0].contains("overflow"),
        "{denial:?}"
    );
}

#[test]
fn an_error_in_one_permit_denies_beside_another_permit() {
    let text = format!(
        "permit(principal, action, resource);\n{}",
        when("ARGS.count * 9223372036854775807 > 5")
    );
    assert_eq!(
        denial(verdict(&text, &command(copy_call()))).errors.len(),
        1
    );
}

#[test]
fn every_part_of_the_boundary_is_typed_and_visible() {
    for condition in [
        r#"BOUNDARY.tier == "namespace" && BOUNDARY.network == "none""#,
        r#"BOUNDARY.program.path == "/usr/bin/cp" && BOUNDARY.working_dir == "/workspace""#,
        r#"BOUNDARY.limits.memory_mib.value <= 512 && BOUNDARY.limits.memory_mib.enforcement == "partly""#,
        r#"BOUNDARY.limits.landlock == "enforced" && BOUNDARY.limits.time_ms.value == 30000"#,
        r#"BOUNDARY.filesystem.read.input.parent == "data""#,
        r#"BOUNDARY.filesystem.read.input.bytes < 5000 && BOUNDARY.filesystem.read.input.name == "a.csv""#,
        r#"BOUNDARY.filesystem.read.input has extension && BOUNDARY.filesystem.read.input.extension == "csv""#,
        r#"BOUNDARY.filesystem.create.output.path == "out/b.csv""#,
        r#"BOUNDARY.filesystem.output_parent_identity.inode == "18446744073709551615""#,
        r#"BOUNDARY.filesystem.max_file_bytes == 8388608"#,
        r#"["data", "other"].containsAll(BOUNDARY.filesystem.read_parents)"#,
        r#"BOUNDARY.filesystem.read_paths.contains("data/a.csv")"#,
        r#"!(BOUNDARY.filesystem.read has extra) && !(BOUNDARY.filesystem.read has "0")"#,
        r#"context.trusted.team == "data" && !context.has_human_approval"#,
        r#"ARGS.count == 3 && !(ARGS has limit)"#,
        r#"resource.risk_tier == "low" && resource.version == "1.0.0" && resource.name == "copy_csv""#,
    ] {
        assert_eq!(
            permitted_by(verdict(&when(condition), &command(copy_call()))),
            ["it"],
            "{condition}"
        );
    }
}

#[test]
fn overwriting_is_always_false() {
    let text = when("BOUNDARY.filesystem.overwrite");
    let denial = denial(verdict(&text, &command(copy_call())));
    assert!(
        denial
            .message
            .ends_with("; close is `it`, whose condition is not met"),
        "{denial:?}"
    );
}

#[test]
fn arguments_reach_policy_with_their_types() {
    let cases = [
        (
            "limit",
            ArgumentValue::Integer(i64::MIN),
            "ARGS has limit && ARGS.limit < 0",
        ),
        (
            "ratio",
            ArgumentValue::Decimal("1.25".parse().unwrap()),
            r#"ARGS has ratio && ARGS.ratio.lessThan(decimal("1.5"))"#,
        ),
        (
            "target",
            ArgumentValue::IpAddress("10.1.0.0/16".into()),
            r#"ARGS has target && ARGS.target.isInRange(ip("10.0.0.0/8"))"#,
        ),
        (
            "dry",
            ArgumentValue::Boolean(true),
            "ARGS has dry && ARGS.dry",
        ),
        (
            "extra",
            ArgumentValue::Text("a\0\"\u{202e}".into()),
            "ARGS has extra",
        ),
    ];
    for (name, value, condition) in cases {
        let call = command(with_argument(copy_call(), name, value));
        assert_eq!(
            permitted_by(verdict(&when(condition), &call)),
            ["it"],
            "{condition}"
        );
    }
}

#[test]
fn values_that_cedar_must_not_see_are_denied_with_the_error() {
    for (address, reason) in [
        ("::ffff:a00:1", "written as IPv6"),
        ("10.0.0.1/8", "host bits"),
        ("10.0.0.0/08", "prefix"),
        ("10.0.0.0/33", "prefix"),
        ("fe80::1/64", "host bits"),
        ("localhost", "not an IP address"),
    ] {
        let value = ArgumentValue::IpAddress(address.into());
        let call = command(with_argument(copy_call(), "target", value));
        let denial = denial(verdict("permit(principal, action, resource);", &call));
        assert!(denial.errors[0].contains(reason), "{denial:?}");
    }
    let mut call = copy_call();
    call.boundary.limits.pids.value = u64::MAX;
    let denial = denial(verdict(
        "permit(principal, action, resource);",
        &command(call),
    ));
    assert!(
        denial.errors[0].contains("more than a Cedar Long can hold"),
        "{denial:?}"
    );
}

#[test]
fn what_was_not_declared_at_load_is_denied() {
    let all = policies("permit(principal, action, resource);");
    let wrong_type = with_argument(copy_call(), "limit", ArgumentValue::Text("5".into()));
    let mut missing = copy_call();
    missing
        .arguments
        .remove(&ArgumentName::new("count").unwrap());
    let undeclared = with_argument(copy_call(), "team", ArgumentValue::Text("data".into()));
    for call in [wrong_type, missing, undeclared] {
        let denial = denial(ask(&all, "operator", &command(call)));
        assert!(
            denial.errors[0].contains("does not fit the schema"),
            "{denial:?}"
        );
    }
    let mut unknown = echo_call();
    unknown.tool = model::ToolName::new("ech0").unwrap();
    let message = denial(ask(&all, "operator", &command(unknown))).message;
    assert_eq!(message, "denied: the policies know no tool `ech0`");
    let message = denial(ask(&all, "ghost\u{1b}", &command(copy_call()))).message;
    assert_eq!(message, "denied: the policies know no agent `ghost\\u{1b}`");
}

#[test]
fn trusted_context_is_the_hosts_and_can_be_required() {
    let text = when(r#"context.trusted.team == "data""#);
    let all = policies(&text);
    let call = command(copy_call());
    assert_eq!(permitted_by(ask(&all, "operator", &call)), ["it"]);
    let other = BTreeMap::from([("team".to_owned(), "web".to_owned())]);
    denial(all.decide(&request("operator", &call, &other)));
    let none = BTreeMap::new();
    let error = denial(all.decide(&request("operator", &call, &none))).errors;
    assert!(error[0].contains("does not fit the schema"), "{error:?}");
}

#[test]
fn a_tool_without_files_has_an_empty_filesystem() {
    let text = r#"permit(principal, action == Action::"tool_call::echo", resource) when {
        context.invocation.resolved.command_boundary.filesystem.read_paths.isEmpty() &&
        context.invocation.resolved.command_boundary.filesystem.read_parents.isEmpty() };"#;
    permitted_by(verdict(text, &command(echo_call())));
}

#[test]
fn a_launch_is_decided_by_its_terms() {
    let text = r#"@id("go") permit(principal == Agent::"reviewer", action == Action::"tool_call::claude_code", resource)
        when { context.invocation.launch.agent == "reviewer" && context.invocation.launch.max_calls <= 100
          && context.invocation.launch.argv.contains("--print") && context.invocation.launch.tools == ["copy_csv"]
          && context.invocation.launch has model && context.invocation.launch.model == "model-1"
          && context.invocation.resolved.command_boundary.network == "none"
          && resource.risk_tier == "critical" && resource == Tool::"claude_code" };"#;
    let all = policies(text);
    let launch = Descriptor::Launch(Box::new(launch_call()));
    assert_eq!(permitted_by(ask(&all, "reviewer", &launch)), ["go"]);
    let message = denial(ask(&all, "mcp", &launch)).message;
    assert_eq!(
        message,
        "denied: nothing permits `claude_code` to `mcp`; for other principals there is `go`"
    );
    let mut without = launch_call();
    without.inference = None;
    denial(ask(
        &all,
        "reviewer",
        &Descriptor::Launch(Box::new(without)),
    ));
}

#[test]
fn custom_work_is_decided_by_kind_and_digest() {
    let value = Canonical::of(&"hello").unwrap();
    let text = format!(
        r#"permit(principal, action == Action::"tool_call::notify", resource) when {{
            context.invocation.custom.kind == "notify" && context.invocation.custom.sha256 == "{}" }};"#,
        value.digest()
    );
    let custom = Descriptor::Custom {
        custom_kind: "notify".into(),
        value,
    };
    permitted_by(verdict(&text, &custom));
    let posing = Descriptor::Custom {
        custom_kind: "copy_csv".into(),
        value: Canonical::of(&1).unwrap(),
    };
    let errors = denial(verdict("permit(principal, action, resource);", &posing)).errors;
    assert!(errors[0].contains("another kind of work"), "{errors:?}");
}

#[test]
fn an_approval_counts_for_its_own_call_only() {
    let all = policies(&when(
        "context.has_human_approval && context has approved_fingerprint && \
         context.approved_fingerprint == resource.fingerprint",
    ));
    let call = command(copy_call());
    let trusted = team();
    let mut asked = request("operator", &call, &trusted);
    let first = denial(all.decide(&asked));
    assert_eq!(
        first.advice.as_deref(),
        Some(
            "the policies want a person's approval, and `copy_csv` does not ask for one: set \
             `human_approval = true` for `copy_csv`"
        )
    );
    assert_eq!(permitted_by(all.decide_as_if_approved(&asked)), ["it"]);
    let approval = ApprovalFact {
        approved_sha256: asked.call_sha256,
    };
    asked.approval = Some(&approval);
    assert_eq!(permitted_by(all.decide(&asked)), ["it"]);
    let other = ApprovalFact {
        approved_sha256: Digest::of(b"another call"),
    };
    asked.approval = Some(&other);
    assert!(denial(all.decide(&asked)).errors[0].contains("the approval is for call"));
}

#[test]
fn a_permit_is_not_enough_where_the_manifest_demands_approval() {
    let all = policies("permit(principal, action, resource);");
    let mut call = copy_call();
    call.human_approval = true;
    let call = command(call);
    let message = denial(ask(&all, "operator", &call)).message;
    assert_eq!(
        message,
        "denied: `copy_csv` needs a person's approval of exactly this call"
    );
    permitted_by(all.decide_as_if_approved(&request("operator", &call, &team())));
}

#[test]
fn what_would_be_denied_even_if_approved_is_known_before_anybody_is_asked() {
    let all = policies(&when(r#"ARGS.input like "other/*""#));
    let call = command(copy_call());
    denial(all.decide_as_if_approved(&request("operator", &call, &team())));
}

#[test]
fn tools_that_share_an_action_are_told_apart_by_their_resource() {
    let mut one = copy_tool("copy_csv");
    one.action = Some(("Files::Action".into(), "copy".into()));
    let mut two = echo_tool();
    two.action = Some(("Files::Action".into(), "copy".into()));
    let load = |text: &str| {
        let sources = [source("p.cedar", text)];
        Policies::load(
            &sources,
            &[one.clone(), two.clone()],
            &[],
            &principals(),
            &["team".into()],
        )
    };
    let all = load("").unwrap();
    let denied = denial(ask(&all, "operator", &command(copy_call())));
    let permit = all.smallest_permit("operator", "copy_csv").unwrap();
    assert_eq!(
        permit,
        r#"permit(principal == Agent::"operator", action == Files::Action::"copy", resource == Tool::"copy_csv");"#
    );
    assert!(denied.advice.unwrap().ends_with(&permit));
    let all = load(&permit).unwrap();
    permitted_by(ask(&all, "operator", &command(copy_call())));
    denial(ask(&all, "operator", &command(echo_call())));
}

#[test]
fn a_validated_set_loads_for_one_tool_alone() {
    let text = r#"permit(principal, action == Action::"tool_call::echo", resource);
        permit(principal, action == Action::"tool_call::copy_csv", resource);"#;
    let sources = [source("p.cedar", text)];
    let trusted = ["team".to_owned()];
    let one =
        Policies::load_validated(&sources, &[echo_tool()], &[], &principals(), &trusted).unwrap();
    assert_eq!(
        permitted_by(ask(&one, "operator", &command(echo_call()))),
        ["p.cedar#1"]
    );
    denial(ask(&one, "operator", &command(copy_call())));
}

#[test]
fn a_verdict_lists_at_most_its_bound_of_policies() {
    use crate::limits::NOTES_COUNT_MAX;
    let many = "permit(principal, action, resource);".repeat(NOTES_COUNT_MAX);
    let call = command(copy_call());
    assert_eq!(permitted_by(verdict(&many, &call)).len(), NOTES_COUNT_MAX);
    let more = format!("{many}permit(principal, action, resource);");
    assert_eq!(permitted_by(verdict(&more, &call)).len(), NOTES_COUNT_MAX);
}

#[test]
fn a_policy_set_can_move_to_the_session_thread() {
    fn movable<T: Send + Sync>() {}
    movable::<Policies>();
}

proptest! {
    #[test]
    fn any_text_argument_is_a_string_and_nothing_else(text in any::<String>()) {
        let all = policies(&when("ARGS has extra && ARGS.extra like \"*\" && !(ARGS has limit)"));
        let value = ArgumentValue::Text(text);
        let call = command(with_argument(copy_call(), "extra", value));
        prop_assert_eq!(permitted_by(ask(&all, "operator", &call)), ["it"]);
    }
}

#[test]
fn a_resource_type_of_a_manifest_is_what_its_policies_speak_of() {
    let mut one = copy_tool("copy_csv");
    one.action = Some(("PenTest::Action".into(), "scan".into()));
    one.resource = Some("PenTest::ScanTarget".into());
    let mut two = echo_tool();
    two.action = Some(("PenTest::Action".into(), "scan".into()));
    let load = |text: &str| {
        let sources = [source("p.cedar", text)];
        let tools = [one.clone(), two.clone()];
        Policies::load(
            &sources,
            &tools,
            &launches(),
            &principals(),
            &["team".into()],
        )
    };
    let text = r#"@id("it") permit(principal, action == PenTest::Action::"scan", resource is
        PenTest::ScanTarget) when { resource.name == "copy_csv" && resource.risk_tier == "low" };"#;
    let all = load(text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(
        permitted_by(ask(&all, "operator", &command(copy_call()))),
        ["it"]
    );
    denial(ask(&all, "operator", &command(echo_call())));
    let call = command(copy_call());
    let shown = all
        .show(&request("operator", &call, &team()), false)
        .unwrap();
    let shown = shown.unwrap();
    assert_eq!(shown.action, r#"PenTest::Action::"scan""#);
    assert_eq!(shown.resource, r#"PenTest::ScanTarget::"copy_csv""#);
    assert!(load(&text.replace("ScanTarget", "Other")).is_err());
}

#[test]
fn a_policy_sees_that_a_sensitive_argument_is_there_and_cannot_name_its_value() {
    let mut call = copy_call();
    let token = ArgumentName::new("token").unwrap();
    let salted = Digest::of(b"salted");
    call.sealed.arguments.insert(token, salted);
    let named = when("context.invocation.sensitive.contains(\"token\")");
    assert_eq!(permitted_by(verdict(&named, &command(call))), ["it"]);
    denial(verdict(&named, &command(copy_call())));
    let value = [source("p.cedar", &when("ARGS.token == \"x\""))];
    let tools = [copy_tool("copy_csv"), echo_tool()];
    assert!(Policies::load(&value, &tools, &launches(), &principals(), &[]).is_err());
}

#[test]
fn a_policy_decides_by_the_parser_of_an_output() {
    let mut call = copy_call();
    call.parser = Some(worker::ParserDescriptor {
        argv: vec!["/opt/parse".into()],
        environment: BTreeMap::new(),
        program: program("/opt/parse"),
        boundary: call.boundary.clone(),
    });
    let text = when(
        "if context.invocation.resolved has parser \
         then context.invocation.resolved.parser.program.path == \"/opt/other\" else true",
    );
    denial(verdict(&text, &command(call)));
    assert_eq!(permitted_by(verdict(&text, &command(copy_call()))), ["it"]);
}
