//! What `symbi doctor` found, in words and as JSON.

use model::{RunId, Untrusted};
use sandbox::probes::{Finding, Verdict};
use serde_json::{Map, Value, json};
use worker::{Limits, TierKind};

use super::tiers::Other;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// The configured tier, where it could be made at all.
pub(super) struct Examined {
    pub(super) limits: Limits,
    pub(super) findings: Vec<Finding>,
}

/// All of it.
pub(super) struct Report {
    pub(super) kind: TierKind,
    pub(super) examined: Result<Examined, Failure>,
    pub(super) others: Vec<Other>,
    /// Runs that were interrupted, and what to do about each.
    pub(super) waiting: Vec<(RunId, String)>,
}

impl Report {
    /// 7 where the configured tier is not there, or breaks a promise.
    pub(super) fn exit(&self) -> Exit {
        match &self.examined {
            Err(failure) => failure.exit,
            Ok(examined) if examined.is_sound() => Exit::Done,
            Ok(_) => Exit::Isolation,
        }
    }

    pub(super) fn show(&self, output: Output) {
        if output.is_json() {
            return output.value(&self.to_json());
        }
        let kind = self.kind;
        match &self.examined {
            Ok(examined) => {
                output.line(&format!("{kind}: available, {}", examined.headline()));
                for line in examined.lines() {
                    output.line(&line);
                }
            }
            Err(failure) => {
                output.line(&format!("{kind}: NOT available: {}", failure.message));
                if let Some(help) = &failure.help {
                    output.line(&format!("  remedy: {help}"));
                }
            }
        }
        for other in &self.others {
            if other.lacks.is_empty() {
                output.line(&format!("{}: could be configured", other.tier));
            }
            for lack in &other.lacks {
                output.line(&format!("{}: not here: {}", other.tier, lack.what));
                output.line(&format!("  remedy: {}", lack.remedy));
            }
        }
        for (run, next) in &self.waiting {
            output.line(&format!(
                "run {run} was interrupted, and waits for you: {next}"
            ));
        }
    }

    fn to_json(&self) -> Value {
        let waiting: Vec<Value> = self
            .waiting
            .iter()
            .map(|(run, next)| json!({ "run": run, "next": next }))
            .collect();
        let found = match &self.examined {
            Ok(examined) => json!({
                "available": true, "sound": examined.is_sound(), "limits": examined.limits,
                "probes": examined.findings,
            }),
            Err(failure) => json!({
                "available": false, "sound": false, "reason": failure.message,
                "remedy": failure.help,
            }),
        };
        let mut whole = Map::new();
        whole.insert("tier".to_owned(), json!(self.kind));
        if let Value::Object(found) = found {
            whole.extend(found);
        }
        whole.insert("others".to_owned(), json!(self.others));
        whole.insert("waiting".to_owned(), json!(waiting));
        Value::Object(whole)
    }
}

impl Examined {
    fn is_sound(&self) -> bool {
        !self.findings.is_empty() && !self.has(Verdict::Fails)
    }

    fn has(&self, verdict: Verdict) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.verdict == verdict)
    }

    fn headline(&self) -> &'static str {
        match self.is_sound() {
            true if self.has(Verdict::Untried) => "but it could not be tried from inside",
            true => "and it does what it says",
            false => "and IT DOES NOT DO WHAT IT SAYS: run nothing with it here",
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for finding in &self.findings {
            let verdict = match finding.verdict {
                Verdict::Holds => "holds",
                Verdict::Partly => "partly",
                Verdict::Untried => "untried",
                Verdict::Fails => "FAILS",
            };
            let found = Untrusted::new(finding.found.as_str()).escaped();
            lines.push(format!("  {verdict:<7} {:<11} {found}", finding.probe));
            if let Some(remedy) = finding.remedy {
                lines.push(format!("          remedy: {remedy}"));
            }
        }
        let enforcement = |it: worker::Enforcement| it.as_str().replace('_', " ");
        for (name, limit) in self.limits.named() {
            lines.push(format!("  {name}: {}", enforcement(limit.enforcement)));
        }
        lines.push(format!("  landlock: {}", enforcement(self.limits.landlock)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: &[Verdict]) -> Report {
        let finding = |verdict: &Verdict| Finding {
            probe: "egress",
            verdict: *verdict,
            found: "a \u{1b}[2Jroute".to_owned(),
            remedy: (*verdict != Verdict::Holds).then_some("use another tier"),
        };
        Report {
            kind: TierKind::Namespace,
            examined: Ok(Examined {
                limits: Limits::wanted([1; 7]),
                findings: verdicts.iter().map(finding).collect(),
            }),
            others: Vec::new(),
            waiting: Vec::new(),
        }
    }

    #[test]
    fn one_probe_that_fails_and_none_at_all_are_exit_7() {
        use Verdict::{Fails, Holds, Partly};
        assert_eq!(report(&[Holds, Partly]).exit(), Exit::Done);
        assert_eq!(report(&[Holds, Fails]).exit(), Exit::Isolation);
        assert_eq!(report(&[]).exit(), Exit::Isolation);
        let absent = Report {
            examined: Err(Failure::new(Exit::Isolation, "no")),
            ..report(&[])
        };
        assert_eq!(absent.exit(), Exit::Isolation);
        assert_eq!(absent.to_json()["available"], false);
    }

    #[test]
    fn each_finding_is_a_line_with_its_remedy_and_is_escaped() {
        let report = report(&[Verdict::Fails]);
        let lines = report
            .examined
            .as_ref()
            .map(Examined::lines)
            .unwrap_or_default();
        assert!(lines[0].contains("FAILS   egress"), "{lines:?}");
        assert!(!lines[0].contains('\u{1b}'), "{lines:?}");
        assert!(lines[1].contains("remedy: use another tier"), "{lines:?}");
        let value = report.to_json();
        assert_eq!(value["probes"][0]["verdict"], "fails");
        assert_eq!(value["sound"], false);
    }
}
