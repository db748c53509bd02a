//! Ceilings: the host folders that the operator lets calls name files in. A ceiling is the most
//! that a grant may reach; it is never a mount.
//!
//! This module reads the entries of `volumes`; it touches no file. What only the file system can
//! tell is checked when the folders are opened.

use std::fmt;

use model::{PathError, RelativePath};

use crate::limits::CEILINGS_MAX;

/// Names that steer this system or its version control: unavailable below any ceiling, at any
/// depth. Compared without regard to ASCII case, as some file systems do.
const RESERVED_NAMES: [&str; 9] = [
    "symbiont.toml",
    "tools",
    "policies",
    "scope",
    "toolclad.toml",
    "mcp-config.toml",
    ".symbiont",
    ".git",
    CANDIDATES_NAME,
];

/// Reserved names that mean the same wherever they stand, also outside a project.
const RESERVED_EVERYWHERE: [&str; 3] = [".symbiont", ".git", CANDIDATES_NAME];

/// The folder of unpublished outputs at the root of a writable ceiling.
pub(crate) const CANDIDATES_NAME: &str = ".symbi-candidates";

/// Host folders of the kernel and of services, relative to `/`, which no ceiling may be or be in.
const PROTECTED_FOLDERS: [&str; 5] = ["proc", "sys", "dev", "run", "var/run"];

/// Names under which container engines put the socket that rules the host.
const ENGINE_SOCKETS: [&str; 3] = ["docker.sock", "containerd.sock", "podman.sock"];

/// The control files of a project, which a writable ceiling must not contain.
pub(crate) fn control_names() -> impl Iterator<Item = &'static str> {
    RESERVED_NAMES
        .into_iter()
        .filter(|name| *name != CANDIDATES_NAME)
}

/// The first component of `path` that is a reserved name.
pub(crate) fn reserved_component(path: &str) -> Option<&str> {
    path.split('/').find(|part| {
        RESERVED_NAMES
            .iter()
            .any(|name| name.eq_ignore_ascii_case(part))
    })
}

/// What calls may do below a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `ro`: read files.
    Read,
    /// `rw`: read files, and create new ones.
    Create,
}

/// Where a ceiling's host folder is named from. Both texts are relative; empty is the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Project(String),
    Absolute(String),
}

/// One checked entry of `volumes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ceiling {
    pub(crate) entry: String,
    pub(crate) host: Host,
    /// Below the working directory; empty is the working directory itself.
    pub(crate) guest: String,
    pub(crate) access: Access,
}

impl Ceiling {
    /// What `path` is below this ceiling: empty for the ceiling itself, `None` outside.
    pub(crate) fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        if self.guest.is_empty() {
            return Some(path);
        }
        match path.strip_prefix(self.guest.as_str())? {
            "" => Some(""),
            rest => rest.strip_prefix('/'),
        }
    }
}

/// The checked entries of `volumes`, no two with one guest path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ceilings(pub(crate) Vec<Ceiling>);

/// An entry of `volumes` (or the working directory) that cannot be a ceiling.
#[derive(Debug)]
pub struct CeilingError {
    pub entry: String,
    pub fault: CeilingFault,
}

/// What is wrong with it.
#[derive(Debug)]
pub enum CeilingFault {
    WorkingDir { reason: Option<PathError> },
    TooMany { max: usize },
    Parts { count: usize },
    Mode { mode: String },
    HostForm { host: String },
    HostPath { reason: PathError },
    GuestPath { reason: PathError },
    GuestOutside { guest: String, working_dir: String },
    Duplicate { guest: String, other: String },
    Protected { path: String },
    EngineSocket { name: String },
    Control { name: String },
    ReservedGuest { name: String },
    WholeProject,
}

impl fmt::Display for CeilingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.entry.escape_debug();
        match &self.fault {
            CeilingFault::WorkingDir { reason: None } => write!(
                f,
                "the working directory `{entry}` is not absolute; write a path such as `/workspace`"
            ),
            CeilingFault::WorkingDir { reason: Some(_) } => write!(
                f,
                "the working directory `{entry}` is not a plain absolute path; \
                 write a path such as `/workspace`"
            ),
            fault => write!(f, "volume `{entry}`: {fault}"),
        }
    }
}

impl fmt::Display for CeilingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkingDir { .. } => f.write_str("the working directory is not usable"),
            Self::TooMany { max } => {
                write!(
                    f,
                    "there are more than {max} volumes; name fewer, larger folders"
                )
            }
            Self::Parts { count } => write!(
                f,
                "it has {count} parts between colons instead of three; \
                 write `HOST:GUEST:ro` or `HOST:GUEST:rw`, such as `./data:/workspace/data:ro`"
            ),
            Self::Mode { mode } => write!(
                f,
                "`{}` is no mode; write `ro` (calls may read) or `rw` (calls may also create)",
                mode.escape_debug()
            ),
            Self::HostForm { host } => write!(
                f,
                "the host folder `{0}` is neither absolute nor below the project; \
                 write `./{0}` for the project's own folder, or an absolute path",
                host.escape_debug()
            ),
            Self::HostPath { .. } => f.write_str(
                "the host folder is not a plain path; \
                 write it without `..`, doubled or final slashes, links and special characters",
            ),
            Self::GuestPath { .. } => f.write_str(
                "the path in the worker is not a plain path; \
                 write it without `..`, doubled or final slashes and special characters",
            ),
            Self::GuestOutside { guest, working_dir } => write!(
                f,
                "`{}` is not at or below the working directory `{working_dir}`; \
                 write `{working_dir}/NAME`",
                guest.escape_debug()
            ),
            Self::Duplicate { guest, other } => write!(
                f,
                "`{guest}` is the worker's path of volume `{other}` already; give each its own"
            ),
            Self::Protected { path } => write!(
                f,
                "the host path `{path}` is protected; name a folder that holds nothing but files \
                 for calls, never `/`, `/proc`, `/sys`, `/dev`, `/run` or what is in them"
            ),
            Self::EngineSocket { name } => write!(
                f,
                "`{name}` is a container engine's socket, which rules the host; name a folder"
            ),
            Self::Control { name } => write!(
                f,
                "`{name}` holds control files, which no call may read or write; \
                 put the files of calls into a folder of their own, such as `./data`"
            ),
            Self::ReservedGuest { name } => write!(
                f,
                "the path in the worker has the component `{name}`, a reserved name that no call \
                 may use; write another"
            ),
            Self::WholeProject => f.write_str(
                "a writable volume must not contain the project's control files; \
                 name a folder for outputs, such as `./out:/workspace/out:rw`",
            ),
        }
    }
}

impl std::error::Error for CeilingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            CeilingFault::WorkingDir {
                reason: Some(reason),
            }
            | CeilingFault::HostPath { reason }
            | CeilingFault::GuestPath { reason } => Some(reason),
            _ => None,
        }
    }
}

impl Ceilings {
    /// Checks the entries `HOST:GUEST:MODE` of `volumes`.
    ///
    /// `HOST` is `./…` below the project's folder or absolute, `GUEST` is at or below
    /// `working_dir`, `MODE` is `ro` or `rw`.
    ///
    /// # Errors
    /// [`CeilingError`] names the first wrong entry and what to write instead.
    pub fn parse(volumes: &[String], working_dir: &str) -> Result<Self, CeilingError> {
        check_working_dir(working_dir).map_err(|fault| CeilingError {
            entry: working_dir.to_owned(),
            fault,
        })?;
        let mut ceilings: Vec<Ceiling> = Vec::with_capacity(volumes.len().min(CEILINGS_MAX));
        for entry in volumes {
            let fail = |fault| CeilingError {
                entry: entry.clone(),
                fault,
            };
            if ceilings.len() == CEILINGS_MAX {
                return Err(fail(CeilingFault::TooMany { max: CEILINGS_MAX }));
            }
            let ceiling = parse_entry(entry, working_dir).map_err(fail)?;
            if let Some(other) = ceilings.iter().find(|it| it.guest == ceiling.guest) {
                let guest = format!("{working_dir}/{}", ceiling.guest);
                return Err(fail(CeilingFault::Duplicate {
                    guest: guest.trim_end_matches('/').to_owned(),
                    other: other.entry.clone(),
                }));
            }
            ceilings.push(ceiling);
        }
        Ok(Self(ceilings))
    }
}

fn check_working_dir(working_dir: &str) -> Result<(), CeilingFault> {
    let rest = working_dir
        .strip_prefix('/')
        .ok_or(CeilingFault::WorkingDir { reason: None })?;
    RelativePath::new(rest)
        .map(drop)
        .map_err(|reason| CeilingFault::WorkingDir {
            reason: Some(reason),
        })
}

fn parse_entry(entry: &str, working_dir: &str) -> Result<Ceiling, CeilingFault> {
    let parts: Vec<&str> = entry.split(':').collect();
    let &[host, guest, mode] = parts.as_slice() else {
        return Err(CeilingFault::Parts { count: parts.len() });
    };
    let access = match mode {
        "ro" => Access::Read,
        "rw" => Access::Create,
        other => {
            return Err(CeilingFault::Mode {
                mode: other.to_owned(),
            });
        }
    };
    let host = parse_host(host)?;
    if access == Access::Create && host == Host::Project(String::new()) {
        return Err(CeilingFault::WholeProject);
    }
    let guest = parse_guest(guest, working_dir)?;
    Ok(Ceiling {
        entry: entry.to_owned(),
        host,
        guest,
        access,
    })
}

fn parse_host(host: &str) -> Result<Host, CeilingFault> {
    if host == "." || host == "./" {
        return Ok(Host::Project(String::new()));
    }
    let plain = |text: &str| {
        RelativePath::new(text)
            .map(|path| path.as_str().to_owned())
            .map_err(|reason| CeilingFault::HostPath { reason })
    };
    if let Some(rest) = host.strip_prefix("./") {
        let path = plain(rest)?;
        return match reserved_component(&path) {
            Some(name) => Err(CeilingFault::Control {
                name: name.to_owned(),
            }),
            None => Ok(Host::Project(path)),
        };
    }
    let Some(rest) = host.strip_prefix('/') else {
        return Err(CeilingFault::HostForm {
            host: host.to_owned(),
        });
    };
    if rest.is_empty() {
        return Err(CeilingFault::Protected {
            path: "/".to_owned(),
        });
    }
    let path = plain(rest)?;
    let last = path.rsplit('/').next().unwrap_or(&path);
    if ENGINE_SOCKETS.contains(&last) {
        return Err(CeilingFault::EngineSocket {
            name: last.to_owned(),
        });
    }
    let is_at_or_in = |folder: &str| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if PROTECTED_FOLDERS.iter().any(|folder| is_at_or_in(folder)) {
        return Err(CeilingFault::Protected {
            path: host.to_owned(),
        });
    }
    match path
        .split('/')
        .find(|part| RESERVED_EVERYWHERE.contains(part))
    {
        Some(name) => Err(CeilingFault::Control {
            name: name.to_owned(),
        }),
        None => Ok(Host::Absolute(path)),
    }
}

fn parse_guest(guest: &str, working_dir: &str) -> Result<String, CeilingFault> {
    let outside = || CeilingFault::GuestOutside {
        guest: guest.to_owned(),
        working_dir: working_dir.to_owned(),
    };
    let rest = guest.strip_prefix(working_dir).ok_or_else(outside)?;
    if rest.is_empty() {
        return Ok(String::new());
    }
    let rest = rest.strip_prefix('/').ok_or_else(outside)?;
    let path = RelativePath::new(rest).map_err(|reason| CeilingFault::GuestPath { reason })?;
    match reserved_component(path.as_str()) {
        Some(name) => Err(CeilingFault::ReservedGuest {
            name: name.to_owned(),
        }),
        None => Ok(path.as_str().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[&str]) -> Result<Ceilings, CeilingError> {
        let entries: Vec<String> = entries.iter().map(|it| (*it).to_owned()).collect();
        Ceilings::parse(&entries, "/workspace")
    }

    fn refusal(entry: &str) -> String {
        parse(&[entry]).unwrap_err().to_string()
    }

    #[test]
    fn entries_are_read_into_host_guest_and_access() {
        let parsed = parse(&[
            "./data:/workspace/data:ro",
            "/srv/out:/workspace/a/b:rw",
            "./:/workspace:ro",
        ])
        .unwrap();
        let [data, out, all] = parsed.0.as_slice() else {
            panic!("{parsed:?}")
        };
        assert_eq!(data.host, Host::Project("data".into()));
        assert_eq!((data.guest.as_str(), data.access), ("data", Access::Read));
        assert_eq!(out.host, Host::Absolute("srv/out".into()));
        assert_eq!((out.guest.as_str(), out.access), ("a/b", Access::Create));
        assert_eq!(
            (all.guest.as_str(), &all.host),
            ("", &Host::Project(String::new()))
        );
    }

    #[test]
    fn an_entry_without_its_three_parts_or_a_mode_is_refused_with_what_to_write() {
        assert!(refusal("./data").contains("`HOST:GUEST:ro`"));
        assert!(refusal("./data:/workspace/data").contains("2 parts"));
        assert!(refusal("./data:/workspace/data:ro:z").contains("4 parts"));
        assert!(refusal("./data:/workspace/data:RW").contains("`RW` is no mode"));
        assert!(refusal("data:/workspace/data:ro").contains("write `./data`"));
        for escape in [
            "./data:/workspace/x:\x1b[2J",
            "\x1b[2J:/workspace/x:ro",
            "./d:\x1b[2J:ro",
        ] {
            assert!(!refusal(escape).contains('\x1b'), "{escape:?}");
        }
    }

    #[test]
    fn protected_host_paths_and_engine_sockets_are_refused() {
        for host in [
            "/",
            "/proc",
            "/proc/1",
            "/sys",
            "/sys/kernel",
            "/dev",
            "/dev/shm",
            "/run",
            "/run/user/0",
            "/var/run",
            "/var/run/docker.sock",
        ] {
            let error = parse(&[&format!("{host}:/workspace/x:ro")]).unwrap_err();
            assert!(
                matches!(
                    error.fault,
                    CeilingFault::Protected { .. } | CeilingFault::EngineSocket { .. }
                ),
                "{host}: {error}"
            );
        }
        assert!(parse(&["/opt/docker.sock:/workspace/x:ro"]).is_err());
        assert!(parse(&["/processed:/workspace/x:ro"]).is_ok());
    }

    #[test]
    fn control_folders_and_a_writable_project_are_no_ceilings() {
        for host in [
            "./tools",
            "./policies",
            "./.symbiont/x",
            "./.git",
            "./sub/.GIT",
            "/srv/.git",
        ] {
            let error = parse(&[&format!("{host}:/workspace/x:ro")]).unwrap_err();
            assert!(
                matches!(error.fault, CeilingFault::Control { .. }),
                "{host}: {error}"
            );
        }
        for host in [".", "./"] {
            assert!(refusal(&format!("{host}:/workspace:rw")).contains("control files"));
        }
        assert!(parse(&["/opt/tools/data:/workspace/x:ro"]).is_ok());
    }

    #[test]
    fn traversal_and_ill_formed_paths_are_refused_on_both_sides() {
        for entry in [
            "./../data:/workspace/data:ro",
            "./a/../b:/workspace/data:ro",
            "./a//b:/workspace/data:ro",
            "./a/:/workspace/data:ro",
            "/srv/../etc:/workspace/data:ro",
            "../data:/workspace/data:ro",
            "./a,b:/workspace/data:ro",
            "./a\\b:/workspace/data:ro",
            "./a\nb:/workspace/data:ro",
            "./data:/workspace/../etc:ro",
            "./data:/workspace/:ro",
            "./data:/workspaces:ro",
            "./data:/etc:ro",
            "./data:workspace/data:ro",
            ":/workspace/data:ro",
            "./data::ro",
        ] {
            let error = parse(&[entry]).unwrap_err();
            assert_eq!(error.entry, entry);
            assert!(
                error
                    .to_string()
                    .contains(&format!("volume `{}`", entry.escape_debug())),
                "{error}"
            );
        }
    }

    #[test]
    fn one_guest_path_has_one_ceiling() {
        let error = parse(&["./a:/workspace/x:ro", "./b:/workspace/x:rw"]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("`/workspace/x` is the worker's path of volume `./a:")
        );
        assert!(parse(&["./a:/workspace/x:ro", "./a:/workspace/y:ro"]).is_ok());
    }

    #[test]
    fn a_working_directory_is_absolute_plain_and_not_the_root() {
        for bad in ["workspace", "", "/", "/a/../b", "/a/"] {
            assert!(Ceilings::parse(&[], bad).is_err(), "{bad:?}");
        }
        assert!(Ceilings::parse(&[], "/work space").is_ok());
    }

    #[test]
    fn the_number_of_ceilings_is_bounded() {
        let entries: Vec<String> = (0..=CEILINGS_MAX)
            .map(|n| format!("./d{n}:/workspace/d{n}:ro"))
            .collect();
        assert!(Ceilings::parse(&entries[..CEILINGS_MAX], "/workspace").is_ok());
        assert!(Ceilings::parse(&entries, "/workspace").is_err());
    }

    #[test]
    fn a_path_is_below_a_ceiling_by_whole_components() {
        let parsed = parse(&["./a:/workspace/data:ro", "./b:/workspace:ro"]).unwrap();
        let (data, all) = (&parsed.0[0], &parsed.0[1]);
        assert_eq!(data.rest("data/x/y"), Some("x/y"));
        assert_eq!(data.rest("data"), Some(""));
        assert_eq!(data.rest("database"), None);
        assert_eq!(all.rest("x"), Some("x"));
    }

    #[test]
    fn reserved_names_are_found_at_any_depth_and_in_any_case() {
        assert_eq!(reserved_component("a/b/Tools/c"), Some("Tools"));
        assert_eq!(
            reserved_component("a/.symbi-candidates"),
            Some(".symbi-candidates")
        );
        assert_eq!(reserved_component("a/toolshed/scope.txt"), None);
    }

    proptest::proptest! {
        /// Few letters, so that collisions with protected and reserved names are found.
        #[test]
        fn whatever_is_accepted_is_plain_inside_and_unprotected(
            host in "(\\./|/)?(proc|run|var|tools|\\.git|\\.\\.|\\.|a|b|/){0,5}",
            guest in "/w(/|a|b|\\.\\.|tools){0,4}",
            mode in "ro|rw|r",
        ) {
            let entry = format!("{host}:{guest}:{mode}");
            if let Ok(Ceilings(list)) = Ceilings::parse(&[entry], "/w") {
                let ceiling = &list[0];
                let (path, is_project) = match &ceiling.host {
                    Host::Project(path) => (path, true),
                    Host::Absolute(path) => (path, false),
                };
                for text in [path, &ceiling.guest] {
                    assert!(text.is_empty() || RelativePath::new(text.as_str()).is_ok());
                }
                assert!(!is_project || reserved_component(path).is_none());
                assert!(is_project || !["", "proc", "run"].contains(&path.split('/').next().unwrap()));
                assert!(!(path.is_empty() && ceiling.access == Access::Create));
                assert!(guest == "/w" || guest == format!("/w/{}", ceiling.guest));
            }
        }

        #[test]
        fn the_rest_of_a_path_is_what_its_components_say(
            guest in "(a|b|ab)(/(a|b|ab)){0,2}",
            path in "(a|b|ab)(/(a|b|ab)){0,4}",
        ) {
            let ceilings = Ceilings::parse(&[format!("./x:/w/{guest}:ro")], "/w").unwrap();
            let (guest, parts): (Vec<_>, Vec<_>) =
                (guest.split('/').collect(), path.split('/').collect());
            let wanted = parts.strip_prefix(guest.as_slice()).map(|rest| rest.join("/"));
            assert_eq!(ceilings.0[0].rest(&path).map(str::to_owned), wanted);
        }
    }
}
