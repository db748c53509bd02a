//! What the parser of the command line says: faults of usage, the help and the version.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Whether `--json` is among the arguments that could not be parsed.
pub(crate) fn is_json_asked(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut options = arguments.skip(1).take_while(|argument| argument != "--");
    options.any(|argument| argument == "--json")
}

/// Shows what the parser says. It repeats arguments, so none of it goes out unescaped.
pub(crate) fn show(error: &clap::Error, json: bool) -> Exit {
    let output = Output::new(json);
    let mut rendered = error.render().to_string();
    if let Some(help) = unmarked_argument(error) {
        rendered = format!("{}\n\n  tip: {help}\n", rendered.trim_end());
    }
    let text = rendered.trim_end();
    if error.use_stderr() {
        output.note(text);
        if json {
            output.value(&failure(text).to_json());
        }
        return Exit::Usage;
    }
    match error.kind() {
        _ if !json => output.line(text),
        ErrorKind::DisplayVersion => output.value(&json!({ "version": text })),
        _ => output.value(&json!({ "help": text })),
    }
    Exit::Done
}

/// `input=data/a.csv` without what says that it is an argument of a tool.
fn unmarked_argument(error: &clap::Error) -> Option<String> {
    let ContextValue::String(word) = error.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let (name, _) = word.split_once('=')?;
    let is_name = model::ArgumentName::new(name).is_ok();
    (error.kind() == ErrorKind::UnknownArgument && is_name)
        .then(|| format!("an argument of a tool is given as: --arg {name}=VALUE"))
}

/// The first paragraph is what happened, the rest what to do.
fn failure(text: &str) -> Failure {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    match text.split_once("\n\n") {
        Some((message, help)) => Failure::new(Exit::Usage, message).help(help.trim()),
        None => Failure::new(Exit::Usage, text),
    }
}
