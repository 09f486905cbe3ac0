//! The system call filter of a worker, applied by the kernel.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::{last_error, text};
use crate::run::reset::{PAGEMAP_SCAN, UFFDIO_REGISTER, UFFDIO_WRITEPROTECT};

/// linux/mman.h; missing in the `libc` crate.
const MAP_DROPPABLE: u64 = 0x08;

// Calls that only older architectures have, instead of newer ones.
#[cfg(target_arch = "x86_64")]
const OLD_POLL: &[libc::c_long] = &[libc::SYS_poll];
#[cfg(target_arch = "x86_64")]
const OLD_LOOKS: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_readlink,
    libc::SYS_access,
    libc::SYS_stat,
    libc::SYS_lstat,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_POLL: &[libc::c_long] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OLD_LOOKS: &[libc::c_long] = &[];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the filter on all threads. A call outside of the filter kills the process.
pub fn filter() -> Result<(), String> {
    let architecture = std::env::consts::ARCH.try_into().map_err(text)?;
    let compile = |rules, other, named| -> Result<BpfProgram, String> {
        SeccompFilter::new(rules, other, named, architecture)
            .and_then(TryInto::try_into)
            .map_err(text)
    };
    let mut known = needed().map_err(text)?;
    known.extend(refused());
    let kill = compile(known, SeccompAction::KillProcess, SeccompAction::Allow)?;
    let refuse = compile(
        refused(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EACCES as u32),
    )?;
    // Of two filters the stricter result counts. The killing one comes last, because it does not allow another one.
    install(&refuse)?;
    install(&kill)
}

pub fn install(filter: &BpfProgram) -> Result<(), String> {
    // On all threads. Before Linux 5.16 a filter enabled a protection against speculative loads by default, which slows
    // down interpreters; a worker holds no secrets.
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast::<libc::sock_filter>().cast_mut(),
    };
    // SAFETY: the kernel copies a valid program; both crates' instructions are the kernel's structure.
    let code = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    match code {
        0 => Ok(()),
        -1 => Err(last_error()),
        thread => Err(format!("thread {thread} has a different filter")),
    }
}

/// Returns the calls that serving runs needs. Calls with listed arguments are only allowed with those.
fn needed() -> Result<Rules, seccompiler::BackendError> {
    let mut rules: Rules = [
        // Communication with the parent.
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_ppoll,
        // Waiting, and time.
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_sched_yield,
        libc::SYS_timer_settime,
        libc::SYS_timer_delete,
        // Memory. Only open files can be mapped.
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_pread64,
        libc::SYS_close,
        // Faults of the guest.
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        // Calls of libraries: seeds of hash tables, the number of cores for the allocator.
        libc::SYS_getrandom,
        libc::SYS_sched_getaffinity,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ]
    .into_iter()
    .map(|call| (call, Vec::new()))
    .collect();
    rules.extend(OLD_POLL.iter().map(|&call| (call, Vec::new())));

    let argument =
        |index, test, value| SeccompCondition::new(index, SeccompCmpArgLen::Dword, test, value);
    let equal = |index, value| argument(index, SeccompCmpOp::Eq, value);
    let masked = |index, mask, value| argument(index, SeccompCmpOp::MaskedEq(mask), value);
    // No new machine code; no shared, huge or growing memory, which the memory limit would not count.
    let not_executable = || masked(2, libc::PROT_EXEC as u64, 0);
    let kind = (libc::MAP_TYPE | libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) as u64;
    let mut maps = Vec::new();
    for allowed in [libc::MAP_PRIVATE as u64, MAP_DROPPABLE] {
        maps.push(SeccompRule::new(vec![
            not_executable()?,
            masked(3, kind, allowed)?,
        ])?);
    }
    rules.insert(libc::SYS_mmap, maps);
    rules.insert(
        libc::SYS_mprotect,
        vec![SeccompRule::new(vec![not_executable()?])?],
    );
    // Tracking of the pages that a run wrote to.
    let mut requests = Vec::new();
    for request in [UFFDIO_REGISTER, UFFDIO_WRITEPROTECT, PAGEMAP_SCAN] {
        requests.push(SeccompRule::new(vec![equal(1, request)?])?);
    }
    rules.insert(libc::SYS_ioctl, requests);
    // `abort`.
    let itself = u64::from(std::process::id());
    rules.insert(
        libc::SYS_tgkill,
        vec![SeccompRule::new(vec![equal(0, itself)?])?],
    );
    Ok(rules)
}

/// Returns the calls that libraries may try, and can do without: they fail with an error and execution continues. (The
/// allocator reads a setting of the kernel before it releases memory; a panic looks for its own symbols.)
fn refused() -> Rules {
    [
        libc::SYS_openat,
        libc::SYS_readlinkat,
        libc::SYS_faccessat,
        libc::SYS_newfstatat,
        libc::SYS_fstat,
        libc::SYS_statx,
        libc::SYS_getcwd,
        libc::SYS_fcntl,
        libc::SYS_uname,
        libc::SYS_sysinfo,
        libc::SYS_prlimit64,
    ]
    .iter()
    .chain(OLD_LOOKS)
    .map(|&call| (call, Vec::new()))
    .collect()
}
