//! The broker as its callers meet it: real folders, real journals, real kills.

mod fixture;
mod grants;
mod kills;
mod memory;
mod mounts;
mod outputs;
mod pool;
mod publication;
mod races;
mod recovery;
