//! The queue of waiting runs, fair between callers.
//!
//! A free worker goes to the caller with the fewest active runs, and among those to the caller with the least recent
//! turn. So a caller with a thousand slow runs uses all workers only while no other caller has any. Active runs are not
//! interrupted: if all workers are busy, another caller waits for the first free one.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::pool::job::Job;
use crate::request::Caller;

/// Number of cancelled runs that may stay in the queue, in addition to the number of waiting ones.
const MAX_CANCELLED: usize = 64;

#[derive(Default)]
pub struct Queue {
    callers: HashMap<Caller, Line>,
    /// Callers with waiting runs: the number of their active runs, their turn, their id.
    order: BTreeSet<(usize, u64, Caller)>,
    turns: u64,
    waiting: usize,
    cancelled: usize,
}

/// The runs of one caller.
#[derive(Default)]
struct Line {
    jobs: VecDeque<Arc<Job>>,
    running: usize,
    turn: u64,
}

impl Queue {
    /// The number of waiting runs.
    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn push_back(&mut self, job: Arc<Job>) {
        self.push(job, VecDeque::push_back);
    }

    /// Inserts a job before all others of its caller.
    pub fn push_front(&mut self, job: Arc<Job>) {
        self.push(job, VecDeque::push_front);
    }

    fn push(&mut self, job: Arc<Job>, put: fn(&mut VecDeque<Arc<Job>>, Arc<Job>)) {
        job.set_waiting(true);
        self.waiting += 1;
        let caller = job.request.caller;
        let line = self.callers.entry(caller).or_default();
        put(&mut line.jobs, job);
        if line.jobs.len() == 1 {
            self.turns += 1;
            line.turn = self.turns;
            self.order.insert((line.running, line.turn, caller));
        }
    }

    /// Returns the next job to run.
    pub fn pop(&mut self) -> Option<Arc<Job>> {
        while let Some((running, _, caller)) = self.order.pop_first() {
            let Some(line) = self.callers.get_mut(&caller) else {
                continue;
            };
            while let Some(job) = line.jobs.pop_front() {
                if !job.set_waiting(false) {
                    self.cancelled -= 1;
                    continue;
                }
                self.waiting -= 1;
                if line.jobs.is_empty() {
                    self.forget_idle(caller);
                } else {
                    self.turns += 1;
                    line.turn = self.turns;
                    self.order.insert((running, line.turn, caller));
                }
                return Some(job);
            }
            self.forget_idle(caller);
        }
        None
    }

    /// Cancels a job; returns `false` if it does not wait. It is skipped when its turn comes: removing it now would
    /// take a scan of the queue, for each of the thousands that a caller may cancel at once.
    pub fn cancel(&mut self, job: &Job) -> bool {
        if !job.set_waiting(false) {
            return false;
        }
        self.waiting -= 1;
        self.cancelled += 1;
        if self.cancelled > self.waiting + MAX_CANCELLED {
            self.sweep();
        }
        true
    }

    /// Removes all cancelled jobs.
    fn sweep(&mut self) {
        for (&caller, line) in &mut self.callers {
            line.jobs.retain(|job| job.is_waiting());
            if line.jobs.is_empty() {
                self.order.remove(&(line.running, line.turn, caller));
            }
        }
        self.callers
            .retain(|_, line| line.running > 0 || !line.jobs.is_empty());
        self.cancelled = 0;
    }

    /// Counts a run of this caller that starts.
    pub fn begin(&mut self, caller: Caller) {
        self.set_running(caller, |running| running + 1);
    }

    /// Counts a run of this caller that has ended.
    pub fn end(&mut self, caller: Caller) {
        self.set_running(caller, |running| running - 1);
        self.forget_idle(caller);
    }

    fn set_running(&mut self, caller: Caller, change: fn(usize) -> usize) {
        let line = self.callers.entry(caller).or_default();
        let queued = self.order.remove(&(line.running, line.turn, caller));
        line.running = change(line.running);
        if queued {
            self.order.insert((line.running, line.turn, caller));
        }
    }

    fn forget_idle(&mut self, caller: Caller) {
        let idle = |line: &Line| line.running == 0 && line.jobs.is_empty();
        if self.callers.get(&caller).is_some_and(idle) {
            self.callers.remove(&caller);
        }
    }

    /// Returns all waiting jobs, when no more will run.
    pub fn drain(&mut self) -> Vec<Arc<Job>> {
        std::iter::from_fn(|| self.pop()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn job(caller: Caller, name: u8) -> Arc<Job> {
        let request = Request {
            code: vec![name],
            caller,
            ..Request::default()
        };
        Arc::new(Job::new(request, None, Box::new(|_| {})))
    }

    fn name(job: &Job) -> (Caller, u8) {
        (job.request.caller, job.request.code[0])
    }

    #[test]
    fn callers_take_turns_and_each_keeps_its_order() {
        let mut queue = Queue::default();
        for number in 0..4 {
            queue.push_back(job(1, number));
        }
        for number in 0..2 {
            queue.push_back(job(2, number));
        }
        queue.push_front(job(1, 9));
        assert_eq!(queue.len(), 7);
        let order: Vec<_> = queue.drain().iter().map(|job| name(job)).collect();
        let expected = [(1, 9), (2, 0), (1, 0), (2, 1), (1, 1), (1, 2), (1, 3)];
        assert_eq!(order, expected);
        assert!(queue.callers.is_empty() && queue.order.is_empty() && queue.len() == 0);
    }

    #[test]
    fn a_worker_goes_to_the_caller_with_the_fewest_runs() {
        let mut queue = Queue::default();
        let next = |queue: &mut Queue| {
            let job = queue.pop().unwrap();
            queue.begin(job.request.caller);
            job.request.caller
        };
        for number in 0..6 {
            queue.push_back(job(1, number));
        }
        assert_eq!(
            [next(&mut queue), next(&mut queue), next(&mut queue)],
            [1, 1, 1]
        );
        for number in 0..3 {
            queue.push_back(job(2, number));
        }
        // Two of them run before the third of the first caller has ended.
        assert_eq!([next(&mut queue), next(&mut queue)], [2, 2]);
        queue.end(1);
        queue.end(1);
        assert_eq!(next(&mut queue), 1);
    }

    #[test]
    fn cancelled_jobs_never_run_and_do_not_accumulate() {
        let mut queue = Queue::default();
        let jobs: Vec<_> = (0..20_000).map(|number| job(number % 3, 0)).collect();
        for job in &jobs {
            queue.push_back(Arc::clone(job));
        }
        let (kept, cancelled) = jobs.split_last().unwrap();
        for job in cancelled {
            assert!(queue.cancel(job));
            assert!(!queue.cancel(job));
            let queued: usize = queue.callers.values().map(|line| line.jobs.len()).sum();
            assert!(queued <= 2 * queue.len() + MAX_CANCELLED + 1);
        }
        assert_eq!(queue.len(), 1);
        assert!(Arc::ptr_eq(&queue.pop().unwrap(), kept));
        assert!(queue.pop().is_none());
        assert!(!queue.cancel(kept));
        assert!(queue.callers.is_empty() && queue.cancelled == 0);
    }
}
