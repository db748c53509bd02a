//! Tasks of this repository that are no part of the product: `cargo xtask tidy` checks the rules
//! that neither the compiler nor clippy knows.

#![forbid(unsafe_code)]

mod fault;
mod image;
mod limits;
mod metadata;
mod rules;
mod rust;
mod tidy;
mod tree;

use std::io::Write;
use std::process::ExitCode;

/// What a person reads who asks for something else than what there is.
const USAGE: &str = "\
usage: cargo xtask tidy|limits|image FOLDER SOCKET NAME|cage FOLDER

  cage   makes the machine that tests start systemd in, keeps it in FOLDER, and says its file
  image  makes the image that container tests run in, keeps it in FOLDER, and gives it to the
         engine at SOCKET as NAME
  limits writes docs/limits.md from the limits.rs files
  tidy   checks crate edges, packages, names, sizes and texts; one line a fault, exit 1";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy"] => tidy(),
        ["limits"] => match tidy::write_limits() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complained(&format!("limits: {}", chain(&error))),
        },
        ["image", folder, socket, name] => {
            match image::make(folder.as_ref(), socket.as_ref(), name) {
                Ok(id) => said(&id, ExitCode::SUCCESS),
                Err(error) => complained(&format!("image: {}", chain(&error))),
            }
        }
        ["cage", folder] => match image::make_cage(folder.as_ref()) {
            Ok(archive) => said(&archive.display().to_string(), ExitCode::SUCCESS),
            Err(error) => complained(&format!("cage: {}", chain(&error))),
        },
        ["help" | "--help" | "-h"] => said(USAGE, ExitCode::SUCCESS),
        _ => complained(USAGE),
    }
}

fn tidy() -> ExitCode {
    match tidy::tidy() {
        Ok(report) => {
            let clean = report.faults.is_empty();
            let code = if clean {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
            said(&report.to_string(), code)
        }
        Err(error) => complained(&format!("tidy: {}", chain(&error))),
    }
}

/// The message of an error and of its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Writes `text` to standard output; a reader that went away changes nothing.
fn said(text: &str, code: ExitCode) -> ExitCode {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
    code
}

fn complained(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
    ExitCode::from(2)
}
