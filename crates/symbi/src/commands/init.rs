//! `symbi init`: a project that works at once.

use std::path::Path;

use project::{Project, Trust};

use crate::args::{Common, InitArgs};
use crate::commands::mcp;
use crate::exit::{Exit, Failure};
use crate::open::OpenProject;
use crate::output::Output;

/// Runs the command.
pub(crate) fn run(args: &InitArgs, common: &Common) -> Result<Exit, Failure> {
    match &args.dir {
        dir if args.mcp_json => print_entry(dir.as_deref(), common),
        Some(dir) => make(dir, common),
        None => Err(Failure::new(Exit::Usage, "which folder?").help("symbi init DIR")),
    }
}

/// What a client needs to use the project, on stdout.
fn print_entry(dir: Option<&Path>, common: &Common) -> Result<Exit, Failure> {
    let open = OpenProject::find(dir.or(common.project.as_deref()))?;
    let absolute = |what: &str, path: std::io::Result<std::path::PathBuf>| {
        path.map_err(|error| Failure::new(Exit::Usage, format!("where {what} is: {error}")))
    };
    let symbi = absolute("symbi", std::env::current_exe())?;
    let folder = absolute("the project", open.project.path().canonicalize())?;
    let output = Output::new(common.json);
    let entry = mcp::client_entry(&symbi, &folder)?;
    if output.is_json() {
        output.value(&entry);
    } else {
        output.json_text(&format!("{entry:#}"));
    }
    output.note("put it into the client's .mcp.json; policies/mcp decides what the client may do");
    Ok(Exit::Done)
}

/// Writes the project and trusts what was just written.
fn make(dir: &Path, common: &Common) -> Result<Exit, Failure> {
    let made = project::scaffold(dir).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let project = Project::open(dir).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let open = OpenProject {
        project,
        dirs: crate::dirs::user_dirs()?,
    };
    let verdict = crate::commands::trust::check_all(&open)?;
    Trust::grant(&open.project, &open.dirs, Some(verdict))
        .map_err(|error| Failure::of(Exit::Storage, &error))?;
    let output = Output::new(common.json);
    let files: Vec<String> = made.iter().map(|path| path.display().to_string()).collect();
    if output.is_json() {
        output.value(&serde_json::json!({ "project": dir.display().to_string(), "files": files }));
        return Ok(Exit::Done);
    }
    for file in files {
        output.line(&format!("made {file}"));
    }
    output.line(&format!(
        "\nThe project is trusted as it is now. Try it:\n  cd {}\n  symbi tools list\n  symbi call \
         copy_csv --arg input=data/example.csv --arg output=out/copy.csv",
        dir.display()
    ));
    Ok(Exit::Done)
}
