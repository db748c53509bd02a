//! The revisions of the protocol, and which of them a client gets.

/// A revision of the protocol, older ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

/// All that are spoken, the newest last.
pub const REVISIONS: [Revision; 5] = [
    Revision::V2024_11_05,
    Revision::V2025_03_26,
    Revision::V2025_06_18,
    Revision::V2025_11_25,
    Revision::V2026_07_28,
];

impl Revision {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// All that are spoken, in the order in which a client should try them.
    pub(crate) fn newest_first() -> [Self; REVISIONS.len()] {
        let mut revisions = REVISIONS;
        revisions.reverse();
        revisions
    }

    /// Whether each request names its revision and what its client can do, and each result its
    /// type; the others begin with `initialize`.
    #[must_use]
    pub fn is_stateless(self) -> bool {
        self >= Self::V2026_07_28
    }

    /// The client's own revision where one with `initialize` has it, else the newest of those:
    /// the client may then leave (MCP 2025-11-25, lifecycle, version negotiation).
    pub(crate) fn negotiate(asked: &str) -> Self {
        REVISIONS
            .into_iter()
            .find(|revision| !revision.is_stateless() && revision.as_str() == asked)
            .unwrap_or(Self::V2025_11_25)
    }

    /// `structuredContent` in a result.
    pub(crate) fn has_structured_results(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// `message` in a progress notification.
    pub(crate) fn has_progress_messages(self) -> bool {
        self >= Self::V2025_03_26
    }
}
