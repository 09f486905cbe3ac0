//! How often a worker is started that does not start, and with which pauses.
//!
//! A machine may be out of memory, descriptors or processes for a while, and who kills processes at random may hit one that
//! starts. None of that is worth a training run.

use std::time::{Duration, Instant};

use crate::error::SandboxError;

/// So many tries in a row for each slot, with no worker serving meanwhile, end the pool: after some 40 s, if each fails at
/// once.
const TRIES: u32 = 15;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a slot waits after its `failures`-th try in a row has failed.
pub fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    LONGEST_PAUSE.min(FIRST_PAUSE * (1 << doublings))
}

/// The tries that failed since a worker served last.
#[derive(Debug, Default)]
pub struct Failures {
    count: u32,
    since: Option<Instant>,
}

impl Failures {
    /// Counts one more; says why the pool is given up, if these were too many for its number of slots.
    pub fn count(&mut self, slots: usize, last: &SandboxError) -> Option<SandboxError> {
        self.count += 1;
        let since = *self.since.get_or_insert_with(Instant::now);
        (self.count as usize >= TRIES as usize * slots).then(|| {
            SandboxError::new(format!(
                "no sandbox worker could be started in {} tries over {:.0} s; the last try: {last}",
                self.count,
                since.elapsed().as_secs_f64()
            ))
        })
    }

    /// A worker serves.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let pauses: Vec<_> = (1..=TRIES).map(pause).collect();
        assert_eq!(pauses[0], FIRST_PAUSE);
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
        let all: Duration = pauses[1..].iter().sum();
        assert!((30..60).contains(&all.as_secs()), "{all:?}");
    }

    #[test]
    fn the_error_says_how_many_tries_failed_and_why_the_last_did() {
        let mut failures = Failures::default();
        let cause = SandboxError::new("too many open files");
        for _ in 1..2 * TRIES {
            assert!(failures.count(2, &cause).is_none());
        }
        let error = failures.count(2, &cause).unwrap().to_string();
        assert_eq!(
            error,
            "no sandbox worker could be started in 30 tries over 0 s; the last try: too many open files"
        );
        failures.forget();
        assert!(failures.count(2, &cause).is_none());
    }
}
