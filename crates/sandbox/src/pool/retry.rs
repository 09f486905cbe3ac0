//! Retries of failed worker starts, with backoff.
//!
//! A machine may temporarily lack memory, descriptors or processes, and the out-of-memory killer may hit a starting
//! worker. Such a failure should not end a training run.

use std::time::{Duration, Instant};

use crate::error::SandboxError;

/// This many consecutive failures per slot, without a serving worker, end the pool: after about 40 s, if each fails at
/// once.
const MAX_ATTEMPTS: u32 = 15;
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Returns the backoff of a slot after its `failures`-th consecutive failure.
pub fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    MAX_BACKOFF.min(INITIAL_BACKOFF * (1 << doublings))
}

/// Consecutive failures: those of one slot, or of all slots since a worker last served.
#[derive(Debug, Default)]
pub struct Failures {
    count: u32,
    since: Option<Instant>,
}

impl Failures {
    /// Counts a failure; returns the pool's error if there were too many for its number of slots.
    pub fn count(&mut self, slots: usize, last: &SandboxError) -> Option<SandboxError> {
        self.count += 1;
        let since = *self.since.get_or_insert_with(Instant::now);
        (self.count as usize >= MAX_ATTEMPTS as usize * slots).then(|| {
            SandboxError::new(format!(
                "no sandbox worker could be started in {} tries over {:.0} s; the last try: {last}",
                self.count,
                since.elapsed().as_secs_f64()
            ))
        })
    }

    /// Resets the count, because a worker serves.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_grow_up_to_the_maximum() {
        let backoffs: Vec<_> = (1..=MAX_ATTEMPTS).map(backoff).collect();
        assert_eq!(backoffs[0], INITIAL_BACKOFF);
        assert!(backoffs.is_sorted());
        assert_eq!(backoffs.last(), Some(&MAX_BACKOFF));
        assert_eq!(backoff(u32::MAX), MAX_BACKOFF);
        let all: Duration = backoffs[1..].iter().sum();
        assert!((30..60).contains(&all.as_secs()), "{all:?}");
    }

    #[test]
    fn the_error_names_the_attempts_and_the_last_failure() {
        let mut failures = Failures::default();
        let cause = SandboxError::new("too many open files");
        for _ in 1..2 * MAX_ATTEMPTS {
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
