//! The rules, each a pure function from what was read to what is wrong with it.

pub(crate) mod bounds;
pub(crate) mod code;
pub(crate) mod edges;
pub(crate) mod names;
pub(crate) mod packages;
pub(crate) mod roots;
pub(crate) mod sizes;
pub(crate) mod texts;
pub(crate) mod threats;
