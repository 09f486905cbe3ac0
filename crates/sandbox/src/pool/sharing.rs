//! Sharing of outcomes between equal requests: executed once while one is active, and cached for a while after.
//!
//! A run's outcome depends on its request alone, so equal requests get equal outcomes. A timeout also depends on the
//! machine and is never shared; neither is the outcome of a run whose worker died, or got less memory than its limit
//! allows.

use std::collections::HashMap;
use std::sync::Arc;

use lru::LruCache;
use sha2::{Digest, Sha256};

use crate::outcome::{Outcome, Status};
use crate::pool::job::{Job, Key};
use crate::request::Request;
use crate::worker::protocol::Command;

/// Returns the key of a request. Runs of a session have no key: their outcome includes the state of the session.
pub fn key(request: &Request) -> Option<Key> {
    let alone = request.session.is_none();
    alone.then(|| Sha256::digest(Command::encode_run(request)).into())
}

/// Bytes of an outcome in addition to its texts.
const OVERHEAD: usize = 512;

/// Active runs, and the outcomes of recently ended ones.
pub struct Sharing {
    /// Jobs that wait for the outcome of another.
    flights: HashMap<Key, Vec<Arc<Job>>>,
    /// Shared with the callers that get them, who copy them after the lock of the pool is released.
    recent: LruCache<Key, Arc<Outcome>>,
    bytes: usize,
    /// Maximum number of bytes of cached outcomes.
    limit: usize,
}

/// The decision for a new job.
pub enum Admission {
    /// It must be executed.
    Execute(Arc<Job>),
    /// Its outcome is known from another run.
    Known(Arc<Job>, Arc<Outcome>),
    /// It waits for an active run.
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
            return Admission::Known(job, Arc::clone(outcome));
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

    /// Completes the run with this key: returns the jobs that wait for it, and caches an outcome that may be shared.
    pub fn complete(&mut self, key: &Key, outcome: Option<Arc<Outcome>>) -> Vec<Arc<Job>> {
        if let Some(outcome) = outcome.filter(|outcome| is_shareable(outcome)) {
            self.bytes += size(&outcome);
            if let Some((_, old)) = self.recent.push(*key, outcome) {
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

    /// Returns all waiting jobs, when no more will run.
    pub fn drain(&mut self) -> Vec<Arc<Job>> {
        self.flights
            .drain()
            .flat_map(|(_, waiting)| waiting)
            .collect()
    }
}

pub fn is_shareable(outcome: &Outcome) -> bool {
    !outcome.starved && !matches!(outcome.status, Status::Timeout | Status::Crash)
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

    fn outcome(status: Status, stdout: usize) -> Arc<Outcome> {
        let mut outcome = Outcome::without_guest(status, Duration::ZERO);
        outcome.stdout = vec![b'x'; stdout];
        Arc::new(outcome)
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
        assert_eq!(sharing.complete(&key, Some(Arc::clone(&done))).len(), 1);
        let third = job(b"a");
        // Not a copy, which would take time under the lock of the pool.
        assert!(
            matches!(sharing.admit(third), Admission::Known(_, known) if Arc::ptr_eq(&known, &done))
        );
    }

    #[test]
    fn timeouts_are_not_cached() {
        for status in [Status::Timeout, Status::Crash] {
            let mut sharing = Sharing::new(1 << 20);
            let key = job(b"a").key.unwrap();
            let _ = sharing.admit(job(b"a"));
            let _ = sharing.admit(job(b"a"));
            assert_eq!(sharing.complete(&key, Some(outcome(status, 0))).len(), 1);
            assert!(matches!(sharing.admit(job(b"a")), Admission::Execute(_)));
        }
    }

    #[test]
    fn an_outcome_that_lacked_memory_is_not_cached() {
        let mut sharing = Sharing::new(1 << 20);
        let key = job(b"a").key.unwrap();
        let starved = Outcome {
            starved: true,
            ..Outcome::without_guest(Status::Memory, Duration::ZERO)
        };
        sharing.complete(&key, Some(Arc::new(starved)));
        assert!(matches!(sharing.admit(job(b"a")), Admission::Execute(_)));
    }

    #[test]
    fn cached_outcomes_stay_within_the_limit() {
        let mut sharing = Sharing::new(10_000);
        for index in 0..100u8 {
            let key = job(&[index]).key.unwrap();
            sharing.complete(&key, Some(outcome(Status::Ok, 1000)));
            sharing.complete(&key, Some(outcome(Status::Ok, 2000)));
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
        sharing.complete(&key, Some(outcome(Status::Ok, 20_000)));
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
