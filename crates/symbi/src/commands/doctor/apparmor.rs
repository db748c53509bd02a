//! The AppArmor profile of `symbi-init`, for systems that keep user namespaces from programs
//! without one.

use std::path::Path;

use crate::exit::{Exit, Failure};

const PROFILE: &str = include_str!("symbi-init.apparmor");
/// Stands in the profile for the helper's path.
const PLACE: &str = "SYMBI_INIT";

/// The profile of the helper at `init`.
pub(super) fn profile(init: &Path) -> Result<String, Failure> {
    let path = init
        .canonicalize()
        .map_err(|error| Failure::new(Exit::Isolation, format!("`{}`: {error}", init.display())))?;
    let text = path.to_str().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "the path `{}` has characters that mean something in an AppArmor profile",
                path.display()
            ),
        )
        .help("install symbi and symbi-init where the path has none, as in /usr/local/bin"));
    }
    Ok(PROFILE.replace(PLACE, text))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn profile_of(name: &str) -> Result<String, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, "").unwrap();
        profile(&path)
    }

    #[test]
    fn it_names_one_file_and_only_plain_paths_are_named() {
        let text = profile_of("symbi-init").unwrap();
        assert!(text.contains("/symbi-init\" flags=(unconfined)"), "{text}");
        assert!(!text.contains(PLACE) && text.contains("\n  userns,\n"));
        for name in ["symbi*init", "symbi init", "symbi\"init", "symbi{init"] {
            assert_eq!(profile_of(name).unwrap_err().exit, Exit::Usage);
        }
    }

    #[test]
    #[ignore = "needs apparmor_parser: run ./test"]
    fn the_parser_takes_it() {
        let version = Command::new("apparmor_parser")
            .arg("--version")
            .output()
            .unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        let mut text = profile_of("symbi-init").unwrap();
        if version.contains("version 3.") {
            // Of version 4 are two lines, which an older parser does not know.
            for newer in ["abi <abi/4.0>,\n", "  userns,\n"] {
                assert_eq!(text.matches(newer).count(), 1);
                text = text.replace(newer, "");
            }
        }
        let parse = |text: &str| {
            let mut parser = Command::new("apparmor_parser")
                .args(["--skip-kernel-load", "--skip-cache"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            parser
                .stdin
                .take()
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            parser.wait_with_output().unwrap()
        };
        let parsed = parse(&text);
        assert!(parsed.status.success(), "{parsed:?}\n{text}");
        assert!(
            !parse(&text.replace('}', "")).status.success(),
            "it refuses what is none"
        );
    }
}
