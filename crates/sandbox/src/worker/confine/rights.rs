//! The rights of a thread: Landlock, capabilities.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetCreated, Scope,
};

use super::{numbers_in, text};

/// Drops every capability, and with Landlock every access to files, TCP and other processes, on all threads. Returns
/// the version of Landlock.
pub fn drop_rights() -> Result<u32, String> {
    let ruleset = ruleset();
    let others: Option<OwnedFd> = match &ruleset {
        Ok(ruleset) => ruleset.try_clone().map_err(text)?.into(),
        Err(_) => None,
    };
    // Both are properties of a thread. This one is last: it reads the list of threads.
    let signaled = signal_other_threads(others.as_ref().map_or(-1, AsRawFd::as_raw_fd));
    let dropped = drop_capabilities();
    let restricted = ruleset.and_then(RulesetCreated::restrict_self);
    signaled.map_err(|error| format!("not on every thread: {error}"))?;
    dropped.map_err(|error| format!("capabilities stay: {error}"))?;
    match restricted.map_err(text)?.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as u32),
        LandlockStatus::NotEnabled => Err("switched off on this system".into()),
        LandlockStatus::NotImplemented => Err("not in this kernel, or not allowed here".into()),
    }
}

/// Returns the rules that allow nothing: all restrictions of this kernel that were tested with this code.
fn ruleset() -> Result<RulesetCreated, landlock::RulesetError> {
    const NEWEST: ABI = ABI::V9;
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

fn drop_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    // Effective, permitted, inheritable; twice, for 64 bits.
    let none = [0u32; 6];
    // SAFETY: both structures have the layout of version 3; the call affects this thread alone.
    match unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The signal that makes a thread drop its rights.
pub const DROP_RIGHTS: libc::c_int = libc::SIGUSR1;
const ANSWER_TIME: Duration = Duration::from_secs(5);

// State for the signal handler.
static RULESET: AtomicI32 = AtomicI32::new(-1);
static ANSWERS: AtomicUsize = AtomicUsize::new(0);
static REFUSAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn give_up_here(_signal: libc::c_int) {
    // SAFETY: the location belongs to this thread.
    let errno = unsafe { *libc::__errno_location() };
    let ruleset = RULESET.load(Ordering::SeqCst);
    let result = drop_capabilities().and_then(|()| match ruleset {
        -1 => Ok(()),
        // SAFETY: a plain system call; the descriptor stays open until every thread has answered.
        _ => match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        },
    });
    if let Err(error) = result {
        REFUSAL.store(error.raw_os_error().unwrap_or(libc::EIO), Ordering::SeqCst);
    }
    ANSWERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Makes every other thread of the process drop its rights, in a signal handler.
fn signal_other_threads(ruleset: RawFd) -> io::Result<()> {
    RULESET.store(ruleset, Ordering::SeqCst);
    // SAFETY: a zeroed `sigaction` is valid, and the handler makes system calls and touches atomics only.
    let before = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = give_up_here as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(DROP_RIGHTS, &raw const action, &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        before
    };
    // SAFETY: plain system calls.
    let (process, this) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    let mut signaled = BTreeSet::from([this as libc::pid_t]);
    let deadline = Instant::now() + ANSWER_TIME;
    // An unsignaled thread may have started another: repeat until no new thread appears.
    loop {
        let threads = numbers_in("/proc/self/task")?;
        let new: Vec<_> = threads
            .into_iter()
            .filter(|&thread| signaled.insert(thread))
            .collect();
        if new.is_empty() {
            break;
        }
        let answers = ANSWERS.load(Ordering::SeqCst) + new.len();
        for thread in new {
            // SAFETY: a plain system call on a thread of this process.
            if unsafe { libc::syscall(libc::SYS_tgkill, process, thread, DROP_RIGHTS) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        while ANSWERS.load(Ordering::SeqCst) < answers {
            if Instant::now() > deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a thread does not handle signals",
                ));
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    // Not while a thread has yet to answer: the signal would end the process then.
    // SAFETY: the previous handler.
    unsafe { libc::sigaction(DROP_RIGHTS, &raw const before, std::ptr::null_mut()) };
    match REFUSAL.load(Ordering::SeqCst) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
