//! Whether a container is the one that was asked for.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::engine::{ContainerCreate, ContainerInspect, MountPoint};

/// The first thing that is not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    what: String,
    wanted: String,
    found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, wanted, found) = (&self.what, &self.wanted, &self.found);
        write!(f, "`{what}` is {found} instead of {wanted}")
    }
}

/// Compares every field that is asked for, and that there is no mount or network besides.
pub(super) fn compare(
    found: &ContainerInspect,
    wanted: &ContainerCreate,
    image: &str,
) -> Result<(), Difference> {
    if found.image != image {
        return Err(difference("Image", &image, &found.image));
    }
    same_fields("HostConfig", &wanted.host_config, &found.host_config)?;
    // An image's labels come besides, and say nothing.
    let mut config = found.config.clone();
    config
        .labels
        .retain(|name, _| wanted.config.labels.contains_key(name));
    same_fields("Config", &wanted.config, &config)?;
    let asked: BTreeSet<_> = wanted
        .host_config
        .mounts
        .iter()
        .map(|it| (it.source.as_str(), it.target.as_str(), !it.read_only))
        .collect();
    let there: BTreeSet<_> = found
        .mounts
        .iter()
        .map(|it| (it.source.as_str(), it.destination.as_str(), it.is_writable))
        .collect();
    let is_plain = |it: &MountPoint| it.kind == "bind" && it.propagation == "rprivate";
    if asked != there || !found.mounts.iter().all(is_plain) {
        return Err(difference(
            "Mounts",
            &wanted.host_config.mounts,
            &found.mounts,
        ));
    }
    same_network(found, wanted)
}

/// The network that was asked for, or none at all where the engine puts nothing there.
fn same_network(found: &ContainerInspect, wanted: &ContainerCreate) -> Result<(), Difference> {
    let networks: Vec<&String> = found.network_settings.networks.keys().collect();
    let asked: &[&String] = match wanted.config.network_disabled {
        true => &[],
        false => &[&wanted.host_config.network_mode],
    };
    match networks == asked {
        true => Ok(()),
        false => Err(difference("Networks", &asked, &networks)),
    }
}

fn difference(what: &str, wanted: &dyn fmt::Debug, found: &dyn fmt::Debug) -> Difference {
    Difference {
        what: what.to_owned(),
        wanted: format!("{wanted:?}"),
        found: format!("{found:?}"),
    }
}

/// Both in their wire form, so that a difference can be named.
fn same_fields<T: serde::Serialize>(what: &str, wanted: &T, found: &T) -> Result<(), Difference> {
    let fields = |it: &T| match serde_json::to_value(it) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (wanted, found) = (fields(wanted), fields(found));
    for (name, value) in &wanted {
        let other = found.get(name).unwrap_or(&Value::Null);
        if value != other {
            return Err(Difference {
                what: format!("{what}.{name}"),
                wanted: value.to_string(),
                found: other.to_string(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{ContainerConfig, HostConfig};
    use serde_json::json;

    const IMAGE: &str = "sha256:1";

    fn wanted(network_mode: &str, network_disabled: bool) -> ContainerCreate {
        ContainerCreate {
            config: ContainerConfig {
                network_disabled,
                ..ContainerConfig::default()
            },
            host_config: HostConfig {
                network_mode: network_mode.to_owned(),
                ..HostConfig::default()
            },
        }
    }

    /// A container made as `wanted`, which is in `networks`.
    fn found(wanted: &ContainerCreate, networks: &[&str]) -> ContainerInspect {
        let networks: std::collections::BTreeMap<&str, _> =
            networks.iter().map(|name| (*name, json!({}))).collect();
        let found = json!({
            "Id": "1", "Image": IMAGE, "State": {},
            "Config": wanted.config, "HostConfig": wanted.host_config,
            "NetworkSettings": { "Networks": networks }
        });
        serde_json::from_value(found).unwrap()
    }

    fn difference(found: &ContainerInspect, wanted: &ContainerCreate) -> String {
        compare(found, wanted, IMAGE).unwrap_err().to_string()
    }

    #[test]
    fn a_container_without_a_network_is_in_none_and_says_so() {
        let wanted = wanted("none", true);
        compare(&found(&wanted, &[]), &wanted, IMAGE).unwrap();
        for networks in [&["none"][..], &["bridge"], &["none", "bridge"]] {
            let said = difference(&found(&wanted, networks), &wanted);
            assert!(said.starts_with("`Networks` is "), "{said}");
        }
    }

    #[test]
    fn an_engine_that_makes_the_network_itself_made_another_container() {
        let wanted = wanted("none", true);
        let mut other = found(&wanted, &["none"]);
        other.config.network_disabled = false;
        let said = difference(&other, &wanted);
        assert!(said.contains("`Config.NetworkDisabled` is false"), "{said}");
        for mode in ["host", "bridge", "container:1"] {
            let mut other = found(&wanted, &[]);
            mode.clone_into(&mut other.host_config.network_mode);
            let said = difference(&other, &wanted);
            assert!(said.contains("`HostConfig.NetworkMode` is"), "{said}");
        }
    }

    #[test]
    fn a_container_with_a_network_is_in_that_one_alone() {
        let wanted = wanted("bridge", false);
        compare(&found(&wanted, &["bridge"]), &wanted, IMAGE).unwrap();
        for networks in [&[][..], &["none"], &["bridge", "other"]] {
            let said = difference(&found(&wanted, networks), &wanted);
            assert!(said.starts_with("`Networks` is "), "{said}");
        }
    }
}
