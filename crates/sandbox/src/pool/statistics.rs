//! Counters of a pool.

use std::time::Duration;

use crate::outcome::Status;

/// Counters of a pool, and its current load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Executions, by `Status as usize`.
    pub outcomes: [u64; Status::ALL.len()],
    /// Runs that were answered with the outcome of another run.
    pub shared: u64,
    pub cancelled: u64,
    pub retried: u64,
    pub workers_replaced: u64,
    /// Workers that exited before they were ready, or could not be started at all.
    pub failed_starts: u64,
    pub queued: u64,
    pub running: u64,
    pub latency: Latency,
}

/// Latency of runs from submission to result: a histogram with one bucket for each power of two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latency {
    /// Bucket `i` counts latencies from half of `2^i` microseconds up to, but excluding, `2^i`.
    pub buckets: [u64; 32],
}

impl Latency {
    pub fn record(&mut self, time: Duration) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - microseconds.leading_zeros()) as usize;
        self.buckets[bucket.min(self.buckets.len() - 1)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_below_its_buckets_bound() {
        for (microseconds, bucket) in [
            (0, 0),
            (1, 1),
            (2, 2),
            (3, 2),
            (4, 3),
            (1000, 10),
            (1 << 40, 31),
        ] {
            let mut latency = Latency::default();
            latency.record(Duration::from_micros(microseconds));
            assert_eq!(latency.buckets[bucket], 1, "{microseconds}");
        }
    }
}
