//! `symbi tools init`: a manifest to begin with, and the policy that lets the operator try it.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use model::ToolName;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use toolclad::{Contract, starter_manifest};

use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;

/// Writes both files, or neither over an existing one.
pub(crate) fn run(open: &OpenProject, name: &ToolName, output: Output) -> Result<Exit, Failure> {
    let manifest = (format!("{name}.clad.toml"), starter_manifest(name));
    // A name that no manifest may have is refused before anything is written.
    Contract::parse(&manifest.0, &manifest.1)
        .map_err(|errors| Failure::new(Exit::Usage, errors.to_string()))?;
    let policy = (format!("{name}.cedar"), policy_for(name));
    let root = open.project.dir();
    let tools = folder(root, "tools")?;
    let policies = folder(root, "policies")?;
    let surface = folder(policies.as_fd(), "call")?;
    write(tools.as_fd(), "tools", &manifest)?;
    if let Err(failure) = write(surface.as_fd(), "policies/call", &policy) {
        let _ = rustix::fs::unlinkat(&tools, manifest.0.as_str(), rustix::fs::AtFlags::empty());
        return Err(failure);
    }
    let files = [
        format!("tools/{}", manifest.0),
        format!("policies/call/{}", policy.0),
    ];
    if output.is_json() {
        output.value(&serde_json::json!({ "tool": name, "files": files }));
        return Ok(Exit::Done);
    }
    for file in files {
        output.line(&format!("made {file}"));
    }
    output.note(&format!(
        "edit both, then:\n  symbi tools validate\n  symbi policy check\n  symbi trust\n  symbi call \
         {name} --arg input=data/example.csv"
    ));
    Ok(Exit::Done)
}

fn policy_for(name: &ToolName) -> String {
    format!(
        "// Who may call `{name}`. Whatever no policy permits is denied.\n\n@id(\"operator-may-{name}\")\n\
         permit(principal == Agent::\"operator\", action == Action::\"tool_call::{name}\", resource)\n\
         when {{ context.invocation.resolved.command_boundary.filesystem.read.input.parent == \"data\" }};\n"
    )
}

fn folder(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failure("make the folder", name, error)),
    }
    rustix::fs::openat(parent, name, flags, Mode::empty())
        .map_err(|error| failure("open the folder", name, error))
}

fn write(
    folder: BorrowedFd<'_>,
    shown: &str,
    (name, text): &(String, String),
) -> Result<(), Failure> {
    let path = format!("{shown}/{name}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(folder, name.as_str(), flags, Mode::from_raw_mode(0o644));
    let handle = handle.map_err(|error| failure("create", &path, error))?;
    let mut file = File::from(handle);
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| Failure::new(Exit::Storage, format!("cannot write `{path}`: {error}")))
}

fn failure(what: &str, path: &str, error: Errno) -> Failure {
    let exit = match error {
        Errno::EXIST | Errno::LOOP | Errno::NOTDIR => Exit::Usage,
        _ => Exit::Storage,
    };
    let failure = Failure::new(exit, format!("cannot {what} `{path}`: {error}"));
    match error {
        Errno::EXIST => failure.help("nothing is overwritten: choose another name"),
        _ => failure,
    }
}
