//! Policy files as policies with ids, each with its place in its file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use cedar_policy::{Policy, PolicyId, PolicySet};
use model::SourceError;

use crate::fault;
use crate::limits::{
    ANNOTATION_BYTES_MAX, NESTING_DEPTH_MAX, POLICIES_COUNT_MAX, POLICY_FILE_BYTES_MAX,
    POLICY_ID_BYTES_MAX, POLICY_TOKENS_MAX,
};
use crate::shape::PolicySource;
use crate::verdict::PolicyNote;

/// One policy under its final id.
#[derive(Debug, Clone)]
pub(crate) struct PlacedPolicy<'a> {
    pub(crate) policy: Policy,
    pub(crate) source: &'a PolicySource,
    /// Its bytes in the source, annotations included.
    pub(crate) span: Range<usize>,
    pub(crate) note: PolicyNote,
}

impl PlacedPolicy<'_> {
    pub(crate) fn id(&self) -> &str {
        &self.note.id
    }

    pub(crate) fn text(&self) -> &str {
        self.source.text.get(self.span.clone()).unwrap_or("")
    }

    /// A fault at the first place of `needle` in the policy, else at the whole policy.
    pub(crate) fn fault_at(&self, needle: &str, message: impl Into<String>) -> SourceError {
        let span = match self.text().find(needle) {
            Some(at) => self.span.start + at..self.span.start + at + needle.len(),
            None => self.span.clone(),
        };
        SourceError::at(&self.source.file, &self.source.text, span, message)
    }
}

/// Parses all files and gives each policy its id: `@id`, or `file#n` counted from 1.
///
/// # Errors
/// Every fault of every file.
pub(crate) fn parse(sources: &[PolicySource]) -> Result<Vec<PlacedPolicy<'_>>, Vec<SourceError>> {
    let mut faults = Vec::new();
    let mut policies: Vec<PlacedPolicy<'_>> = Vec::new();
    for source in sources {
        match parse_file(source) {
            Ok(found) => policies.extend(found),
            Err(found) => faults.extend(found),
        }
    }
    if policies.len() > POLICIES_COUNT_MAX {
        let message = format!(
            "{} policies are more than the {POLICIES_COUNT_MAX} allowed",
            policies.len()
        );
        let help = "join policies that differ in one value: `[\"a\", \"b\"].contains(...)`";
        faults.push(SourceError::whole_file("policies", message).help(help));
    }
    let mut seen: BTreeMap<&str, &PlacedPolicy<'_>> = BTreeMap::new();
    for policy in &policies {
        if let Some(first) = seen.get(policy.id()) {
            let place = first.fault_at("@id", "");
            let message = format!("the policy id `{}` is used twice", policy.id());
            faults.push(policy.fault_at("@id", message).help(format!(
                "the other one is at {}:{}; every `@id` stands for one policy",
                place.file, place.line
            )));
        } else {
            seen.insert(policy.id(), policy);
        }
    }
    if faults.is_empty() {
        Ok(policies)
    } else {
        Err(faults)
    }
}

fn parse_file(source: &PolicySource) -> Result<Vec<PlacedPolicy<'_>>, Vec<SourceError>> {
    let at = |span, message: String| SourceError::at(&source.file, &source.text, span, message);
    if source.text.len() > POLICY_FILE_BYTES_MAX {
        let message = format!(
            "the file has {} bytes, more than the {POLICY_FILE_BYTES_MAX} allowed",
            source.text.len()
        );
        let help = "split it into several files of the same folder";
        return Err(vec![
            SourceError::whole_file(&source.file, message).help(help),
        ]);
    }
    if let Err(fault) = SourceError::check_byte_order_mark(&source.file, &source.text) {
        return Err(vec![fault]);
    }
    if let Some((at_byte, message)) = too_complex(&source.text) {
        let help =
            "split the policy: two permits are an `or`, a further `when { ... }` is an `and`";
        return Err(vec![at(at_byte..at_byte + 1, message).help(help)]);
    }
    let set = PolicySet::from_str(&source.text).map_err(|errors| {
        errors
            .iter()
            .map(|error| fault::of_parse(source, error))
            .collect::<Vec<_>>()
    })?;
    let mut faults: Vec<SourceError> = set
        .templates()
        .map(|template| {
            let text = template.to_string();
            let start = source.text.find(&text).unwrap_or(0);
            let slot = text.find('?').unwrap_or(0);
            at(
                start + slot..start + text.len(),
                "a policy template is not allowed".to_owned(),
            )
            .help("write the principal or resource itself: nothing here fills in a template")
        })
        .collect();
    let mut policies = Vec::new();
    let mut end = 0;
    for (index, policy) in set.policies().enumerate() {
        let text = policy.to_string();
        let rest = source.text.get(end..).unwrap_or("");
        let start = rest.find(&text).map_or(0, |found| end + found);
        end = start + text.len();
        let annotations: BTreeMap<&str, &str> = policy.annotations().collect();
        let annotation = |name| annotations.get(name).map(|text| (*text).to_owned());
        let note = PolicyNote {
            id: annotation("id").unwrap_or_else(|| format!("{}#{}", source.file, index + 1)),
            reason: annotation("reason"),
            advice: annotation("advice"),
        };
        let placed = PlacedPolicy {
            policy: policy.new_id(PolicyId::new(&note.id)),
            source,
            span: start..end,
            note,
        };
        faults.extend(annotation_faults(&placed, &annotations));
        policies.push(placed);
    }
    if faults.is_empty() {
        Ok(policies)
    } else {
        Err(faults)
    }
}

fn annotation_faults(
    placed: &PlacedPolicy<'_>,
    annotations: &BTreeMap<&str, &str>,
) -> Vec<SourceError> {
    let mut faults = Vec::new();
    for (name, text) in annotations {
        let mark = format!("@{name}");
        match *name {
            "id" => {
                let graphic = |c: char| c.is_ascii_graphic() || c == ' ';
                if text.is_empty() || text.len() > POLICY_ID_BYTES_MAX || !text.chars().all(graphic)
                {
                    let message = format!(
                        "an `@id` has 1 to {POLICY_ID_BYTES_MAX} printable ASCII characters"
                    );
                    let help = "write it like @id(\"operator-may-copy\")";
                    faults.push(placed.fault_at(&mark, message).help(help));
                }
            }
            "reason" | "advice" => {
                let control = text.chars().any(char::is_control);
                if text.is_empty() || text.len() > ANNOTATION_BYTES_MAX || control {
                    let message = format!(
                        "an `{mark}` has 1 to {ANNOTATION_BYTES_MAX} bytes of text without controls"
                    );
                    let help = "write one sentence on one line";
                    faults.push(placed.fault_at(&mark, message).help(help));
                }
            }
            other => {
                let fault = placed.fault_at(&mark, format!("unknown annotation `{mark}`"));
                faults.push(match model::nearest(other, ["id", "reason", "advice"]) {
                    Some(near) => fault.help(format!("did you mean `@{near}`?")),
                    None => fault.help("the known ones are `@id`, `@reason` and `@advice`"),
                });
            }
        }
    }
    faults
}

/// The first place where a file is nested, or a policy long, beyond what the recursive parser
/// and evaluator may be given.
fn too_complex(text: &str) -> Option<(usize, String)> {
    let mut depth = 0_usize;
    let mut tokens = 0_usize;
    let mut in_word = false;
    let mut bytes = text.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        let word = byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii();
        match byte {
            b'"' => skip_string(&mut bytes),
            b'/' if bytes.peek().is_some_and(|(_, next)| *next == b'/') => {
                while bytes.next().is_some_and(|(_, next)| next != b'\n') {}
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b';' => tokens = 0,
            _ => {}
        }
        let continues = byte.is_ascii_whitespace() || (word && in_word);
        tokens += usize::from(!continues);
        in_word = word;
        if depth > NESTING_DEPTH_MAX {
            return Some((
                at,
                format!("brackets are nested deeper than {NESTING_DEPTH_MAX}"),
            ));
        }
        if tokens > POLICY_TOKENS_MAX {
            return Some((
                at,
                format!("a policy has more than {POLICY_TOKENS_MAX} tokens"),
            ));
        }
    }
    None
}

fn skip_string(bytes: &mut impl Iterator<Item = (usize, u8)>) {
    while let Some((_, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}
