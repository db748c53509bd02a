//! How long each step of a call takes.

use std::time::{Duration, Instant};

/// A clock that is read after each step.
#[derive(Debug)]
pub(crate) struct Laps {
    last: Instant,
    steps: Vec<(&'static str, Duration)>,
}

impl Laps {
    pub(crate) fn begin() -> Self {
        Self {
            last: Instant::now(),
            steps: Vec::new(),
        }
    }

    /// The step `name`, whose result this is, is over.
    pub(crate) fn after<T>(&mut self, name: &'static str, result: T) -> T {
        let now = Instant::now();
        self.steps.push((name, now.duration_since(self.last)));
        self.last = now;
        result
    }

    /// The last step is over.
    pub(crate) fn end(mut self, name: &'static str) -> Vec<(&'static str, Duration)> {
        self.after(name, ());
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_stand_in_their_order_and_are_together_all_of_the_time() {
        let begun = Instant::now();
        let mut laps = Laps::begin();
        assert_eq!(laps.after("one", 7), 7);
        std::thread::sleep(Duration::from_millis(2));
        laps.after("two", ());
        let steps = laps.end("three");
        let all = begun.elapsed();
        let names: Vec<_> = steps.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["one", "two", "three"]);
        assert!(
            steps
                .iter()
                .any(|(name, took)| *name == "two" && took.as_millis() >= 2)
        );
        assert!(steps.iter().map(|(_, took)| *took).sum::<Duration>() <= all);
    }
}
