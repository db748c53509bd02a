//! Every crate forbids `unsafe` at its root; one with a `sys.rs` denies it, and only that file
//! may expect it.

use crate::fault::Fault;
use crate::metadata::Metadata;
use crate::rust::{Sources, crate_folder};

/// Checks the roots of the libraries and programs of the workspace.
pub(crate) fn check(metadata: &Metadata, sources: &Sources) -> Vec<Fault> {
    let kinds = ["lib", "bin", "proc-macro"];
    let targets = metadata.members().flat_map(|package| &package.targets);
    let roots = targets
        .filter(|target| {
            target
                .kind
                .iter()
                .any(|kind| kinds.contains(&kind.as_str()))
        })
        .map(|target| metadata.below_root(&target.src_path));
    roots
        .filter_map(|path| check_root(&path, sources))
        .collect()
}

fn check_root(path: &str, sources: &Sources) -> Option<Fault> {
    let source = sources.find(path)?;
    let folder = crate_folder(path);
    let has_sys = sources
        .iter()
        .any(|other| other.crate_folder() == folder && other.path.ends_with("/sys.rs"));
    let has = |attribute: &str| {
        source
            .lines
            .iter()
            .any(|line| line.code.trim() == attribute)
    };
    let is_good = has("#![forbid(unsafe_code)]") || (has_sys && has("#![deny(unsafe_code)]"));
    let remedy = if has_sys {
        "add `#![deny(unsafe_code)]`, and expect it where `sys` is declared"
    } else {
        "add `#![forbid(unsafe_code)]`"
    };
    let what = "a crate root that does not forbid `unsafe`";
    (!is_good).then(|| Fault::new(path, 1, what, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::sources;

    #[test]
    fn a_root_forbids_unsafe_or_denies_it_beside_a_sys_file() {
        let forbid = "#![forbid(unsafe_code)]\n";
        let deny = "#![deny(unsafe_code)]\n";
        let of = |text, sys: &str| {
            let files = sources(&[("crates/a/src/lib.rs", text), (sys, "")]);
            check_root("crates/a/src/lib.rs", &files).is_some()
        };
        assert!(!of(forbid, "crates/b/src/sys.rs"));
        assert!(!of(deny, "crates/a/src/sys.rs"));
        assert!(of(deny, "crates/b/src/sys.rs"));
        assert!(of("// #![forbid(unsafe_code)]\n", "crates/a/src/sys.rs"));
    }
}
