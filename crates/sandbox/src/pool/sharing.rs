//! Runs of the same request: executed once while one is under way, and remembered for a while after.
//!
//! A run's outcome depends on its request alone, so whoever asks for the same again gets the same. A time-out depends on
//! the machine as well and is never shared; neither is the end of a run that lost its worker.

use std::collections::HashMap;
use std::sync::Arc;

use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::outcome::{Outcome, Status};
use crate::pool::job::{Job, Key};
use crate::request::Request;
use crate::worker::protocol::Order;

/// The key of a request. A run of a session has none: its outcome goes with the state it leaves.
pub fn key(request: &Request) -> Option<Key> {
    let alone = request.session.is_none();
    alone.then(|| Sha256::digest(Order::encode_run(request)).into())
}

/// What an outcome takes beside its texts.
const OVERHEAD: usize = 512;

/// The runs that are under way, and the outcomes of those that ended last.
pub struct Sharing {
    /// The jobs that wait for the outcome of another.
    flights: HashMap<Key, Vec<Arc<Job>>>,
    recent: LruCache<Key, Outcome>,
    bytes: usize,
    /// Most bytes of outcomes that are remembered.
    limit: usize,
}

/// What is to be done with a job that came in.
pub enum Admission {
    /// It has to be executed.
    Execute(Arc<Job>),
    /// Another run's outcome is its own.
    Known(Arc<Job>, Box<Outcome>),
    /// It waits for a run under way.
    Joined,
}

impl Sharing {
    pub fn new(limit: usize) -> Self {
        Self {
            flights: HashMap::new(),
            recent: LruCache::unbounded(),
            bytes: 0,
            limit,
        }
    }

    pub fn admit(&mut self, job: Arc<Job>) -> Admission {
        let Some(key) = job.key else {
            return Admission::Execute(job);
        };
        if let Some(outcome) = self.recent.get(&key) {
            return Admission::Known(job, Box::new(outcome.clone()));
        }
        match self.flights.get_mut(&key) {
            Some(waiting) => {
                waiting.push(job);
                Admission::Joined
            }
            None => {
                self.flights.insert(key, Vec::new());
                Admission::Execute(job)
            }
        }
    }

    /// The run with this key has ended: returns those that wait for it, and remembers an outcome that may be shared.
    pub fn land(&mut self, key: &Key, outcome: Option<&Outcome>) -> Vec<Arc<Job>> {
        if let Some(outcome) = outcome.filter(|outcome| is_shareable(outcome)) {
            self.bytes += size(outcome);
            if let Some((_, old)) = self.recent.push(*key, outcome.clone()) {
                self.bytes -= size(&old);
            }
            while self.bytes > self.limit {
                let Some((_, oldest)) = self.recent.pop_lru() else {
                    break;
                };
                self.bytes -= size(&oldest);
            }
        }
        self.flights.remove(key).unwrap_or_default()
    }

    /// Everyone who waits, when nothing will run any more.
    pub fn drain(&mut self) -> Vec<Arc<Job>> {
        self.flights
            .drain()
            .flat_map(|(_, waiting)| waiting)
            .collect()
    }
}

pub fn is_shareable(outcome: &Outcome) -> bool {
    !matches!(outcome.status, Status::Timeout | Status::Crash)
}

fn size(outcome: &Outcome) -> usize {
    OVERHEAD * (1 + outcome.files.len()) + outcome.size()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::Limits;

    fn request(code: &[u8]) -> Request {
        Request {
            code: code.to_vec(),
            ..Request::default()
        }
    }

    fn job(code: &[u8]) -> Arc<Job> {
        let request = request(code);
        let key = key(&request);
        Arc::new(Job::new(request, key, Box::new(|_| {})))
    }

    fn outcome(status: Status, stdout: usize) -> Outcome {
        let mut outcome = Outcome::without_guest(status, Duration::ZERO);
        outcome.stdout = vec![b'x'; stdout];
        outcome
    }

    #[test]
    fn the_second_waits_for_the_first_and_the_third_is_answered() {
        let mut sharing = Sharing::new(1 << 20);
        let Admission::Execute(first) = sharing.admit(job(b"a")) else {
            panic!("nothing is under way");
        };
        let second = job(b"a");
        assert!(matches!(sharing.admit(second), Admission::Joined));
        assert!(matches!(sharing.admit(job(b"b")), Admission::Execute(_)));
        let key = first.key.unwrap();
        let done = outcome(Status::Error, 3);
        assert_eq!(sharing.land(&key, Some(&done)).len(), 1);
        let third = job(b"a");
        assert!(matches!(sharing.admit(third), Admission::Known(_, known) if *known == done));
    }

    #[test]
    fn a_time_out_is_not_remembered() {
        for status in [Status::Timeout, Status::Crash] {
            let mut sharing = Sharing::new(1 << 20);
            let key = job(b"a").key.unwrap();
            let _ = sharing.admit(job(b"a"));
            let _ = sharing.admit(job(b"a"));
            assert_eq!(sharing.land(&key, Some(&outcome(status, 0))).len(), 1);
            assert!(matches!(sharing.admit(job(b"a")), Admission::Execute(_)));
        }
    }

    #[test]
    fn what_is_remembered_stays_within_its_limit() {
        let mut sharing = Sharing::new(10_000);
        for index in 0..100u8 {
            let key = job(&[index]).key.unwrap();
            sharing.land(&key, Some(&outcome(Status::Ok, 1000)));
            sharing.land(&key, Some(&outcome(Status::Ok, 2000)));
            assert!(sharing.bytes <= 10_000);
            assert_eq!(
                sharing.bytes,
                sharing
                    .recent
                    .iter()
                    .map(|(_, kept)| size(kept))
                    .sum::<usize>()
            );
        }
        assert!(matches!(sharing.admit(job(&[99])), Admission::Known(..)));
        assert!(matches!(sharing.admit(job(&[1])), Admission::Execute(_)));
        let key = job(b"big").key.unwrap();
        sharing.land(&key, Some(&outcome(Status::Ok, 20_000)));
        assert_eq!((sharing.bytes, sharing.recent.len()), (0, 0));
    }

    #[test]
    fn a_run_of_a_session_has_no_key() {
        let session = Some(Arc::default());
        assert_eq!(
            key(&Request {
                session,
                ..request(b"a")
            }),
            None
        );
    }

    #[test]
    fn every_part_of_a_request_has_a_part_in_its_key() {
        let base = request(b"a");
        let keys: Vec<_> = [
            request(b"b"),
            Request {
                stdin: b"1".to_vec(),
                ..base.clone()
            },
            Request {
                files: vec![("a".into(), Vec::new())],
                ..base.clone()
            },
            Request {
                return_files: true,
                ..base.clone()
            },
            Request {
                value: true,
                ..base.clone()
            },
            Request {
                seed: 1,
                ..base.clone()
            },
            Request {
                limits: Limits {
                    memory_bytes: 1,
                    ..base.limits
                },
                ..base.clone()
            },
        ]
        .iter()
        .map(key)
        .collect();
        assert!(!keys.contains(&key(&base)));
    }
}
