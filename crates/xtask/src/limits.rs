//! Every bound that `tidy` enforces.

/// Code lines of one function's body, counted as clippy counts them.
pub(crate) const FUNCTION_LINES_MAX: usize = 70;

/// Lines of one Rust file outside its tests.
pub(crate) const FILE_LINES_MAX: usize = 900;

/// Characters of one line of Rust.
pub(crate) const LINE_COLUMNS_MAX: usize = 100;
