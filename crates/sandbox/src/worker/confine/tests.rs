//! Tests of the confinement. Each attempt to escape is real, in a separate process that has dropped its rights.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::calls::install;
use super::*;
use crate::run::reset::{PAGEMAP_SCAN, UFFDIO_REGISTER, UFFDIO_WRITEPROTECT};

/// Exit codes of a child whose attempt was possible, and of a child that could not even try.
const POSSIBLE: i32 = 200;
const UNABLE: i32 = 201;
const NOBODY: libc::uid_t = 65534;

/// Forks, and returns the exit status of the child: the number that `body` returned, or a signal.
fn in_child(body: impl FnOnce() -> i32) -> ExitStatus {
    // SAFETY: the child has this thread only, never returns from here, and touches no lock of the test harness.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "{}", last_error());
        if child == 0 {
            let body = std::panic::AssertUnwindSafe(body);
            libc::_exit(std::panic::catch_unwind(body).unwrap_or(UNABLE));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        ExitStatus::from_raw(status)
    }
}

/// Runs `attempt` in a child confined by `build`: on the thread that called it, and on a thread that existed before; as
/// this user, and as a user without privileges.
fn attempts<T: Send + 'static>(
    open: impl Fn() -> T,
    build: impl Fn(),
    attempt: fn(&T) -> i32,
) -> Vec<ExitStatus> {
    let root = unsafe { libc::geteuid() } == 0;
    let mut ends = Vec::new();
    for nobody in [false, true] {
        for other_thread in [false, true] {
            if nobody && !root {
                continue;
            }
            ends.push(in_child(|| {
                detach();
                if nobody {
                    become_nobody();
                }
                let opened = open();
                if !other_thread {
                    build();
                    return attempt(&opened);
                }
                let (start, started) = mpsc::channel::<()>();
                let thread = std::thread::spawn(move || {
                    started.recv().unwrap();
                    attempt(&opened)
                });
                build();
                start.send(()).unwrap();
                thread.join().unwrap_or(UNABLE)
            }));
        }
    }
    ends
}

/// Makes this process one of an ordinary user, if it belongs to root.
fn become_nobody() {
    // SAFETY: plain system calls; the process has one thread. Processes of an ordinary user may inspect themselves,
    // unlike processes that changed their user.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setresuid(NOBODY, NOBODY, NOBODY), 0);
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
        }
    }
}

fn assert_all(ends: &[ExitStatus], wanted: ExitStatus, name: &str) {
    for (index, end) in ends.iter().enumerate() {
        assert_eq!(*end, wanted, "{name}, case {index}");
    }
}

fn refused(code: i32) -> ExitStatus {
    ExitStatus::from_raw(code << 8)
}

fn killed(signal: i32) -> ExitStatus {
    ExitStatus::from_raw(signal)
}

fn all_walls() {
    let confinement = confine();
    assert!(confinement.seccomp, "{:?}", confinement.missing);
}

fn rights_only() {
    rights::drop_rights().unwrap();
}

/// Returns the version of Landlock in this kernel; 0 for a kernel without Landlock.
fn landlock_version() -> i32 {
    in_child(|| rights::drop_rights().map_or(0, |version| version as i32))
        .code()
        .unwrap()
}

/// Converts the result of a system call to the exit code of a child.
fn answer(result: libc::c_long) -> i32 {
    match result {
        -1 => io::Error::last_os_error().raw_os_error().unwrap(),
        _ => POSSIBLE,
    }
}

fn result_of<T>(result: io::Result<T>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(UNABLE), |_| POSSIBLE)
}

type Attempt = (&'static str, fn(&()) -> i32);

macro_rules! call {
    ($call:ident $(, $argument:expr)*) => {
        (stringify!($call), |()| {
            // SAFETY: never executed: a call that the filter allows by mistake ends the test.
            answer(unsafe { libc::syscall(libc::$call $(, $argument as libc::c_long)*) })
        })
    };
}

/// Attempts that end the process.
const DEADLY: &[Attempt] = &[
    ("fork", |()| answer(unsafe { libc::fork() }.into())),
    ("thread", |()| {
        std::thread::spawn(|| ())
            .join()
            .map_or(UNABLE, |()| POSSIBLE)
    }),
    ("execve", |()| {
        let path = CString::new("/bin/true").unwrap();
        let list = [path.as_ptr(), std::ptr::null()];
        answer(unsafe { libc::execv(path.as_ptr(), list.as_ptr()) }.into())
    }),
    ("kill of the parent", |()| {
        answer(unsafe { libc::kill(libc::getppid(), 0) }.into())
    }),
    ("kill of all processes", |()| {
        answer(unsafe { libc::kill(-1, 0) }.into())
    }),
    ("new machine code", |()| {
        map(libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE)
    }),
    ("writable machine code", |()| {
        map(
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
        )
    }),
    ("shared memory", |()| {
        map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    }),
    ("huge pages", |()| {
        map(
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_HUGETLB,
        )
    }),
    ("memory that grows", |()| {
        map(
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_GROWSDOWN,
        )
    }),
    ("data turned into code", |()| {
        let page = unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, kind, -1, 0)
        };
        answer(unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) }.into())
    }),
    ("own code changed", |()| {
        let page = (all_walls as *const () as usize & !4095) as *mut libc::c_void;
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        answer(unsafe { libc::mprotect(page, 4096, all) }.into())
    }),
    ("terminal input", |()| {
        answer(unsafe { libc::ioctl(2, libc::TIOCSTI as _, b"x") }.into())
    }),
    call!(SYS_tgkill, 1, 1, 0),
    call!(SYS_tkill, 1, 0),
    call!(SYS_rt_sigqueueinfo, 1, 10, 0),
    call!(SYS_pidfd_open, 1, 0),
    call!(SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
    call!(SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0),
    call!(SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, 0),
    call!(SYS_connect, 0, 0, 0),
    call!(SYS_bind, 0, 0, 0),
    call!(SYS_sendmsg, 0, 0, 0),
    call!(SYS_recvmsg, 0, 0, 0),
    call!(SYS_dup, 0),
    call!(SYS_dup3, 0, 9, 0),
    call!(SYS_pipe2, 0, 0),
    call!(SYS_memfd_create, 0, 0),
    call!(SYS_userfaultfd, 1),
    call!(SYS_io_uring_setup, 1, 0),
    call!(SYS_bpf, 0, 0, 0),
    call!(SYS_perf_event_open, 0, 0, -1, -1, 0),
    call!(SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0),
    call!(SYS_process_vm_readv, 1, 0, 0, 0, 0, 0),
    call!(SYS_process_vm_writev, 1, 0, 0, 0, 0, 0),
    call!(SYS_execveat, -1, 0, 0, 0, 0),
    call!(SYS_clone, 0, 0, 0, 0, 0),
    call!(SYS_clone3, 0, 0),
    call!(SYS_unshare, libc::CLONE_NEWUSER),
    call!(SYS_setns, 0, 0),
    call!(SYS_setresuid, 0, 0, 0),
    call!(SYS_capset, 0, 0),
    call!(SYS_prctl, libc::PR_SET_PDEATHSIG, 0),
    call!(SYS_seccomp, 1, 0, 0),
    call!(SYS_personality, 0x0400000),
    call!(SYS_openat2, -100, 0, 0, 0),
    call!(SYS_open_by_handle_at, 0, 0, 0),
    call!(SYS_unlinkat, -100, 0, 0),
    call!(SYS_renameat2, -100, 0, -100, 0, 0),
    call!(SYS_linkat, -100, 0, -100, 0, 0),
    call!(SYS_mkdirat, -100, 0, 0),
    call!(SYS_fchmodat, -100, 0, 0),
    call!(SYS_chroot, 0),
    call!(SYS_mount, 0, 0, 0, 0, 0),
    call!(SYS_truncate, 0, 0),
    call!(SYS_fallocate, 2, 0, 0, 1),
    call!(SYS_remap_file_pages, 0, 0, 0, 0, 0),
    call!(SYS_pkey_mprotect, 0, 0, 7, -1),
    call!(SYS_shmget, 0, 1, 0),
    call!(SYS_mlockall, 1),
    call!(SYS_sched_setaffinity, 0, 0, 0),
    call!(SYS_setpriority, 0, 0, 0),
    call!(SYS_keyctl, 0, 0),
    call!(SYS_add_key, 0, 0, 0, 0, 0),
    call!(SYS_inotify_init1, 0),
    call!(SYS_signalfd4, -1, 0, 8, 0),
    call!(SYS_timer_create, 0, 0, 0),
    call!(SYS_reboot, 0, 0, 0),
    ("a number without a system call", |()| {
        answer(unsafe { libc::syscall(100_000) })
    }),
];

/// Attempts that fail with `EACCES`.
const REFUSED: &[Attempt] = &[
    ("reading a file", |()| result_of(File::open("/etc/passwd"))),
    ("reading this program", |()| {
        result_of(File::open("/proc/self/exe"))
    }),
    ("its own memory as a file", |()| {
        result_of(File::options().write(true).open("/proc/self/mem"))
    }),
    ("making a file", |()| {
        result_of(File::create("/tmp/torl-confine-escaped"))
    }),
    ("listing a directory", |()| result_of(fs::read_dir("/"))),
    ("looking at a file", |()| {
        result_of(fs::metadata("/etc/passwd"))
    }),
    ("raising a limit", |()| {
        answer(
            unsafe { libc::prlimit(0, libc::RLIMIT_DATA, std::ptr::null(), std::ptr::null_mut()) }
                .into(),
        )
    }),
    call!(SYS_fcntl, 0, libc::F_DUPFD, 0),
];

fn map(protection: libc::c_int, kind: libc::c_int) -> i32 {
    // SAFETY: a new mapping without other users.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            protection,
            kind | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    answer(address as libc::c_long)
}

#[test]
fn calls_that_could_reach_out_are_deadly() {
    for &(name, attempt) in DEADLY {
        assert_all(
            &attempts(|| (), all_walls, attempt),
            killed(libc::SIGSYS),
            name,
        );
    }
}

#[test]
fn calls_that_libraries_try_are_refused() {
    for &(name, attempt) in REFUSED {
        assert_all(
            &attempts(|| (), all_walls, attempt),
            refused(libc::EACCES),
            name,
        );
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_other_call_tables_of_the_processor_are_closed() {
    let x32: fn(&()) -> i32 = |()| answer(unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) });
    assert_all(
        &attempts(|| (), all_walls, x32),
        killed(libc::SIGSYS),
        "x32",
    );
    let i386: fn(&()) -> i32 = |()| {
        let mut result: i64 = 20;
        // SAFETY: getpid of the 32-bit table: no memory is accessed.
        unsafe { std::arch::asm!("int 0x80", inout("rax") result, options(nostack)) };
        answer(result)
    };
    for end in attempts(|| (), all_walls, i386) {
        // A kernel without 32-bit programs does not know the instruction.
        assert!(
            matches!(end.signal(), Some(libc::SIGSYS | libc::SIGSEGV)),
            "{end}"
        );
    }
}

/// Every attempt above is possible without confinement, or has another result: otherwise the tests would prove nothing.
#[test]
fn without_confinement_the_attempts_have_other_results() {
    // The arguments of these cannot affect anything else.
    let harmless =
        |name: &str| name.starts_with("SYS_") && !["SYS_reboot", "SYS_clone"].contains(&name);
    for &(name, attempt) in DEADLY.iter().filter(|(name, _)| harmless(name)) {
        let end = in_child(|| {
            become_nobody();
            attempt(&())
        });
        assert_ne!(end, killed(libc::SIGSYS), "{name}");
    }
    for &(name, attempt) in REFUSED {
        assert_ne!(in_child(|| attempt(&())), refused(libc::EACCES), "{name}");
    }
    let _ = fs::remove_file("/tmp/torl-confine-escaped");
}

#[test]
fn landlock_alone_keeps_files_away() {
    if landlock_version() < 1 {
        assert!(in_child(|| i32::from(rights::drop_rights().is_ok())).success());
        return;
    }
    let cases: &[Attempt] = &[
        ("reading a file", |()| result_of(File::open("/etc/passwd"))),
        ("listing a directory", |()| {
            result_of(fs::read_dir("/proc/self/task"))
        }),
        ("making a file", |()| {
            result_of(File::create("/tmp/torl-confine-escaped/file"))
        }),
        ("removing a file", |()| {
            result_of(fs::remove_dir("/tmp/torl-confine-escaped"))
        }),
        ("running a program", |()| {
            let path = CString::new("/bin/true").unwrap();
            let list = [path.as_ptr(), std::ptr::null()];
            answer(unsafe { libc::execv(path.as_ptr(), list.as_ptr()) }.into())
        }),
    ];
    fs::create_dir_all("/tmp/torl-confine-escaped").unwrap();
    for &(name, attempt) in cases {
        assert_all(
            &attempts(|| (), rights_only, attempt),
            refused(libc::EACCES),
            name,
        );
    }
    fs::remove_dir("/tmp/torl-confine-escaped").unwrap();
}

#[test]
fn landlock_alone_keeps_the_network_away() {
    if landlock_version() < 4 {
        return assert_ne!(landlock_version(), 4);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect: fn(&std::net::SocketAddr) -> i32 =
        |address| result_of(TcpStream::connect(address));
    assert_all(
        &attempts(|| address, rights_only, connect),
        refused(libc::EACCES),
        "connect",
    );
    let bind: fn(&()) -> i32 = |()| result_of(TcpListener::bind("127.0.0.1:0"));
    assert_all(
        &attempts(|| (), rights_only, bind),
        refused(libc::EACCES),
        "bind",
    );
}

#[test]
fn landlock_alone_keeps_other_processes_away() {
    if landlock_version() < 6 {
        return assert_ne!(landlock_version(), 6);
    }
    // The parent of the attempting process is of the same user: the kernel would allow it a signal.
    let signal: fn(&()) -> i32 = |()| {
        // SAFETY: signal 0 only checks.
        answer(unsafe { libc::kill(libc::getppid(), 0) }.into())
    };
    let end = in_child(|| {
        become_nobody();
        assert_eq!(in_child(|| signal(&())).code(), Some(POSSIBLE));
        assert_all(
            &attempts(|| (), rights_only, signal),
            refused(libc::EPERM),
            "signal",
        );
        0
    });
    assert!(end.success(), "{end}");

    let name = format!("torl-confine-{}", std::process::id());
    let abstract_socket = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&abstract_socket).unwrap();
    let open = || SocketAddr::from_abstract_name(&name).unwrap();
    let connect: fn(&SocketAddr) -> i32 = |address| result_of(UnixStream::connect_addr(address));
    assert_all(
        &attempts(open, || (), connect),
        refused(POSSIBLE),
        "connect without confinement",
    );
    assert_all(
        &attempts(open, rights_only, connect),
        refused(libc::EPERM),
        "connect",
    );
}

#[test]
fn no_thread_keeps_a_capability() {
    let capabilities: fn(&()) -> i32 = |()| {
        let header: [u32; 2] = [0x2008_0522, 0];
        let mut sets = [u32::MAX; 6];
        // SAFETY: both structures have the layout of version 3.
        let code = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
        i32::from(code != 0 || sets != [0; 6])
    };
    assert_all(
        &attempts(|| (), rights_only, capabilities),
        refused(0),
        "capabilities",
    );
}

#[test]
fn limits_alone_stop_processes_descriptors_and_memory() {
    let limits = || {
        limit_memory().unwrap();
        limit_resources().unwrap();
    };
    type Case = (&'static str, i32, fn(&()) -> i32);
    let cases: &[Case] = &[
        ("a descriptor", libc::EMFILE, |()| {
            answer(unsafe { libc::dup(2) }.into())
        }),
        ("more memory than a guest can have", libc::ENOMEM, |()| {
            allocate(DATA_BYTES as usize + (1 << 30))
        }),
        ("the memory of a guest", POSSIBLE, |()| {
            allocate(MEMORY_RESERVATION)
        }),
    ];
    for &(name, code, attempt) in cases {
        assert_all(&attempts(|| (), limits, attempt), refused(code), name);
    }
    // Root's processes are not counted.
    let end = in_child(|| {
        become_nobody();
        limits();
        answer(unsafe { libc::fork() }.into())
    });
    assert_eq!(end, refused(libc::EAGAIN));
}

fn allocate(length: usize) -> i32 {
    // SAFETY: a new mapping without other users, which is not accessed.
    let address = unsafe {
        let (protection, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        libc::mmap(std::ptr::null_mut(), length, protection, kind, -1, 0)
    };
    answer(address as libc::c_long)
}

#[test]
fn a_file_as_standard_error_does_not_grow_without_limit() {
    let path = std::env::temp_dir().join(format!("torl-confine-{}", std::process::id()));
    let end = in_child(|| {
        // SAFETY: the file replaces standard error in this process alone.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let file = File::create(&path).unwrap();
            libc::dup2(file.as_raw_fd(), 2);
        }
        detach();
        all_walls();
        // SAFETY: descriptor 2 is the file, which is not closed here.
        let mut file = std::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
        file.write_all(b"a final message").unwrap();
        let chunk = vec![0u8; 1 << 20];
        loop {
            if let Err(error) = file.write_all(&chunk) {
                return error.raw_os_error().unwrap();
            }
        }
    });
    let written = fs::metadata(&path).unwrap().len();
    fs::remove_file(&path).unwrap();
    assert_eq!((end, written), (refused(libc::EFBIG), MESSAGE_BYTES));
}

#[test]
fn calls_of_a_serving_worker_are_allowed() {
    let pagemap = || File::open("/proc/self/pagemap").unwrap();
    let work: fn(&File) -> i32 = |pagemap| {
        let mut blocks: Vec<Vec<u8>> = (0..64)
            .map(|power| vec![power; 1 << (power % 22)])
            .collect();
        blocks.reverse();
        drop(blocks);
        std::thread::sleep(Duration::from_millis(2));
        let _: std::collections::HashMap<u8, u8> = std::collections::HashMap::new();
        // A guest's memory: reserved, opened, protected, restored.
        let (length, page) = (1 << 32, 4096);
        // SAFETY: a new mapping, accessed only at its open pages.
        unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let base = libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, kind, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            for protection in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_NONE] {
                assert_eq!(libc::mprotect(base, length, protection), 0);
            }
            assert_eq!(
                libc::mprotect(base, page, libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            *base.cast::<u8>() = 1;
            assert_eq!(libc::munmap(base, length), 0);
        }
        // The requests for tracking written pages reach the kernel, which has no such descriptor.
        for request in [UFFDIO_REGISTER, UFFDIO_WRITEPROTECT, PAGEMAP_SCAN] {
            // SAFETY: no such descriptor.
            let code = unsafe { libc::ioctl(-1, request as _, 0) };
            assert_eq!((code, answer(-1)), (-1, libc::EBADF));
        }
        let mut entry = [0u8; 8];
        std::os::unix::fs::FileExt::read_exact_at(pagemap, &mut entry, 0).unwrap();
        0
    };
    assert_all(&attempts(pagemap, all_walls, work), refused(0), "work");
}

#[test]
fn a_confined_worker_still_reports_a_panic() {
    static GO: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    extern "C" fn panicking(_: *mut libc::c_void) -> *mut libc::c_void {
        while !GO.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A panic with backtraces enabled.
        let _ = std::backtrace::Backtrace::force_capture().to_string();
        panic!("a final message")
    }
    let (mut reader, writer) = io::pipe().unwrap();
    let end = in_child(|| {
        // SAFETY: the child has one thread. The new one is not a Rust thread: the test harness would catch its panic.
        unsafe {
            libc::dup2(writer.as_raw_fd(), 2);
            detach();
            let mut thread: libc::pthread_t = std::mem::zeroed();
            let none: *mut libc::c_void = std::ptr::null_mut();
            assert_eq!(
                libc::pthread_create(&raw mut thread, none.cast_const().cast(), panicking, none),
                0
            );
        }
        all_walls();
        GO.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(60));
        UNABLE
    });
    drop(writer);
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert!(output.contains("a final message"), "{output}");
    // musl aborts by a call that could signal other processes too.
    let signal = if cfg!(target_env = "musl") {
        libc::SIGSYS
    } else {
        libc::SIGABRT
    };
    assert_eq!(end.signal(), Some(signal));
}

/// A container may deny the restrictions.
#[test]
fn denied_restrictions_are_reported() {
    let end = in_child(|| {
        detach();
        let rules = [libc::SYS_seccomp, libc::SYS_landlock_create_ruleset]
            .map(|call| (call, Vec::new()))
            .into();
        let (allow, refuse) = (
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
        );
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, allow, refuse, architecture).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        install(&program).unwrap();
        let confinement = confine();
        assert_eq!((confinement.landlock, confinement.seccomp), (None, false));
        assert_eq!(confinement.missing.len(), 2, "{:?}", confinement.missing);
        assert!(
            confinement.missing[0].starts_with("Landlock: "),
            "{:?}",
            confinement.missing
        );
        assert!(
            confinement.missing[1].starts_with("seccomp: "),
            "{:?}",
            confinement.missing
        );
        // The others are active.
        assert_eq!(answer(unsafe { libc::dup(2) }.into()), libc::EMFILE);
        0
    });
    assert!(end.success(), "{end}");
}

#[test]
fn active_restrictions_are_reported() {
    let version = landlock_version();
    let end = in_child(|| {
        detach();
        let confinement = confine();
        assert!(confinement.seccomp, "{:?}", confinement.missing);
        assert_eq!(
            confinement.landlock.map_or(0, |version| version as i32),
            version
        );
        assert_eq!(
            confinement.missing.len(),
            usize::from(version == 0),
            "{:?}",
            confinement.missing
        );
        0
    });
    assert!(end.success(), "{end}");
}
