//! Where a checked target may lead: inside the scope, and to public addresses only where the
//! manifest says `block_internal`.

use std::net::IpAddr;

use crate::limits::ADDRESSES_MAX;
use crate::network::{Network, Target, TargetFault, check_public};
use crate::scope::Scope;

/// Finds the addresses of a host name. This crate has none that asks a network.
pub trait Resolver {
    /// All addresses of `host`, which is a plain lower-case ASCII name; `None` where they cannot be
    /// found.
    fn addresses(&self, host: &str) -> Option<Vec<IpAddr>>;
}

/// Knows no host: a host name under `block_internal` is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NoResolver;

impl Resolver for NoResolver {
    fn addresses(&self, _host: &str) -> Option<Vec<IpAddr>> {
        None
    }
}

/// What an argument demands of its targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TargetRules {
    pub(crate) scope_check: bool,
    pub(crate) block_internal: bool,
}

impl TargetRules {
    /// Whether [`TargetRules::check`] looks at more than the value.
    pub(crate) const fn any(self) -> bool {
        self.scope_check || self.block_internal
    }

    /// The addresses of a host name that was looked up.
    pub(crate) fn check(
        self,
        target: &Target,
        scope: Option<&Scope>,
        resolver: &dyn Resolver,
    ) -> Result<Option<Vec<IpAddr>>, TargetFault> {
        if self.scope_check {
            scope.ok_or(TargetFault::NoScope)?.check(target)?;
        }
        let Target::Host(host) = target else {
            return Ok(None);
        };
        if !self.block_internal {
            return Ok(None);
        }
        let addresses = resolver.addresses(host).unwrap_or_default();
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            return Err(TargetFault::Unresolved);
        }
        for address in &addresses {
            check_public(*address)?;
            if let (true, Some(scope)) = (self.scope_check, scope) {
                let single = Target::Network(Network::single(*address));
                scope.check_exclusions(&single)?;
            }
        }
        Ok(Some(addresses))
    }
}
