//! Workers, the queue before them, deadlines, replacement.
//!
//! Each worker process has a thread of the pool that owns it: the thread takes a job, sends it, waits for the outcome
//! until the deadline, and replaces the worker when it is gone or late. No lock is held while code runs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::child::{Child, Received};
use crate::engine::Request;
use crate::error::{Result, SandboxError};
use crate::guest::Prepared;
use crate::outcome::{Outcome, Status};
use crate::protocol::{Order, Reply};

/// How much longer than a run's wall-clock limit its worker may take before it is killed. The worker ends the run
/// itself at the limit, with what was printed; this is for a worker that cannot.
const GRACE: Duration = Duration::from_secs(1);

/// Runs that lost their worker are tried this often in all.
const ATTEMPTS: usize = 2;

/// Why a run has no outcome.
#[derive(Debug, Clone)]
pub enum RunError {
    Cancelled,
    /// The pool was closed before the run was over.
    Closed,
    Host(SandboxError),
}

impl fmt::Display for RunError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => formatter.write_str("the run was cancelled"),
            Self::Closed => formatter.write_str("the sandbox pool is closed"),
            Self::Host(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for RunError {}

pub type RunResult = std::result::Result<Outcome, RunError>;
type Callback = Box<dyn FnOnce(RunResult) + Send>;

/// What a pool has done so far, and what it is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// By `Status as usize`.
    pub outcomes: [u64; Status::ALL.len()],
    pub cancelled: u64,
    pub retried: u64,
    pub workers_replaced: u64,
    pub queued: u64,
    pub running: u64,
}

/// A run that was submitted.
pub struct Job {
    request: Request,
    state: Mutex<JobState>,
}

struct JobState {
    /// Taken by whoever delivers the result: exactly once.
    callback: Option<Callback>,
    /// The process that runs the job, while it does.
    process: Option<libc::pid_t>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Job>>,
    closed: bool,
    broken: Option<SandboxError>,
    statistics: Statistics,
    /// One slot for each worker; `None` while it is being replaced.
    processes: Vec<Option<u32>>,
    starting: usize,
}

struct Shared {
    command: Vec<OsString>,
    prepared: Prepared,
    state: Mutex<State>,
    changed: Condvar,
}

/// Worker processes that run untrusted code.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// A fork of the process has neither the threads nor the right to kill the workers.
    owner: u32,
}

impl Pool {
    /// Starts `workers` processes with `command`, which must end up in [`crate::worker::main`], and waits for them.
    ///
    /// # Errors
    /// When a worker cannot be started or cannot run the guest.
    pub fn new(command: Vec<OsString>, prepared: Prepared, workers: usize) -> Result<Self> {
        let workers = workers.max(1);
        let shared = Arc::new(Shared {
            command,
            prepared,
            state: Mutex::new(State {
                processes: vec![None; workers],
                starting: workers,
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        let pool = Self {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
            owner: std::process::id(),
        };
        for slot in 0..workers {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name(format!("torl-pool-{slot}"))
                .spawn(move || shared.serve(slot))
                .map_err(|error| {
                    SandboxError::new(format!("cannot start a thread of the pool: {error}"))
                })?;
            lock(&pool.threads).push(thread);
        }
        let mut state = shared.lock();
        while state.starting > 0 && state.broken.is_none() {
            state = shared.wait(state);
        }
        let broken = state.broken.clone();
        drop(state);
        broken.map_or(Ok(pool), Err)
    }

    /// Puts a run at the end of the queue. `callback` is called once, on a thread of the pool, or right here when the
    /// pool is closed or broken.
    pub fn submit(
        &self,
        request: Request,
        callback: impl FnOnce(RunResult) + Send + 'static,
    ) -> Arc<Job> {
        let job = Arc::new(Job {
            request,
            state: Mutex::new(JobState {
                callback: Some(Box::new(callback)),
                process: None,
            }),
        });
        if std::process::id() != self.owner {
            let reason = "this process was forked from the one that owns the sandbox pool; make a pool of its own";
            job.finish(Err(RunError::Host(SandboxError::new(reason))));
            return job;
        }
        let mut state = self.shared.lock();
        let refusal = match &state.broken {
            Some(error) => Some(RunError::Host(error.clone())),
            None if state.closed => Some(RunError::Closed),
            None => None,
        };
        match refusal {
            Some(error) => {
                drop(state);
                job.finish(Err(error));
            }
            None => {
                state.queue.push_back(Arc::clone(&job));
                drop(state);
                self.shared.changed.notify_one();
            }
        }
        job
    }

    /// Takes a run back: out of the queue, or by killing its worker. `false` when it was over already.
    pub fn cancel(&self, job: &Arc<Job>) -> bool {
        let mut state = self.shared.lock();
        state.queue.retain(|queued| !Arc::ptr_eq(queued, job));
        drop(state);
        let cancelled = job.finish(Err(RunError::Cancelled));
        self.shared.lock().statistics.cancelled += u64::from(cancelled);
        cancelled
    }

    pub fn statistics(&self) -> Statistics {
        let state = self.shared.lock();
        Statistics {
            queued: state.queue.len() as u64,
            ..state.statistics.clone()
        }
    }

    /// The process ids of the workers that are alive now.
    pub fn processes(&self) -> Vec<u32> {
        self.shared
            .lock()
            .processes
            .iter()
            .copied()
            .flatten()
            .collect()
    }

    /// Ends the pool: queued and running runs end in [`RunError::Closed`], and the workers are killed and reaped.
    pub fn close(&self) {
        if std::process::id() != self.owner {
            return;
        }
        let mut state = self.shared.lock();
        state.closed = true;
        let queue = std::mem::take(&mut state.queue);
        for process in state.processes.iter().flatten() {
            kill(*process as libc::pid_t);
        }
        drop(state);
        self.shared.changed.notify_all();
        for job in queue {
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

impl Job {
    /// Delivers the result, if nobody did before; kills the process that still works on it.
    fn finish(&self, result: RunResult) -> bool {
        let mut state = lock(&self.state);
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
    fn assign(&self, process: Option<u32>) -> bool {
        let mut state = lock(&self.state);
        state.process = process.map(|process| process as libc::pid_t);
        state.callback.is_some()
    }
}

/// What one attempt at a run came to.
enum Attempt {
    Outcome(Outcome),
    /// The worker was killed at the deadline.
    Late,
    Lost,
    Broken(SandboxError),
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of one worker's thread.
    fn serve(&self, slot: usize) {
        let started = Child::serving(&self.command, &self.prepared);
        let mut worker = match started {
            Ok(worker) => worker,
            Err(error) => return self.break_down(error),
        };
        {
            let mut state = self.lock();
            state.processes[slot] = Some(worker.id());
            state.starting -= 1;
        }
        self.changed.notify_all();
        while let Some(job) = self.next_job() {
            let result = self.run(slot, &mut worker, &job);
            let broken = match &result {
                Err(RunError::Host(error)) => Some(error.clone()),
                _ => None,
            };
            {
                let mut state = self.lock();
                state.statistics.running -= 1;
                if let Ok(outcome) = &result {
                    state.statistics.outcomes[outcome.status as usize] += 1;
                }
            }
            job.finish(result);
            if let Some(error) = broken {
                self.lock().processes[slot] = None;
                return self.break_down(error);
            }
        }
        // `close` must not signal a process that is reaped already.
        self.lock().processes[slot] = None;
    }

    fn next_job(&self) -> Option<Arc<Job>> {
        let mut state = self.lock();
        loop {
            if state.closed || state.broken.is_some() {
                return None;
            }
            if let Some(job) = state.queue.pop_front() {
                state.statistics.running += 1;
                return Some(job);
            }
            state = self.wait(state);
        }
    }

    /// Ends the pool with an error: for every run that waits, and every one to come.
    fn break_down(&self, error: SandboxError) {
        let mut state = self.lock();
        let error = state.broken.get_or_insert(error).clone();
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        self.changed.notify_all();
        for job in queue {
            job.finish(Err(RunError::Host(error.clone())));
        }
    }

    fn run(&self, slot: usize, worker: &mut Child, job: &Job) -> RunResult {
        let started = Instant::now();
        // A worker that died idle is no fault of this run.
        if !worker.alive() {
            self.replace(slot, worker)?;
        }
        for attempt in 1..=ATTEMPTS {
            if !job.assign(Some(worker.id())) {
                job.assign(None);
                return Err(RunError::Cancelled);
            }
            let result = attempt_run(worker, &job.request);
            // From here on a cancellation must not signal a process that is being reaped.
            let wanted = job.assign(None);
            match result {
                Attempt::Outcome(outcome) => return Ok(outcome),
                Attempt::Broken(error) => return Err(RunError::Host(error)),
                Attempt::Late => {
                    self.replace(slot, worker)?;
                    return Ok(Outcome::without_guest(Status::Timeout, started.elapsed()));
                }
                Attempt::Lost => {
                    self.replace(slot, worker)?;
                    if !wanted {
                        return Err(RunError::Cancelled);
                    }
                    if attempt < ATTEMPTS {
                        self.lock().statistics.retried += 1;
                    }
                }
            }
        }
        Ok(Outcome::without_guest(Status::Crash, started.elapsed()))
    }

    /// Puts a new worker, which has proved that it runs code, in the place of one that is gone.
    fn replace(&self, slot: usize, worker: &mut Child) -> std::result::Result<(), RunError> {
        {
            let mut state = self.lock();
            state.processes[slot] = None;
            if state.closed {
                return Err(RunError::Closed);
            }
            state.statistics.workers_replaced += 1;
        }
        *worker = Child::serving(&self.command, &self.prepared).map_err(RunError::Host)?;
        let mut state = self.lock();
        if state.closed {
            return Err(RunError::Closed);
        }
        state.processes[slot] = Some(worker.id());
        Ok(())
    }
}

fn attempt_run(worker: &mut Child, request: &Request) -> Attempt {
    let deadline = Instant::now() + request.limits.wall_time + GRACE;
    worker.send(&Order::Run(request.clone()), deadline);
    match worker.receive(Some(deadline)) {
        Received::Reply(Reply::Done(outcome)) => Attempt::Outcome(outcome),
        Received::Reply(Reply::Failed(message)) => Attempt::Broken(SandboxError::new(message)),
        Received::TimedOut => Attempt::Late,
        Received::Reply(_) | Received::Gone => Attempt::Lost,
    }
}

fn kill(process: libc::pid_t) {
    // SAFETY: the callers hold the lock under which a process is forgotten before it is reaped.
    unsafe { libc::kill(process, libc::SIGKILL) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
