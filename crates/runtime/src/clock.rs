//! Wall-clock times as texts: informative, never relied upon.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// RFC 3339 in UTC.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    OffsetDateTime::from(at)
        .format(&Rfc3339)
        .unwrap_or_default()
}

/// Now, as RFC 3339 in UTC.
#[must_use]
pub fn now_rfc3339() -> String {
    rfc3339(SystemTime::now())
}
