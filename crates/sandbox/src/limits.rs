//! Resource limits of one run.

use std::time::Duration;

/// Resource limits of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of the thread that runs the guest.
    pub cpu_time: Duration,
    /// Wall-clock time, for a machine that is too busy to reach the CPU time.
    pub wall_time: Duration,
    /// Linear memory, including the interpreter's 177 MiB.
    pub memory_bytes: u64,
    /// Bytes on stdout and stderr together.
    pub output_bytes: u64,
    /// Bytes of all files of the run together.
    pub files_bytes: u64,
}

impl Limits {
    /// The time within which a run ends on an idle core.
    pub fn shortest(&self) -> Duration {
        self.cpu_time.min(self.wall_time)
    }
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
