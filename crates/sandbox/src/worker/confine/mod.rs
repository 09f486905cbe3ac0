//! The second wall: what a worker process gives up for good before it runs untrusted code.
//!
//! The first wall is WebAssembly. Should a guest ever get through it and run code of its own in the worker, it finds a
//! process that can compute, answer its parent and manage memory that is not executable, and that can do nothing else:
//! open no file, make no socket, start no process, signal nobody, map no code. Everything a run needs is opened before.
//!
//! A service of the kernel that is missing, or refused by the container around us, is left out and reported in the
//! [`Confinement`]. Of what is there nothing can be taken back, not even by this process.

mod calls;
mod rights;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::fs;
use std::io;

use crate::run::protection::MEMORY_RESERVATION;

/// The walls around a worker process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The version of Landlock in force: no files, and from version 4 on no TCP, from 6 on no signals to others.
    pub landlock: Option<u32>,
    /// Whether the filter of system calls is in force.
    pub seccomp: bool,
    /// What is not in force, each with the reason. Empty where the system has all of it.
    pub missing: Vec<String>,
}

/// Ends with the parent, dumps no core, gains no privileges, and holds nothing of the parent's but standard input,
/// output and error. For every worker, first of all, while it has one thread.
pub fn detach() {
    // SAFETY: plain system calls on this process alone, with valid arguments; nothing in it uses a descriptor above 2 yet.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        // Large buffers go back to the system when they are freed. (Setting it keeps glibc from raising it.)
        #[cfg(target_env = "gnu")]
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        // The mask is inherited, and the parent may block any: faults of the guest, the end of its time.
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
        if libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) != 0 {
            // Linux before 5.9.
            for descriptor in numbers_in("/proc/self/fd").unwrap_or_default() {
                if descriptor > 2 {
                    libc::close(descriptor);
                }
            }
        }
    }
    // What these two miss is disk space lost to a crash, and a crash is an outcome.
    let _ = limit(libc::RLIMIT_CORE, 0);
    // A core that is piped to a program knows no limit: let it hold no memory.
    let _ = fs::write("/proc/self/coredump_filter", "0");
}

/// Gives up, on every thread and for good, all that serving runs does not need. Everything that a run needs must be
/// open and every thread started.
pub fn confine() -> Confinement {
    let mut confinement = Confinement::default();
    let mut missing = Vec::new();
    let mut note = |wall: &str, result: Result<(), String>| {
        if let Err(reason) = result {
            missing.push(format!("{wall}: {reason}"));
        }
    };
    // In this order: each step needs what the later ones take away.
    note("memory limit", limit_memory());
    note(
        "Landlock",
        rights::give_up().map(|version| confinement.landlock = Some(version)),
    );
    note("resource limits", limit_resources());
    note(
        "seccomp",
        calls::filter().map(|()| confinement.seccomp = true),
    );
    confinement.missing = missing;
    confinement
}

/// Address space that a worker may come to hold as private writable memory, over what it holds when it has loaded the
/// guest: the largest memory a guest can have, and room for its output and exceptions. A bound on what a worker that was
/// taken over can take from the machine; the limit of a run is checked where its memory grows.
const DATA_BYTES: u64 = MEMORY_RESERVATION as u64 + (2 << 30);

/// How much a worker may add to standard error where that is a file: ample for its last words, too little to fill a disk.
const MESSAGE_BYTES: u64 = 64 << 20;

fn limit_memory() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").map_err(text)?;
    let held: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmData:")?.trim().strip_suffix(" kB"))
        .and_then(|kilobytes| kilobytes.parse().ok())
        .ok_or("the kernel does not tell the size of this process")?;
    limit(libc::RLIMIT_DATA, (held << 10) + DATA_BYTES)
}

fn limit_resources() -> Result<(), String> {
    // No process and no thread. The kernel does not hold root to this one; the filter of system calls does.
    limit(libc::RLIMIT_NPROC, 0)?;
    limit(libc::RLIMIT_FSIZE, MESSAGE_BYTES + size_of_standard_error())?;
    // No new descriptor: the limit is the lowest number that is free. Those in use above it stay.
    // SAFETY: plain system calls; the duplicate is closed at once.
    let free = unsafe { libc::dup(0) };
    if free < 0 {
        return Err(last_error());
    }
    // SAFETY: as above.
    unsafe { libc::close(free) };
    limit(libc::RLIMIT_NOFILE, free as u64)
}

fn size_of_standard_error() -> u64 {
    // SAFETY: a zeroed `stat` is valid, and it is valid for writes.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(2, &raw mut stat) == 0 {
            u64::try_from(stat.st_size).unwrap_or(0)
        } else {
            0
        }
    }
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn limit(resource: Resource, value: u64) -> Result<(), String> {
    let value = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: a valid structure for the calling process.
    if unsafe { libc::setrlimit(resource, &raw const value) } == 0 {
        Ok(())
    } else {
        Err(last_error())
    }
}

/// The entries of a directory of the process file system that are numbers.
fn numbers_in(directory: &str) -> io::Result<Vec<libc::c_int>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        if let Some(number) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

fn text(error: impl Display) -> String {
    error.to_string()
}

fn last_error() -> String {
    io::Error::last_os_error().to_string()
}
