//! The host names of `block_internal` arguments, looked up as this host would.
//!
//! A lookup tells the name to the network before any policy has decided. So only names are looked
//! up that the operator's scope allows: what an agent writes into a name goes nowhere.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use toolclad::{Resolver, Scope};

/// How long one lookup may take.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);
/// Most lookups of this process that have not come back.
const LOOKUPS_OPEN_MAX: usize = 8;

static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The system's resolver, for the names that a scope allows.
pub(crate) struct SystemResolver<'a> {
    pub(crate) scope: Option<&'a Scope>,
}

impl Resolver for SystemResolver<'_> {
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        if !self.scope?.allows_host(host) {
            return None;
        }
        within(LOOKUP_TIME_MAX, host.to_owned(), look_up)
    }
}

fn look_up(host: &str) -> Option<Vec<IpAddr>> {
    let found = (host, 0_u16).to_socket_addrs().ok()?;
    Some(found.map(|address| address.ip()).collect())
}

/// The answer of `look_up` in a thread of its own, where it comes in time: the system's resolver
/// cannot be stopped, so one that hangs keeps its place among the open ones.
fn within(
    time: Duration,
    host: String,
    look_up: impl FnOnce(&str) -> Option<Vec<IpAddr>> + Send + 'static,
) -> Option<Vec<IpAddr>> {
    if OPEN.fetch_add(1, Ordering::SeqCst) >= LOOKUPS_OPEN_MAX {
        OPEN.fetch_sub(1, Ordering::SeqCst);
        return None;
    }
    let (answer, answers) = mpsc::channel();
    let spawned = std::thread::Builder::new()
        .name("symbi-lookup".to_owned())
        .spawn(move || {
            let found = look_up(&host);
            OPEN.fetch_sub(1, Ordering::SeqCst);
            // Nobody waits for an answer that came too late.
            let _ = answer.send(found);
        });
    if spawned.is_err() {
        OPEN.fetch_sub(1, Ordering::SeqCst);
        return None;
    }
    answers.recv_timeout(time).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_scope_are_looked_up() {
        let scope = "[scope]\ndomains = [\"localhost\", \"*.example.com\"]\n";
        let scope = Scope::parse("scope/scope.toml", scope).unwrap();
        let resolver = SystemResolver {
            scope: Some(&scope),
        };
        let local = resolver.addresses("localhost").unwrap();
        assert!(!local.is_empty() && local.iter().all(IpAddr::is_loopback));
        assert_eq!(resolver.addresses("data.attacker.example"), None);
        assert_eq!(SystemResolver { scope: None }.addresses("localhost"), None);
    }

    #[test]
    fn a_lookup_that_hangs_is_no_answer_and_too_many_are_refused() {
        let (release, held) = mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
        let hang = || {
            let held = std::sync::Arc::clone(&held);
            move |_: &str| {
                let _ = held.lock().unwrap().recv();
                Some(vec![])
            }
        };
        let short = Duration::from_millis(20);
        for _ in 0..LOOKUPS_OPEN_MAX {
            assert_eq!(within(short, "a".to_owned(), hang()), None);
        }
        let at_once = |_: &str| Some(vec![IpAddr::from([8, 8, 8, 8])]);
        assert_eq!(within(short, "a".to_owned(), at_once), None);
        drop(release);
        let begin = std::time::Instant::now();
        while within(Duration::from_secs(5), "a".to_owned(), at_once).is_none() {
            assert!(begin.elapsed() < Duration::from_secs(10));
        }
    }
}
