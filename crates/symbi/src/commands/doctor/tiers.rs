//! What the tiers that are not configured lack on this machine.

use std::path::{Path, PathBuf};

use project::{Config, ContainerSettings};
use sandbox::engine::{Engine, EngineInfo};
use serde::Serialize;
use worker::TierKind;

/// Where engines listen that are installed as usual.
const SOCKETS: [&str; 2] = ["/run/docker.sock", "/var/run/docker.sock"];
/// The runtime of gVisor, as engines call it.
const RUNSC: &str = "runsc";

/// A tier that is not configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Other {
    pub(super) tier: TierKind,
    /// Nothing, where it could be configured.
    pub(super) lacks: Vec<Lack>,
}

/// One thing that is missing, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Lack {
    pub(super) what: String,
    pub(super) remedy: String,
}

/// All tiers but `configured`.
pub(super) fn others(configured: TierKind, config: Option<&Config>) -> Vec<Other> {
    let kinds = TierKind::ALL.into_iter().filter(|kind| *kind != configured);
    kinds
        .map(|tier| Other {
            tier,
            lacks: lacks(tier, config),
        })
        .collect()
}

fn lacks(tier: TierKind, config: Option<&Config>) -> Vec<Lack> {
    match tier {
        TierKind::Namespace => match crate::govern::namespace_tier(None) {
            Ok(_) => Vec::new(),
            Err(failure) => vec![Lack {
                what: failure.message,
                remedy: failure.help.unwrap_or_default(),
            }],
        },
        TierKind::Docker => {
            let settings = config.and_then(|config| config.sandbox.docker.as_ref());
            of_engine(settings, None)
        }
        TierKind::Gvisor => {
            let settings = config.and_then(|config| config.sandbox.gvisor.as_ref());
            of_engine(settings, Some(RUNSC))
        }
        TierKind::Firecracker => vec![Lack {
            what: "this version has no virtual machines".to_owned(),
            remedy: "use the tier `gvisor` for a kernel of its own".to_owned(),
        }],
    }
}

fn of_engine(settings: Option<&ContainerSettings>, runtime: Option<&str>) -> Vec<Lack> {
    let configured = settings.and_then(|settings| settings.socket.as_ref());
    let socket = match configured {
        Some(socket) => Some(socket.resolve(Path::new("/"))),
        None => usual_socket(),
    };
    let Some(socket) = socket else {
        return vec![Lack {
            what: format!("there is no engine's socket at {}", SOCKETS.join(" or ")),
            remedy: "install and start Docker, or name the engine's socket in the tier's table"
                .to_owned(),
        }];
    };
    let engine = Engine::at(&socket);
    let info = match engine.info() {
        Ok(info) => info,
        Err(error) => {
            return vec![Lack {
                what: format!(
                    "the engine at {} gives no answer: {error}",
                    socket.display()
                ),
                remedy: "start it, and let this user use its socket (the group `docker` of a \
                         usual installation)"
                    .to_owned(),
            }];
        }
    };
    let mut lacks: Vec<Lack> = runtime
        .and_then(|name| of_runtime(&info, name))
        .into_iter()
        .collect();
    lacks.extend(of_image(&engine, settings));
    lacks
}

fn usual_socket() -> Option<PathBuf> {
    let sockets = SOCKETS.into_iter().map(PathBuf::from);
    sockets.into_iter().find(|socket| socket.exists())
}

fn of_runtime(info: &EngineInfo, name: &str) -> Option<Lack> {
    (!info.runtimes.contains_key(name)).then(|| Lack {
        what: format!("the engine has no runtime `{name}`"),
        remedy: format!(
            "install gVisor, and register it: `{{\"runtimes\":{{\"{name}\":{{\"path\":\
             \"/usr/bin/{name}\"}}}}}}` in /etc/docker/daemon.json; then restart the engine"
        ),
    })
}

fn of_image(engine: &Engine, settings: Option<&ContainerSettings>) -> Option<Lack> {
    let Some(image) = settings.map(|settings| settings.image.as_str()) else {
        return Some(Lack {
            what: "the project names no image for it".to_owned(),
            remedy: "set `image` in the tier's table of symbiont.toml, to one that is there: \
                     images are never pulled"
                .to_owned(),
        });
    };
    let remedy = || format!("bring it there yourself, as with: docker pull {image}");
    match engine.image(image) {
        Ok(Some(_)) => None,
        Ok(None) => Some(Lack {
            what: format!("the image `{image}` is not there"),
            remedy: remedy(),
        }),
        Err(error) => Some(Lack {
            what: format!("the image `{image}`: {error}"),
            remedy: remedy(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_not_registered_is_named_with_the_way_to_do_it() {
        let info = |text: &str| serde_json::from_str::<EngineInfo>(text).unwrap();
        let without = info(r#"{"Runtimes":{"runc":{"path":"runc"}}}"#);
        let lack = of_runtime(&without, RUNSC).unwrap();
        assert!(lack.what.contains("`runsc`"), "{lack:?}");
        assert!(lack.remedy.contains("daemon.json"), "{lack:?}");
        let with = info(r#"{"Runtimes":{"runsc":{"path":"/usr/bin/runsc"}}}"#);
        assert_eq!(of_runtime(&with, RUNSC), None);
    }

    #[test]
    fn every_tier_but_the_configured_one_is_told() {
        let told = others(TierKind::Namespace, None);
        let kinds: Vec<TierKind> = told.iter().map(|other| other.tier).collect();
        assert_eq!(
            kinds,
            [TierKind::Docker, TierKind::Gvisor, TierKind::Firecracker]
        );
        assert!(told.iter().all(|other| !other.lacks.is_empty()), "{told:?}");
    }
}
