//! Network targets, pure: one spelling of each, and what no tool may reach.
//!
//! Sources: RFC 6890 and the IANA special-purpose address registries, RFC 5952 (IPv6 text),
//! RFC 1123 section 2.1 (host names), the WHATWG URL standard.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// Addresses with the leading `prefix` bits of `address`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix: u8,
}

/// What a value reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// One address too.
    Network(Network),
    /// Lower-case ASCII.
    Host(String),
}

/// Why a target is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetFault {
    NotAddress,
    /// Another spelling of an address: only one is accepted.
    NotCanonical {
        canonical: String,
    },
    /// An IPv4 address in IPv6 clothes.
    EmbeddedIpv4,
    NotNetwork,
    HostBits,
    /// Link-local and metadata services: refused whatever the manifest says.
    NeverReachable {
        what: &'static str,
    },
    /// Not public, and the manifest says `block_internal`.
    Internal {
        what: &'static str,
    },
    NotHost {
        reason: &'static str,
    },
    /// `block_internal` needs the addresses of a host name, and they are not known.
    Unresolved,
    /// One address of a host name is not public.
    ResolvesTo {
        address: IpAddr,
        what: &'static str,
    },
    /// The project has no scope, and the argument demands one.
    NoScope,
    OutOfScope,
    /// It touches an exclusion of the scope.
    Excluded {
        exclusion: String,
    },
    Url {
        reason: &'static str,
    },
    Scheme {
        allowed: Vec<String>,
    },
}

impl fmt::Display for TargetFault {
    /// Reads on from "argument `x` ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAddress => f.write_str("must be an IPv4 or IPv6 address"),
            Self::NotCanonical { canonical } => write!(f, "must be spelled `{canonical}`"),
            Self::EmbeddedIpv4 => {
                f.write_str("is an IPv4 address inside an IPv6 address: write the IPv4 address")
            }
            Self::NotNetwork => f.write_str("must be a network like `10.0.1.0/24`"),
            Self::HostBits => f.write_str("has bits of a host behind its prefix; write the network's own address"),
            Self::NeverReachable { what } => write!(f, "reaches {what}, which no tool may; choose another target"),
            Self::Internal { what } => {
                write!(
                    f,
                    "reaches {what}, and `block_internal` refuses what is not public; choose a public one"
                )
            }
            Self::NotHost { reason } => write!(f, "has no valid host: {reason}"),
            Self::Unresolved => f.write_str(
                "names a host whose addresses are not known, and `block_internal` demands public \
                 ones: give an address, or a name that the project's scope allows (no other is \
                 looked up)",
            ),
            Self::ResolvesTo { address, what } => write!(
                f,
                "names a host with the address {address}, which is one of the {what}; choose another"
            ),
            Self::NoScope => f.write_str(
                "is checked against the project's scope, and there is none: write `scope/scope.toml`",
            ),
            Self::OutOfScope => f.write_str("is outside the project's scope; choose a target inside, or add it in `scope/scope.toml`"),
            Self::Excluded { exclusion } => {
                write!(f, "touches `{exclusion}`, which the project's scope excludes; choose a target without it")
            }
            Self::Url { reason } => write!(f, "is not an accepted URL: {reason}"),
            Self::Scheme { allowed } => {
                write!(
                    f,
                    "must begin with one of the schemes {}",
                    allowed.join(", ")
                )
            }
        }
    }
}

/// Link-local addresses, and the addresses at which clouds give out credentials.
const NEVER: [(&str, u8, &str); 7] = [
    ("169.254.0.0", 16, "link-local addresses"),
    ("fe80::", 10, "link-local addresses"),
    ("fd00:ec2::", 32, "a metadata service"),
    ("fd20:ce::254", 128, "a metadata service"),
    ("100.100.100.200", 32, "a metadata service"),
    ("168.63.129.16", 32, "a metadata service"),
    ("192.0.0.192", 32, "a metadata service"),
];

/// Everything else that is not public.
const INTERNAL: [(&str, u8, &str); 28] = [
    ("127.0.0.0", 8, "loopback addresses"),
    ("::1", 128, "loopback addresses"),
    ("10.0.0.0", 8, "private addresses"),
    ("172.16.0.0", 12, "private addresses"),
    ("192.168.0.0", 16, "private addresses"),
    ("fc00::", 7, "private addresses"),
    ("fec0::", 10, "private addresses"),
    ("100.64.0.0", 10, "carrier-grade NAT addresses"),
    ("0.0.0.0", 8, "addresses of this host"),
    ("192.0.0.0", 24, "reserved addresses"),
    ("192.0.2.0", 24, "documentation addresses"),
    ("192.88.99.0", 24, "reserved addresses"),
    ("198.18.0.0", 15, "benchmark addresses"),
    ("198.51.100.0", 24, "documentation addresses"),
    ("203.0.113.0", 24, "documentation addresses"),
    ("224.0.0.0", 4, "multicast addresses"),
    ("240.0.0.0", 4, "reserved addresses"),
    ("::", 96, "IPv4-compatible addresses"),
    ("::ffff:0:0", 96, "IPv4-mapped addresses"),
    ("64:ff9b::", 96, "translated IPv4 addresses"),
    ("64:ff9b:1::", 48, "translated IPv4 addresses"),
    ("100::", 64, "discarded addresses"),
    ("2001::", 23, "reserved addresses"),
    ("2001:db8::", 32, "documentation addresses"),
    ("2002::", 16, "translated IPv4 addresses"),
    ("3fff::", 20, "documentation addresses"),
    ("5f00::", 16, "reserved addresses"),
    ("ff00::", 8, "multicast addresses"),
];

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Network {
    pub(crate) const fn single(address: IpAddr) -> Self {
        let prefix = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self { address, prefix }
    }

    /// The address's bits, from the left of 128.
    fn bits(self) -> u128 {
        match self.address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        let prefix = self.prefix.min(other.prefix);
        self.address.is_ipv4() == other.address.is_ipv4()
            && (self.bits() ^ other.bits()) & mask(prefix) == 0
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.overlaps(other)
    }

    /// Its two halves; `None` for one address.
    pub(crate) fn halves(self) -> Option<[Self; 2]> {
        let prefix = self.prefix + 1;
        if prefix > Self::single(self.address).prefix {
            return None;
        }
        let upper = self.bits() | (1 << (128 - u32::from(prefix)));
        let upper = match self.address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(upper >> 96).ok()?).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(upper).into(),
        };
        let half = |address| Self { address, prefix };
        Some([half(self.address), half(upper)])
    }
}

const fn mask(prefix: u8) -> u128 {
    match prefix {
        0 => 0,
        prefix => u128::MAX << (128 - prefix as u32),
    }
}

type Ranges = Vec<(Network, &'static str)>;

static NEVER_RANGES: LazyLock<Ranges> = LazyLock::new(|| ranges(&NEVER));
static INTERNAL_RANGES: LazyLock<Ranges> = LazyLock::new(|| ranges(&INTERNAL));

fn ranges(written: &[(&str, u8, &'static str)]) -> Ranges {
    let read = |(address, prefix, what): &(&str, u8, &'static str)| {
        let address = address.parse().ok()?;
        let prefix = *prefix;
        Some((Network { address, prefix }, *what))
    };
    written.iter().filter_map(read).collect()
}

fn within(ranges: &Ranges, network: Network) -> Option<&'static str> {
    let touched = ranges.iter().find(|(range, _)| range.overlaps(network));
    touched.map(|(_, what)| *what)
}

/// Refuses what overlaps a forbidden range.
fn check_reach(network: Network, block_internal: bool) -> Result<(), TargetFault> {
    if let Some(what) = within(&NEVER_RANGES, network) {
        return Err(TargetFault::NeverReachable { what });
    }
    match within(&INTERNAL_RANGES, network) {
        Some(what) if block_internal => Err(TargetFault::Internal { what }),
        _ => Ok(()),
    }
}

/// Refuses an address, found behind a host name, that is not public.
pub(crate) fn check_public(address: IpAddr) -> Result<(), TargetFault> {
    let single = Network::single(address);
    match within(&NEVER_RANGES, single).or_else(|| within(&INTERNAL_RANGES, single)) {
        Some(what) => Err(TargetFault::ResolvesTo { address, what }),
        None => Ok(()),
    }
}

fn parse_address(text: &str) -> Result<IpAddr, TargetFault> {
    let address: IpAddr = text.parse().map_err(|_| TargetFault::NotAddress)?;
    if let IpAddr::V6(v6) = address
        && (v6.to_ipv4_mapped().is_some() || is_ipv4_compatible(v6))
    {
        return Err(TargetFault::EmbeddedIpv4);
    }
    let canonical = address.to_string();
    if canonical != text {
        return Err(TargetFault::NotCanonical { canonical });
    }
    Ok(address)
}

/// `::a.b.c.d`, besides the unspecified and the loopback address.
fn is_ipv4_compatible(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    bits > 1 && bits >> 32 == 0
}

/// One address in its one spelling.
pub(crate) fn check_address(text: &str, block_internal: bool) -> Result<Target, TargetFault> {
    let network = Network::single(parse_address(text)?);
    check_reach(network, block_internal)?;
    Ok(Target::Network(network))
}

/// A network in its one spelling, all of it outside the forbidden ranges.
pub(crate) fn check_network(text: &str, block_internal: bool) -> Result<Target, TargetFault> {
    let network = parse_network(text)?;
    check_reach(network, block_internal)?;
    Ok(Target::Network(network))
}

/// An address, a network or a host name.
pub(crate) fn check_target(text: &str, block_internal: bool) -> Result<Target, TargetFault> {
    if text.contains('/') {
        check_network(text, block_internal)
    } else if reads_as_address(text) {
        check_address(text, block_internal)
    } else {
        check_host_name(text, block_internal)
    }
}

/// Whether some reader could take the text for an address, in whatever spelling.
fn reads_as_address(text: &str) -> bool {
    let numeric = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    text.contains(':') || (!text.is_empty() && text.bytes().all(numeric))
}

/// A network, or one address as the network of it alone.
pub(crate) fn parse_network_or_address(text: &str) -> Result<Network, TargetFault> {
    if text.contains('/') {
        parse_network(text)
    } else {
        parse_address(text).map(Network::single)
    }
}

fn parse_network(text: &str) -> Result<Network, TargetFault> {
    let (address, prefix) = text.split_once('/').ok_or(TargetFault::NotNetwork)?;
    let address = parse_address(address)?;
    let length: u8 = prefix.parse().map_err(|_| TargetFault::NotNetwork)?;
    if length.to_string() != prefix || length > Network::single(address).prefix {
        return Err(TargetFault::NotNetwork);
    }
    let network = Network {
        address,
        prefix: length,
    };
    if network.bits() & !mask(length) != 0 {
        return Err(TargetFault::HostBits);
    }
    Ok(network)
}

const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Names that mean this host, this network or its metadata service.
const INTERNAL_NAMES: [&str; 8] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
];

/// A host name in lower-case ASCII, outside the names of internal services.
pub(crate) fn check_host_name(text: &str, block_internal: bool) -> Result<Target, TargetFault> {
    check_host_syntax(text)?;
    let last = text.rsplit('.').next().unwrap_or(text);
    let arpa = text == "home.arpa" || text.ends_with(".home.arpa");
    if INTERNAL_NAMES.contains(&last) || arpa {
        return Err(TargetFault::NeverReachable {
            what: "an internal name",
        });
    }
    for address in embedded_addresses(text) {
        check_reach(Network::single(IpAddr::V4(address)), block_internal)?;
    }
    Ok(Target::Host(text.to_owned()))
}

/// Letters, digits and hyphens in labels, as RFC 1123 section 2.1 says, in lower case.
pub(crate) fn check_host_syntax(text: &str) -> Result<(), TargetFault> {
    let refuse = |reason| Err(TargetFault::NotHost { reason });
    if text.is_empty() || text.len() > HOST_BYTES_MAX {
        return refuse("a host name has 1 to 253 characters");
    }
    for label in text.split('.') {
        let edge = label.starts_with('-') || label.ends_with('-');
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if label.is_empty() || label.len() > LABEL_BYTES_MAX || edge || !label.bytes().all(plain) {
            return refuse("labels are 1 to 63 of a-z, 0-9 and inner hyphens, with dots between");
        }
        if label.starts_with("xn--") {
            return refuse("encoded international names are not accepted");
        }
    }
    let last = text.rsplit('.').next().unwrap_or(text);
    if last.starts_with(|c: char| c.is_ascii_digit()) {
        return refuse("a name that ends in a number reads as an address");
    }
    Ok(())
}

/// IPv4 addresses that stand inside a name, as wildcard DNS services read them: four numbers with
/// dots or hyphens between, or eight hexadecimal digits.
fn embedded_addresses(name: &str) -> Vec<Ipv4Addr> {
    let tokens: Vec<&str> = name.split(['.', '-']).collect();
    let octet = |token: &&str| token.parse::<u8>().ok();
    let dotted = tokens.windows(4).filter_map(|four| {
        let octets: Vec<u8> = four.iter().map_while(octet).collect();
        <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
    });
    let hexadecimal = tokens
        .iter()
        .filter(|token| token.len() == 8)
        .filter_map(|token| {
            let plain = token.bytes().all(|byte| byte.is_ascii_hexdigit());
            let bits = u32::from_str_radix(token, 16).ok().filter(|_| plain)?;
            Some(Ipv4Addr::from_bits(bits))
        });
    dotted.chain(hexadecimal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_spelling() {
        for good in [
            "93.184.216.34",
            "10.0.0.1",
            "2606:4700::1111",
            "::1",
            "127.0.0.1",
        ] {
            assert!(check_address(good, false).is_ok(), "{good}");
        }
        for bad in [
            "2130706433",
            "127.1",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "127.0.0.01",
            "::ffff:10.0.0.1",
            "::ffff:a00:1",
            "::10.0.0.1",
            "2606:4700:0::1111",
            "2606:4700::1111%eth0",
            "2606:4700::AB",
            "[::1]",
            "1.2.3.4/32",
            "",
            "1.2.3.4.",
            "example.com",
        ] {
            assert!(check_address(bad, false).is_err(), "{bad}");
        }
    }

    #[test]
    fn link_local_and_metadata_are_refused_always_and_the_rest_on_demand() {
        for never in [
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            assert!(check_address(never, false).is_err(), "{never}");
        }
        for internal in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "::",
            "fd12::1",
            "224.0.0.1",
            "255.255.255.255",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2001::1",
            "2001:db8::1",
            "ff02::1",
            "fec0::1",
            "198.18.0.1",
        ] {
            assert!(check_address(internal, false).is_ok(), "{internal}");
            assert!(check_address(internal, true).is_err(), "{internal}");
        }
        for public in [
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
        ] {
            assert!(check_address(public, true).is_ok(), "{public}");
        }
    }

    #[test]
    fn networks_have_no_host_bits_and_overlap_nothing_forbidden() {
        for good in ["10.0.1.0/24", "2001:db8::/32", "1.2.3.4/32", "8.0.0.0/8"] {
            assert!(check_network(good, false).is_ok(), "{good}");
        }
        for bad in [
            "10.0.1.1/24",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0",
            "10.0.0.0/",
            "10/8",
            "::1/129",
            "10.0.0.0/+8",
        ] {
            assert!(check_network(bad, false).is_err(), "{bad}");
        }
        for wide in ["0.0.0.0/0", "::/0", "169.0.0.0/8", "fe00::/7"] {
            assert!(
                matches!(
                    check_network(wide, false),
                    Err(TargetFault::NeverReachable { .. })
                ),
                "{wide}"
            );
        }
        assert!(matches!(
            check_network("8.0.0.0/5", true),
            Err(TargetFault::Internal { .. })
        ));
        assert!(check_network("8.0.0.0/5", false).is_ok());
    }

    #[test]
    fn host_names_are_plain_and_not_internal() {
        let long = format!("{}.com", "a".repeat(64));
        for good in ["example.com", "a-b.example", "x1"] {
            let host = Ok(Target::Host(good.to_owned()));
            assert_eq!(check_host_name(good, false), host, "{good}");
            assert_eq!(check_host_name(good, true), host, "{good}");
        }
        for bad in [
            "",
            "example.com.",
            ".example.com",
            "a..b",
            "-a.com",
            "a-.com",
            "a_b.com",
            "EXAMPLE.com",
            "ex\u{e4}mple.com",
            "xn--example-9c.com",
            "example.123",
            "1.2.3.4",
            "0x7f000001.0x1",
            "localhost",
            "api.localhost",
            "metadata.google.internal",
            "printer.local",
            "169.254.169.254.nip.io",
            "169-254-169-254.nip.io",
            "a9fea9fe.nip.io",
            "x.home.arpa",
            &long,
        ] {
            assert!(check_host_name(bad, false).is_err(), "{bad}");
        }
        let embedded = check_host_name("10-0-0-1.nip.io", true);
        assert!(
            matches!(embedded, Err(TargetFault::Internal { .. })),
            "{embedded:?}"
        );
    }

    #[test]
    fn a_network_halves_into_its_parts() {
        let network = |text| parse_network_or_address(text).unwrap();
        for (whole, lower, upper) in [
            ("10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9"),
            ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1"),
            ("1.2.3.4/31", "1.2.3.4/32", "1.2.3.5/32"),
            ("2001:db8::/127", "2001:db8::/128", "2001:db8::1/128"),
        ] {
            assert_eq!(
                network(whole).halves(),
                Some([network(lower), network(upper)])
            );
            assert!(network(whole).contains(network(upper)));
            assert!(!network(upper).contains(network(whole)));
        }
        assert_eq!(network("1.2.3.4").halves(), None);
        assert_eq!(network("::1").halves(), None);
    }
}
