//! The second isolation layer: rights that a worker process drops permanently before it runs untrusted code.
//!
//! The first layer is WebAssembly. If a guest ever escapes it and executes its own code in the worker, that process can
//! only compute, answer its parent and manage memory that is not executable. It cannot open a file, make a socket,
//! start a process, signal another process, or map code. Everything that a run needs is opened before.
//!
//! A kernel service that is missing, or denied by the surrounding container, is skipped and reported in the
//! [`Confinement`]. The active restrictions cannot be removed, not even by this process.

mod calls;
mod rights;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::fs;
use std::io;

use crate::run::protection::MEMORY_RESERVATION;

/// The confinement of a worker process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The active version of Landlock: no files, from version 4 on no TCP, from 6 on no signals to other processes.
    pub landlock: Option<u32>,
    /// Whether the system call filter is active.
    pub seccomp: bool,
    /// The inactive restrictions, each with the reason. Empty if the system supports all of them.
    pub missing: Vec<String>,
}

/// Makes the process exit with its parent, dump no core, gain no privileges, and close all inherited descriptors except
/// standard input, output and error. Every worker calls it first, while it has one thread.
pub fn detach() {
    // SAFETY: plain system calls on this process alone, with valid arguments; nothing in it uses a descriptor above 2 yet.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        // Large buffers return to the system when they are freed. (Setting it keeps glibc from raising it.)
        #[cfg(target_env = "gnu")]
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        // The mask is inherited, and the parent may block any signal: faults of the guest, the end of its time.
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
    // If these two fail, only disk space is lost to a crash, and a crash is an outcome.
    let _ = limit(libc::RLIMIT_CORE, 0);
    // A core that is piped to a program has no size limit: exclude all memory.
    let _ = fs::write("/proc/self/coredump_filter", "0");
}

/// Drops, on every thread and permanently, all rights that serving runs does not need. All required files must be open
/// and all threads started.
pub fn confine() -> Confinement {
    let mut confinement = Confinement::default();
    let mut missing = Vec::new();
    let mut note = |wall: &str, result: Result<(), String>| {
        if let Err(reason) = result {
            missing.push(format!("{wall}: {reason}"));
        }
    };
    // In this order: each step needs a right that a later one drops.
    note("memory limit", limit_memory());
    note(
        "Landlock",
        rights::drop_rights().map(|version| confinement.landlock = Some(version)),
    );
    note("resource limits", limit_resources());
    note(
        "seccomp",
        calls::filter().map(|()| confinement.seccomp = true),
    );
    confinement.missing = missing;
    confinement
}

/// Maximum growth of a worker's private writable address space after it has loaded the guest: the largest memory of a
/// guest, plus its output and exceptions. This bounds the memory that a compromised worker can take from the machine;
/// the limit of a run is checked when its memory grows.
const DATA_BYTES: u64 = MEMORY_RESERVATION as u64 + (2 << 30);

/// Number of bytes that a worker may append to a standard error that is a file: ample for final messages, too little to
/// fill a disk.
const MESSAGE_BYTES: u64 = 64 << 20;

fn limit_memory() -> Result<(), String> {
    let status = fs::read_to_string("/proc/self/status").map_err(text)?;
    let size: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmData:")?.trim().strip_suffix(" kB"))
        .and_then(|kilobytes| kilobytes.parse().ok())
        .ok_or("the kernel does not report the size of this process")?;
    limit(libc::RLIMIT_DATA, (size << 10) + DATA_BYTES)
}

fn limit_resources() -> Result<(), String> {
    // No process and no thread. The kernel does not apply this one to root; the system call filter does.
    limit(libc::RLIMIT_NPROC, 0)?;
    limit(libc::RLIMIT_FSIZE, MESSAGE_BYTES + size_of_standard_error())?;
    // No new descriptor: the limit is the lowest free number. Higher ones in use stay open.
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

/// Returns the entries of a directory of the process file system that are numbers.
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
