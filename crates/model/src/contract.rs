//! Words of a tool's contract that more than one crate speaks.

use serde::{Deserialize, Serialize};

/// How bad a tool's misuse would be, as its manifest says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RiskTier {
    Low,
    Medium,
    High,
    Critical,
}

impl RiskTier {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// How a tool's stdout is to be read; [`OutputFormat::parse`] reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// Anything, in UTF-8 or not.
    Text,
    /// One strict JSON value.
    Json,
    /// One strict JSON value a line.
    Jsonl,
    /// RFC 4180 with a header row.
    Csv,
    /// One XML element without DOCTYPE.
    Xml,
}

impl OutputFormat {
    pub const ALL: [Self; 5] = [Self::Text, Self::Json, Self::Jsonl, Self::Csv, Self::Xml];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Xml => "xml",
        }
    }
}

/// How the output appears to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum CreateMode {
    /// An empty writable file stands at the path.
    #[default]
    File,
    /// The name is absent, in a private folder: for programs that write aside and rename.
    Fresh,
}
