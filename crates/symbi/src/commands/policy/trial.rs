//! A call as it would be decided: prepared like every call, and then only asked about.

use std::collections::BTreeMap;

use governance::{ActionExecutor as _, BrokerToolCall, ProposedCall, Refusal};
use model::{Digest, ToolName, Untrusted};
use policy::{Denial, Policies, PolicyNote, Request, ShownRequest, Verdict};
use project::{Config, Surface};
use serde_json::{Map, Value};
use symbi_runtime::tools::ToolExecutor;
use toolclad::ContractSet;

use crate::exit::{Exit, Failure};
use crate::govern;
use crate::open::{CLIENT, OPERATOR, OpenProject};

/// What would become of a call.
#[derive(Debug)]
pub(super) enum Found {
    /// It does not get as far as a decision.
    Refused(Box<Refusal>),
    Decided(Box<Decided>),
}

#[derive(Debug)]
pub(super) struct Decided {
    pub(super) call_sha256: Digest,
    /// Whether a person would be asked, and was taken to have approved.
    pub(super) as_if_approved: bool,
    pub(super) request: Option<ShownRequest>,
    pub(super) verdict: Verdict,
}

impl Found {
    /// `permit`, `deny` or `refuse`.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refuse",
            Self::Decided(decided) => match &decided.verdict {
                Verdict::Permit { .. } => "permit",
                Verdict::Deny(_) => "deny",
            },
        }
    }

    /// The policies that made the verdict.
    pub(super) fn policies(&self) -> &[PolicyNote] {
        match self {
            Self::Refused(_) => &[],
            Self::Decided(decided) => match &decided.verdict {
                Verdict::Permit { policies } | Verdict::Deny(Denial { policies, .. }) => policies,
            },
        }
    }

    /// Why not, where it is a no; safe to show.
    pub(super) fn reason(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => {
                let reason = Untrusted::new(refusal.reason.as_str()).escaped();
                Some(format!("at {}: {reason}", refusal.stage_name()))
            }
            Self::Decided(decided) => match &decided.verdict {
                Verdict::Permit { .. } => None,
                Verdict::Deny(denial) if denial.errors.is_empty() => Some(denial.message.clone()),
                Verdict::Deny(denial) => {
                    Some(format!("{}: {}", denial.message, denial.errors.join("; ")))
                }
            },
        }
    }

    /// What to do about a no.
    pub(super) fn advice(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.advice.as_deref(),
            Self::Decided(decided) => match &decided.verdict {
                Verdict::Permit { .. } => None,
                Verdict::Deny(denial) => denial.advice.as_deref(),
            },
        }
    }
}

/// Everything that decides about the calls of one principal.
struct Desk {
    executor: ToolExecutor,
    policies: Policies,
}

/// Asks about calls of a trusted project. Nothing runs, and nothing is recorded.
pub(super) struct Trial<'a> {
    open: &'a OpenProject,
    config: Config,
    desks: BTreeMap<String, Desk>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(open: &'a OpenProject) -> Result<Self, Failure> {
        Ok(Self {
            config: open.config()?,
            open,
            desks: BTreeMap::new(),
        })
    }

    /// Asks about one call of `principal`.
    pub(super) fn ask(
        &mut self,
        principal: &str,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Found, Failure> {
        if !self.desks.contains_key(principal) {
            let desk = self.desk(principal)?;
            self.desks.insert(principal.to_owned(), desk);
        }
        let Some(desk) = self.desks.get_mut(principal) else {
            return Err(no_principal(principal, &self.config));
        };
        let call = BrokerToolCall {
            call_id: "explain".to_owned(),
            name: tool.to_owned(),
            arguments: Value::Object(arguments),
        };
        let refused = |refusal| Ok(Found::Refused(Box::new(refusal)));
        let proposed = match ProposedCall::parse(call) {
            Ok(proposed) => proposed,
            Err(refusal) => return refused(refusal),
        };
        let prepared = match desk.executor.prepare(proposed) {
            Ok(prepared) => prepared,
            Err(refusal) => return refused(refusal),
        };
        let as_if_approved = prepared.needs_approval();
        let request = Request {
            principal,
            descriptor: prepared.descriptor(),
            approval: None,
            call_sha256: prepared.call_sha256(),
            trusted: &BTreeMap::new(),
        };
        let verdict = match as_if_approved {
            true => desk.policies.decide_as_if_approved(&request),
            false => desk.policies.decide(&request),
        };
        // Where none can be made, the verdict says why.
        let shown = desk.policies.show(&request, as_if_approved).ok().flatten();
        Ok(Found::Decided(Box::new(Decided {
            call_sha256: prepared.call_sha256(),
            as_if_approved,
            request: shown,
            verdict,
        })))
    }

    fn desk(&self, principal: &str) -> Result<Desk, Failure> {
        let contracts = self.open.contracts()?;
        let (surface, tools) = self.place(principal, &contracts)?;
        let policies = self.open.policies(surface, &self.config, &contracts)?;
        let tier = govern::tier(self.open, &self.config)?;
        let executor = govern::executor(self.open, &self.config, contracts, &tools, tier)?;
        Ok(Desk { executor, policies })
    }

    /// Where a principal acts, and with which tools.
    fn place(
        &self,
        principal: &str,
        contracts: &ContractSet,
    ) -> Result<(Surface, Vec<ToolName>), Failure> {
        let all = || contracts.iter().map(|it| it.name().clone()).collect();
        if principal == OPERATOR {
            return Ok((Surface::Call, all()));
        }
        if principal == CLIENT {
            return Ok((Surface::Mcp, all()));
        }
        let mut agents = self.config.agents.iter();
        match agents.find(|(name, _)| name.as_str() == principal) {
            Some((_, agent)) => Ok((Surface::Run, agent.allowed_tools.clone())),
            None => Err(no_principal(principal, &self.config)),
        }
    }
}

fn no_principal(principal: &str, config: &Config) -> Failure {
    let known: Vec<&str> = [OPERATOR, CLIENT]
        .into_iter()
        .chain(config.agents.keys().map(model::AgentName::as_str))
        .collect();
    let shown = Untrusted::new(principal).escaped();
    let failure = Failure::new(
        Exit::Usage,
        format!("the project has no principal `{shown}`"),
    );
    match model::nearest(principal, known.iter().copied()) {
        Some(near) => failure.help(format!("did you mean `{near}`?")),
        None => failure.help(format!("its principals are: {}", known.join(", "))),
    }
}
