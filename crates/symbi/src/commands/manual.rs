//! `symbi completions` and `symbi manual`: what a shell and `man` know of this command line.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::{Cli, Common};
use crate::exit::{Exit, Failure};
use crate::output::{Output, write_out};

/// Prints the completions of one shell.
pub(crate) fn completions(shell: Shell, common: &Common) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "symbi", &mut script);
    let script = String::from_utf8_lossy(&script);
    let output = Output::new(common.json);
    match output.is_json() {
        true => output.value(&serde_json::json!({ "shell": shell.to_string(), "script": script })),
        false => write_out(&script),
    }
    Exit::Done
}

/// Writes a page for `symbi` and for each command of it. Pages of an earlier version are replaced.
pub(crate) fn pages(folder: &Path, common: &Common) -> Result<Exit, Failure> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(
            Failure::new(Exit::Usage, format!("`{shown}` is not a folder"))
                .help(format!("mkdir -p {shown}")),
        );
    }
    let failed = |error| {
        Failure::new(
            Exit::Storage,
            format!("write pages into `{shown}`: {error}"),
        )
    };
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    let entries = fs::read_dir(folder).map_err(failed)?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut pages: Vec<String> = names
        .filter(|name| name.starts_with("symbi") && name.ends_with(".1"))
        .collect();
    pages.sort_unstable();
    let output = Output::new(common.json);
    match output.is_json() {
        true => output.value(&serde_json::json!({ "folder": shown.to_string(), "pages": pages })),
        false => output.line(&format!("{} pages in {shown}: man symbi", pages.len())),
    }
    Ok(Exit::Done)
}
