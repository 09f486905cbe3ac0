//! What one run may use.

use std::time::Duration;

/// What one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of the thread that runs the guest.
    pub cpu_time: Duration,
    /// Time on the wall, for a machine so busy that the CPU time is not reached.
    pub wall_time: Duration,
    /// Linear memory, the interpreter's own 176 MiB included.
    pub memory_bytes: u64,
    /// Bytes on stdout and stderr together.
    pub output_bytes: u64,
    /// Bytes of all files of the run's own together.
    pub files_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_time: Duration::from_secs(10),
            wall_time: Duration::from_secs(60),
            memory_bytes: 512 << 20,
            output_bytes: 1 << 20,
            files_bytes: 64 << 20,
        }
    }
}
