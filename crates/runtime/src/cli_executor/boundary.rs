//! The agent's worker profile: the operator's isolation, with the channel as its only mount.

use std::fmt;

use worker::{CommandBoundary, Filesystem, Network, TierKind};

/// Where an agent's scratch lies.
const AGENT_WORKING_DIR: &str = "/workspace";

/// The operator's tier cannot contain an agent here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundaryRefused {
    pub tier: TierKind,
}

impl fmt::Display for BoundaryRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no agent can be contained in the tier `{}` here, and nothing else is tried; an agent \
             runs in the tiers `{}`, `{}` and `{}`",
            self.tier,
            TierKind::Namespace,
            TierKind::Docker,
            TierKind::Gvisor
        )
    }
}

impl std::error::Error for BoundaryRefused {}

/// The operator's boundary without its files and network, and with a scratch `/workspace`. Its
/// root and limits stay.
pub(crate) fn of_agent(operator: &CommandBoundary) -> Result<CommandBoundary, BoundaryRefused> {
    match operator.tier {
        TierKind::Namespace | TierKind::Docker | TierKind::Gvisor => Ok(CommandBoundary {
            tier: operator.tier,
            root: operator.root.clone(),
            network: Network::None,
            working_dir: AGENT_WORKING_DIR.to_owned(),
            limits: operator.limits.clone(),
            filesystem: Filesystem::default(),
        }),
        tier @ TierKind::Firecracker => Err(BoundaryRefused { tier }),
    }
}
