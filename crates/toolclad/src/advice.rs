//! What a valid manifest says that its author may want to know.

use std::fmt;

use model::ArgumentName;

use crate::backend::Work;
use crate::contract::{Contract, ToolLimits};
use crate::grants::Grants;

/// A warning: nothing is wrong, and something may surprise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// `feeds_decision` on free text: whoever decides by it can be talked into anything.
    FreeTextFeedsDecision {
        argument: ArgumentName,
    },
    /// `[tool.evidence] output_dir`: evidence is named by its content.
    EvidenceFolderUnused,
    /// A policy cannot see what it is to decide by.
    SensitiveFeedsDecision {
        argument: ArgumentName,
    },
    /// Runners of the plain format ignore the table, and run the command on the host.
    FilesystemIgnored,
    LimitsIgnored,
    /// Such runners check the type less strictly, or not at all.
    TargetRulesIgnored {
        argument: ArgumentName,
    },
    SensitiveIgnored {
        argument: ArgumentName,
    },
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FreeTextFeedsDecision { argument } => write!(
                f,
                "argument `{argument}` feeds a decision and is free text: an enum or a pattern \
                 leaves less to say"
            ),
            Self::EvidenceFolderUnused => f.write_str(
                "`[tool.evidence] output_dir` has no effect: evidence lies in `.symbiont/evidence`, \
                 each file under the SHA-256 that the journal names",
            ),
            Self::SensitiveFeedsDecision { argument } => write!(
                f,
                "argument `{argument}` feeds a decision and is sensitive: policies never see its \
                 value"
            ),
            Self::FilesystemIgnored => f.write_str(
                "plain ToolClad runners ignore `[filesystem]` and run the command on the host, \
                 with all of its files",
            ),
            Self::LimitsIgnored => f.write_str("plain ToolClad runners ignore `[tool.limits]`"),
            Self::TargetRulesIgnored { argument } => write!(
                f,
                "plain ToolClad runners may not check the target of `{argument}` against a scope \
                 or `block_internal`"
            ),
            Self::SensitiveIgnored { argument } => write!(
                f,
                "plain ToolClad runners show and record the sensitive argument `{argument}`"
            ),
        }
    }
}

impl Contract {
    /// What is worth a second look.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let mut advice = Vec::new();
        for spec in self.arguments.iter().filter(|spec| spec.feeds_decision) {
            let argument = spec.name.clone();
            if spec.sensitive {
                advice.push(Advice::SensitiveFeedsDecision { argument });
            } else if spec.is_free_text() {
                advice.push(Advice::FreeTextFeedsDecision { argument });
            }
        }
        if self.evidence.as_ref().is_some_and(|it| it.folder.is_some()) {
            advice.push(Advice::EvidenceFolderUnused);
        }
        advice
    }

    /// What runners of the plain format would not do, and this one does.
    #[must_use]
    pub fn portable_advice(&self) -> Vec<Advice> {
        let mut advice = Vec::new();
        if self.grants != Grants::default() && !matches!(self.work, Work::Source(_)) {
            advice.push(Advice::FilesystemIgnored);
        }
        if self.limits != ToolLimits::default() {
            advice.push(Advice::LimitsIgnored);
        }
        for spec in &self.arguments {
            let argument = || spec.name.clone();
            if spec.kind.target_rules().any() {
                advice.push(Advice::TargetRulesIgnored {
                    argument: argument(),
                });
            }
            if spec.sensitive {
                advice.push(Advice::SensitiveIgnored {
                    argument: argument(),
                });
            }
        }
        advice
    }
}
