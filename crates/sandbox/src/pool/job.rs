//! A submitted run, which gets exactly one result.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::SandboxError;
use crate::outcome::Outcome;
use crate::request::Request;

/// The key of a request, from everything that its outcome depends on.
pub type Key = [u8; 32];

/// The reason why a run has no outcome.
#[derive(Debug, Clone)]
pub enum RunError {
    Cancelled,
    /// The pool was closed before the run ended.
    Closed,
    /// The request is invalid: see [`Request::check`].
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

/// A submitted run.
pub struct Job {
    pub request: Arc<Request>,
    pub submitted: Instant,
    /// The key by which other runs may wait for this run's outcome; `None` if it is not shared.
    pub key: Option<Key>,
    /// Whether it is in the queue, and not cancelled. Changed by the queue alone.
    waiting: AtomicBool,
    state: Mutex<JobState>,
}

struct JobState {
    /// Consumed to deliver the result: exactly once.
    callback: Option<Callback>,
    /// The process that executes the job, while it does.
    process: Option<libc::pid_t>,
    /// Workers that died during the job.
    losses: usize,
    /// CPU time of attempts without an outcome.
    spent: Duration,
    stopped: Option<Stopped>,
}

/// A session's run that ended with its worker.
struct Stopped {
    outcome: Outcome,
    /// The repetition of its complete statements.
    again: Arc<Request>,
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
                stopped: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the previous value. The caller holds the lock of the pool.
    pub fn set_waiting(&self, waiting: bool) -> bool {
        self.waiting.swap(waiting, Ordering::Relaxed)
    }

    /// Delivers the result, unless one was delivered; kills the process that still executes the job.
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

    /// Records the process that executes the job; returns `false` if the job already has a result.
    pub fn assign(&self, process: Option<u32>) -> bool {
        let mut state = self.lock();
        state.process = process.map(|process| process as libc::pid_t);
        state.callback.is_some()
    }

    /// Returns the request for the next attempt: once the run was stopped, its complete statements.
    pub fn next_request(&self) -> Arc<Request> {
        let state = self.lock();
        let again = state.stopped.as_ref().map(|stopped| &stopped.again);
        Arc::clone(again.unwrap_or(&self.request))
    }

    /// Keeps the outcome of a run that ended with its worker, if its complete statements have to be repeated for the
    /// state of its session. Returns it otherwise.
    pub fn stop(&self, outcome: Outcome, progress: u32) -> Option<Outcome> {
        let mut state = self.lock();
        let again = match state.stopped {
            // A repetition is not repeated.
            Some(_) => None,
            None => self.request.repetition(progress, &outcome),
        };
        let Some(again) = again.map(Arc::new) else {
            return Some(outcome);
        };
        state.stopped = Some(Stopped { outcome, again });
        None
    }

    /// Whether the run was stopped, so that its outcome is known but for the state.
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped.is_some()
    }

    /// Returns the outcome of the run, given that of its last attempt.
    pub fn complete(&self, last: Outcome) -> Outcome {
        match self.lock().stopped.take() {
            Some(stopped) => stopped.outcome.with_state_of(last),
            None => last,
        }
    }

    /// Counts a worker that died during the job; returns the total.
    pub fn count_worker_death(&self) -> usize {
        let mut state = self.lock();
        state.losses += 1;
        state.losses
    }

    /// Counts the CPU time of an attempt without an outcome; returns the total of such attempts.
    pub fn spend(&self, time: Duration) -> Duration {
        let mut state = self.lock();
        state.spent += time;
        state.spent
    }

    /// Whether it still waits for a result.
    pub fn is_wanted(&self) -> bool {
        self.lock().callback.is_some()
    }
}

pub fn kill(process: libc::pid_t) {
    // SAFETY: callers hold the lock under which a process is cleared before it is reaped.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::outcome::Status;
    use crate::session::SessionState;

    fn job(session: Option<Arc<SessionState>>) -> Job {
        let request = Request {
            code: b"x = 1\nstuck()".to_vec(),
            value: true,
            session,
            ..Request::default()
        };
        Job::new(request, None, Box::new(drop))
    }

    fn timeout() -> Outcome {
        Outcome {
            stdout: b"1\n".to_vec(),
            cpu_time: Duration::from_secs(3),
            ..Outcome::without_guest(Status::Timeout, Duration::from_secs(4))
        }
    }

    #[test]
    fn a_stopped_run_gets_the_state_of_its_complete_statements() {
        let state = Arc::new(SessionState::default());
        for (status, kept) in [
            (Status::Ok, Some(Arc::clone(&state))),
            (Status::Timeout, None),
        ] {
            let job = job(Some(Arc::default()));
            assert_eq!(job.next_request(), job.request);
            assert_eq!(job.stop(timeout(), 5), None);
            let again = job.next_request();
            assert_eq!((&again.code[..], again.value), (&b"x = 1"[..], false));
            let limits = Limits::default();
            assert_eq!(again.limits.cpu_time, 2 * limits.cpu_time);
            assert_eq!(
                again.limits.wall_time + timeout().wall_time,
                limits.wall_time
            );
            // The repetition is not repeated.
            assert_eq!(job.stop(timeout(), 5), Some(timeout()));
            let last = Outcome {
                cpu_time: Duration::from_secs(1),
                session: Some(Arc::clone(&state)),
                ..Outcome::without_guest(status, Duration::from_secs(2))
            };
            let expected = Outcome {
                cpu_time: Duration::from_secs(3),
                wall_time: Duration::from_secs(6),
                session: kept,
                ..timeout()
            };
            assert_eq!(job.complete(last), expected);
        }
    }

    #[test]
    fn a_run_without_a_session_or_a_complete_statement_is_not_repeated() {
        assert_eq!(job(None).stop(timeout(), 5), Some(timeout()));
        let job = job(Some(Arc::default()));
        assert_eq!(job.stop(timeout(), 0), Some(timeout()));
        assert_eq!(job.complete(timeout()), timeout());
    }
}
