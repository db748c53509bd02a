//! `symbi policy explain`: one call, the request that Cedar is asked, and why it answers so.

use model::Untrusted;
use serde_json::{Value, json};

use crate::args::CallArgs;
use crate::call_arguments;
use crate::commands::policy::trial::{Found, Trial};
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;

/// Explains; 0 where the call is permitted.
pub(super) fn run(
    open: &OpenProject,
    call: &CallArgs,
    principal: &str,
    output: Output,
) -> Result<Exit, Failure> {
    let arguments = call_arguments::read(call)?;
    let found = Trial::new(open)?.ask(principal, &call.tool, arguments)?;
    if output.is_json() {
        output.value(&as_json(&found, call, principal));
    } else {
        as_text(&found, call, principal, output);
    }
    Ok(match found.name() {
        "permit" => Exit::Done,
        _ => Exit::Refused,
    })
}

fn as_json(found: &Found, call: &CallArgs, principal: &str) -> Value {
    let mut shown = json!({
        "tool": call.tool, "principal": principal, "verdict": found.name(),
        "policies": found.policies(), "reason": found.reason(), "advice": found.advice(),
    });
    if let (Found::Decided(decided), Some(fields)) = (found, shown.as_object_mut()) {
        fields.insert("call_sha256".to_owned(), json!(decided.call_sha256));
        fields.insert("needs_approval".to_owned(), json!(decided.as_if_approved));
        let request = decided.request.as_ref().map(|request| {
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
            json!({
                "principal": request.principal, "action": request.action,
                "resource": request.resource,
                "resource_attributes": read(&request.resource_attributes),
                "context": read(&request.context),
            })
        });
        fields.insert("request".to_owned(), json!(request));
    }
    shown
}

fn as_text(found: &Found, call: &CallArgs, principal: &str, output: Output) {
    let safe = |text: &str| Untrusted::new(text).escaped();
    let (tool, principal) = (safe(&call.tool), safe(principal));
    output.line(&format!("{}: {tool} by {principal}", found.name()));
    if let Some(reason) = found.reason() {
        output.line(&format!("  {reason}"));
    }
    for note in found.policies() {
        let reason = note.reason.as_deref().map(|it| format!(": {}", safe(it)));
        output.line(&format!(
            "  by {}{}",
            safe(&note.id),
            reason.unwrap_or_default()
        ));
    }
    if let Some(advice) = found.advice() {
        output.line(&format!("  advice: {}", safe(advice)));
    }
    let Found::Decided(decided) = found else {
        return;
    };
    if decided.as_if_approved {
        output.line("  a person is asked first; this is the verdict after a yes");
    }
    if let Some(request) = &decided.request {
        output.line(&format!(
            "request\n  principal {}\n  action    {}\n  resource  {}\n  context",
            request.principal, request.action, request.resource
        ));
        let context: Value = serde_json::from_str(&request.context).unwrap_or_default();
        let pretty = serde_json::to_string_pretty(&context).unwrap_or_default();
        for line in Untrusted::new(pretty).escaped_lines().lines() {
            output.line(&format!("  {line}"));
        }
    }
}
