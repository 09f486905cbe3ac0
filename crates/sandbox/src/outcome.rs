//! Outcome of one run of untrusted code: data for the caller, never an error of the host.

use std::sync::Arc;
use std::time::Duration;

use crate::session::SessionState;

/// The status of a finished run, with the values of `OutcomeStatus` in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    Ok = 0,
    /// An uncaught exception, `sys.exit` with a non-zero code included.
    Error = 1,
    /// The CPU time limit, or the wall-clock deadline, was reached.
    Timeout = 2,
    /// An uncaught `MemoryError`.
    Memory = 3,
    /// More bytes on stdout and stderr together than allowed.
    OutputLimit = 4,
    /// The guest trapped, or its worker died twice on this code.
    Crash = 5,
}

impl Status {
    pub const ALL: [Self; 6] = [
        Self::Ok,
        Self::Error,
        Self::Timeout,
        Self::Memory,
        Self::OutputLimit,
        Self::Crash,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::OutputLimit => "output_limit",
            Self::Crash => "crash",
        }
    }

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// The uncaught exception of a run, as CPython would describe it. All three are UTF-8, with `\u{fffd}` for invalid
/// bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// "ZeroDivisionError"
    pub type_name: String,
    /// The last line of the traceback: "ZeroDivisionError: division by zero"
    pub line: String,
    pub traceback: String,
}

/// The outcome of one run. `stdout` and `stderr` are raw bytes and include everything written before a limit was hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub status: Status,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exception: Option<Exception>,
    /// The state for the next run of the session, if this run belonged to a session and left a valid state.
    pub session: Option<Arc<SessionState>>,
    pub cpu_time: Duration,
    pub wall_time: Duration,
    /// The size of the guest's linear memory at the end; it never shrinks during a run.
    pub peak_memory_bytes: u64,
    /// Whether the system refused memory that the limits allow: another run of the same request may end differently.
    pub starved: bool,
    /// `repr` of the last statement's value, if requested and if the statement was an expression that is not None.
    pub value: Option<String>,
    /// If requested: path below the start directory of the run, and bytes, of every new or changed file.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Outcome {
    /// The size in bytes, without the state of a session.
    pub fn size(&self) -> usize {
        let exception = self.exception.as_ref().map_or(0, |exception| {
            exception.type_name.len() + exception.line.len() + exception.traceback.len()
        });
        let value = self.value.as_ref().map_or(0, String::len);
        let files = self.files.iter();
        let files: usize = files.map(|(path, bytes)| path.len() + bytes.len()).sum();
        self.stdout.len() + self.stderr.len() + exception + value + files
    }

    /// Adds the state of a repetition of the run's complete statements (`Request::repetition`), and the time that the
    /// caller has waited for it. The CPU time stays that of the run: the session does not pay for the repetition. One
    /// that timed out has stopped at another place, and leaves no state.
    #[must_use]
    pub fn with_state_of(mut self, again: Self) -> Self {
        self.session = again.session.filter(|_| again.status != Status::Timeout);
        self.wall_time += again.wall_time;
        self
    }

    /// Returns the outcome of a run without a result from the guest: its worker died, or was killed at the wall-clock
    /// deadline.
    pub fn without_guest(status: Status, wall_time: Duration) -> Self {
        Self {
            status,
            stdout: Vec::new(),
            stderr: Vec::new(),
            exception: None,
            session: None,
            cpu_time: Duration::ZERO,
            wall_time,
            peak_memory_bytes: 0,
            starved: false,
            value: None,
            files: Vec::new(),
        }
    }
}
