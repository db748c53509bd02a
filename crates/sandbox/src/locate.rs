//! Where `symbi-init` is.

use std::path::{Path, PathBuf};

use worker::StartError;

const NAME: &str = "symbi-init";
/// How far a test's or example's executable lies below its target folder.
const ANCESTORS: usize = 3;

/// The helper's file: the configured one, or the one beside the executable `beside`, or, for an
/// executable of cargo's `deps` or `examples`, the one above it.
///
/// # Errors
/// [`StartError::Unavailable`] names the places that were looked at.
pub fn locate_init(beside: &Path, configured: Option<&Path>) -> Result<PathBuf, StartError> {
    if let Some(path) = configured {
        return match path.is_file() {
            true => Ok(path.to_path_buf()),
            false => Err(missing(&format!("`{}` is not a file", path.display()))),
        };
    }
    let folders = beside.ancestors().skip(1).take(ANCESTORS);
    let found = folders
        .map(|folder| folder.join(NAME))
        .find(|path| path.is_file());
    found.ok_or_else(|| missing(&format!("it is not beside `{}`", beside.display())))
}

fn missing(why: &str) -> StartError {
    StartError::Unavailable {
        reason: format!(
            "the helper `{NAME}` is missing: {why}; install it beside the executable, or set \
             `init` in the [sandbox] table"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_helper_is_found_beside_or_above_or_where_it_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let beside = folder.path().join("debug/deps/test-1");
        fs::create_dir_all(beside.parent().unwrap()).unwrap();
        let text = locate_init(&beside, None).unwrap_err().to_string();
        assert!(
            text.contains("symbi-init") && text.contains("[sandbox]"),
            "{text}"
        );
        let helper = folder.path().join("debug/symbi-init");
        fs::write(&helper, "").unwrap();
        assert_eq!(locate_init(&beside, None).unwrap(), helper);
        assert_eq!(
            locate_init(Path::new("/x/y"), Some(&helper)).unwrap(),
            helper
        );
        assert!(locate_init(&beside, Some(Path::new("/no/such"))).is_err());
    }
}
