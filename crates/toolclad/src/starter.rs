//! The manifest that `tools init` writes: small, commented, valid as it stands.

use model::ToolName;

/// A commented manifest for `name`.
#[must_use]
pub fn starter_manifest(name: &ToolName) -> String {
    TEMPLATE.replace("NAME", name.as_str())
}

const TEMPLATE: &str = include_str!("starter.clad.toml");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Contract;

    #[test]
    fn the_starter_manifest_is_valid_for_every_name() {
        for name in ["a", "count_lines", "X-9"] {
            let name = ToolName::new(name).unwrap();
            let file = format!("tools/{name}.clad.toml");
            let contract = Contract::parse(&file, &starter_manifest(&name)).unwrap();
            assert_eq!(contract.name(), &name);
            assert!(contract.advice().is_empty());
        }
    }
}
