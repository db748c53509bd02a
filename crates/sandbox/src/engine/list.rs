//! Which containers to list.

use std::collections::BTreeMap;

/// Containers by their labels. Without a condition it matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    labels: Vec<String>,
}

impl ContainerFilter {
    /// Containers that carry the label, whatever its value.
    #[must_use]
    pub fn with_label(mut self, name: &str) -> Self {
        self.labels.push(name.to_owned());
        self
    }

    /// Containers that carry the label with this value.
    #[must_use]
    pub fn with_label_value(mut self, name: &str, value: &str) -> Self {
        self.labels.push(format!("{name}={value}"));
        self
    }

    pub(super) fn text(&self) -> String {
        let mut filters = BTreeMap::new();
        if !self.labels.is_empty() {
            filters.insert("label", &self.labels);
        }
        // A map of texts has always a JSON form.
        serde_json::to_string(&filters).unwrap_or_default()
    }
}
