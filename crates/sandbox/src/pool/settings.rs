//! Settings of a pool.

use std::time::Duration;

use crate::run::runner::Reuse;

/// Interval at which a waiting caller checks for an interrupt.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Settings of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Worker processes, at least one.
    pub workers: usize,
    pub reuse: Reuse,
    /// Size of the result cache in bytes. 0 executes every run.
    pub result_cache_bytes: usize,
}
