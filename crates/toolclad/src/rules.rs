//! What a project says for all its manifests: custom types and the scope.

use std::sync::Arc;

use model::SourceErrors;

use crate::limits::TYPES_BYTES_MAX;
use crate::manifest::CustomTypes;
use crate::reader::{Faults, parse_document, quoted};
use crate::scope::Scope;

/// `toolclad.toml` and `scope/scope.toml`, read. The default has neither.
#[derive(Debug, Clone, Default)]
pub struct ProjectRules {
    pub(crate) types: CustomTypes,
    pub(crate) scope: Option<Arc<Scope>>,
}

impl ProjectRules {
    /// Reads the files that the project has, each given as its path and text.
    ///
    /// # Errors
    /// Every fault of both, with place, text and help.
    pub fn parse(
        types: Option<(&str, &str)>,
        scope: Option<(&str, &str)>,
    ) -> Result<Self, SourceErrors> {
        let mut rules = Self::default();
        let mut faults = Vec::new();
        match types.map(|(file, text)| CustomTypes::parse(file, text)) {
            Some(Ok(types)) => rules.types = types,
            Some(Err(errors)) => faults.extend(errors.into_vec()),
            None => {}
        }
        match scope.map(|(file, text)| Scope::parse(file, text)) {
            Some(Ok(scope)) => rules.scope = Some(Arc::new(scope)),
            Some(Err(errors)) => faults.extend(errors.into_vec()),
            None => {}
        }
        SourceErrors::check(faults)?;
        Ok(rules)
    }

    /// Reads `mcp-config.toml`, which would say how the servers of `[mcp]` tools are started.
    /// Nothing serves them yet, so whatever it says would silently have no effect.
    ///
    /// # Errors
    /// Each key, with its place.
    pub fn check_servers(file: &str, text: &str) -> Result<(), SourceErrors> {
        let document = parse_document(file, text, TYPES_BYTES_MAX)?;
        let mut faults = Faults::new(file, text);
        for key in document.get_ref().keys() {
            if faults.is_full() {
                break;
            }
            let name = quoted(key.get_ref());
            let message =
                format!("nothing reads {name}: servers of `[mcp]` tools are not served yet");
            let help = "remove it; the file may be absent, or hold comments only";
            faults.add(key.span(), message, help);
        }
        faults.check()
    }

    #[must_use]
    pub fn scope(&self) -> Option<&Scope> {
        self.scope.as_deref()
    }
}
