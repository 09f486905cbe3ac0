//! A pool of workers: runs in, outcomes out. The scheduling is in `slots.rs`.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::error::{Result, SandboxError};
use crate::guest::Prepared;
use crate::outcome::Outcome;
use crate::pool::job::{Callback, kill};

use crate::pool::settings::POLL_INTERVAL;
use crate::pool::sharing::Admission;
use crate::pool::slots::{Shared, State, lock, wait_for};
use crate::pool::source::{PinnedGuest, Program, Source};
use crate::request::Request;
use crate::run::runner::Reusing;
use crate::worker::confine::Confinement;

pub use self::child::prepare;
pub use self::job::{Job, RunError, RunResult};
pub use self::settings::Settings;
pub use self::statistics::{Latency, Statistics};

mod child;
mod job;
mod queue;
mod retry;
mod settings;
mod sharing;
mod slots;
mod source;
mod statistics;
#[cfg(test)]
mod tests;

/// Worker processes that run untrusted code.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process id of the owner. A fork has neither the threads nor the right to kill the workers.
    owner: u32,
}

impl Pool {
    /// Starts worker processes with `command`, which must call [`crate::worker::main`], and waits for them. The file
    /// named by its last argument, and the files of the guest, are kept open: they may be replaced or removed while the
    /// pool is in use. `interrupted` is polled; `true` ends the attempt.
    ///
    /// # Errors
    /// A worker cannot be started or cannot run the guest, or the attempt was interrupted.
    pub fn new(
        command: Vec<OsString>,
        prepared: Prepared,
        settings: Settings,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<Self> {
        let source = Source {
            program: Program::hold(&command)?,
            guest: PinnedGuest::open(prepared)?,
        };
        let shared = Arc::new(Shared::new(source, settings));
        let pool = Self {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
            owner: std::process::id(),
        };
        for slot in 0..shared.slots.len() {
            let shared = Arc::clone(&shared);
            let name = format!("torl-pool-{slot}");
            let thread = std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || shared.serve(slot))
                .map_err(|error| SandboxError::thread(&name, &error))?;
            lock(&pool.threads).push(thread);
        }
        loop {
            let state = shared.lock();
            if let Some(error) = &state.failure {
                return Err(error.clone());
            }
            if state.starting == 0 {
                break;
            }
            drop(wait_for(&shared.started, state, POLL_INTERVAL));
            if interrupted() {
                return Err(SandboxError::new("the start of the pool was interrupted"));
            }
        }
        Ok(pool)
    }

    /// Queues a run of its caller. `callback` is called once: on a thread of the pool, or immediately if the outcome is
    /// known, the request is invalid, or the pool is closed or failed.
    pub fn submit(
        &self,
        request: impl Into<Arc<Request>>,
        callback: impl FnOnce(RunResult) + Send + 'static,
    ) -> Arc<Job> {
        let (job, admitted) = self.admit(request.into(), Box::new(callback));
        if let Some(job) = admitted {
            self.shared.enqueue(job);
        }
        job
    }

    /// Runs `request` and waits. `interrupted` is polled; `true` cancels the run.
    pub fn run(
        &self,
        request: impl Into<Arc<Request>>,
        mut interrupted: impl FnMut() -> bool,
    ) -> RunResult {
        let (sender, receiver) = mpsc::sync_channel(1);
        // The receiver no longer exists if it was interrupted.
        let deliver = move |result| drop(sender.send(result));
        let (job, admitted) = self.admit(request.into(), Box::new(deliver));
        if let Some(job) = admitted {
            self.shared.run_here(job);
        }
        loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(result) => return result,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if interrupted() {
                        self.cancel(&job);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(RunError::Closed),
            }
        }
    }

    /// Runs all of `requests` and waits; the outcomes are in their order.
    ///
    /// # Errors
    /// The first run without an outcome; the others are cancelled.
    pub fn run_batch(
        &self,
        requests: Vec<Arc<Request>>,
        mut interrupted: impl FnMut() -> bool,
    ) -> std::result::Result<Vec<Outcome>, RunError> {
        let (sender, receiver) = mpsc::channel();
        let mut outcomes: Vec<Option<Outcome>> = requests.iter().map(|_| None).collect();
        let jobs: Vec<_> = requests
            .into_iter()
            .enumerate()
            .map(|(index, request)| {
                let sender = sender.clone();
                self.submit(request, move |result| drop(sender.send((index, result))))
            })
            .collect();
        let cancel_all = || {
            for job in &jobs {
                self.cancel(job);
            }
        };
        let mut missing = jobs.len();
        // By the time that has passed: while results arrive, no wait for one of them is that long.
        let mut polled = Instant::now();
        while missing > 0 {
            match receiver.recv_timeout(POLL_INTERVAL.saturating_sub(polled.elapsed())) {
                Ok((index, Ok(outcome))) => {
                    outcomes[index] = Some(outcome);
                    missing -= 1;
                }
                Ok((_, Err(error))) => {
                    cancel_all();
                    return Err(error);
                }
                Err(_) => {}
            }
            if polled.elapsed() >= POLL_INTERVAL {
                if interrupted() {
                    cancel_all();
                    return Err(RunError::Cancelled);
                }
                polled = Instant::now();
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// Returns the job of a request, and a second time if it has to be executed. Otherwise it was rejected, waits for
    /// another run, or is already answered.
    fn admit(&self, request: Arc<Request>, callback: Callback) -> (Arc<Job>, Option<Arc<Job>>) {
        if let Err(error) = self.check_owner() {
            let job = Arc::new(Job::new(request, None, callback));
            job.finish(Err(RunError::Host(error)));
            return (job, None);
        }
        if let Err(reason) = request.check() {
            let job = Arc::new(Job::new(request, None, callback));
            job.finish(Err(RunError::Refused(reason)));
            return (job, None);
        }
        let key = self.shared.sharing_key(&request);
        let job = Arc::new(Job::new(request, key, callback));
        let mut state = self.shared.lock();
        if let Some(error) = state.refusal() {
            drop(state);
            job.finish(Err(error));
            return (job, None);
        }
        match state.sharing.admit(Arc::clone(&job)) {
            Admission::Execute(admitted) => (job, Some(admitted)),
            Admission::Joined => (job, None),
            Admission::Known(known, outcome) => {
                state.statistics.shared += 1;
                state.statistics.latency.record(known.submitted.elapsed());
                drop(state);
                known.finish(Ok(Arc::unwrap_or_clone(outcome)));
                (job, None)
            }
        }
    }

    /// Checks that this process owns the pool. Called before any lock is taken: in a fork, its holder may not exist.
    fn check_owner(&self) -> Result<()> {
        if std::process::id() == self.owner {
            return Ok(());
        }
        Err(SandboxError::new(
            "this process was forked from the one that owns the sandbox pool; create a new pool in this process",
        ))
    }

    /// Returns the state, if this process is the owner.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.check_owner().map(|()| self.shared.lock())
    }

    /// Cancels a run: removes it from the queue, or kills its worker. Returns `false` if it has already ended, or
    /// belongs to another process.
    pub fn cancel(&self, job: &Arc<Job>) -> bool {
        let Ok(mut state) = self.state() else {
            return false;
        };
        if state.queue.cancel(job) {
            self.shared.take_over(&mut state, job);
        }
        drop(state);
        let cancelled = job.finish(Err(RunError::Cancelled));
        self.shared.lock().statistics.cancelled += u64::from(cancelled);
        cancelled
    }

    /// # Errors
    /// The process is a fork of the pool's owner. The same applies to all other status queries.
    pub fn statistics(&self) -> Result<Statistics> {
        let state = self.state()?;
        Ok(Statistics {
            queued: state.queue.len() as u64,
            ..state.statistics.clone()
        })
    }

    /// Returns whether workers reuse a guest, or the reason why they do not.
    pub fn reusing(&self) -> Result<Reusing> {
        Ok(self.state()?.reusing.clone())
    }

    /// Returns the confinement of each worker process.
    pub fn confinement(&self) -> Result<Confinement> {
        Ok(self.state()?.confinement.clone())
    }

    /// Returns the process ids of the workers, including starting ones.
    pub fn processes(&self) -> Result<Vec<u32>> {
        Ok(self.state()?.processes.iter().copied().flatten().collect())
    }

    /// Closes the pool: queued and active runs end with [`RunError::Closed`], and the workers are killed and reaped.
    pub fn close(&self) {
        let Ok(mut state) = self.state() else { return };
        state.closed = true;
        let waiting = state.drain();
        for process in state.processes.iter().flatten() {
            kill(*process as libc::pid_t);
        }
        drop(state);
        self.shared.release_files();
        self.shared.call_all();
        for job in waiting {
            job.finish(Err(RunError::Closed));
        }
        // Not locked while they are joined: one of them may run a callback that closes the pool, too.
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A callback may close the pool from the pool's own thread.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}
