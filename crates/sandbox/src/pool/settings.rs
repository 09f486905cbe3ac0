//! Settings of a pool.

use crate::run::runner::Reuse;

/// Settings of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Worker processes, at least one.
    pub workers: usize,
    pub reuse: Reuse,
    /// Size of the result cache in bytes. 0 executes every run.
    pub result_cache_bytes: usize,
}
