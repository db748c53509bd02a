//! The demonstration's input, and the report that it must become: computed here as well, from the
//! same bytes, so that nobody's word is needed for it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use model::Untrusted;
use serde::Deserialize;

use crate::exit::{Exit, Failure};

/// This workspace's own.
const OWN: &str = include_str!("../../../../Cargo.lock");
/// What a governed call can be granted.
const LOCK_BYTES_MAX: u64 = worker::limits::FILE_BYTES_DEFAULT;

/// A lock file that was read and understood.
#[derive(Debug)]
pub(crate) struct LockFile {
    pub(crate) text: String,
    /// Line feeds, as `wc -l` counts them.
    pub(crate) lines: u64,
    pub(crate) packages: usize,
    /// The whole report, byte by byte.
    pub(crate) report: String,
}

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    checksum: String,
}

impl LockFile {
    /// Reads `path`, or takes the workspace's own.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Self::parse(OWN.to_owned()).map_err(|reason| Failure::new(Exit::Usage, reason));
        };
        let shown = Untrusted::new(path.to_string_lossy()).escaped();
        let refuse = |reason: String| {
            Failure::new(
                Exit::Usage,
                format!("`{shown}` is no lock file for the report: {reason}"),
            )
            .help("name a Cargo.lock: --lock FILE")
        };
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LOCK_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| refuse(error.to_string()))?;
        Self::parse(text).map_err(refuse)
    }

    fn parse(text: String) -> Result<Self, String> {
        if text.len() as u64 > LOCK_BYTES_MAX {
            return Err(format!("it has more than {LOCK_BYTES_MAX} bytes"));
        }
        let lock: Lock =
            toml::from_str(&text).map_err(|error| Untrusted::new(error.message()).escaped())?;
        if lock.package.is_empty() {
            return Err("it has no [[package]]".to_owned());
        }
        Ok(Self {
            lines: text.bytes().filter(|byte| *byte == b'\n').count() as u64,
            packages: lock.package.len(),
            report: report(&lock.package),
            text,
        })
    }
}

fn report(packages: &[Package]) -> String {
    let mut report = "name,version,source,checksum\n".to_owned();
    for package in packages {
        let fields = [
            &package.name,
            &package.version,
            &package.source,
            &package.checksum,
        ];
        report.push_str(&fields.map(|field| quoted(field)).join(","));
        report.push('\n');
    }
    report
}

/// A field as RFC 4180 writes it, quoted only where it must be.
fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_s_own_lock_file_makes_a_report() {
        let lock = LockFile::load(None).unwrap();
        assert_eq!(lock.report.lines().count(), lock.packages + 1);
        assert!(lock.packages > 100 && lock.lines > 1000);
        assert!(lock.report.contains("\nsymbi,0.1.0,,\n"));
    }

    #[test]
    fn a_field_is_quoted_only_where_it_must_be() {
        let text = "[[package]]\nname = \"a,b\"\nversion = \"1 \\\"x\\\"\"\n";
        let lock = LockFile::parse(text.to_owned()).unwrap();
        assert_eq!(
            lock.report,
            "name,version,source,checksum\n\"a,b\",\"1 \"\"x\"\"\",,\n"
        );
    }

    #[test]
    fn what_is_no_lock_file_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "no [[package]]"),
            ("package = 3", "invalid type"),
            ("[[package]]\nname = \"a\"\n", "version"),
        ] {
            let error = LockFile::parse(text.to_owned()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let long = "#".repeat(usize::try_from(LOCK_BYTES_MAX).unwrap() + 1);
        assert!(LockFile::parse(long).unwrap_err().contains("more than"));
    }
}
