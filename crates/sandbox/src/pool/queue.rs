//! The runs that wait, in an order that is fair to those who ask.
//!
//! A free worker goes to the caller for whom the fewest run at the moment, and among those to the one whose turn is longest ago.
//! So a caller with a thousand slow runs has all workers only while nobody else asks. What runs is not interrupted: where all
//! workers are busy, another caller waits until the first of them is free.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::pool::job::Job;
use crate::request::Caller;

/// So many runs that were taken back may lie in the queue beside as many as wait.
const TAKEN_BACK: usize = 64;

#[derive(Default)]
pub struct Queue {
    callers: HashMap<Caller, Line>,
    /// Callers with runs that wait: how many of their runs are under way, the number of their turn, who they are.
    order: BTreeSet<(usize, u64, Caller)>,
    turns: u64,
    waiting: usize,
    taken_back: usize,
}

/// The runs of one caller.
#[derive(Default)]
struct Line {
    jobs: VecDeque<Arc<Job>>,
    running: usize,
    turn: u64,
}

impl Queue {
    /// How many runs wait.
    pub fn len(&self) -> usize {
        self.waiting
    }

    pub fn push_back(&mut self, job: Arc<Job>) {
        self.push(job, VecDeque::push_back);
    }

    /// Puts a job before all others of its caller.
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

    /// The next to run.
    pub fn pop(&mut self) -> Option<Arc<Job>> {
        while let Some((running, _, caller)) = self.order.pop_first() {
            let Some(line) = self.callers.get_mut(&caller) else {
                continue;
            };
            while let Some(job) = line.jobs.pop_front() {
                if !job.set_waiting(false) {
                    self.taken_back -= 1;
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

    /// Takes a job out; `false` when it does not wait. It is passed over when its turn comes: looking for it would take a caller
    /// that gives up thousands at once a scan of the queue for each.
    pub fn take_back(&mut self, job: &Job) -> bool {
        if !job.set_waiting(false) {
            return false;
        }
        self.waiting -= 1;
        self.taken_back += 1;
        if self.taken_back > self.waiting + TAKEN_BACK {
            self.sweep();
        }
        true
    }

    /// Drops all that were taken back.
    fn sweep(&mut self) {
        for (&caller, line) in &mut self.callers {
            line.jobs.retain(|job| job.is_waiting());
            if line.jobs.is_empty() {
                self.order.remove(&(line.running, line.turn, caller));
            }
        }
        self.callers
            .retain(|_, line| line.running > 0 || !line.jobs.is_empty());
        self.taken_back = 0;
    }

    /// A run of this caller begins.
    pub fn begin(&mut self, caller: Caller) {
        self.set_running(caller, |running| running + 1);
    }

    /// A run of this caller has ended.
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

    /// Everything that waits, when nothing will run any more.
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
    fn a_worker_goes_to_the_caller_for_whom_the_fewest_run() {
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
    fn what_was_taken_back_never_comes_and_does_not_pile_up() {
        let mut queue = Queue::default();
        let jobs: Vec<_> = (0..20_000).map(|number| job(number % 3, 0)).collect();
        for job in &jobs {
            queue.push_back(Arc::clone(job));
        }
        let (kept, given_up) = jobs.split_last().unwrap();
        for job in given_up {
            assert!(queue.take_back(job));
            assert!(!queue.take_back(job));
            let held: usize = queue.callers.values().map(|line| line.jobs.len()).sum();
            assert!(held <= 2 * queue.len() + TAKEN_BACK + 1);
        }
        assert_eq!(queue.len(), 1);
        assert!(Arc::ptr_eq(&queue.pop().unwrap(), kept));
        assert!(queue.pop().is_none());
        assert!(!queue.take_back(kept));
        assert!(queue.callers.is_empty() && queue.taken_back == 0);
    }
}
