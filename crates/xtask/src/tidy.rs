//! The whole check: reads the tree and the packages once, then asks every rule.

use std::fmt;

use crate::fault::Fault;
use crate::metadata::{Metadata, MetadataError};
use crate::rules;
use crate::rust::Sources;
use crate::tree::{self, TreeError};

/// What was looked at and what was wrong with it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) files: usize,
    /// Sorted by file and line.
    pub(crate) faults: Vec<Fault>,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(formatter, "{fault}")?;
        }
        let files = self.files;
        match self.faults.len() {
            0 => write!(formatter, "tidy: {files} files, no fault"),
            1 => write!(formatter, "tidy: {files} files, 1 fault"),
            faults => write!(formatter, "tidy: {files} files, {faults} faults"),
        }
    }
}

/// Checks the workspace around the current folder.
///
/// # Errors
/// A tree or packages that cannot be read: then nothing was checked.
pub(crate) fn tidy() -> Result<Report, TidyError> {
    let metadata = Metadata::read().map_err(TidyError::Metadata)?;
    let files = tree::read(&metadata.workspace_root).map_err(TidyError::Tree)?;
    let sources = Sources::read(&files);

    let mut faults = Vec::new();
    faults.extend(rules::edges::check(&metadata));
    faults.extend(rules::packages::check(&metadata, &files));
    faults.extend(rules::roots::check(&metadata, &sources));
    faults.extend(files.iter().flat_map(rules::texts::check));
    faults.extend(files.iter().flat_map(rules::names::check_file));
    faults.extend(sources.iter().flat_map(rules::names::check_source));
    faults.extend(sources.iter().flat_map(rules::code::check));
    faults.extend(sources.iter().flat_map(rules::sizes::check));
    faults.extend(rules::threats::check(&files, &sources));
    faults.extend(rules::bounds::check(&files));
    faults.sort();
    Ok(Report {
        files: files.len(),
        faults,
    })
}

/// Writes the page of the bounds.
///
/// # Errors
/// A tree that cannot be read, a page that cannot be written.
pub(crate) fn write_limits() -> Result<(), TidyError> {
    let metadata = Metadata::read().map_err(TidyError::Metadata)?;
    let files = tree::read(&metadata.workspace_root).map_err(TidyError::Tree)?;
    let place = metadata.workspace_root.join(rules::bounds::PAGE);
    std::fs::write(place, rules::bounds::page(&files)).map_err(TidyError::Write)
}

/// Why nothing was checked.
#[derive(Debug)]
pub(crate) enum TidyError {
    Metadata(MetadataError),
    Tree(TreeError),
    Write(std::io::Error),
}

impl fmt::Display for TidyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata(_) => formatter.write_str("cannot read the packages"),
            Self::Tree(_) => formatter.write_str("cannot read the work tree"),
            Self::Write(_) => formatter.write_str("cannot write the page"),
        }
    }
}

impl std::error::Error for TidyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Metadata(source) => Some(source),
            Self::Tree(source) => Some(source),
            Self::Write(source) => Some(source),
        }
    }
}
