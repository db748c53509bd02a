//! How often people are asked: at most a number of held calls for each tool in an hour.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use crate::limits::HOLD_TOOLS_MAX;

const HOUR: Duration = Duration::from_secs(3600);

/// The held calls of the last hour, by tool.
#[derive(Debug)]
pub struct HoldBudget {
    per_hour: u64,
    held: BTreeMap<String, VecDeque<Instant>>,
}

/// A tool asked people as often as it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldsSpent {
    pub per_hour: u64,
    /// When the next call of the tool can be held.
    pub free_in: Duration,
}

impl fmt::Display for HoldsSpent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} calls of this tool were held for a person within the last hour, as many as \
             `[approval] holds_per_hour` allows; the next can be held in {} s",
            self.per_hour,
            self.free_in.as_secs().saturating_add(1)
        )
    }
}

impl std::error::Error for HoldsSpent {}

impl HoldBudget {
    #[must_use]
    pub const fn new(per_hour: u64) -> Self {
        Self {
            per_hour,
            held: BTreeMap::new(),
        }
    }

    /// Counts one more held call of `tool`.
    ///
    /// # Errors
    /// [`HoldsSpent`]; nothing was counted.
    pub fn take(&mut self, tool: &str, now: Instant) -> Result<(), HoldsSpent> {
        let spent = |free_in| HoldsSpent {
            per_hour: self.per_hour,
            free_in,
        };
        if !self.held.contains_key(tool) && self.held.len() >= HOLD_TOOLS_MAX {
            return Err(spent(HOUR));
        }
        let held = self.held.entry(tool.to_owned()).or_default();
        held.retain(|at| now.saturating_duration_since(*at) < HOUR);
        if held.len() as u64 >= self.per_hour {
            let oldest = held.front().copied().unwrap_or(now);
            return Err(spent(
                HOUR.saturating_sub(now.saturating_duration_since(oldest)),
            ));
        }
        held.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_held_as_often_as_it_may_and_other_tools_are_not_concerned() {
        let start = Instant::now();
        let mut budget = HoldBudget::new(2);
        assert_eq!(budget.take("a", start), Ok(()));
        assert_eq!(budget.take("a", start + Duration::from_secs(60)), Ok(()));
        let spent = budget.take("a", start + Duration::from_secs(600));
        let free_in = Duration::from_secs(3000);
        assert_eq!(
            spent,
            Err(HoldsSpent {
                per_hour: 2,
                free_in
            })
        );
        assert_eq!(budget.take("b", start + Duration::from_secs(600)), Ok(()));
    }

    #[test]
    fn an_hour_later_the_tool_may_ask_again() {
        let start = Instant::now();
        let mut budget = HoldBudget::new(1);
        assert_eq!(budget.take("a", start), Ok(()));
        let almost = start + HOUR - Duration::from_millis(1);
        assert!(budget.take("a", almost).is_err());
        assert_eq!(budget.take("a", start + HOUR), Ok(()));
    }

    #[test]
    fn the_tools_that_are_counted_are_bounded() {
        let start = Instant::now();
        let mut budget = HoldBudget::new(1);
        for tool in 0..HOLD_TOOLS_MAX {
            assert_eq!(budget.take(&tool.to_string(), start), Ok(()));
        }
        assert!(budget.take("one more", start).is_err());
    }
}
