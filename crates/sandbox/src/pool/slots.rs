//! The workers' slots and their threads.
//!
//! Each worker process has a slot with a thread of the pool. The thread of a free slot receives a job, sends it, waits
//! for the outcome until the deadline, and replaces a worker that exited or timed out. A failed start is retried, and
//! jobs of that slot go to other slots. A caller that blocks anyway uses a free slot directly, which saves two thread
//! switches. If a run takes longer than a moment, or fails, the caller leaves it to the slot's thread. No lock of the
//! pool is held while code runs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::SandboxError;
use crate::outcome::{Outcome, Status};
use crate::pool::child::{Child, Received, StartFailure, StartFailureKind};
use crate::pool::job::{Job, Key, RunError, RunResult};
use crate::pool::queue::Queue;
use crate::pool::retry::{Failures, backoff};
use crate::pool::settings::Settings;
use crate::pool::sharing::{Admission, Sharing, is_shareable, key};
use crate::pool::source::Source;
use crate::pool::statistics::Statistics;
use crate::request::Request;
use crate::run::runner::{Reuse, Reusing};
use crate::worker::confine::Confinement;
use crate::worker::protocol::{Command, Reply};

/// Grace period of a worker after a run's wall-clock limit, before it is killed. The worker ends the run itself at the
/// limit, and returns the output; this is for a worker that cannot.
const GRACE: Duration = Duration::from_secs(1);

/// A late worker that has used less than this part of its run's time has not run: it was stopped, or got no core.
const STOPPED: u32 = 10;

/// Maximum number of attempts at a run whose worker dies or is stopped.
const ATTEMPTS: usize = 2;

/// Maximum time that a caller waits for a worker directly, before it leaves that to the slot's thread and can be
/// interrupted.
const DIRECT_WAIT: Duration = Duration::from_millis(20);

/// Larger requests are sent by the slot's thread: an unresponsive worker would block a caller that cannot be
/// interrupted. A socket buffers this much from any sender.
const SENT_HERE: usize = 64 << 10;

/// Larger requests are not shared: hashing them costs more than sending them, and they are rarely equal.
const SHARED_SIZE: usize = 1 << 20;

pub struct State {
    pub queue: Queue,
    /// Slots with an idle worker; the most recently used one is at the end.
    free: Vec<usize>,
    /// The next task of each slot's thread.
    tasks: Vec<Option<Task>>,
    pub sharing: Sharing,
    pub closed: bool,
    pub failure: Option<SandboxError>,
    pub statistics: Statistics,
    /// The process of each slot, also while it starts; `None` between two processes.
    pub processes: Vec<Option<u32>>,
    /// Slots that have not had a worker.
    pub starting: usize,
    /// Whether each slot has had a worker.
    begun: Vec<bool>,
    /// Slots with a started worker.
    serving: usize,
    failures: Failures,
    pub reusing: Reusing,
    /// The confinement of each worker: it is the same for all.
    pub confinement: Confinement,
}

/// A job for a slot's thread, and the state of its first attempt.
pub struct Task {
    job: Arc<Job>,
    begun: Option<Attempt>,
}

impl Task {
    pub fn new(job: Arc<Job>) -> Self {
        Self { job, begun: None }
    }
}

pub struct Slot {
    /// Locked for as long as the worker is in use.
    worker: Mutex<Option<Child>>,
    /// Signals a task for the thread, or the end of the pool.
    called: Condvar,
}

pub struct Shared {
    /// `None` when the pool is closed.
    source: Mutex<Option<Arc<Source>>>,
    reuse: Reuse,
    result_cache_bytes: usize,
    state: Mutex<State>,
    pub started: Condvar,
    pub slots: Vec<Slot>,
}

/// The result of one attempt at a run.
enum Attempt {
    Outcome(Outcome),
    /// The run could only be ended with its worker. With its progress in the code, in bytes.
    Last(Outcome, u32),
    /// Sent to the worker, which must answer by this time.
    Pending(Instant),
    /// The job no longer needs a result.
    Unwanted,
    /// The worker timed out. Its state is unknown.
    Late,
    /// The worker exited.
    Lost,
    /// The worker had exited before.
    Dead,
    /// The host side of the worker failed, and the worker exits.
    Failed(SandboxError),
}

/// The next action of the slot's thread.
enum Progress {
    /// Wait for the next task.
    Done,
    /// Replace the worker.
    Replace,
    /// Replace the worker, and continue with the same job.
    Again,
}

impl State {
    /// Returns the reason why no run can start any more.
    pub fn refusal(&self) -> Option<RunError> {
        match &self.failure {
            Some(error) => Some(RunError::Host(error.clone())),
            None if self.closed => Some(RunError::Closed),
            None => None,
        }
    }

    /// Counts a run that starts.
    fn begin(&mut self, job: &Job) {
        self.statistics.running += 1;
        self.queue.begin(job.request.caller);
    }

    /// Counts a run that has ended, or whose worker died.
    fn end(&mut self, job: &Job) {
        self.statistics.running -= 1;
        self.queue.end(job.request.caller);
    }

    /// Returns all jobs that are not in a slot.
    pub fn drain(&mut self) -> Vec<Arc<Job>> {
        let tasks = self.tasks.iter_mut().filter_map(Option::take);
        let mut jobs: Vec<_> = tasks.map(|task| task.job).collect();
        for job in &jobs {
            // The slot's thread may reap the worker from now on: its process id must not be signaled.
            job.assign(None);
            self.end(job);
        }
        jobs.extend(self.queue.drain());
        jobs.extend(self.sharing.drain());
        jobs
    }
}

impl Shared {
    pub fn new(source: Source, settings: Settings) -> Self {
        let workers = settings.workers.max(1);
        let slot = || Slot {
            worker: Mutex::default(),
            called: Condvar::new(),
        };
        Self {
            source: Mutex::new(Some(Arc::new(source))),
            reuse: settings.reuse,
            result_cache_bytes: settings.result_cache_bytes,
            state: Mutex::new(State {
                queue: Queue::default(),
                free: Vec::new(),
                tasks: (0..workers).map(|_| None).collect(),
                sharing: Sharing::new(settings.result_cache_bytes),
                closed: false,
                failure: None,
                statistics: Statistics::default(),
                processes: vec![None; workers],
                starting: workers,
                begun: vec![false; workers],
                serving: 0,
                failures: Failures::default(),
                reusing: Ok(()),
                confinement: Confinement::default(),
            }),
            started: Condvar::new(),
            slots: (0..workers).map(|_| slot()).collect(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the key by which a request's outcome is shared, if it is.
    pub fn sharing_key(&self, request: &Request) -> Option<Key> {
        let shared = self.result_cache_bytes > 0 && request.size() <= SHARED_SIZE;
        shared.then(|| key(request)).flatten()
    }

    pub fn call_all(&self) {
        self.started.notify_all();
        for slot in &self.slots {
            slot.called.notify_all();
        }
    }

    /// Closes the files that workers are started from.
    pub fn release_files(&self) {
        lock(&self.source).take();
    }

    /// Locks the state for a job that was admitted. `None` if the pool has ended since, which is then the job's result:
    /// no thread would take it from the queue.
    fn lock_for(&self, job: &Job) -> Option<MutexGuard<'_, State>> {
        let state = self.lock();
        let Some(error) = state.refusal() else {
            return Some(state);
        };
        drop(state);
        job.finish(Err(error));
        None
    }

    /// Assigns an admitted job to a free slot, or queues it.
    pub fn enqueue(&self, job: Arc<Job>) {
        if let Some(mut state) = self.lock_for(&job) {
            self.dispatch(&mut state, Task::new(job));
        }
    }

    /// Assigns a task to a free slot, or queues it.
    fn dispatch(&self, state: &mut State, task: Task) {
        match state.free.pop() {
            Some(slot) => self.call(state, slot, task),
            None => state.queue.push_back(task.job),
        }
    }

    fn call(&self, state: &mut State, slot: usize, task: Task) {
        if task.begun.is_none() {
            state.begin(&task.job);
        }
        state.tasks[slot] = Some(task);
        self.slots[slot].called.notify_one();
    }

    /// Executes an admitted job on the calling thread, if that is quick.
    pub fn run_here(&self, job: Arc<Job>) {
        let Some(mut state) = self.lock_for(&job) else {
            return;
        };
        if job.request.size() > SENT_HERE {
            return self.dispatch(&mut state, Task::new(job));
        }
        let Some(slot) = state.free.pop() else {
            state.queue.push_back(job);
            return;
        };
        state.begin(&job);
        drop(state);
        // Hold the lock until the job is unassigned or handed to the slot's thread. After the pool is closed, that
        // thread reaps the worker, and the worker's process id must not be signaled any more.
        let mut worker = lock(&self.slots[slot].worker);
        let begun = match worker.as_mut() {
            Some(worker) => begin(worker, &job, DIRECT_WAIT),
            None => Attempt::Dead,
        };
        if let Attempt::Outcome(outcome) = begun {
            job.assign(None);
            drop(worker);
            self.conclude(&job, Ok(outcome));
            let mut state = self.lock();
            match state.queue.pop() {
                Some(job) => self.call(&mut state, slot, Task::new(job)),
                None => state.free.push(slot),
            }
        } else {
            let mut state = self.lock();
            match state.refusal() {
                Some(error) => {
                    job.assign(None);
                    drop(state);
                    drop(worker);
                    self.conclude(&job, Err(error));
                }
                None => self.call(
                    &mut state,
                    slot,
                    Task {
                        job,
                        begun: Some(begun),
                    },
                ),
            }
        }
    }

    /// Runs a slot's thread, which is the parent of its workers.
    pub fn serve(&self, slot: usize) {
        // A job whose worker died, for the next worker. Another free worker may be about to die of the same cause.
        let mut lost = None;
        while let Some(worker) = self.start(slot, &mut lost) {
            *lock(&self.slots[slot].worker) = Some(worker);
            self.started.notify_all();
            let again = lost.take().map(Task::new);
            let mut task = again.or_else(|| self.next_task(slot));
            while let Some(Task { job, begun }) = task {
                match self.complete(slot, &job, begun) {
                    Progress::Done => task = self.next_task(slot),
                    Progress::Replace => break,
                    Progress::Again => {
                        lost = Some(job);
                        break;
                    }
                }
            }
            self.reap_worker(slot);
        }
        if let Some(job) = lost {
            self.requeue(job);
        }
    }

    /// Returns a worker that is ready to run code. Retries failed starts, after passing the job in `lost` to other slots.
    /// Returns `None` when the pool has ended.
    fn start(&self, slot: usize, lost: &mut Option<Arc<Job>>) -> Option<Child> {
        let (mut failures, mut own) = (0, Failures::default());
        loop {
            let failure = match self.try_to_start(slot) {
                Ok(worker) => return worker,
                Err(failure) => failure,
            };
            failures += 1;
            if let Some(job) = lost.take() {
                self.requeue(job);
            }
            let mut state = self.lock();
            state.statistics.failed_starts += 1;
            let error = failure.error;
            let verdict = match failure.kind {
                StartFailureKind::Permanent => Some(error),
                // The pool's creator gets the error at once: no run waits yet.
                StartFailureKind::Reported if state.starting > 0 => Some(error),
                // It waits for the first worker of every slot, also while others serve.
                _ if !state.begun[slot] => own.count(1, &error),
                _ if state.serving > 0 => None,
                _ => state.failures.count(self.slots.len(), &error),
            };
            if let Some(error) = verdict {
                drop(state);
                self.break_down(error);
                return None;
            }
            let until = Instant::now() + backoff(failures);
            while state.refusal().is_none() && Instant::now() < until {
                let rest = until.saturating_duration_since(Instant::now());
                state = wait_for(&self.slots[slot].called, state, rest);
            }
        }
    }

    /// Returns `None` when the pool has ended.
    fn try_to_start(&self, slot: usize) -> std::result::Result<Option<Child>, StartFailure> {
        if self.lock().refusal().is_some() {
            return Ok(None);
        }
        let Some(source) = lock(&self.source).clone() else {
            return Ok(None);
        };
        source.guest.check().map_err(StartFailure::permanent)?;
        let mut worker = Child::spawn(&source.program, &source.guest.descriptors())
            .map_err(StartFailure::reported)?;
        {
            let mut state = self.lock();
            if state.refusal().is_some() {
                return Ok(None);
            }
            state.processes[slot] = Some(worker.id());
        }
        let loaded = worker.load(&source.guest, self.reuse);
        let mut state = self.lock();
        match loaded {
            Ok((reusing, confinement)) => {
                state.starting -= usize::from(!std::mem::replace(&mut state.begun[slot], true));
                state.serving += 1;
                state.failures.forget();
                state.confinement = confinement;
                if reusing.is_err() {
                    state.reusing = reusing;
                }
                Ok(Some(worker))
            }
            Err(reported) => {
                // Before the process is reaped: its id must not be signaled afterwards.
                state.processes[slot] = None;
                drop(state);
                Err(reported.map_or_else(
                    || worker.exit_report("while it started"),
                    StartFailure::reported,
                ))
            }
        }
    }

    /// Clears and reaps the worker of a slot.
    fn reap_worker(&self, slot: usize) {
        let Some(worker) = lock(&self.slots[slot].worker).take() else {
            return;
        };
        let mut state = self.lock();
        // The id of a reaped process must not be signaled.
        state.processes[slot] = None;
        state.serving -= 1;
        if state.refusal().is_none() {
            state.statistics.workers_replaced += 1;
        }
        drop(state);
        drop(worker);
    }

    /// Returns the next task of the slot's thread; `None` when the pool has ended.
    fn next_task(&self, slot: usize) -> Option<Task> {
        let mut state = self.lock();
        if state.refusal().is_some() {
            return None;
        }
        if let Some(job) = state.queue.pop() {
            state.begin(&job);
            return Some(Task::new(job));
        }
        state.free.push(slot);
        loop {
            if state.refusal().is_some() {
                return None;
            }
            if let Some(task) = state.tasks[slot].take() {
                return Some(task);
            }
            state = wait(&self.slots[slot].called, state);
        }
    }

    /// Delivers the result of a job, and delivers it to all jobs that wait for it.
    fn conclude(&self, job: &Arc<Job>, result: RunResult) {
        let result = result.map(|outcome| job.complete(outcome));
        // A large outcome is copied here, not while all others wait for the lock.
        let cached = match &result {
            Ok(outcome) if job.key.is_some() && is_shareable(outcome) => {
                Some(Arc::new(outcome.clone()))
            }
            _ => None,
        };
        let mut state = self.lock();
        state.end(job);
        state.statistics.latency.record(job.submitted.elapsed());
        let mut followers = Vec::new();
        match &result {
            Ok(outcome) => {
                state.statistics.outcomes[outcome.status as usize] += 1;
                if let Some(key) = &job.key {
                    followers = state.sharing.complete(key, cached);
                }
                if !is_shareable(outcome) {
                    // Each one gets its own error.
                    for follower in followers.drain(..).filter(|follower| follower.is_wanted()) {
                        self.dispatch(&mut state, Task::new(follower));
                    }
                }
                state.statistics.shared += followers.len() as u64;
            }
            Err(RunError::Cancelled) => self.take_over(&mut state, job),
            Err(_) => {
                if let Some(key) = &job.key {
                    followers = state.sharing.complete(key, None);
                }
            }
        }
        drop(state);
        for follower in followers {
            follower.finish(result.clone());
        }
        job.finish(result);
    }

    /// Executes one of the jobs that wait for a cancelled job.
    pub fn take_over(&self, state: &mut State, job: &Arc<Job>) {
        let Some(key) = &job.key else { return };
        for follower in state.sharing.complete(key, None) {
            if !follower.is_wanted() {
                continue;
            }
            if let Admission::Execute(job) = state.sharing.admit(follower) {
                self.dispatch(state, Task::new(job));
            }
        }
    }

    /// Fails the pool with an error, for every waiting and every future run.
    fn break_down(&self, error: SandboxError) {
        let mut state = self.lock();
        let error = state.failure.get_or_insert(error).clone();
        let waiting = state.drain();
        drop(state);
        self.call_all();
        for job in waiting {
            job.finish(Err(RunError::Host(error.clone())));
        }
    }

    /// Makes the next attempt at a job, on the slot's thread.
    fn complete(&self, slot: usize, job: &Arc<Job>, begun: Option<Attempt>) -> Progress {
        let mut place = lock(&self.slots[slot].worker);
        let Some(worker) = place.as_mut() else {
            self.conclude(job, Err(RunError::Closed));
            return Progress::Replace;
        };
        let attempt = match begun.unwrap_or_else(|| begin(worker, job, Duration::ZERO)) {
            Attempt::Pending(deadline) => receive(worker, deadline),
            attempt => attempt,
        };
        let spent = match attempt {
            Attempt::Late | Attempt::Lost | Attempt::Failed(_) => worker.cpu_time_of_run(),
            _ => Duration::ZERO,
        };
        drop(place);
        // From here on a cancellation must not signal a process that is being reaped.
        let wanted = job.assign(None);
        let without_guest = |status| {
            Ok(Outcome {
                cpu_time: job.spend(spent),
                ..Outcome::without_guest(status, job.submitted.elapsed())
            })
        };
        match attempt {
            Attempt::Outcome(outcome) => {
                self.conclude(job, Ok(outcome));
                return Progress::Done;
            }
            Attempt::Last(outcome, progress) => match job.stop(outcome, progress) {
                Some(outcome) => self.conclude(job, Ok(outcome)),
                None => return Progress::Again,
            },
            Attempt::Unwanted | Attempt::Pending(_) => {
                self.conclude(job, Err(RunError::Cancelled));
                return Progress::Done;
            }
            Attempt::Failed(error) if error.is_fatal() => {
                self.conclude(job, Err(RunError::Host(error.clone())));
                self.break_down(error);
            }
            // The host's failure, as the death of a worker is.
            Attempt::Late if spent < job.request.limits.shortest() / STOPPED => {
                return self.retry(slot, job, wanted, without_guest(Status::Crash));
            }
            Attempt::Late => {
                self.reap_worker(slot);
                self.conclude(job, without_guest(Status::Timeout));
            }
            // The worker died while idle, which is not the fault of this run.
            Attempt::Dead => {
                self.reap_worker(slot);
                self.requeue(Arc::clone(job));
            }
            Attempt::Lost => return self.retry(slot, job, wanted, without_guest(Status::Crash)),
            // A failure of one process, which another need not have: the system has no memory for it, say.
            Attempt::Failed(error) => {
                let crash = without_guest(Status::Crash);
                let result = if job.is_stopped() {
                    crash
                } else {
                    Err(RunError::Host(error))
                };
                return self.retry(slot, job, wanted, result);
            }
        }
        Progress::Replace
    }

    /// Replaces a worker that died or failed during a job; at the last attempt, `result` is the job's.
    fn retry(&self, slot: usize, job: &Arc<Job>, wanted: bool, result: RunResult) -> Progress {
        self.reap_worker(slot);
        let losses = job.count_worker_death();
        if !wanted {
            self.conclude(job, Err(RunError::Cancelled));
        } else if losses == ATTEMPTS {
            self.conclude(job, result);
        } else {
            self.lock().statistics.retried += 1;
            return Progress::Again;
        }
        Progress::Replace
    }

    /// Makes a started job the next to run, on the first free worker.
    fn requeue(&self, job: Arc<Job>) {
        let mut state = self.lock();
        if let Some(error) = state.refusal() {
            drop(state);
            return self.conclude(&job, Err(error));
        }
        state.end(&job);
        match state.free.pop() {
            Some(slot) => self.call(&mut state, slot, Task::new(job)),
            None => state.queue.push_front(job),
        }
    }
}

/// Sends a job to a worker, and returns the outcome if it arrives within `patience`.
fn begin(worker: &mut Child, job: &Job, patience: Duration) -> Attempt {
    if !worker.alive() {
        return Attempt::Dead;
    }
    if !job.assign(Some(worker.id())) {
        return Attempt::Unwanted;
    }
    let request = job.next_request();
    let deadline = Instant::now() + request.limits.wall_time + GRACE;
    worker.note_run();
    worker.send(&Command::encode_run(&request), deadline);
    if patience > Duration::ZERO && worker.answers_within(patience) {
        receive(worker, deadline)
    } else {
        Attempt::Pending(deadline)
    }
}

fn receive(worker: &mut Child, deadline: Instant) -> Attempt {
    match worker.receive(Some(deadline)) {
        Received::Reply(Reply::Done(outcome)) => Attempt::Outcome(*outcome),
        Received::Reply(Reply::Last(outcome, progress)) => Attempt::Last(*outcome, progress),
        Received::Reply(Reply::Failed(error)) => Attempt::Failed(error),
        Received::TimedOut => Attempt::Late,
        Received::Reply(_) | Received::Gone => Attempt::Lost,
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition
        .wait(guard)
        .unwrap_or_else(PoisonError::into_inner)
}

pub fn wait_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    condition
        .wait_timeout(guard, time)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}
