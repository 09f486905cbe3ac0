//! What one run may use, and the watchdog that ends it when its time is over.
//!
//! The deadline costs the guest nothing: compiled code has no checks in its loops. When the run's thread has used its
//! CPU time, the watchdog takes all access to the linear memory away (`mprotect(PROT_NONE)`), the next load or store
//! of the guest faults, and wasmtime turns that into a trap. Host calls touch guest memory too, so they pass a
//! gate: the watchdog never protects the memory while the run is inside a host call, the call traps when it ends.
//! What the gate cannot see is code of the runtime that copies guest memory (`memory.copy`); when that faults, our
//! signal handler gives it the memory back for the moment, and the watchdog tries again a little later.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Result, SandboxError};

/// What one run may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of the thread that runs the guest.
    pub cpu_time: Duration,
    /// Time on the wall, for a machine so busy that the CPU time is not reached.
    pub wall_time: Duration,
    /// Linear memory, the interpreter's own 80 MB included.
    pub memory_bytes: u64,
    /// Bytes on stdout and stderr together.
    pub output_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu_time: Duration::from_secs(5),
            wall_time: Duration::from_secs(30),
            memory_bytes: 512 << 20,
            output_bytes: 1 << 20,
        }
    }
}

/// Address space reserved for a guest's memory: all a 32-bit guest can name.
pub const MEMORY_RESERVATION: usize = 1 << 32;

/// How much memory a fault in the runtime's own code gets back at once.
const LIFTED_WINDOW: usize = 64 << 20;

/// How long the watchdog waits before it protects the memory again, and how precise its wake-ups are.
const RETRY: Duration = Duration::from_millis(1);

/// Where the run is. The watchdog moves it to `EXPIRED`, after which no host call starts and none returns.
const IN_GUEST: u8 = 0;
const IN_HOST: u8 = 1;
const EXPIRED: u8 = 2;

/// The memory under protection, for the signal handler, which can reach nothing else. Zero: none.
static PROTECTED_BASE: AtomicUsize = AtomicUsize::new(0);

struct Armed {
    cpu_deadline: Duration,
    wall_deadline: Instant,
    base: usize,
}

#[derive(Default)]
struct Shared {
    /// The run in progress, and when the watchdog looks next at the latest.
    armed: Mutex<(Option<Armed>, Option<Instant>)>,
    changed: Condvar,
    phase: AtomicU8,
}

/// Ends runs of the thread that made it. One for each process: the signal handler is the process's own.
pub struct Watchdog {
    shared: Arc<Shared>,
}

/// The part of the watchdog that host calls see.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<Shared>,
}

impl Watchdog {
    /// Starts the watchdog thread for runs on the calling thread. Must be called before the first wasmtime engine is
    /// made: faults that are not the guest's are passed on to the handler that was there before wasmtime's.
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
        std::thread::Builder::new()
            .name("torl-watchdog".into())
            .stack_size(256 << 10)
            .spawn(move || watched.watch(clock))
            .map_err(|error| {
                SandboxError::new(format!("cannot start the watchdog thread: {error}"))
            })?;
        Ok(Self { shared })
    }

    pub fn gate(&self) -> Gate {
        Gate {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Starts the clock of a run whose memory lies at `base`. The run is ended until the result is dropped.
    pub fn arm(&self, limits: &Limits, base: *mut u8) -> Armament<'_> {
        let now = Instant::now();
        let soonest = now + limits.cpu_time.min(limits.wall_time);
        let mut armed = self.shared.lock();
        self.shared.phase.store(IN_GUEST, Ordering::SeqCst);
        armed.0 = Some(Armed {
            cpu_deadline: thread_cpu_time() + limits.cpu_time,
            wall_deadline: now + limits.wall_time,
            base: base as usize,
        });
        // A watchdog that wakes in time anyway is left asleep: waking it costs more than a short run.
        if armed.1.is_none_or(|wake| wake > soonest) {
            armed.1 = Some(soonest);
            self.shared.changed.notify_one();
        }
        Armament { watchdog: self }
    }
}

/// A run under the watchdog's eye.
pub struct Armament<'a> {
    watchdog: &'a Watchdog,
}

impl Armament<'_> {
    /// Whether the run's time was over.
    pub fn expired(&self) -> bool {
        self.watchdog.shared.phase.load(Ordering::SeqCst) == EXPIRED
    }
}

impl Drop for Armament<'_> {
    fn drop(&mut self) {
        let mut armed = self.watchdog.shared.lock();
        armed.0 = None;
        PROTECTED_BASE.store(0, Ordering::SeqCst);
    }
}

impl Gate {
    /// Enters a host call; `false` when the run's time is over and the call must trap.
    pub fn enter(&self) -> bool {
        self.shared
            .phase
            .compare_exchange(IN_GUEST, IN_HOST, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Leaves a host call; `false` when the run's time ended meanwhile and the call must trap.
    pub fn leave(&self) -> bool {
        self.shared
            .phase
            .compare_exchange(IN_HOST, IN_GUEST, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, (Option<Armed>, Option<Instant>)> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, clock: libc::clockid_t) {
        let mut protecting = false;
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let wait = match &state.0 {
                None => {
                    protecting = false;
                    None
                }
                Some(run) => {
                    let used = clock_time(clock);
                    if used >= run.cpu_deadline || now >= run.wall_deadline {
                        // From inside a host call the run ends by itself, when the call returns.
                        if self.phase.swap(EXPIRED, Ordering::SeqCst) == IN_GUEST {
                            protecting = true;
                        }
                        if protecting {
                            protect(run.base);
                        }
                        Some(RETRY)
                    } else {
                        protecting = false;
                        Some((run.cpu_deadline - used).min(run.wall_deadline - now))
                    }
                }
            };
            state.1 = wait.map(|wait| now + wait);
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
}

/// Takes all access to the guest's memory away. The caller holds the watchdog's lock, so the memory is still mapped.
fn protect(base: usize) {
    PROTECTED_BASE.store(base, Ordering::SeqCst);
    // SAFETY: the range is the reservation of a live guest memory, which only the guest and host calls use; the gate
    // keeps host calls out.
    let code = unsafe {
        libc::mprotect(
            base as *mut libc::c_void,
            MEMORY_RESERVATION,
            libc::PROT_NONE,
        )
    };
    // Without it the run cannot be ended from inside; the parent's wall deadline kills the process.
    debug_assert_eq!(code, 0);
}

/// Gives guest memory back to code of the runtime that faulted on it, and passes every other fault on.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let base = PROTECTED_BASE.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid `siginfo_t`.
    let address = unsafe { (*info).si_addr() } as usize;
    if base != 0 && address.wrapping_sub(base) < MEMORY_RESERVATION {
        let start = address & !0xffff;
        let length = LIFTED_WINDOW.min(base + MEMORY_RESERVATION - start);
        // SAFETY: `mprotect` is a plain system call, and the range lies in the reservation of the run that expired.
        let code = unsafe {
            libc::mprotect(
                start as *mut libc::c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if code == 0 {
            return;
        }
    }
    // SAFETY: resets the signal to its default; the fault happens again on return and ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

fn install_fault_handler() -> Result<()> {
    // SAFETY: a zeroed `sigaction` is valid, and the handler only makes system calls.
    let code = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut())
    };
    if code == 0 {
        Ok(())
    } else {
        Err(SandboxError::new(format!(
            "cannot install the fault handler: {}",
            std::io::Error::last_os_error()
        )))
    }
}

/// CPU time used by the calling thread.
pub fn thread_cpu_time() -> Duration {
    clock_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writes. A clock that cannot be read leaves zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
