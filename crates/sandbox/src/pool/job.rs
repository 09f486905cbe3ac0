//! A run that was submitted, and how it is answered: once, whatever happens.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::SandboxError;
use crate::outcome::Outcome;
use crate::request::Request;

/// Names a request by all that its outcome depends on.
pub type Key = [u8; 32];

/// Why a run has no outcome.
#[derive(Debug, Clone)]
pub enum RunError {
    Cancelled,
    /// The pool was closed before the run was over.
    Closed,
    /// The request cannot be run: see [`Request::check`].
    Refused(String),
    Host(SandboxError),
}

impl fmt::Display for RunError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => formatter.write_str("the run was cancelled"),
            Self::Closed => formatter.write_str("the sandbox pool is closed"),
            Self::Refused(reason) => formatter.write_str(reason),
            Self::Host(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for RunError {}

pub type RunResult = std::result::Result<Outcome, RunError>;
pub type Callback = Box<dyn FnOnce(RunResult) + Send>;

/// A run that was submitted.
pub struct Job {
    pub request: Arc<Request>,
    pub submitted: Instant,
    /// Under which others may wait for this run's outcome; `None` if it is for itself alone.
    pub key: Option<Key>,
    /// Whether it is in the queue, and not taken back. Changed by the queue alone.
    waiting: AtomicBool,
    state: Mutex<JobState>,
}

struct JobState {
    /// Taken by whoever delivers the result: exactly once.
    callback: Option<Callback>,
    /// The process that runs the job, while it does.
    process: Option<libc::pid_t>,
    /// Workers that died on it.
    losses: usize,
    /// CPU time of attempts that had no end of their own.
    spent: Duration,
}

impl Job {
    pub fn new(request: impl Into<Arc<Request>>, key: Option<Key>, callback: Callback) -> Self {
        Self {
            request: request.into(),
            submitted: Instant::now(),
            key,
            waiting: AtomicBool::new(false),
            state: Mutex::new(JobState {
                callback: Some(callback),
                process: None,
                losses: 0,
                spent: Duration::ZERO,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns what it was. The lock of the pool is held.
    pub fn set_waiting(&self, waiting: bool) -> bool {
        self.waiting.swap(waiting, Ordering::Relaxed)
    }

    /// Delivers the result, if nobody did before; kills the process that still works on it.
    pub fn finish(&self, result: RunResult) -> bool {
        let mut state = self.lock();
        let Some(callback) = state.callback.take() else {
            return false;
        };
        if let Some(process) = state.process.take() {
            kill(process);
        }
        drop(state);
        callback(result);
        true
    }

    /// Notes the process that runs the job; `false` when nobody waits for it any more.
    pub fn assign(&self, process: Option<u32>) -> bool {
        let mut state = self.lock();
        state.process = process.map(|process| process as libc::pid_t);
        state.callback.is_some()
    }

    /// Counts a worker that died on it; says how many have.
    pub fn lose(&self) -> usize {
        let mut state = self.lock();
        state.losses += 1;
        state.losses
    }

    /// Counts the CPU time of an attempt that had no end of its own; says how much all such took.
    pub fn spend(&self, time: Duration) -> Duration {
        let mut state = self.lock();
        state.spent += time;
        state.spent
    }

    /// Whether somebody waits for it.
    pub fn is_wanted(&self) -> bool {
        self.lock().callback.is_some()
    }
}

pub fn kill(process: libc::pid_t) {
    // SAFETY: the callers hold the lock under which a process is forgotten before it is reaped.
    unsafe { libc::kill(process, libc::SIGKILL) };
}
