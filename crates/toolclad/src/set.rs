//! All tools of a project: valid together, or refused together.

use std::collections::BTreeMap;

use model::{SourceError, SourceErrors, ToolName};

use crate::contract::Contract;
use crate::limits::TOOLS_MAX;
use crate::rules::ProjectRules;

/// The contracts of a project, in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct ContractSet {
    contracts: BTreeMap<ToolName, Contract>,
}

impl ContractSet {
    /// Reads all manifests, given as file and text.
    ///
    /// # Errors
    /// The faults of every manifest: one bad manifest fails the set. More than [`TOOLS_MAX`] files,
    /// a name that two files give, and tools that share a Cedar action but type an argument of the
    /// same name differently, are faults too.
    pub fn parse(files: impl IntoIterator<Item = (String, String)>) -> Result<Self, SourceErrors> {
        Self::parse_with(files, &ProjectRules::default())
    }

    /// The same with the project's custom types and scope.
    ///
    /// # Errors
    /// As [`ContractSet::parse`].
    pub fn parse_with(
        files: impl IntoIterator<Item = (String, String)>,
        rules: &ProjectRules,
    ) -> Result<Self, SourceErrors> {
        let mut faults = Vec::new();
        let mut origins: BTreeMap<ToolName, String> = BTreeMap::new();
        let mut contracts = BTreeMap::new();
        for (index, (file, text)) in files.into_iter().enumerate() {
            if index >= TOOLS_MAX {
                let message = format!(
                    "this is tool {}; at most {TOOLS_MAX} are allowed",
                    index + 1
                );
                let help = "move manifests away; an agent needs few tools, and another project can \
                            have the others";
                faults.push(SourceError::whole_file(&file, message).help(help));
                break;
            }
            match Contract::parse_with(&file, &text, rules) {
                Ok(contract) => {
                    let name = contract.name().clone();
                    if let Some(first) = origins.get(&name) {
                        let message = format!("the tool `{name}` is defined in `{first}` already");
                        let fault = SourceError::whole_file(&file, message);
                        faults.push(fault.help("rename one of the two, or move it away"));
                        continue;
                    }
                    origins.insert(name.clone(), file);
                    contracts.insert(name, contract);
                }
                Err(errors) => faults.extend(errors.into_vec()),
            }
        }
        check_shared_actions(&contracts, &origins, &mut faults);
        SourceErrors::check(faults)?;
        Ok(Self { contracts })
    }

    #[must_use]
    pub fn get(&self, name: &ToolName) -> Option<&Contract> {
        self.contracts.get(name)
    }

    /// By name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Contract> {
        self.contracts.values()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.contracts.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.contracts.is_empty()
    }
}

/// One Cedar action has one context type, so its tools must agree about equal names.
fn check_shared_actions(
    contracts: &BTreeMap<ToolName, Contract>,
    origins: &BTreeMap<ToolName, String>,
    faults: &mut Vec<SourceError>,
) {
    let mut types = BTreeMap::new();
    for contract in contracts.values() {
        let Some(action) = contract.cedar_action() else {
            continue;
        };
        for argument in contract.arguments() {
            let key = (action.clone(), argument.name().clone());
            let (first, kind) = types
                .entry(key)
                .or_insert_with(|| (contract.name(), argument.kind()));
            if *kind != argument.kind() {
                let file = origins.get(contract.name()).map_or("", String::as_str);
                let message = format!(
                    "argument `{}` has another type than in tool `{first}`, with which it shares a \
                     Cedar action",
                    argument.name()
                );
                let help = "give both the same type, or one of the tools another action";
                faults.push(SourceError::whole_file(file, message).help(help));
            }
        }
    }
}
