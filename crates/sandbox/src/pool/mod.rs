//! A pool of workers as its owner sees it: runs go in, outcomes come out. What happens between is in `slots.rs`.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Result, SandboxError};
use crate::guest::Prepared;
use crate::outcome::Outcome;
use crate::pool::job::{Callback, kill};

use crate::pool::sharing::Admission;
use crate::pool::slots::{Shared, State, Task, lock, wait};
use crate::pool::source::{HeldGuest, Program, Source};
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
mod settings;
mod sharing;
mod slots;
mod source;
mod statistics;
mod tries;

/// How often a caller that waits for long looks whether it is to give up.
const GLANCE: Duration = Duration::from_millis(50);

/// Worker processes that run untrusted code.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// A fork of the process has neither the threads nor the right to kill the workers.
    owner: u32,
}

impl Pool {
    /// Starts worker processes with `command`, which must end up in [`crate::worker::main`], and waits for them. The file that
    /// its last word names, and those of the guest, are held open: they may be replaced or removed while the pool works.
    ///
    /// # Errors
    /// When a worker cannot be started or cannot run the guest.
    pub fn new(command: Vec<OsString>, prepared: Prepared, settings: Settings) -> Result<Self> {
        let source = Source {
            program: Program::hold(&command)?,
            guest: HeldGuest::hold(prepared)?,
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
        let mut state = shared.lock();
        while state.starting > 0 && state.broken.is_none() {
            state = wait(&shared.started, state);
        }
        let broken = state.broken.clone();
        drop(state);
        broken.map_or(Ok(pool), Err)
    }

    /// Puts a run at the end of its caller's queue. `callback` is called once: on a thread of the pool, or right here when the
    /// outcome is known, the request is refused, or the pool is closed or broken.
    pub fn submit(
        &self,
        request: impl Into<Arc<Request>>,
        callback: impl FnOnce(RunResult) + Send + 'static,
    ) -> Arc<Job> {
        let (job, admitted) = self.admit(request.into(), Box::new(callback));
        if let Some(job) = admitted {
            self.shared
                .dispatch(&mut self.shared.lock(), Task::new(job));
        }
        job
    }

    /// Runs `request` and waits. `interrupted` is asked now and then whether to give up, in which case the run is
    /// cancelled.
    pub fn run(
        &self,
        request: impl Into<Arc<Request>>,
        mut interrupted: impl FnMut() -> bool,
    ) -> RunResult {
        let (sender, receiver) = mpsc::sync_channel(1);
        // A receiver that no longer exists was interrupted.
        let deliver = move |result| drop(sender.send(result));
        let (job, admitted) = self.admit(request.into(), Box::new(deliver));
        if let Some(job) = admitted {
            self.shared.run_here(job);
        }
        loop {
            match receiver.recv_timeout(GLANCE) {
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
    /// The first run that has no outcome; the others are cancelled.
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
        while missing > 0 {
            match receiver.recv_timeout(GLANCE) {
                Ok((index, Ok(outcome))) => {
                    outcomes[index] = Some(outcome);
                    missing -= 1;
                }
                Ok((_, Err(error))) => {
                    cancel_all();
                    return Err(error);
                }
                Err(_) if interrupted() => {
                    cancel_all();
                    return Err(RunError::Cancelled);
                }
                Err(_) => {}
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// The job of a request, a second time if it is to be executed: else it was refused, or waits for another, or is
    /// answered already.
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
                known.finish(Ok(*outcome));
                (job, None)
            }
        }
    }

    /// Whether this process owns the pool. Asked before any lock is taken, which in a fork nobody may be left to give back.
    fn check_owner(&self) -> Result<()> {
        if std::process::id() == self.owner {
            return Ok(());
        }
        Err(SandboxError::new(
            "this process was forked from the one that owns the sandbox pool; make a pool of its own",
        ))
    }

    /// The state, for its owner.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.check_owner().map(|()| self.shared.lock())
    }

    /// Takes a run back: out of the queue, or by killing its worker. `false` when it was over already, or is another process's.
    pub fn cancel(&self, job: &Arc<Job>) -> bool {
        let Ok(mut state) = self.state() else {
            return false;
        };
        if state.queue.take_back(job) {
            self.shared.take_over(&mut state, job);
        }
        drop(state);
        let cancelled = job.finish(Err(RunError::Cancelled));
        self.shared.lock().statistics.cancelled += u64::from(cancelled);
        cancelled
    }

    /// # Errors
    /// In a fork of the process that owns the pool; so it is with all that asks how the pool is.
    pub fn statistics(&self) -> Result<Statistics> {
        let state = self.state()?;
        Ok(Statistics {
            queued: state.queue.len() as u64,
            ..state.statistics.clone()
        })
    }

    /// Whether workers keep a guest from run to run, or why they do not.
    pub fn reusing(&self) -> Result<Reusing> {
        Ok(self.state()?.reusing.clone())
    }

    /// The walls around each worker process.
    pub fn confinement(&self) -> Result<Confinement> {
        Ok(self.state()?.walls.clone())
    }

    /// The process ids of the workers, those that start included.
    pub fn processes(&self) -> Result<Vec<u32>> {
        Ok(self.state()?.processes.iter().copied().flatten().collect())
    }

    /// Ends the pool: queued and running runs end in [`RunError::Closed`], and the workers are killed and reaped.
    pub fn close(&self) {
        let Ok(mut state) = self.state() else { return };
        state.closed = true;
        let waiting = state.drain();
        for process in state.processes.iter().flatten() {
            kill(*process as libc::pid_t);
        }
        drop(state);
        self.shared.let_go();
        self.shared.call_all();
        for job in waiting {
            job.finish(Err(RunError::Closed));
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
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
