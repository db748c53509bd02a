//! A call's arguments as the command line gives them: in words, or in files that no list shows.

use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use crate::args::CallArgs;
use crate::exit::{Exit, Failure, chain};

/// Largest file of `--arg-file`, in bytes: no command takes more.
pub(crate) const ARGUMENT_FILE_BYTES_MAX: u64 = toolclad::limits::ARGV_BYTES_MAX as u64;

/// All arguments as one JSON object.
///
/// # Errors
/// Exit code 2: a pair without `=`, a name or standard input given twice, a file that cannot be
/// read as text.
pub(crate) fn read(args: &CallArgs) -> Result<Map<String, Value>, Failure> {
    let mut arguments = Map::new();
    for pair in &args.arguments {
        let (name, value) = split("--arg", pair, "VALUE")?;
        add(&mut arguments, "--arg", name, value.to_owned())?;
    }
    let mut standard_input_of = None;
    for pair in &args.argument_files {
        let (name, path) = split("--arg-file", pair, "FILE")?;
        if path == "-"
            && let Some(first) = standard_input_of.replace(name)
        {
            let (first, name) = (shown(first), shown(name));
            let message = format!("`--arg-file {name}=-`: `{first}` is standard input already");
            return Err(Failure::new(Exit::Usage, message).help("give it to one argument"));
        }
        add(&mut arguments, "--arg-file", name, text_of(name, path)?)?;
    }
    Ok(arguments)
}

fn split<'a>(option: &str, pair: &'a str, kind: &str) -> Result<(&'a str, &'a str), Failure> {
    pair.split_once('=').ok_or_else(|| {
        // Not repeated: it may be a value that no log should have.
        let message = format!("`{option}` of {} bytes has no `=`", pair.len());
        Failure::new(Exit::Usage, message).help(format!("write it as {option} NAME={kind}"))
    })
}

fn add(
    arguments: &mut Map<String, Value>,
    option: &str,
    name: &str,
    value: String,
) -> Result<(), Failure> {
    match arguments.insert(name.to_owned(), Value::String(value)) {
        None => Ok(()),
        Some(_) => {
            let message = format!("`{option} {}=…` repeats a name", shown(name));
            Err(Failure::new(Exit::Usage, message).help("give each argument once"))
        }
    }
}

/// The file's text without one line end at its end; `-` is standard input.
fn text_of(name: &str, path: &str) -> Result<String, Failure> {
    let refused = |reason: &str, help: String| {
        let message = format!("`--arg-file {}={}`: {reason}", shown(name), shown(path));
        Failure::new(Exit::Usage, message).help(help)
    };
    let bytes = match path {
        "-" => read_standard_input(),
        _ => crate::files::read_regular(Path::new(path), ARGUMENT_FILE_BYTES_MAX),
    };
    let bytes = bytes.map_err(|error| {
        let help = "name a file with the value, or `-` for standard input";
        refused(&chain(&error), help.to_owned())
    })?;
    if bytes.len() as u64 > ARGUMENT_FILE_BYTES_MAX {
        let help = format!("a command takes at most {ARGUMENT_FILE_BYTES_MAX} bytes");
        return Err(refused("it is too long for an argument", help));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let reason = format!("it is not UTF-8 text: the fault is at byte {place}");
        refused(&reason, "arguments are text".to_owned())
    })?;
    let line = text.strip_suffix("\r\n").or(text.strip_suffix('\n'));
    Ok(line.unwrap_or(&text).to_owned())
}

fn read_standard_input() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(ARGUMENT_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn shown(text: &str) -> String {
    model::Untrusted::new(text).escaped()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(arguments: &[&str], files: &[String]) -> Result<Map<String, Value>, Failure> {
        read(&CallArgs {
            tool: "t".to_owned(),
            arguments: arguments.iter().map(|&pair| pair.to_owned()).collect(),
            argument_files: files.to_vec(),
        })
    }

    fn file(folder: &tempfile::TempDir, bytes: &[u8]) -> String {
        let path = folder.path().join("value");
        std::fs::write(&path, bytes).unwrap();
        format!("f={}", path.display())
    }

    #[test]
    fn arguments_are_split_at_the_first_equals_sign_only() {
        let arguments = read_all(&["a=b=c", "d="], &[]).unwrap();
        assert_eq!(arguments["a"], "b=c");
        assert_eq!(arguments["d"], "");
    }

    #[test]
    fn an_argument_without_equals_sign_or_given_twice_is_a_usage_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder, b"1");
        for (pairs, files) in [
            (&["a"][..], vec![]),
            (&["a=1", "a=2"], vec![]),
            (&["f=1"], vec![file.clone()]),
            (&[], vec![file.clone(), file.clone()]),
            (&[], vec!["f".to_owned()]),
            // Standard input has one end: a second argument would be empty.
            (&[], vec!["f=-".to_owned(), "g=-".to_owned()]),
        ] {
            assert_eq!(read_all(pairs, &files).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    fn a_file_is_an_argument_without_the_line_end_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        for (bytes, value) in [
            (&b"secret"[..], "secret"),
            (b"secret\n", "secret"),
            (b"secret\r\n", "secret"),
            (b"two\nlines\n\n", "two\nlines\n"),
            (b"secret\r", "secret\r"),
            (b"\n", ""),
            (b"", ""),
        ] {
            let arguments = read_all(&["a=1"], &[file(&folder, bytes)]).unwrap();
            assert_eq!(arguments["f"], value);
            assert_eq!(arguments["a"], "1");
        }
    }

    #[test]
    fn a_file_is_read_to_the_longest_command_and_refused_one_past_it() {
        let folder = tempfile::tempdir().unwrap();
        let of = |bytes: u64| file(&folder, &vec![b'x'; usize::try_from(bytes).unwrap()]);
        let longest = read_all(&[], &[of(ARGUMENT_FILE_BYTES_MAX)]).unwrap();
        let length = longest["f"].as_str().unwrap().len();
        assert_eq!(length as u64, ARGUMENT_FILE_BYTES_MAX);
        let refused = read_all(&[], &[of(ARGUMENT_FILE_BYTES_MAX + 1)]).unwrap_err();
        assert!(refused.message.contains("too long"), "{}", refused.message);
    }

    #[test]
    fn a_file_that_is_absent_or_no_text_is_refused_without_showing_what_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let refused = read_all(&[], &[file(&folder, b"secret\xff")]).unwrap_err();
        assert!(refused.message.contains("at byte 6") && !refused.message.contains("secret"));
        let refused = read_all(&[], &["f=/nowhere/at/all".to_owned()]).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.message.contains("/nowhere/at/all"));
    }

    #[test]
    fn a_pipe_a_link_a_folder_and_an_endless_device_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        for path in [&pipe, &link, folder.path(), Path::new("/dev/zero")] {
            let refused = read_all(&[], &[format!("f={}", path.display())]).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
            assert!(
                refused.message.contains("not a regular file"),
                "{}",
                refused.message
            );
        }
    }
}
