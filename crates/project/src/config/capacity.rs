//! `[capacity]` of the user's configuration: what all of the user's processes may have together.

use worker::limits::{
    CAPACITY_CPU_MILLI_DEFAULT, CAPACITY_MEMORY_MIB_DEFAULT, CAPACITY_STAGING_MIB_DEFAULT,
    CAPACITY_WORKERS_DEFAULT,
};

use crate::limits::{
    CAPACITY_CPU_MILLI_MAX, CAPACITY_MEMORY_MIB_MAX, CAPACITY_STAGING_MIB_MAX,
    CAPACITY_WORKERS_MAX, CPU_MILLI_MIN, MEMORY_MIB_MIN,
};
use crate::reader::Table;

/// Bounds that several `symbi` processes of one user share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapacitySettings {
    /// Container workers at a time.
    pub workers: u64,
    /// Their CPU share together, in thousandths of one CPU.
    pub cpu_milli: u64,
    /// Their memory together.
    pub memory_mib: u64,
    /// Private copies of files, on every tier.
    pub staging_mib: u64,
}

impl Default for CapacitySettings {
    fn default() -> Self {
        Self {
            workers: CAPACITY_WORKERS_DEFAULT,
            cpu_milli: CAPACITY_CPU_MILLI_DEFAULT,
            memory_mib: CAPACITY_MEMORY_MIB_DEFAULT,
            staging_mib: CAPACITY_STAGING_MIB_DEFAULT,
        }
    }
}

impl CapacitySettings {
    pub(super) fn read(table: Table<'_>) -> Self {
        let defaults = Self::default();
        let integer = |key, range| table.entry(key).and_then(|entry| entry.integer(range));
        let workers = integer("workers", 1..=CAPACITY_WORKERS_MAX);
        let cpus = table
            .entry("cpus")
            .and_then(|entry| entry.thousandths(CPU_MILLI_MIN..=CAPACITY_CPU_MILLI_MAX));
        let memory_mib = integer("memory_mib", MEMORY_MIB_MIN..=CAPACITY_MEMORY_MIB_MAX);
        let staging_mib = integer("staging_mib", 1..=CAPACITY_STAGING_MIB_MAX);
        table.finish();
        Self {
            workers: workers.unwrap_or(defaults.workers),
            cpu_milli: cpus.unwrap_or(defaults.cpu_milli),
            memory_mib: memory_mib.unwrap_or(defaults.memory_mib),
            staging_mib: staging_mib.unwrap_or(defaults.staging_mib),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UserConfig;
    use super::*;

    fn read(text: &str) -> Result<CapacitySettings, String> {
        UserConfig::parse("config.toml", text)
            .map(|config| config.capacity)
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn capacity_has_defaults_and_each_can_be_set_alone() {
        assert_eq!(read("").unwrap(), CapacitySettings::default());
        let set = read("[capacity]\nworkers = 2\ncpus = 1.5\n").unwrap();
        let defaults = CapacitySettings::default();
        assert_eq!((set.workers, set.cpu_milli), (2, 1500));
        assert_eq!(
            (set.memory_mib, set.staging_mib),
            (defaults.memory_mib, defaults.staging_mib)
        );
    }

    #[test]
    fn capacity_at_its_bounds_is_taken_and_one_past_them_or_unknown_is_not() {
        for good in [
            format!("workers = {CAPACITY_WORKERS_MAX}"),
            format!("memory_mib = {CAPACITY_MEMORY_MIB_MAX}"),
            format!("staging_mib = {CAPACITY_STAGING_MIB_MAX}"),
            format!("cpus = {}", CAPACITY_CPU_MILLI_MAX / 1000),
            "staging_mib = 1".to_owned(),
        ] {
            read(&format!("[capacity]\n{good}\n")).unwrap();
        }
        for bad in [
            format!("workers = {}", CAPACITY_WORKERS_MAX + 1),
            "workers = 0".to_owned(),
            format!("memory_mib = {}", CAPACITY_MEMORY_MIB_MAX + 1),
            format!("staging_mib = {}", CAPACITY_STAGING_MIB_MAX + 1),
            "staging_mib = 0".to_owned(),
            format!("cpus = {}", CAPACITY_CPU_MILLI_MAX / 1000 + 1),
            "pids = 1".to_owned(),
        ] {
            assert!(read(&format!("[capacity]\n{bad}\n")).is_err(), "{bad}");
        }
    }
}
