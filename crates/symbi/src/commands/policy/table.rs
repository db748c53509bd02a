//! `symbi policy test FILE`: calls and the verdicts that they must get, for a pipeline.
//!
//! ```toml
//! [[case]]
//! tool = "copy_csv"
//! as = "operator"                 # the default
//! arguments = { input = "data/a.csv", output = "out/b.csv" }
//! expect = "permit"               # or "deny", or "refuse": not even asked about
//! by = "operator-may-copy"        # optional: a policy that must have made the verdict
//! ```

use std::path::Path;

use model::{SourceError, Untrusted};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::commands::policy::trial::{Found, Trial};
use crate::exit::{Exit, Failure};
use crate::files::read_regular_text;
use crate::open::{OPERATOR, OpenProject};
use crate::output::Output;

/// Largest table, in bytes.
const TABLE_BYTES_MAX: u64 = 1 << 20;
/// Most cases of one table.
const CASES_MAX: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    case: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    tool: String,
    #[serde(default = "operator", rename = "as")]
    principal: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    expect: Expected,
    by: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    Permit,
    Deny,
    Refuse,
}

impl Expected {
    const fn name(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
            Self::Refuse => "refuse",
        }
    }
}

fn operator() -> String {
    OPERATOR.to_owned()
}

/// Asks about every case; 1 where one is not as it must be.
pub(super) fn run(open: &OpenProject, path: &Path, output: Output) -> Result<Exit, Failure> {
    let table = read(path)?;
    let mut trial = Trial::new(open)?;
    let (mut failed, count) = (Vec::new(), table.case.len());
    for (index, case) in table.case.into_iter().enumerate() {
        let found = trial.ask(&case.principal, &case.tool, case.arguments.clone())?;
        if let Some(wrong) = wrong(&case, &found) {
            let named = format!(
                "case {}: {} by {}: {wrong}",
                index + 1,
                safe(&case.tool),
                safe(&case.principal)
            );
            if !output.is_json() {
                output.line(&named);
            }
            failed.push(named);
        }
    }
    let passed = count - failed.len();
    if output.is_json() {
        output.value(&json!({ "passed": passed, "failed": failed }));
    } else {
        output.line(&format!("{passed} passed, {} failed", failed.len()));
    }
    Ok(match failed.is_empty() {
        true => Exit::Done,
        false => Exit::Failed,
    })
}

fn safe(text: &str) -> String {
    Untrusted::new(text).escaped()
}

fn wrong(case: &Case, found: &Found) -> Option<String> {
    if found.name() != case.expect.name() {
        let why = found.reason().unwrap_or_else(|| {
            let ids = found.policies().iter().map(|note| safe(&note.id));
            format!("by {}", ids.collect::<Vec<_>>().join(", "))
        });
        let (expected, got) = (case.expect.name(), found.name());
        return Some(format!("expected {expected}, got {got}: {why}"));
    }
    let by = case.by.as_deref()?;
    let named = found.policies().iter().any(|note| note.id == by);
    (!named).then(|| format!("{}, but not by {}", found.name(), safe(by)))
}

fn read(path: &Path) -> Result<Table, Failure> {
    let shown = safe(&path.to_string_lossy());
    let text =
        read_regular_text(path, TABLE_BYTES_MAX).map_err(|error| Failure::unread(path, &error))?;
    if text.len() as u64 > TABLE_BYTES_MAX {
        let message = format!("`{shown}` has more than the {TABLE_BYTES_MAX} bytes allowed");
        return Err(Failure::new(Exit::Usage, message).help("split it into several tables"));
    }
    SourceError::check_byte_order_mark(&shown, &text)
        .map_err(|it| Failure::of(Exit::Usage, &it))?;
    let table: Table = toml::from_str(&text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let message = Untrusted::new(error.message()).escaped();
        let fault = SourceError::at(&shown, &text, span, message);
        Failure::new(Exit::Usage, fault.to_string())
            .help("what a case may say: [[case]] with tool, as, arguments, expect and by")
    })?;
    if table.case.is_empty() || table.case.len() > CASES_MAX {
        let count = table.case.len();
        return Err(
            Failure::new(Exit::Usage, format!("`{shown}` has {count} cases"))
                .help(format!("write 1 to {CASES_MAX} tables [[case]]")),
        );
    }
    Ok(table)
}
