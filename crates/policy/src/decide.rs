//! The decision: permit by a permit, deny by everything else.

use cedar_policy::{
    AuthorizationError, Authorizer, Decision, Effect, Policy, PolicySet, PrincipalConstraint,
    Response,
};
use model::{Digest, Untrusted};

use crate::limits::{CLOSE_COUNT_MAX, ERROR_BYTES_MAX, NOTES_COUNT_MAX};
use crate::lint;
use crate::load::{Policies, Slice};
use crate::request::{self, CedarRequest, Request, RequestError};
use crate::schema::Subject;
use crate::verdict::{Denial, PolicyNote, Verdict};

impl Policies {
    /// The binding decision. A call whose contract demands a person's approval is denied
    /// without one, whatever the policies say.
    pub fn decide(&self, request: &Request<'_>) -> Verdict {
        let approved = request.approval.map(|approval| approval.approved_sha256);
        self.evaluate(request, approved)
    }

    /// The decision as it would be if a person approved exactly this call: what it denies
    /// need not be shown to anybody.
    pub fn decide_as_if_approved(&self, request: &Request<'_>) -> Verdict {
        self.evaluate(request, Some(request.call_sha256))
    }

    /// The shortest policy that permits `tool` to `principal`; none for an unknown tool.
    #[must_use]
    pub fn smallest_permit(&self, principal: &str, tool: &str) -> Option<String> {
        self.words
            .subjects
            .get(tool)
            .map(|subject| self.permit_for(principal, subject))
    }

    fn evaluate(&self, request: &Request<'_>, approved: Option<Digest>) -> Verdict {
        let name = request::subject_name(request.descriptor);
        let known = self.words.subjects.get(name);
        let Some((subject, slice)) = known.and_then(|it| Some((it, self.slices.get(&it.action)?)))
        else {
            let shown = Untrusted::new(name).escaped();
            return deny(format!("denied: the policies know no tool `{shown}`"), None);
        };
        if !self.words.principals.contains(request.principal) {
            let shown = Untrusted::new(request.principal).escaped();
            return deny(
                format!("denied: the policies know no agent `{shown}`"),
                None,
            );
        }
        let built = match self.build(request, subject, approved) {
            Ok(built) => built,
            Err(error) => return unbuildable(subject, &error),
        };
        let response =
            Authorizer::new().is_authorized(&built.request, &slice.policies, &built.entities);
        let errors = evaluation_errors(&response);
        if !errors.is_empty() {
            return self.failed(subject, &response, errors);
        }
        let notes = self.determining(&response);
        match response.decision() {
            Decision::Allow if approved.is_none() && demands(request, subject) => deny(
                format!("denied: `{name}` needs a person's approval of exactly this call"),
                None,
            ),
            Decision::Allow => Verdict::Permit { policies: notes },
            Decision::Deny => {
                let with_approval =
                    self.would_permit_if_approved(request, subject, slice, approved);
                if notes.is_empty() {
                    self.unpermitted(request, subject, slice, with_approval)
                } else {
                    forbidden(subject, notes, with_approval)
                }
            }
        }
    }

    /// The policies that made the decision.
    fn determining(&self, response: &Response) -> Vec<PolicyNote> {
        let ids = response.diagnostics().reason();
        let mut notes: Vec<&PolicyNote> = ids.filter_map(|id| self.notes.get(id)).collect();
        notes.sort();
        notes.into_iter().take(NOTES_COUNT_MAX).cloned().collect()
    }

    fn build(
        &self,
        request: &Request<'_>,
        subject: &Subject,
        approved: Option<Digest>,
    ) -> Result<CedarRequest, RequestError> {
        request::build(
            request,
            subject,
            &self.words.agent,
            approved,
            self.validator.schema(),
        )
    }

    /// Whether a missing approval is all that stands against the call.
    fn would_permit_if_approved(
        &self,
        request: &Request<'_>,
        subject: &Subject,
        slice: &Slice,
        approved: Option<Digest>,
    ) -> bool {
        if approved.is_some() || !slice.looks_at_approval {
            return false;
        }
        self.build(request, subject, Some(request.call_sha256))
            .is_ok_and(|built| {
                let response = Authorizer::new().is_authorized(
                    &built.request,
                    &slice.policies,
                    &built.entities,
                );
                response.decision() == Decision::Allow
                    && response.diagnostics().errors().next().is_none()
                    && !demands(request, subject)
            })
    }

    /// A policy that failed has not said no, and must not be taken for a yes.
    fn failed(&self, subject: &Subject, response: &Response, errors: Vec<String>) -> Verdict {
        let mut ids: Vec<&str> = response
            .diagnostics()
            .errors()
            .map(|AuthorizationError::PolicyEvaluationError(error)| error.policy_id().as_ref())
            .collect();
        ids.sort_unstable();
        let policies = match response.decision() {
            Decision::Deny => self.determining(response),
            Decision::Allow => Vec::new(),
        };
        let message = format!(
            "denied: {} failed while it was evaluated for `{}`",
            quoted(&ids),
            subject.name
        );
        Verdict::Deny(Denial {
            policies,
            errors,
            message,
            advice: None,
        })
    }

    fn unpermitted(
        &self,
        request: &Request<'_>,
        subject: &Subject,
        slice: &Slice,
        with_approval: bool,
    ) -> Verdict {
        let principal = Untrusted::new(request.principal).escaped();
        let close = close_permits(&slice.policies, request.principal, subject);
        let message = format!(
            "denied: nothing permits `{}` to `{principal}`{close}",
            subject.name
        );
        let advice = if with_approval {
            approval_advice(subject)
        } else {
            format!(
                "to allow it, add a policy such as: {}",
                self.permit_for(request.principal, subject)
            )
        };
        deny(message, Some(advice))
    }

    fn permit_for(&self, principal: &str, subject: &Subject) -> String {
        let principal = if self.words.principals.contains(principal) {
            principal
        } else {
            "NAME"
        };
        let resource = if subject.shared {
            format!("resource == {}", subject.resource)
        } else {
            "resource".to_owned()
        };
        format!(
            "permit(principal == Agent::\"{principal}\", action == {}, {resource});",
            subject.action
        )
    }
}

fn demands(request: &Request<'_>, subject: &Subject) -> bool {
    request::demands_approval(request.descriptor, subject)
}

fn deny(message: String, advice: Option<String>) -> Verdict {
    Verdict::Deny(Denial {
        policies: Vec::new(),
        errors: Vec::new(),
        message,
        advice,
    })
}

fn unbuildable(subject: &Subject, error: &RequestError) -> Verdict {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    Verdict::Deny(Denial {
        policies: Vec::new(),
        errors: vec![bounded(&text)],
        message: format!(
            "denied: the policies cannot be asked about `{}`",
            subject.name
        ),
        advice: None,
    })
}

fn forbidden(subject: &Subject, notes: Vec<PolicyNote>, with_approval: bool) -> Verdict {
    let ids: Vec<&str> = notes.iter().map(|note| note.id.as_str()).collect();
    let mut message = format!("denied: {} forbids `{}`", quoted(&ids), subject.name);
    let reasons: Vec<&str> = notes
        .iter()
        .filter_map(|note| note.reason.as_deref())
        .collect();
    if !reasons.is_empty() {
        message.push_str(": ");
        message.push_str(&first_few(&reasons).join("; "));
    }
    let mut advice: Vec<&str> = notes
        .iter()
        .filter_map(|note| note.advice.as_deref())
        .collect();
    advice.truncate(CLOSE_COUNT_MAX);
    let unasked = approval_advice(subject);
    if with_approval {
        advice.push(&unasked);
    }
    let advice = if advice.is_empty() {
        None
    } else {
        Some(advice.join("; "))
    };
    Verdict::Deny(Denial {
        policies: notes,
        errors: Vec::new(),
        message,
        advice,
    })
}

fn approval_advice(subject: &Subject) -> String {
    format!(
        "the policies want a person's approval, and `{0}` does not ask for one: set \
         `human_approval = true` for `{0}`",
        subject.name
    )
}

/// The permits of this action, as far as their scope goes.
fn close_permits(slice: &PolicySet, principal: &str, subject: &Subject) -> String {
    let mut unmet = Vec::new();
    let mut others = Vec::new();
    for policy in slice
        .policies()
        .filter(|policy| policy.effect() == Effect::Permit)
    {
        if lint::named_resource(policy).is_some_and(|named| named != subject.resource) {
            continue;
        }
        let id: &str = policy.id().as_ref();
        if is_for(policy, principal) {
            unmet.push(id)
        } else {
            others.push(id)
        }
    }
    unmet.sort_unstable();
    others.sort_unstable();
    match (unmet.as_slice(), others.as_slice()) {
        ([], []) => String::new(),
        ([], others) => format!("; for other principals there is {}", quoted(others)),
        (unmet, _) => format!("; close is {}, whose condition is not met", quoted(unmet)),
    }
}

fn is_for(policy: &Policy, principal: &str) -> bool {
    match policy.principal_constraint() {
        PrincipalConstraint::Any | PrincipalConstraint::Is(_) => true,
        PrincipalConstraint::Eq(uid)
        | PrincipalConstraint::In(uid)
        | PrincipalConstraint::IsIn(_, uid) => AsRef::<str>::as_ref(uid.id()) == principal,
    }
}

fn evaluation_errors(response: &Response) -> Vec<String> {
    let errors = response.diagnostics().errors();
    let mut errors: Vec<String> = errors.map(|error| bounded(&error.to_string())).collect();
    errors.sort();
    errors.truncate(NOTES_COUNT_MAX);
    errors
}

/// Escaped (an error repeats values of the request) and cut.
fn bounded(text: &str) -> String {
    let mut text = Untrusted::new(text).escaped();
    if text.len() > ERROR_BYTES_MAX {
        text.truncate(ERROR_BYTES_MAX);
        text.push_str("...");
    }
    text
}

fn quoted(ids: &[&str]) -> String {
    let shown: Vec<String> = first_few(ids).iter().map(|id| format!("`{id}`")).collect();
    match ids.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn first_few<'a, 'b>(all: &'b [&'a str]) -> &'b [&'a str] {
    all.get(..CLOSE_COUNT_MAX).unwrap_or(all)
}
