//! Wall-clock times as texts: informative, never relied upon.

use std::time::SystemTime;

use time::OffsetDateTime;

/// RFC 3339 in UTC, with microseconds.
#[must_use]
pub fn rfc3339(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.microsecond()
    )
}

/// Now, as RFC 3339 in UTC.
#[must_use]
pub fn now_rfc3339() -> String {
    rfc3339(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_time_has_the_same_number_of_digits() {
        let at = |micros| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_micros(micros));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(at(1_500_000), "1970-01-01T00:00:01.500000Z");
        assert_eq!(at(1_767_323_045_678_901), "2026-01-02T03:04:05.678901Z");
    }
}
