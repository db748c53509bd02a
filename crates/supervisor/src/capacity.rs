//! Whether there is room for one more worker, and who has the room where there is none. Pure.

use std::fmt;

use filegrants::Holder;

use crate::limits::{LEASES_MAX, OWNERS_NAMED_MAX};
use crate::wire::CapacityLimits;

/// What one lease is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) owner: Holder,
    pub(crate) memory_mib: u64,
    pub(crate) cpu_milli: u64,
    /// Its owner is dead or its time is over.
    pub(crate) is_ending: bool,
}

/// Why there is no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoRoom {
    what: &'static str,
    key: &'static str,
    wanted: u64,
    held: u64,
    max: u64,
    owners: Vec<Share>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    owner: Holder,
    workers: u64,
    memory_mib: u64,
    cpu_milli: u64,
    ending: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            key,
            wanted,
            held,
            max,
            owners,
        } = self;
        write!(
            f,
            "{held} of {max} {what} are taken, and {wanted} more are needed"
        )?;
        for (index, share) in owners.iter().enumerate() {
            let before = if index == 0 { ": " } else { ", " };
            let Share {
                owner,
                workers,
                memory_mib,
                cpu_milli,
                ending,
            } = share;
            write!(
                f,
                "{before}{owner} has {workers} workers ({memory_mib} MiB, {cpu_milli} thousandths \
                 of a CPU)"
            )?;
            if *ending > 0 {
                write!(f, ", {ending} of them being removed")?;
            }
        }
        write!(
            f,
            "; wait for one to end, or raise `{key}` under [capacity] of your own config.toml"
        )
    }
}

/// Whether `wanted` fits beside what is held.
pub(crate) fn check(limits: CapacityLimits, held: &[Charge], wanted: Charge) -> Result<(), NoRoom> {
    let sum = |value: fn(&Charge) -> u64| held.iter().map(value).fold(0, u64::saturating_add);
    let workers_max = limits.workers.min(LEASES_MAX as u64);
    let demands = [
        ("workers", "workers", 1, held.len() as u64, workers_max),
        (
            "MiB of memory",
            "memory_mib",
            wanted.memory_mib,
            sum(|it| it.memory_mib),
            limits.memory_mib,
        ),
        (
            "thousandths of a CPU",
            "cpus",
            wanted.cpu_milli,
            sum(|it| it.cpu_milli),
            limits.cpu_milli,
        ),
    ];
    for (what, key, wanted, taken, max) in demands {
        if taken.saturating_add(wanted) > max {
            return Err(NoRoom {
                what,
                key,
                wanted,
                held: taken,
                max,
                owners: shares(held),
            });
        }
    }
    Ok(())
}

/// The owners with most workers first, few of them.
fn shares(held: &[Charge]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for charge in held {
        let share = Share {
            owner: charge.owner,
            workers: 1,
            memory_mib: charge.memory_mib,
            cpu_milli: charge.cpu_milli,
            ending: u64::from(charge.is_ending),
        };
        match shares.iter_mut().find(|it| it.owner == charge.owner) {
            Some(found) => {
                found.workers += 1;
                found.memory_mib = found.memory_mib.saturating_add(share.memory_mib);
                found.cpu_milli = found.cpu_milli.saturating_add(share.cpu_milli);
                found.ending += share.ending;
            }
            None => shares.push(share),
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse(share.workers));
    shares.truncate(OWNERS_NAMED_MAX);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CapacityLimits = CapacityLimits {
        workers: 2,
        cpu_milli: 1500,
        memory_mib: 1024,
    };

    fn charge(pid: u32, memory_mib: u64, cpu_milli: u64) -> Charge {
        Charge {
            owner: Holder { pid, started: 1 },
            memory_mib,
            cpu_milli,
            is_ending: false,
        }
    }

    #[test]
    fn each_bound_is_taken_whole_and_not_passed() {
        let one = charge(1, 512, 1000);
        check(LIMITS, &[one], charge(2, 512, 500)).unwrap();
        for (wanted, key) in [
            (charge(2, 513, 500), "memory_mib"),
            (charge(2, 512, 501), "cpus"),
        ] {
            let refused = check(LIMITS, &[one], wanted).unwrap_err().to_string();
            assert!(refused.contains(&format!("`{key}`")), "{refused}");
        }
        let two = [charge(1, 1, 1), charge(2, 1, 1)];
        let refused = check(LIMITS, &two, charge(3, 1, 1))
            .unwrap_err()
            .to_string();
        assert!(refused.starts_with("2 of 2 workers"), "{refused}");
    }

    #[test]
    fn a_refusal_names_who_holds_what_and_what_is_on_its_way_out() {
        let dead = Charge {
            is_ending: true,
            ..charge(7, 100, 200)
        };
        let refused = check(LIMITS, &[charge(7, 100, 200), dead], charge(8, 1, 1));
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("process 7 has 2 workers (200 MiB, 400 thousandths of a CPU), 1 of them"),
            "{text}"
        );
    }

    #[test]
    fn what_no_pool_could_give_is_refused_too() {
        assert!(check(LIMITS, &[], charge(1, u64::MAX, 1)).is_err());
        let full = vec![charge(1, 0, 0); LEASES_MAX];
        let endless = CapacityLimits {
            workers: u64::MAX,
            ..LIMITS
        };
        assert!(check(endless, &full, charge(1, 0, 0)).is_err());
        check(endless, &full[1..], charge(1, 0, 0)).unwrap();
    }
}
