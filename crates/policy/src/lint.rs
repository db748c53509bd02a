//! What Cedar's validator cannot know: which tools exist, and which of them an action serves.

use std::collections::BTreeMap;

use cedar_policy::{ActionConstraint, Effect, EntityUid, Policy, ResourceConstraint};
use model::SourceError;

use crate::parse::PlacedPolicy;
use crate::schema::{Subject, Vocabulary};

/// Whether `policy`'s scope lets it apply to `action`. Actions here have no groups.
pub(crate) fn applies_to(policy: &Policy, action: &EntityUid) -> bool {
    match policy.action_constraint() {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(only) => only == *action,
        ActionConstraint::In(any) => any.contains(action),
    }
}

/// The resource that `policy`'s scope names, if it names one.
pub(crate) fn named_resource(policy: &Policy) -> Option<EntityUid> {
    match policy.resource_constraint() {
        ResourceConstraint::Eq(uid)
        | ResourceConstraint::In(uid)
        | ResourceConstraint::IsIn(_, uid) => Some(uid),
        ResourceConstraint::Any | ResourceConstraint::Is(_) => None,
    }
}

/// Tools that do not exist, and scopes whose action never has their tool.
pub(crate) fn faults(policies: &[PlacedPolicy<'_>], words: &Vocabulary) -> Vec<SourceError> {
    let resources: BTreeMap<String, &Subject> = words
        .subjects
        .values()
        .map(|subject| (subject.resource.to_string(), subject))
        .collect();
    let types: Vec<_> = words
        .subjects
        .values()
        .map(|it| it.resource.type_name())
        .collect();
    let mut faults = Vec::new();
    for placed in policies {
        let mut unknown: Vec<String> = placed
            .policy
            .entity_literals()
            .into_iter()
            .filter(|uid| types.contains(&uid.type_name()) || is_tool(uid))
            .map(|uid| uid.to_string())
            .filter(|uid| !resources.contains_key(uid))
            .collect();
        unknown.sort();
        unknown.dedup();
        for uid in &unknown {
            let message = format!("policy `{}`: there is no tool {uid}", placed.id());
            let fault = placed.fault_at(uid, model::Untrusted::new(message).escaped());
            let near = model::nearest(uid, resources.keys().map(String::as_str));
            faults.push(match near {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault.help("a tool is named like its manifest's `name`"),
            });
        }
        if unknown.is_empty() {
            faults.extend(never_applies(placed, &resources));
        }
    }
    faults
}

fn is_tool(uid: &EntityUid) -> bool {
    uid.type_name().basename() == "Tool" && uid.type_name().namespace_components().next().is_none()
}

fn never_applies(
    placed: &PlacedPolicy<'_>,
    resources: &BTreeMap<String, &Subject>,
) -> Option<SourceError> {
    let named = named_resource(&placed.policy)?.to_string();
    let subject = resources.get(&named)?;
    if applies_to(&placed.policy, &subject.action) {
        return None;
    }
    let message = format!(
        "policy `{}`: its action never has the resource {named}",
        placed.id()
    );
    let help = format!("the action of {named} is {}", subject.action);
    Some(placed.fault_at(&named, message).help(help))
}

/// Permits that demand an approval of a tool whose manifest never asks for one.
pub(crate) fn unasked_approvals(
    policies: &[PlacedPolicy<'_>],
    words: &Vocabulary,
) -> Vec<SourceError> {
    let mut warnings = Vec::new();
    for placed in policies {
        let demands = placed.policy.effect() == Effect::Permit
            && placed.text().contains("has_human_approval");
        if !demands || matches!(placed.policy.action_constraint(), ActionConstraint::Any) {
            continue;
        }
        for subject in words.subjects.values() {
            if subject.needs_approval || !applies_to(&placed.policy, &subject.action) {
                continue;
            }
            let message = format!(
                "policy `{}` speaks of an approval, and `{}` never asks for one",
                placed.id(),
                subject.name
            );
            warnings.push(placed.fault_at("has_human_approval", message).help(format!(
                "set `human_approval = true` in the manifest of `{}`",
                subject.name
            )));
        }
    }
    warnings
}
