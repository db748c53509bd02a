//! `symbi init`: a project that works at once.

use std::path::Path;

use project::{Project, Trust};

use crate::args::Common;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Writes the project and trusts what was just written.
pub(crate) fn run(dir: &Path, common: &Common) -> Result<Exit, Failure> {
    let made = project::scaffold(dir).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let project = Project::open(dir).map_err(|error| Failure::of(Exit::Usage, &error))?;
    let open = crate::open::OpenProject {
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
