//! `scope/scope.toml`: what an engagement may reach. A request must lie wholly inside what is
//! allowed and touch nothing that is excluded.

use std::fmt;

use model::{SourceError, SourceErrors};
use serde_spanned::Spanned;

use crate::limits::{SCOPE_BYTES_MAX, SCOPE_ENTRIES_MAX};
use crate::network::{Network, Target, TargetFault, check_host_syntax, parse_network_or_address};
use crate::reader::{Faults, Section, parse_document, quoted};

/// The targets of a project. Made by [`Scope::parse`] only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    allowed: Patterns,
    excluded: Patterns,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Patterns {
    networks: Vec<Network>,
    hosts: Vec<HostPattern>,
}

/// A host name, or `*.` and the name below which all names are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostPattern {
    name: String,
    below: bool,
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wildcard = if self.below { "*." } else { "" };
        write!(f, "{wildcard}{}", self.name)
    }
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        if !self.below {
            return host == self.name;
        }
        let label = host.strip_suffix(self.name.as_str());
        label.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

impl Scope {
    /// Reads `scope.toml`: one `[scope]` table of `targets` (addresses, networks, host names),
    /// `domains` (host names, `*.name` for all strictly below it) and `exclude` (all of them; here
    /// `*.name` means `name` too), or the same under the names `allowed_targets`, `allowed_cidrs`,
    /// `allowed_ips`, `allowed_domains` and `blocked_…`. `file` is for messages.
    ///
    /// # Errors
    /// Every fault that was found, with place, text and help.
    pub fn parse(file: &str, text: &str) -> Result<Self, SourceErrors> {
        let document = parse_document(file, text, SCOPE_BYTES_MAX)?;
        let mut faults = Faults::new(file, text);
        let mut root = Section::new(String::new(), 0..0, document.get_ref());
        let mut scope = Self::default();
        match root.table(&mut faults, "scope") {
            Some(section) => scope.read(section, &mut faults),
            None if root.was_read("scope") && root.entry("scope").is_some() => {}
            None => root.missing(
                &mut faults,
                "scope",
                "write `[scope]` with `targets = […]`, `domains = […]` and `exclude = […]`",
            ),
        }
        root.finish(&mut faults);
        faults.check()?;
        let count = scope.allowed.len() + scope.excluded.len();
        if count > SCOPE_ENTRIES_MAX {
            let message =
                format!("the scope has {count} entries, more than the {SCOPE_ENTRIES_MAX} allowed");
            return Err(SourceError::whole_file(file, message).into());
        }
        Ok(scope)
    }

    fn read(&mut self, mut section: Section<'_>, faults: &mut Faults<'_>) {
        for key in ["targets", "allowed_targets", "allowed_cidrs", "allowed_ips"] {
            self.allowed.read(&mut section, key, faults);
        }
        for key in ["domains", "allowed_domains"] {
            self.allowed.read(&mut section, key, faults);
        }
        for key in ["exclude", "blocked_targets", "blocked_cidrs", "blocked_ips"] {
            self.excluded.read(&mut section, key, faults);
        }
        self.excluded.read(&mut section, "blocked_domains", faults);
        section.finish(faults);
    }

    /// Whether a host of this name is inside, and not excluded.
    #[must_use]
    pub fn allows_host(&self, host: &str) -> bool {
        self.check(&Target::Host(host.to_owned())).is_ok()
    }

    /// Whether all of `target` is inside, and none of it excluded.
    pub(crate) fn check(&self, target: &Target) -> Result<(), TargetFault> {
        self.check_exclusions(target)?;
        let inside = match target {
            Target::Network(network) => self.allowed.cover(*network),
            Target::Host(host) => self.allowed.hosts.iter().any(|it| it.matches(host)),
        };
        if inside {
            return Ok(());
        }
        Err(TargetFault::OutOfScope)
    }

    pub(crate) fn check_exclusions(&self, target: &Target) -> Result<(), TargetFault> {
        let exclusion = match target {
            Target::Network(network) => {
                let mut networks = self.excluded.networks.iter();
                let touched = networks.find(|it| it.overlaps(*network));
                touched.map(ToString::to_string)
            }
            Target::Host(host) => {
                let mut hosts = self.excluded.hosts.iter();
                let touched = hosts.find(|it| it.matches(host) || it.name == *host);
                touched.map(ToString::to_string)
            }
        };
        match exclusion {
            Some(exclusion) => Err(TargetFault::Excluded { exclusion }),
            None => Ok(()),
        }
    }
}

impl Patterns {
    fn len(&self) -> usize {
        self.networks.len() + self.hosts.len()
    }

    fn read(&mut self, section: &mut Section<'_>, key: &'static str, faults: &mut Faults<'_>) {
        let Some(entries) = section.strings(faults, key) else {
            return;
        };
        for entry in entries.get_ref() {
            if faults.is_full() {
                return;
            }
            self.read_entry(entry, key, faults);
        }
    }

    fn read_entry(&mut self, entry: &Spanned<&str>, key: &str, faults: &mut Faults<'_>) {
        let text = *entry.get_ref();
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_host = below || check_host_syntax(name).is_ok();
        let names_only = key.ends_with("domains");
        let networks_only = key.ends_with("cidrs") || key.ends_with("ips");
        let read = if (is_host || names_only) && !networks_only {
            check_host_syntax(name).map(|()| {
                let name = name.to_owned();
                self.hosts.push(HostPattern { name, below });
            })
        } else {
            parse_network_or_address(text).map(|network| self.networks.push(network))
        };
        if let Err(fault) = read {
            let message = format!("{} {fault}", quoted(text));
            faults.add(
                entry.span(),
                message,
                "write `10.0.1.0/24`, `10.0.1.5`, `www.example.com` or `*.example.com`",
            );
        }
    }

    /// Whether the networks together contain all of `network`. Each step down follows a network
    /// that is smaller, so the work is bounded by their number and the length of an address.
    fn cover(&self, network: Network) -> bool {
        if self.networks.iter().any(|it| it.contains(network)) {
            return true;
        }
        self.networks.iter().any(|it| network.contains(*it))
            && network
                .halves()
                .is_some_and(|halves| halves.into_iter().all(|half| self.cover(half)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::check_target;

    fn scope(text: &str) -> Scope {
        Scope::parse("scope/scope.toml", text).unwrap()
    }

    fn allows(scope: &Scope, target: &str) -> bool {
        scope.check(&check_target(target, false).unwrap()).is_ok()
    }

    const SCOPE: &str = "[scope]\ntargets = [\"10.0.0.0/24\", \"10.0.1.0/24\", \"8.8.8.8\", \"host.example.org\"]\n\
        domains = [\"*.example.com\", \"example.net\"]\nexclude = [\"10.0.1.1\", \"*.admin.example.com\", \
        \"db.example.com\"]\n";

    #[test]
    fn the_whole_range_is_inside_and_no_exclusion_is_touched() {
        let scope = scope(SCOPE);
        for good in [
            "10.0.0.7",
            "10.0.0.0/24",
            "10.0.0.128/25",
            "8.8.8.8",
            "8.8.8.8/32",
            "www.example.com",
            "a.b.example.com",
            "example.net",
            "host.example.org",
        ] {
            assert!(allows(&scope, good), "{good}");
        }
        for bad in [
            "10.0.1.1",
            "10.0.1.0/24",
            "10.0.0.0/23",
            "10.0.2.0/24",
            "10.0.0.0/22",
            "8.8.8.0/24",
            "2001:4860:4860::8888",
            "example.com",
            "notexample.com",
            "example.com.evil.org",
            "www.example.net",
            "admin.example.com",
            "x.admin.example.com",
            "db.example.com",
        ] {
            assert!(!allows(&scope, bad), "{bad}");
        }
        assert!(allows(&scope, "x.db.example.com"));
    }

    #[test]
    fn neighbouring_networks_cover_a_range_together() {
        let scope = scope(
            "[scope]\nallowed_cidrs = [\"10.0.0.0/24\", \"10.0.1.0/25\", \"10.0.1.128/25\"]\n",
        );
        assert!(allows(&scope, "10.0.0.0/23"));
        assert!(!allows(&scope, "10.0.0.0/22"));
    }

    #[test]
    fn the_reference_names_of_the_keys_are_understood() {
        let scope = scope(
            "[scope]\nallowed_targets = [\"10.0.0.0/8\"]\nallowed_domains = [\"a.example\"]\n\
             blocked_targets = [\"10.1.0.0/16\"]\nblocked_domains = [\"a.example\"]\nblocked_ips = [\"10.2.0.1\"]",
        );
        assert!(allows(&scope, "10.3.0.1"));
        for bad in ["10.1.2.3", "a.example", "10.2.0.1"] {
            assert!(!allows(&scope, bad), "{bad}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_place() {
        for (text, part) in [
            ("", "`scope` is missing"),
            ("scope = 1", "must be a table"),
            ("[scope]\ntarget = []", "did you mean `targets`?"),
            (
                "[scope]\ntargets = [\"10.0.0.1/24\"]",
                "2:12: `10.0.0.1/24` has bits of a host",
            ),
            ("[scope]\ntargets = [\"127.1\"]", "must be an IPv4"),
            ("[scope]\ndomains = [\"*\"]", "no valid host"),
            ("[scope]\ndomains = [\"*.*.com\"]", "no valid host"),
            ("[scope]\ndomains = [\"10.0.0.1\"]", "no valid host"),
            ("[scope]\nallowed_ips = [\"a.example\"]", "must be an IPv4"),
            (
                "[scope]\nexclude = [\"WWW.example.com\"]",
                "must be an IPv4",
            ),
            ("[other]\n[scope]\n", "unknown key"),
        ] {
            let error = Scope::parse("scope/scope.toml", text)
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{text}\n{error}");
        }
    }

    #[test]
    fn entries_and_bytes_hold_at_their_limits_and_not_past_them() {
        let entries = |count: usize| {
            let list: Vec<String> = (0..count).map(|n| format!("\"h{n}.example\"")).collect();
            Scope::parse(
                "scope.toml",
                &format!("[scope]\ndomains = [{}]", list.join(",")),
            )
        };
        assert!(entries(SCOPE_ENTRIES_MAX).is_ok());
        assert!(entries(SCOPE_ENTRIES_MAX + 1).is_err());
        let bytes = |count: usize| {
            let text = format!("[scope]\n#{}", "x".repeat(count - 9));
            Scope::parse("scope.toml", &text)
        };
        assert!(bytes(SCOPE_BYTES_MAX).is_ok());
        assert!(bytes(SCOPE_BYTES_MAX + 1).is_err());
    }
}
