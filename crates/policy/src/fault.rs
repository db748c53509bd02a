//! Cedar's diagnostics as faults with their place, the offending line and a next step.

use std::collections::BTreeSet;
use std::ops::Range;

use cedar_policy::{ParseError, ValidationError, ValidationResult, ValidationWarning};
use miette::Diagnostic;
use model::{SourceError, Untrusted};

use crate::parse::PlacedPolicy;
use crate::shape::PolicySource;

pub(crate) fn of_parse(source: &PolicySource, error: &ParseError) -> SourceError {
    let (span, label) = first_label(error).unwrap_or((0..0, None));
    let fault = SourceError::at(&source.file, &source.text, span, escape(&error.to_string()));
    let own = error.help().map(|help| help.to_string()).or(label);
    let form = "a policy is `permit(principal, action, resource) when { ... };`, and a comment \
                begins with `//`";
    fault.help(own.map_or_else(|| form.to_owned(), |help| escape(&help)))
}

/// One diagnostic of the validator, before its equals for other actions are joined to it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    start: usize,
    end: usize,
    message: String,
    help: Option<String>,
    missing: Option<MissingAttribute>,
}

/// An attribute that one action's context does not have.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MissingAttribute {
    path: String,
    action: String,
}

/// All faults of `result`, those of one place joined, in the order of the files.
///
/// `applicable` gives the actions that a policy applies to.
pub(crate) fn of_validation(
    policies: &[PlacedPolicy<'_>],
    result: &ValidationResult,
    applicable: impl Fn(&PlacedPolicy<'_>) -> Vec<String>,
) -> Vec<SourceError> {
    let mut faults = Vec::new();
    for policy in policies {
        let mut findings: Vec<Finding> = result
            .validation_errors()
            .filter(|error| error.policy_id() == policy.policy.id())
            .map(|error| of_error(policy, error))
            .collect();
        // An impossible policy that also has an error is impossible because of it.
        if findings.is_empty() {
            findings = result
                .validation_warnings()
                .filter(|warning| warning.policy_id() == policy.policy.id())
                .map(|warning| of_warning(policy, warning))
                .collect();
        }
        findings.sort();
        let mut rest = findings.as_slice();
        while let Some(first) = rest.first() {
            let same = rest
                .iter()
                .take_while(|it| (it.start, it.end) == (first.start, first.end));
            let count = same.clone().count();
            let failing: BTreeSet<&str> = same
                .filter_map(|it| it.missing.as_ref())
                .map(|missing| missing.action.as_str())
                .collect();
            faults.push(joined(policy, first, &failing, &applicable(policy)));
            rest = rest.get(count..).unwrap_or(&[]);
        }
    }
    faults
}

fn joined(
    policy: &PlacedPolicy<'_>,
    finding: &Finding,
    failing: &BTreeSet<&str>,
    applicable: &[String],
) -> SourceError {
    let source = policy.source;
    let span = finding.start..finding.end;
    let make = |message: &str| SourceError::at(&source.file, &source.text, span.clone(), message);
    let has_it: Vec<&str> = applicable
        .iter()
        .map(String::as_str)
        .filter(|action| !failing.contains(action))
        .collect();
    let (Some(missing), Some(example)) = (&finding.missing, has_it.first()) else {
        let fault = make(&finding.message);
        return match &finding.help {
            Some(help) => fault.help(help.clone()),
            None => fault,
        };
    };
    let lacking: Vec<&str> = failing.iter().copied().collect();
    let message = format!(
        "policy `{}`: `context.{}` is missing for {}",
        policy.id(),
        missing.path,
        listed(&lacking)
    );
    make(&escape(&message)).help(escape(&format!(
        "the policy applies to these actions too; name the action in its scope, as in \
         `action == {example}`, or ask first: `{} && ...`",
        has_guard(&missing.path)
    )))
}

/// `context.a has b` for the path `a.b`; `context has a` for `a`.
fn has_guard(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((parent, last)) if !last.contains(['[', ']', '"']) => {
            format!("context.{parent} has {last}")
        }
        None => format!("context has {path}"),
        Some(_) => match path.rsplit_once('[') {
            Some((parent, last)) => {
                format!("context.{parent} has {}", last.trim_end_matches(']'))
            }
            None => format!("context has {path}"),
        },
    }
}

fn listed(actions: &[&str]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = actions
        .iter()
        .take(SHOWN)
        .map(|it| format!("`{it}`"))
        .collect();
    match actions.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn of_error(policy: &PlacedPolicy<'_>, error: &ValidationError) -> Finding {
    let text = error.to_string();
    let missing = match error {
        ValidationError::UnsafeAttributeAccess(_) => missing_attribute(&text),
        _ => None,
    };
    let mut finding = finding(policy, error, &text);
    finding.missing = missing;
    if let ValidationError::InvalidEnumEntity(_) = error {
        // Agents are the one enumerated type.
        let written = policy
            .source
            .text
            .get(finding.start..finding.end)
            .unwrap_or("");
        finding.message = escape(&format!(
            "policy `{}`: there is no agent {written}",
            policy.id()
        ));
        finding.help = finding
            .help
            .map(|help| help.replace("valid entity eids:", "the agents are"));
    }
    let next_step = "what a policy can ask, with its types: symbi policy schema";
    finding.help.get_or_insert_with(|| next_step.to_owned());
    finding
}

fn of_warning(policy: &PlacedPolicy<'_>, warning: &ValidationWarning) -> Finding {
    let mut finding = finding(policy, warning, &warning.to_string());
    let next_step = match warning {
        ValidationWarning::ImpossiblePolicy(_) => {
            "no request can ever meet its condition, so it would never act; correct or remove it"
        }
        ValidationWarning::InvalidActionApplication(_) => {
            "no action that is served here has this principal and resource"
        }
        _ => "use plain letters of one script: this text can be mistaken for another",
    };
    finding.help.get_or_insert_with(|| next_step.to_owned());
    finding
}

fn finding(policy: &PlacedPolicy<'_>, diagnostic: &dyn Diagnostic, text: &str) -> Finding {
    let span = first_label(diagnostic).map_or_else(|| policy.span.clone(), |(span, _)| span);
    let prefix = format!("for policy `{}`", policy.id());
    let text = text
        .strip_prefix(&prefix)
        .map_or(text, |rest| rest.trim_start_matches([',', ':', ' ']));
    let help = diagnostic.help().map(|help| {
        let help = help.to_string();
        escape(help.strip_prefix(&format!("{prefix}, ")).unwrap_or(&help))
    });
    Finding {
        start: span.start,
        end: span.end,
        message: escape(&format!("policy `{}`: {text}", policy.id())),
        help,
        missing: None,
    }
}

/// Reads ``attribute `a.b` in context for ACTION not found``.
fn missing_attribute(text: &str) -> Option<MissingAttribute> {
    let (_, rest) = text.split_once("attribute `")?;
    let (path, rest) = rest.split_once("` in context for ")?;
    let action = rest.strip_suffix(" not found")?;
    Some(MissingAttribute {
        path: path.to_owned(),
        action: action.to_owned(),
    })
}

fn first_label(diagnostic: &dyn Diagnostic) -> Option<(Range<usize>, Option<String>)> {
    let label = diagnostic.labels()?.next()?;
    let text = label.label().map(str::to_owned);
    Some((label.offset()..label.offset() + label.len(), text))
}

/// Cedar repeats parts of the file in its messages; the file may not be trusted yet.
fn escape(text: &str) -> String {
    Untrusted::new(text).escaped()
}
