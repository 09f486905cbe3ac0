//! How a pool works.

use crate::run::runner::Reuse;

/// How a pool works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Worker processes, at least one.
    pub workers: usize,
    pub reuse: Reuse,
    /// Bytes of outcomes that are remembered for equal requests; 0: every run is executed.
    pub shared_bytes: usize,
}
