//! The workers' slots and the threads that look after them.
//!
//! Each worker process has a slot with a thread of the pool. A free slot is handed a job and its thread sends it, waits
//! for the outcome until the deadline, and replaces the worker when it has ended or is late. A worker that does not start is
//! tried again, and what waited for it goes to another. A caller that blocks anyway borrows a free slot and talks to the
//! worker itself, which saves two thread switches; what takes longer than a moment, or goes wrong, it leaves to the slot's
//! thread. No lock of the pool is held while code runs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::SandboxError;
use crate::outcome::{Outcome, Status};
use crate::pool::child::{Child, Failing, Received, StartFailure};
use crate::pool::job::{Job, Key, RunError, RunResult};
use crate::pool::queue::Queue;
use crate::pool::settings::Settings;
use crate::pool::sharing::{Admission, Sharing, is_shareable, key};
use crate::pool::source::Source;
use crate::pool::statistics::Statistics;
use crate::pool::tries::{Failures, pause};
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

/// Larger requests are for themselves: a hash of all they hold costs more than handing it on, and they are hardly ever equal.
const SHARED_SIZE: usize = 1 << 20;

pub struct State {
    pub queue: Queue,
    /// Slots with a worker that has nothing to do; the one that worked last is at the end.
    free: Vec<usize>,
    /// What the thread of each slot is to do next.
    tasks: Vec<Option<Task>>,
    pub sharing: Sharing,
    pub closed: bool,
    pub broken: Option<SandboxError>,
    pub statistics: Statistics,
    /// One for each slot, also while it starts; `None` between two.
    pub processes: Vec<Option<u32>>,
    /// Slots that have had no worker yet.
    pub starting: usize,
    /// Whether each slot has had one.
    begun: Vec<bool>,
    /// Slots whose worker has started.
    serving: usize,
    failures: Failures,
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
    /// `None` when the pool is closed.
    source: Mutex<Option<Arc<Source>>>,
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

/// What the slot's thread does next.
enum Progress {
    /// Its next task.
    Done,
    /// It needs another worker.
    Replace,
    /// So it does, for the same job.
    Again,
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

    /// Counts a run that begins.
    fn begin(&mut self, job: &Job) {
        self.statistics.running += 1;
        self.queue.begin(job.request.caller);
    }

    /// Counts a run that has ended, or lost its worker.
    fn end(&mut self, job: &Job) {
        self.statistics.running -= 1;
        self.queue.end(job.request.caller);
    }

    /// Every job that no slot is working on.
    pub fn drain(&mut self) -> Vec<Arc<Job>> {
        let tasks = self.tasks.iter_mut().filter_map(Option::take);
        let mut jobs: Vec<_> = tasks.map(|task| task.job).collect();
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
            shared_bytes: settings.shared_bytes,
            state: Mutex::new(State {
                queue: Queue::default(),
                free: Vec::new(),
                tasks: (0..workers).map(|_| None).collect(),
                sharing: Sharing::new(settings.shared_bytes),
                closed: false,
                broken: None,
                statistics: Statistics::default(),
                processes: vec![None; workers],
                starting: workers,
                begun: vec![false; workers],
                serving: 0,
                failures: Failures::default(),
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
        let shared = self.shared_bytes > 0 && request.size() <= SHARED_SIZE;
        shared.then(|| key(request)).flatten()
    }

    pub fn call_all(&self) {
        self.started.notify_all();
        for slot in &self.slots {
            slot.called.notify_all();
        }
    }

    /// Lets go of the files that workers are started from.
    pub fn let_go(&self) {
        lock(&self.source).take();
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
            state.begin(&task.job);
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
        state.begin(&job);
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
            match state.queue.pop() {
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

    /// The life of one slot's thread, which is the parent of its workers.
    pub fn serve(&self, slot: usize) {
        // A job that lost its worker, for the next one: another that is free may be dying of the same cause.
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
            self.bury(slot);
        }
        if let Some(job) = lost {
            self.requeue(job);
        }
    }

    /// A worker that has proved that it runs code. Tries again if it does not start, and leaves what was `lost` to others then;
    /// `None` when the pool has ended.
    fn start(&self, slot: usize, lost: &mut Option<Arc<Job>>) -> Option<Child> {
        let mut failures = 0;
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
                Failing::ForGood => Some(error),
                // Who makes the pool is told at once: no run waits yet.
                Failing::AsTold if state.starting > 0 => Some(error),
                _ if state.serving > 0 => None,
                _ => state.failures.count(self.slots.len(), &error),
            };
            if let Some(error) = verdict {
                drop(state);
                self.break_down(error);
                return None;
            }
            let until = Instant::now() + pause(failures);
            while state.refusal().is_none() && Instant::now() < until {
                let rest = until.saturating_duration_since(Instant::now());
                state = wait_for(&self.slots[slot].called, state, rest);
            }
        }
    }

    /// `None` when the pool has ended.
    fn try_to_start(&self, slot: usize) -> std::result::Result<Option<Child>, StartFailure> {
        if self.lock().refusal().is_some() {
            return Ok(None);
        }
        let Some(source) = lock(&self.source).clone() else {
            return Ok(None);
        };
        source.guest.check().map_err(StartFailure::lasting)?;
        let mut worker = Child::spawn(&source.program, &source.guest.descriptors())
            .map_err(StartFailure::told)?;
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
            Ok((reusing, walls)) => {
                state.starting -= usize::from(!std::mem::replace(&mut state.begun[slot], true));
                state.serving += 1;
                state.failures.forget();
                state.walls = walls;
                if reusing.is_err() {
                    state.reusing = reusing;
                }
                Ok(Some(worker))
            }
            Err(told) => {
                // Before it is reaped: nobody may signal it then.
                state.processes[slot] = None;
                drop(state);
                Err(told.map_or_else(|| worker.obituary("while it started"), StartFailure::told))
            }
        }
    }

    /// Forgets and reaps the worker of a slot.
    fn bury(&self, slot: usize) {
        let Some(worker) = lock(&self.slots[slot].worker).take() else {
            return;
        };
        let mut state = self.lock();
        // Nobody may signal a process that is reaped.
        state.processes[slot] = None;
        state.serving -= 1;
        if state.refusal().is_none() {
            state.statistics.workers_replaced += 1;
        }
        drop(state);
        drop(worker);
    }

    /// What the slot's thread does next; `None` when the pool has ended.
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

    /// Delivers the result of a job, and to those that wait for the same.
    fn conclude(&self, job: &Arc<Job>, result: RunResult) {
        let mut state = self.lock();
        state.end(job);
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
        let ended = worker.has_ended();
        let spent = match attempt {
            Attempt::Late | Attempt::Lost => worker.cpu_time_of_run(),
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
                if !ended {
                    return Progress::Done;
                }
            }
            Attempt::Unwanted | Attempt::Pending(_) => {
                self.conclude(job, Err(RunError::Cancelled));
                return Progress::Done;
            }
            Attempt::Broken(error) => {
                self.conclude(job, Err(RunError::Host(error.clone())));
                self.break_down(error);
            }
            Attempt::Late => {
                self.bury(slot);
                self.conclude(job, without_guest(Status::Timeout));
            }
            // It died idle, which is no fault of this run.
            Attempt::Dead => {
                self.bury(slot);
                self.requeue(Arc::clone(job));
            }
            Attempt::Lost => {
                self.bury(slot);
                let losses = job.lose();
                if !wanted {
                    self.conclude(job, Err(RunError::Cancelled));
                } else if losses == ATTEMPTS {
                    self.conclude(job, without_guest(Status::Crash));
                } else {
                    job.spend(spent);
                    self.lock().statistics.retried += 1;
                    return Progress::Again;
                }
            }
        }
        Progress::Replace
    }

    /// Lets a job that was begun be the next to run, on whichever worker is free first.
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

/// Sends a job to a worker, and takes the outcome if it comes within `patience`.
fn begin(worker: &mut Child, job: &Job, patience: Duration) -> Attempt {
    if !worker.alive() {
        return Attempt::Dead;
    }
    if !job.assign(Some(worker.id())) {
        return Attempt::Unwanted;
    }
    let deadline = Instant::now() + job.request.limits.wall_time + GRACE;
    worker.note_run();
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

fn wait_for<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    condition
        .wait_timeout(guard, time)
        .unwrap_or_else(PoisonError::into_inner)
        .0
}
