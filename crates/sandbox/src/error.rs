//! Failures of the host. Failures inside a run are an [`crate::Outcome`], never this.

use std::fmt;
use std::path::Path;

/// A host failure: no guest, a damaged cache that cannot be rebuilt, workers that do not start, a dead pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxError {
    message: String,
    fatal: bool,
}

pub type Result<T> = std::result::Result<T, SandboxError>;

impl SandboxError {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            fatal: false,
        }
    }

    /// Returns the error of a failed check of the isolation between runs: no other worker can be trusted to run code.
    pub(crate) fn fatal(self) -> Self {
        Self {
            fatal: true,
            ..self
        }
    }

    /// Whether no worker can run code any more. Any other failure of a worker is that of one process, at one time.
    pub(crate) fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// Returns the error of a failed file operation: the operation, the file, and the system's reason.
    pub fn file(action: &str, path: &Path, error: &dyn fmt::Display) -> Self {
        Self::new(format!("cannot {action} {}: {error}", path.display()))
    }
}

impl SandboxError {
    /// Returns the error of a thread that the system cannot start.
    pub fn thread(name: &str, error: &std::io::Error) -> Self {
        Self::new(format!(
            "cannot start the thread {name}: {error}; raise the limit on processes and threads (ulimit -u), or on the \
             address space (ulimit -v)"
        ))
    }
}

impl fmt::Display for SandboxError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for SandboxError {}
