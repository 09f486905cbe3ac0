//! The CPU time of a thread: its value, and a signal when it reaches a limit.

use std::time::Duration;

/// A timer on the CPU time of its creating thread, which receives the signal.
pub struct CpuTimer(libc::timer_t);

// SAFETY: the id of a timer is valid for every thread of the process.
unsafe impl Send for CpuTimer {}
// SAFETY: as above; the kernel's calls are atomic.
unsafe impl Sync for CpuTimer {}

const CPU_TIME_IS_OVER: libc::c_int = libc::SIGALRM;

impl CpuTimer {
    /// Returns a timer that calls `handler` on this thread; `None` if the system lacks CPU timers. The handler must be
    /// async-signal-safe.
    pub fn of_this_thread(handler: extern "C" fn(libc::c_int)) -> Option<Self> {
        // SAFETY: zeroed structures are valid, and the written ones are valid for writes; the caller provides the
        // handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&raw mut signals, CPU_TIME_IS_OVER);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = CPU_TIME_IS_OVER;
            event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as libc::c_int;
            let mut timer: libc::timer_t = std::mem::zeroed();
            let clock = libc::CLOCK_THREAD_CPUTIME_ID;
            let made = libc::sigaction(CPU_TIME_IS_OVER, &raw const action, std::ptr::null_mut())
                == 0
                && libc::pthread_sigmask(
                    libc::SIG_UNBLOCK,
                    &raw const signals,
                    std::ptr::null_mut(),
                ) == 0
                && libc::timer_create(clock, &raw mut event, &raw mut timer) == 0;
            made.then_some(Self(timer))
        }
    }

    /// Makes the signal arrive after this much more CPU time of the thread (zero: never), and again after every `again`
    /// (zero: once).
    pub fn set(&self, rest: Duration, again: Duration) {
        let time = |duration: Duration| libc::timespec {
            tv_sec: duration.as_secs().min(1 << 32) as libc::time_t,
            tv_nsec: duration.subsec_nanos() as libc::c_long,
        };
        let value = libc::itimerspec {
            it_interval: time(again),
            it_value: time(rest),
        };
        // SAFETY: a valid structure and a timer of this process. If it fails, the watchdog's thread still works.
        unsafe { libc::timer_settime(self.0, 0, &raw const value, std::ptr::null_mut()) };
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: the timer is not used any more.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Returns the CPU time used by the calling thread.
pub fn thread_cpu_time() -> Duration {
    clock_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the time on a clock of the system.
pub fn clock_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writes. A clock that cannot be read leaves zero.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
