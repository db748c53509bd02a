//! Loading and deciding, end to end.

mod api {
    pub(crate) use crate::{LaunchShape, PolicySource, PolicyType, Request, ToolKind, ToolShape};
}
mod decisions;
mod documented;
mod fixture;
mod loading;
