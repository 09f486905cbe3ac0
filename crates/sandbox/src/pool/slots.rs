//! The workers' slots and the threads that look after them.
//!
//! Each worker process has a slot with a thread of the pool. A free slot is handed a job and its thread sends it, waits
//! for the outcome until the deadline, and replaces the worker when it has ended or is late. A caller that blocks anyway
//! borrows a free slot and talks to the worker itself, which saves two thread switches; what takes longer than a moment,
//! or goes wrong, it leaves to the slot's thread. No lock of the pool is held while code runs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::SandboxError;
use crate::guest::Prepared;
use crate::outcome::{Outcome, Status};
use crate::pool::child::{Child, Received};
use crate::pool::job::{Job, Key, RunError, RunResult};
use crate::pool::settings::Settings;
use crate::pool::sharing::{Admission, Sharing, is_shareable, key};
use crate::pool::statistics::Statistics;
use crate::request::Request;
use crate::run::runner::{Reuse, Reusing};
use crate::worker::confine::Confinement;
use crate::worker::protocol::{Order, Reply};

/// How much longer than a run's wall-clock limit its worker may take before it is killed. The worker ends the run
/// itself at the limit, with what was printed; this is for a worker that cannot.
const GRACE: Duration = Duration::from_secs(1);

/// Runs that lost their worker are tried this often in all.
const ATTEMPTS: usize = 2;

/// How long a caller waits for a worker itself before it leaves that to the slot's thread, and can be interrupted.
const MOMENT: Duration = Duration::from_millis(20);

/// Larger requests are sent by the slot's thread: a worker that takes no more would hold a caller who cannot be
/// interrupted. A socket takes this much from whoever sends it.
const SENT_HERE: usize = 64 << 10;

pub struct State {
    pub queue: VecDeque<Arc<Job>>,
    /// Slots with a worker that has nothing to do; the one that worked last is at the end.
    free: Vec<usize>,
    /// What the thread of each slot is to do next.
    tasks: Vec<Option<Task>>,
    pub sharing: Sharing,
    pub closed: bool,
    pub broken: Option<SandboxError>,
    pub statistics: Statistics,
    /// One for each slot; `None` while the worker is being replaced.
    pub processes: Vec<Option<u32>>,
    pub starting: usize,
    pub reusing: Reusing,
    /// Around each worker: they are all alike.
    pub walls: Confinement,
}

/// A job for a slot's thread, and how far its first attempt has come.
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
    /// Locked by the one who works with it, for as long as it takes.
    worker: Mutex<Option<Child>>,
    /// A task is there for the thread, or the pool has ended.
    called: Condvar,
}

pub struct Shared {
    command: Vec<OsString>,
    prepared: Prepared,
    reuse: Reuse,
    shared_bytes: usize,
    state: Mutex<State>,
    pub started: Condvar,
    pub slots: Vec<Slot>,
}

/// What one attempt at a run came to.
enum Attempt {
    Outcome(Outcome),
    /// Sent to the worker, which has until then to answer.
    Pending(Instant),
    /// Nobody waits for the job any more.
    Unwanted,
    /// The worker did not answer in time. What it does now is unknown.
    Late,
    /// The worker has ended.
    Lost,
    /// The worker was gone before.
    Dead,
    Broken(SandboxError),
}

impl State {
    /// Why no run can start any more.
    pub fn refusal(&self) -> Option<RunError> {
        match &self.broken {
            Some(error) => Some(RunError::Host(error.clone())),
            None if self.closed => Some(RunError::Closed),
            None => None,
        }
    }

    /// Every job that no slot is working on.
    pub fn drain(&mut self) -> Vec<Arc<Job>> {
        let tasks = self.tasks.iter_mut().filter_map(Option::take);
        let mut jobs: Vec<_> = tasks.map(|task| task.job).collect();
        jobs.extend(self.queue.drain(..));
        jobs.extend(self.sharing.drain());
        jobs
    }
}

impl Shared {
    pub fn new(command: Vec<OsString>, prepared: Prepared, settings: Settings) -> Self {
        let workers = settings.workers.max(1);
        let slot = || Slot {
            worker: Mutex::default(),
            called: Condvar::new(),
        };
        Self {
            command,
            prepared,
            reuse: settings.reuse,
            shared_bytes: settings.shared_bytes,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                free: Vec::new(),
                tasks: (0..workers).map(|_| None).collect(),
                sharing: Sharing::new(settings.shared_bytes),
                closed: false,
                broken: None,
                statistics: Statistics::default(),
                processes: vec![None; workers],
                starting: workers,
                reusing: Ok(()),
                walls: Confinement::default(),
            }),
            started: Condvar::new(),
            slots: (0..workers).map(|_| slot()).collect(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The key under which a request's outcome is shared, if any is.
    pub fn sharing_key(&self, request: &Request) -> Option<Key> {
        (self.shared_bytes > 0).then(|| key(request)).flatten()
    }

    pub fn call_all(&self) {
        self.started.notify_all();
        for slot in &self.slots {
            slot.called.notify_all();
        }
    }

    /// Gives a task to a free slot, or puts it into the queue.
    pub fn dispatch(&self, state: &mut State, task: Task) {
        match state.free.pop() {
            Some(slot) => self.call(state, slot, task),
            None => state.queue.push_back(task.job),
        }
    }

    fn call(&self, state: &mut State, slot: usize, task: Task) {
        if task.begun.is_none() {
            state.statistics.running += 1;
        }
        state.tasks[slot] = Some(task);
        self.slots[slot].called.notify_one();
    }

    /// Does a job on the calling thread, as far as that is quick.
    pub fn run_here(&self, job: Arc<Job>) {
        let mut state = self.lock();
        if job.request.size() > SENT_HERE {
            return self.dispatch(&mut state, Task::new(job));
        }
        let Some(slot) = state.free.pop() else {
            state.queue.push_back(job);
            return;
        };
        state.statistics.running += 1;
        drop(state);
        let begun = {
            let mut worker = lock(&self.slots[slot].worker);
            match worker.as_mut() {
                Some(worker) => begin(worker, &job, MOMENT),
                None => Attempt::Dead,
            }
        };
        if let Attempt::Outcome(outcome) = begun {
            job.assign(None);
            self.conclude(&job, Ok(outcome));
            let mut state = self.lock();
            match state.queue.pop_front() {
                Some(job) => self.call(&mut state, slot, Task::new(job)),
                None => state.free.push(slot),
            }
        } else {
            let mut state = self.lock();
            match state.refusal() {
                Some(error) => {
                    drop(state);
                    job.finish(Err(error));
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

    /// The life of one slot's thread, which is the parent of its worker.
    pub fn serve(&self, slot: usize) {
        let mut started = Child::serving(&self.command, &self.prepared, self.reuse);
        {
            let mut state = self.lock();
            match &mut started {
                Ok((worker, reusing, walls)) => {
                    state.processes[slot] = Some(worker.id());
                    state.walls = walls.clone();
                    state.starting -= 1;
                    if reusing.is_err() {
                        state.reusing = reusing.clone();
                    }
                }
                Err(error) => {
                    let error = error.clone();
                    drop(state);
                    return self.break_down(error);
                }
            }
        }
        *lock(&self.slots[slot].worker) = started.ok().map(|(worker, ..)| worker);
        self.started.notify_all();
        while let Some(Task { job, begun }) = self.next_task(slot) {
            let result = self.complete(slot, &job, begun);
            let broken = match &result {
                Err(RunError::Host(error)) => Some(error.clone()),
                _ => None,
            };
            self.conclude(&job, result);
            if let Some(error) = broken {
                self.break_down(error);
            }
        }
        // `close` must not signal a process that is reaped already.
        self.lock().processes[slot] = None;
        drop(lock(&self.slots[slot].worker).take());
    }

    /// What the slot's thread does next; `None` when the pool has ended.
    fn next_task(&self, slot: usize) -> Option<Task> {
        let mut state = self.lock();
        if state.refusal().is_some() {
            return None;
        }
        if let Some(job) = state.queue.pop_front() {
            state.statistics.running += 1;
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

    /// Delivers the result of a job, and to those that wait for the same.
    fn conclude(&self, job: &Arc<Job>, result: RunResult) {
        let mut state = self.lock();
        state.statistics.running -= 1;
        state.statistics.latency.record(job.submitted.elapsed());
        let mut followers = Vec::new();
        match &result {
            Ok(outcome) => {
                state.statistics.outcomes[outcome.status as usize] += 1;
                if let Some(key) = &job.key {
                    followers = state.sharing.land(key, Some(outcome));
                }
                if !is_shareable(outcome) {
                    // Each finds out for itself.
                    for follower in followers.drain(..).filter(|follower| follower.is_wanted()) {
                        self.dispatch(&mut state, Task::new(follower));
                    }
                }
                state.statistics.shared += followers.len() as u64;
            }
            Err(RunError::Cancelled) => self.take_over(&mut state, job),
            Err(_) => {
                if let Some(key) = &job.key {
                    followers = state.sharing.land(key, None);
                }
            }
        }
        drop(state);
        for follower in followers {
            follower.finish(result.clone());
        }
        job.finish(result);
    }

    /// Lets one of those that wait for a job that was cancelled run in its place.
    pub fn take_over(&self, state: &mut State, job: &Arc<Job>) {
        let Some(key) = &job.key else { return };
        for follower in state.sharing.land(key, None) {
            if !follower.is_wanted() {
                continue;
            }
            if let Admission::Execute(job) = state.sharing.admit(follower) {
                self.dispatch(state, Task::new(job));
            }
        }
    }

    /// Ends the pool with an error: for every run that waits, and every one to come.
    fn break_down(&self, error: SandboxError) {
        let mut state = self.lock();
        let error = state.broken.get_or_insert(error).clone();
        let waiting = state.drain();
        drop(state);
        self.call_all();
        for job in waiting {
            job.finish(Err(RunError::Host(error.clone())));
        }
    }

    /// Sees a job through to its end, on the slot's thread.
    fn complete(&self, slot: usize, job: &Job, begun: Option<Attempt>) -> RunResult {
        let mut place = lock(&self.slots[slot].worker);
        let Some(worker) = place.as_mut() else {
            return Err(RunError::Closed);
        };
        let mut begun = begun;
        let mut lost = 0;
        loop {
            let attempt = match begun.take() {
                Some(attempt) => attempt,
                None => begin(worker, job, Duration::ZERO),
            };
            let attempt = match attempt {
                Attempt::Pending(deadline) => receive(worker, deadline),
                attempt => attempt,
            };
            // From here on a cancellation must not signal a process that is being reaped.
            let wanted = job.assign(None);
            match attempt {
                Attempt::Outcome(outcome) => return Ok(outcome),
                Attempt::Broken(error) => return Err(RunError::Host(error)),
                Attempt::Unwanted | Attempt::Pending(_) => {}
                Attempt::Late => {
                    self.replace(slot, worker)?;
                    return Ok(Outcome::without_guest(
                        Status::Timeout,
                        job.submitted.elapsed(),
                    ));
                }
                // It died idle, which is no fault of this run.
                Attempt::Dead => self.replace(slot, worker)?,
                Attempt::Lost => {
                    self.replace(slot, worker)?;
                    lost += 1;
                    if lost == ATTEMPTS {
                        return Ok(Outcome::without_guest(
                            Status::Crash,
                            job.submitted.elapsed(),
                        ));
                    }
                    if wanted {
                        self.lock().statistics.retried += 1;
                    }
                }
            }
            if !wanted {
                return Err(RunError::Cancelled);
            }
        }
    }

    /// Puts a new worker, which has proved that it runs code, in the place of one that has ended.
    fn replace(&self, slot: usize, worker: &mut Child) -> std::result::Result<(), RunError> {
        {
            let mut state = self.lock();
            state.processes[slot] = None;
            if state.closed {
                return Err(RunError::Closed);
            }
            state.statistics.workers_replaced += 1;
        }
        (*worker, ..) =
            Child::serving(&self.command, &self.prepared, self.reuse).map_err(RunError::Host)?;
        let mut state = self.lock();
        if state.closed {
            return Err(RunError::Closed);
        }
        state.processes[slot] = Some(worker.id());
        Ok(())
    }
}

/// Sends a job to a worker, and takes the outcome if it comes within `patience`.
fn begin(worker: &mut Child, job: &Job, patience: Duration) -> Attempt {
    if !worker.alive() {
        return Attempt::Dead;
    }
    if !job.assign(Some(worker.id())) {
        return Attempt::Unwanted;
    }
    let deadline = Instant::now() + job.request.limits.wall_time + GRACE;
    worker.send(&Order::encode_run(&job.request), deadline);
    if patience > Duration::ZERO && worker.answers_within(patience) {
        receive(worker, deadline)
    } else {
        Attempt::Pending(deadline)
    }
}

fn receive(worker: &mut Child, deadline: Instant) -> Attempt {
    match worker.receive(Some(deadline)) {
        Received::Reply(Reply::Done(outcome) | Reply::Last(outcome)) => Attempt::Outcome(*outcome),
        Received::Reply(Reply::Failed(message)) => Attempt::Broken(SandboxError::new(message)),
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
