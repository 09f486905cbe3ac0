//! The virtual clock of a run. It depends only on the actions of the guest, so equal runs see equal times.
//!
//! It advances by the work of the guest between two readings, measured in destroyed objects, and by a tick with each
//! reading. Ticks grow while a program reads the clock without waiting, so that a loop "for two seconds" ends even if
//! its work is in a library that destroys few objects. Waiting takes no real time.

use wasmtime::{AsContextMut, Global};

/// The number of objects that the guest has destroyed, and the number at which the alarm's signal arrives.
pub const WORK_EXPORT: &str = "torl_work";
pub const ALARM_EXPORT: &str = "torl_alarm";

/// The virtual clock at the start of every run: 2026-01-01T00:00:00Z.
pub const CLOCK_START: u64 = 1_767_225_600_000_000_000;
/// The monotonic clock at the start of every run. Not zero, so that differences of early readings stay positive.
const MONOTONIC_START: u64 = 1_000_000_000_000;

/// The advance of the clock with each reading, in nanoseconds, before it grows.
pub const CLOCK_TICK: u64 = 1_000;
/// Number of readings after which the tick doubles, and of doublings: two seconds have passed after some 1,800 readings.
const READINGS: u32 = 128;
const DOUBLINGS: u32 = 13;

/// Nanoseconds per destroyed object: less than CPython takes for the work in between on a current processor.
const WORK: u64 = 40;

/// Maximum of the clock: far beyond any date that the guest can represent, and far from overflow.
const LATEST: u64 = 1 << 62;

/// The exported counters of an instance.
#[derive(Clone, Copy)]
pub struct Counters {
    pub work: Global,
    pub alarm: Global,
}

impl Counters {
    /// Number of objects that the guest has destroyed.
    pub fn work(&self, context: impl AsContextMut) -> u64 {
        self.work.get(context).i64().unwrap_or_default() as u64
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VirtualClock {
    /// Nanoseconds since the start.
    now: u64,
    /// Number of destroyed objects when the clock was last used.
    work: u64,
    /// Number of readings since the last wait.
    readings: u32,
    alarm: Option<Alarm>,
    /// Whether the guest waits for an alarm.
    is_aimed: bool,
}

/// The program's alarm: a signal arrives at this time, and again after each interval (0: once).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Alarm {
    at: u64,
    interval: u64,
    /// Number of destroyed objects at which it arrives, once known.
    work: Option<u64>,
}

impl VirtualClock {
    /// Returns the clock at the start of a run, when the guest has destroyed this number of objects.
    pub fn starting_at(now: u64, work: u64) -> Self {
        Self {
            now: now.min(LATEST),
            work,
            ..Self::default()
        }
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Number of destroyed objects when the clock was last used.
    pub fn work(&self) -> u64 {
        self.work
    }

    pub fn real_time(&self) -> u64 {
        CLOCK_START + self.now
    }

    /// Returns the time on a clock of WASI; `None` if there is no such clock.
    pub fn time(&self, clock: u32) -> Option<u64> {
        match clock {
            0 => Some(self.real_time()),
            1 => Some(MONOTONIC_START + self.now),
            2 | 3 => Some(self.now),
            _ => None,
        }
    }

    /// Advances by the work since the last call.
    pub fn note_work(&mut self, work: u64) {
        self.pass(work.wrapping_sub(self.work).saturating_mul(WORK));
        self.work = work;
        if let Some(alarm) = &mut self.alarm
            && alarm.work.is_some_and(|arrival| arrival <= work)
        {
            alarm.at = alarm.at.saturating_add(alarm.interval);
            alarm.work = None;
            if alarm.interval == 0 {
                self.alarm = None;
            }
        }
    }

    /// Advances by the tick of a reading.
    pub fn note_reading(&mut self) {
        let doublings = (self.readings / READINGS).min(DOUBLINGS);
        self.readings = self.readings.saturating_add(1);
        self.pass(CLOCK_TICK << doublings);
    }

    /// Advances by the tick of a change to the file system. Every change has a different time.
    pub fn note_change(&mut self) {
        self.pass(CLOCK_TICK);
    }

    pub fn wait(&mut self, nanoseconds: u64) {
        self.readings = 0;
        self.pass(nanoseconds);
    }

    fn pass(&mut self, nanoseconds: u64) {
        self.now = self.now.saturating_add(nanoseconds).min(LATEST);
    }

    /// Sets the alarm: nanoseconds until it arrives (0: never), and its interval, each in eight bytes.
    pub fn set_alarm(&mut self, bytes: &[u8]) {
        let number = |range| {
            let bytes: Option<&[u8]> = bytes.get(range);
            bytes.map_or(0, |bytes| {
                u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
            })
        };
        let (rest, interval) = (number(0..8), number(8..16));
        self.alarm = (rest > 0).then(|| Alarm {
            at: self.now.saturating_add(rest),
            interval,
            work: None,
        });
    }

    /// Returns the alarm in the form of `set_alarm`.
    pub fn alarm(&self) -> [u8; 16] {
        let (rest, interval) = self.alarm.map_or((0, 0), |alarm| {
            (alarm.at.saturating_sub(self.now).max(1), alarm.interval)
        });
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&rest.to_le_bytes());
        bytes[8..].copy_from_slice(&interval.to_le_bytes());
        bytes
    }

    /// Returns the number of destroyed objects at which the alarm arrives, or 0 if it was cancelled; `None` if there is
    /// nothing to change.
    pub fn aim_alarm(&mut self) -> Option<u64> {
        let was_aimed = std::mem::replace(&mut self.is_aimed, self.alarm.is_some());
        let Some(alarm) = &mut self.alarm else {
            return was_aimed.then_some(0);
        };
        let arrival = self.work + 1 + alarm.at.saturating_sub(self.now) / WORK;
        alarm.work = Some(arrival);
        alarm.work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_loop_for_two_seconds_ends_by_its_readings_or_its_work() {
        for (work_per_round, most_rounds) in [(0, 1_800), (10_000, 1_700), (1_000_000, 50)] {
            let mut clock = VirtualClock::default();
            let mut rounds = 0;
            while clock.now() < 2 * SECOND {
                rounds += 1;
                clock.note_work(rounds * work_per_round);
                clock.note_reading();
            }
            assert!(rounds <= most_rounds, "{rounds}");
            assert!(rounds * 10 > most_rounds * 9, "{rounds}");
        }
    }

    #[test]
    fn early_readings_are_a_microsecond_apart_and_waiting_makes_them_early_again() {
        let mut clock = VirtualClock::default();
        for _ in 0..10_000 {
            let before = clock.now();
            clock.note_reading();
            assert_eq!(clock.now() - before, CLOCK_TICK);
            clock.wait(0);
        }
        clock.wait(u64::MAX);
        clock.note_reading();
        assert_eq!(clock.now(), LATEST);
    }

    #[test]
    fn an_alarm_arrives_at_its_time_and_once() {
        let mut clock = VirtualClock::starting_at(7, 50);
        assert_eq!(clock.aim_alarm(), None);
        clock.set_alarm(&[4_000u64.to_le_bytes(), 0u64.to_le_bytes()].concat());
        assert_eq!(clock.aim_alarm(), Some(51 + 100));
        clock.note_work(100);
        assert_eq!(clock.alarm()[..8], 2_000u64.to_le_bytes());
        clock.note_reading();
        assert_eq!(clock.aim_alarm(), Some(100 + 1 + 25));
        clock.note_work(125);
        assert_ne!(clock.alarm(), [0; 16]);
        clock.note_work(126);
        assert_eq!((clock.alarm(), clock.aim_alarm()), ([0; 16], Some(0)));
        assert_eq!(clock.aim_alarm(), None);
    }

    #[test]
    fn an_alarm_with_an_interval_arrives_again() {
        let mut clock = VirtualClock::default();
        clock.set_alarm(&[4_000u64.to_le_bytes(), 8_000u64.to_le_bytes()].concat());
        let first = clock.aim_alarm().unwrap();
        clock.note_work(first);
        assert_eq!(clock.alarm()[8..], 8_000u64.to_le_bytes());
        assert_eq!(clock.aim_alarm(), Some(first + 200));
        clock.set_alarm(b"");
        assert_eq!(clock.aim_alarm(), Some(0));
    }
}
