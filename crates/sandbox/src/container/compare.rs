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
