//! The namespace tier, seen from outside: what a workload can do, what it cannot, and what is
//! left of it.
//!
//! Every test runs as whoever runs it; as root the whole suite runs once more as uid 1001.

#[cfg(test)]
mod agent;
#[cfg(test)]
mod attacks;
#[cfg(test)]
#[path = "../both/done.rs"]
mod done;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod files;
#[cfg(test)]
mod host;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod ordinary;
#[cfg(test)]
mod owner;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod timing;
