//! The watchdog that ends a run when its time is over.
//!
//! The deadline costs the guest nothing: compiled code has no checks in its loops. When the run's thread has used its
//! CPU time, the watchdog revokes all access to the linear memory (`mprotect(PROT_NONE)`). The next load or store of
//! the guest faults, and wasmtime turns that into a trap. Host calls access guest memory too, so they pass a gate: the
//! watchdog never protects the memory while the run is inside a host call, and the call traps when it ends. The gate
//! does not cover code of the runtime that copies guest memory (`memory.copy`). When that faults, the signal handler
//! temporarily restores the memory, and the watchdog tries again a little later.
//!
//! The watchdog is a thread, which a busy machine may not schedule while the run continues. So the kernel also notifies
//! the run's own thread, by a timer on its CPU time: its signal handler revokes the access in the same way.
//!
//! A run of a session is interrupted first, like a notebook's cell: the interpreter raises `KeyboardInterrupt` at its
//! current position, and a run that ends by it leaves a state that can be continued. A run that continues loses access
//! to its memory a little later. So does a run that delays interrupts for longer: the driver does before the program
//! starts, and while a module is imported.
//!
//! A loop that accesses no memory never faults (a polynomial of degree 2³¹ is such a loop), and a copy of hundreds of
//! megabytes takes long. Such a run is ended with its process: the watchdog reports the outcome instead of the stuck
//! thread. So is a run that seems stuck because the machine took the core away from it.

use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Result, SandboxError};
use crate::limits::Limits;
use crate::outcome::{Outcome, Status};
use crate::run::cpu_time::{CpuTimer, clock_time, thread_cpu_time};
use crate::run::interrupt::Interrupt;
use crate::run::output::Output;
use crate::run::protection::{forget, install_fault_handler, is_protected, protect};

/// Interval at which the watchdog protects the memory again, and the precision of its wake-ups.
const RETRY: Duration = Duration::from_millis(1);

/// Grace period of an interrupted run, in CPU time and wall-clock time.
const GRACE: Duration = Duration::from_millis(100);

/// CPU time that a run may use after its memory was protected. Page tables of hundreds of megabytes, and a virtual core
/// that the machine gives to others, take more than ten milliseconds of it; another worker costs more than this.
const LAST_RESORT: Duration = Duration::from_millis(100);

const THREAD_NAME: &str = "torl-watchdog";

/// The position of the run. The watchdog moves it to `EXPIRED`, after which no host call starts and none returns.
const IN_GUEST: u8 = 0;
const IN_HOST: u8 = 1;
const EXPIRED: u8 = 2;

/// The state for the signal handler of the timer: the watchdog's own, which lives as long as the process.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

/// The watchdog's state of an active run.
struct ArmedRun {
    limits: Limits,
    cpu_start: Duration,
    start: Instant,
    base: usize,
    output: Arc<Mutex<Output>>,
    /// The grace period after the end of its time: it has been interrupted.
    grace: Duration,
    /// The CPU time at which its memory was first found protected.
    protected: Option<Duration>,
}

#[derive(Default)]
struct State {
    run: Option<ArmedRun>,
    /// The latest time of the watchdog's next check.
    wake: Option<Instant>,
    report: Option<Report>,
}

/// Reports the outcome of a run that does not end by itself, and its progress.
type Report = Box<dyn Fn(Outcome, u32) + Send>;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    phase: AtomicU8,
    memory_bytes: AtomicU64,
    /// The end of the last complete statement in the code of the active run, in bytes.
    progress: AtomicU32,
    /// The memory of the active run, for the signal handler. Zero: none.
    base: AtomicUsize,
    /// The flags of an interrupt, once known.
    interrupt: OnceLock<Interrupt>,
    /// CPU time of the thread in nanoseconds until which the active run is interrupted and not ended. Zero: never.
    interrupted_until: AtomicU64,
    /// Whether the active run has been interrupted.
    interrupted: AtomicBool,
    /// Whether the guest is in an operation that an interrupt would leave half done.
    held: AtomicBool,
}

/// Ends runs of the thread that created it. One per process: the signal handler belongs to the process.
pub struct Watchdog {
    shared: Arc<Shared>,
    /// `None` if the system lacks CPU timers.
    timer: Option<CpuTimer>,
}

/// The part of the watchdog that host calls see.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<Shared>,
}

impl Watchdog {
    /// Starts the watchdog thread for runs on the calling thread. Must be called before the first wasmtime engine is
    /// made: faults outside of the guest are forwarded to the handler that was installed before wasmtime's.
    pub fn start() -> Result<Self> {
        install_fault_handler()?;
        let mut clock: libc::clockid_t = 0;
        // SAFETY: the calling thread is alive and `clock` is valid for writes.
        let code = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        if code != 0 {
            return Err(SandboxError::new(format!(
                "no CPU clock for the run's thread (error {code})"
            )));
        }
        let shared = Arc::new(Shared::default());
        let watched = Arc::clone(&shared);
        // A starting thread makes system calls (it sets its name) that the confinement of a worker removes.
        let begun = Arc::new(Barrier::new(2));
        let here = Arc::clone(&begun);
        std::thread::Builder::new()
            .name(THREAD_NAME.into())
            .stack_size(256 << 10)
            .spawn(move || {
                here.wait();
                watched.watch(clock);
            })
            .map_err(|error| SandboxError::thread(THREAD_NAME, &error))?;
        begun.wait();
        // One reference belongs to the signal handler permanently.
        SHARED.store(
            Arc::into_raw(Arc::clone(&shared)).cast_mut(),
            Ordering::SeqCst,
        );
        Ok(Self {
            shared,
            timer: CpuTimer::of_this_thread(on_cpu_time),
        })
    }

    pub fn gate(&self) -> Gate {
        Gate {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Sets the callback that reports a run that cannot be ended from outside, right before this process exits.
    pub fn set_last_resort(&mut self, report: impl Fn(Outcome, u32) + Send + 'static) {
        self.shared.lock().report = Some(Box::new(report));
    }

    /// Sets the interrupt of interruptible runs.
    pub fn set_interrupt(&self, interrupt: Interrupt) {
        self.shared.interrupt.get_or_init(|| interrupt);
    }

    /// Starts the clock of a run with `memory_bytes` of memory at `base`, which writes to `output`. When its time is
    /// over, the run is ended, unless the result was dropped before; an `interruptible` run is interrupted first.
    pub fn arm(
        &self,
        limits: &Limits,
        base: *mut u8,
        memory_bytes: u64,
        output: Arc<Mutex<Output>>,
        interruptible: bool,
    ) -> WatchedRun<'_> {
        let grace = if interruptible && self.shared.interrupt.get().is_some() {
            GRACE
        } else {
            Duration::ZERO
        };
        let start = Instant::now();
        let cpu_start = thread_cpu_time();
        let soonest = start + limits.cpu_time.min(limits.wall_time);
        let mut state = self.shared.lock();
        self.shared.phase.store(IN_GUEST, Ordering::SeqCst);
        self.shared
            .memory_bytes
            .store(memory_bytes, Ordering::Relaxed);
        self.shared.progress.store(0, Ordering::Relaxed);
        state.run = Some(ArmedRun {
            limits: *limits,
            cpu_start,
            start,
            base: base as usize,
            output,
            grace,
            protected: None,
        });
        let until = (cpu_start + limits.cpu_time + grace).as_nanos();
        let until = if grace.is_zero() { 0 } else { until as u64 };
        self.shared.interrupted_until.store(until, Ordering::SeqCst);
        self.shared.interrupted.store(false, Ordering::SeqCst);
        self.shared.held.store(true, Ordering::SeqCst);
        self.shared.base.store(base as usize, Ordering::SeqCst);
        if let Some(timer) = &self.timer {
            timer.set(limits.cpu_time, grace);
        }
        // A watchdog that wakes in time anyway is not notified: a notification costs more than a short run.
        if state.wake.is_none_or(|wake| wake > soonest) {
            state.wake = Some(soonest);
            self.shared.changed.notify_one();
        }
        WatchedRun { watchdog: self }
    }
}

/// A run that the watchdog monitors.
pub struct WatchedRun<'a> {
    watchdog: &'a Watchdog,
}

impl WatchedRun<'_> {
    /// Stops the clock, and returns the progress of the run and the actions of the watchdog.
    pub fn end(self) -> Ended {
        // Not before the watchdog releases the run.
        let shared = &self.watchdog.shared;
        drop(self);
        Ended {
            expired: shared.phase.load(Ordering::SeqCst) == EXPIRED,
            interrupted: shared.interrupted.load(Ordering::SeqCst),
            progress: shared.progress.load(Ordering::Relaxed),
        }
    }
}

/// The end of a run, and the actions of the watchdog if its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The run was ended: its memory may be protected.
    pub expired: bool,
    /// It was interrupted. The interpreter may not have handled the interrupt.
    pub interrupted: bool,
    /// The end of the last complete statement of a session's run in its code, in bytes, if the driver has reported one.
    pub progress: u32,
}

impl Drop for WatchedRun<'_> {
    fn drop(&mut self) {
        // Its signal arrives on this very thread, so before this returns or not at all.
        if let Some(timer) = &self.watchdog.timer {
            timer.set(Duration::ZERO, Duration::ZERO);
        }
        let mut state = self.watchdog.shared.lock();
        self.watchdog.shared.base.store(0, Ordering::SeqCst);
        state.run = None;
        forget();
    }
}

impl ArmedRun {
    /// Returns the outcome of a run that `used` this CPU time, for a run that cannot report it.
    fn outcome(&self, used: Duration, memory_bytes: u64) -> Outcome {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        Outcome {
            stdout: std::mem::take(&mut output.stdout),
            stderr: std::mem::take(&mut output.stderr),
            cpu_time: used,
            peak_memory_bytes: memory_bytes,
            ..Outcome::without_guest(Status::Timeout, self.start.elapsed())
        }
    }
}

impl Gate {
    /// Notifies the watchdog that the run's memory grows.
    pub fn note_memory(&self, bytes: u64) {
        self.shared.memory_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Notifies the watchdog that the statements up to this byte of the code are complete.
    pub fn note_progress(&self, bytes: u32) {
        self.shared.progress.store(bytes, Ordering::Relaxed);
    }

    /// Enters a host call; returns `false` if the run's time is over and the call must trap.
    pub fn enter(&self) -> bool {
        self.shared
            .phase
            .compare_exchange(IN_GUEST, IN_HOST, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Delays interrupts, or allows them. Every run starts with delayed interrupts.
    pub fn hold_interrupts(&self, held: bool) {
        // The watchdog holds the lock while it interrupts, so it does not do so after this call.
        let _state = self.shared.lock();
        self.shared.held.store(held, Ordering::SeqCst);
    }

    /// Whether the run's time ended during the current host call, so that a long call must stop.
    pub fn is_expired(&self) -> bool {
        self.shared.phase.load(Ordering::SeqCst) == EXPIRED
    }

    #[cfg(test)]
    pub fn expire(&self) {
        self.shared.phase.store(EXPIRED, Ordering::SeqCst);
    }

    /// Leaves a host call; returns `false` if the run's time ended during the call and the call must trap.
    pub fn leave(&self) -> bool {
        self.shared
            .phase
            .compare_exchange(IN_HOST, IN_GUEST, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, clock: libc::clockid_t) {
        let mut state = self.lock();
        loop {
            let wait = self.look(&mut state, clock);
            state.wake = wait.map(|wait| Instant::now() + wait);
            state = match wait {
                Some(wait) => {
                    self.changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Interrupts the active run, unless it delays interrupts, and repeats that until it has handled the interrupt. The
    /// caller holds the lock, or is the run's own thread: the memory is still mapped.
    fn interrupt(&self, base: usize) {
        let Some(interrupt) = self.interrupt.get() else {
            return;
        };
        if self.held.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: the image is at the start of the memory, which is not protected.
        unsafe {
            if self.interrupted.swap(true, Ordering::SeqCst) {
                interrupt.repeat(base);
            } else {
                interrupt.set(base);
            }
        }
    }

    /// Ends the active run if its time is over; returns the time until the next check.
    fn look(&self, state: &mut State, clock: libc::clockid_t) -> Option<Duration> {
        let run = state.run.as_mut()?;
        let now = clock_time(clock);
        let used = now.saturating_sub(run.cpu_start);
        let elapsed = run.start.elapsed();
        if used < run.limits.cpu_time && elapsed < run.limits.wall_time {
            return Some((run.limits.cpu_time - used).min(run.limits.wall_time - elapsed));
        }
        if used < run.limits.cpu_time + run.grace && elapsed < run.limits.wall_time + run.grace {
            self.interrupt(run.base);
            return Some(RETRY);
        }
        // Inside a host call, the run ends by itself when the call returns. A run that the timer has stopped was
        // outside of one.
        let before = self.phase.swap(EXPIRED, Ordering::SeqCst);
        if before == IN_GUEST || is_protected() {
            run.protected.get_or_insert(now);
        }
        if let Some(since) = run.protected {
            protect(run.base);
            if now.saturating_sub(since) > LAST_RESORT
                && let Some(report) = &state.report
            {
                // No host call has started since, so the output does not change; and the run's thread cannot leave
                // while the state is locked.
                report(
                    run.outcome(used, self.memory_bytes.load(Ordering::Relaxed)),
                    self.progress.load(Ordering::Relaxed),
                );
                // SAFETY: ends the process at once, without the destructors that the stuck thread would disturb.
                unsafe { libc::_exit(0) };
            }
        }
        Some(RETRY)
    }
}

/// Does on the run's own thread the same as the watchdog when it wakes for its CPU time.
extern "C" fn on_cpu_time(_signal: libc::c_int) {
    // SAFETY: null or a reference that is never released.
    let Some(shared) = (unsafe { SHARED.load(Ordering::SeqCst).as_ref() }) else {
        return;
    };
    // SAFETY: the location belongs to this thread.
    let errno = unsafe { *libc::__errno_location() };
    let base = shared.base.load(Ordering::SeqCst);
    let used = thread_cpu_time().as_nanos() as u64;
    if base != 0 && used < shared.interrupted_until.load(Ordering::SeqCst) {
        shared.interrupt(base);
    } else if base != 0 && shared.phase.swap(EXPIRED, Ordering::SeqCst) == IN_GUEST {
        protect(base);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::interrupt::Word;

    #[test]
    fn an_interrupt_waits_for_its_permission_and_is_set_once() {
        let word = |index: u32| Word {
            address: 4 * index,
            bits: 1,
        };
        let words = [word(0), word(1), word(2)];
        let gate = Gate::default();
        gate.shared.interrupt.get_or_init(|| Interrupt { words });
        let mut memory = [0u32; 3];
        let base = memory.as_mut_ptr() as usize;
        gate.hold_interrupts(true);
        gate.shared.interrupt(base);
        assert_eq!(memory, [0, 0, 0]);
        gate.hold_interrupts(false);
        gate.shared.interrupt(base);
        assert_eq!(memory, [1, 1, 1]);
        // The interpreter has called the handler, and checks once more because that has raised.
        memory = [0, 1, 1];
        gate.shared.interrupt(memory.as_mut_ptr() as usize);
        assert_eq!(memory, [0, 1, 1]);
    }

    /// Otherwise the kernel kills a worker that is faster than its watchdog thread, on a busy machine.
    #[test]
    fn the_thread_has_begun_when_it_is_started() {
        let _watchdog = Watchdog::start().unwrap();
        let names = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")));
        assert!(names.flatten().any(|name| name.trim() == THREAD_NAME));
    }
}
