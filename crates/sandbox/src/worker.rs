//! A worker process: serves the orders that come in on its standard input, one after the other, until it ends.

use std::io::BufReader;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use crate::cache::Cache;
use crate::engine::{RUNNER_STACK, Request, Runner};
use crate::error::{Result, SandboxError};
use crate::guest::Prepared;
use crate::limits::Limits;
use crate::protocol::{Order, Reply, read_frame, write_frame};

/// Serves orders from the socket that is this process's standard input. Returns when the peer is gone, or `false` when
/// something is wrong with it.
///
/// Call it first thing in a process made for it: it closes every other descriptor and lowers the process's limits.
pub fn main() -> bool {
    // SAFETY: by contract descriptor 0 is the socket, and nothing else in the process uses it.
    let stream = unsafe { UnixStream::from_raw_fd(0) };
    confine();
    let served = std::thread::Builder::new()
        .name("torl-guest".into())
        .stack_size(RUNNER_STACK)
        .spawn(move || serve(&stream))
        .map(std::thread::JoinHandle::join);
    matches!(served, Ok(Ok(Ok(()))))
}

/// Ends with the parent, leaves no core, and holds nothing of the parent's but the socket and standard error.
fn confine() {
    // SAFETY: plain system calls on this process alone. Each is a second wall: where one is refused the run goes on.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
    }
}

fn serve(stream: &UnixStream) -> std::io::Result<()> {
    let mut input = BufReader::new(stream);
    let mut output = stream;
    let mut runner: Option<Runner> = None;
    loop {
        let body = match read_frame(&mut input) {
            Ok(body) => body,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let reply = match Order::decode(&body)? {
            Order::Serve(prepared) => load(&prepared).map(|loaded| {
                runner = Some(loaded);
                Reply::Ready
            }),
            Order::Prepare { artifacts, cache } => {
                let mut progress = |stage: &str, fraction: f64| {
                    let reply = Reply::Progress {
                        stage: stage.to_owned(),
                        fraction,
                    };
                    // A parent that gives up kills this process; one that is gone is noticed at the next read.
                    write_frame(&mut { stream }, &reply.encode()).is_ok()
                };
                Cache::new(cache)
                    .prepare(&artifacts, &mut progress)
                    .map(|_| Reply::Ready)
            }
            Order::Run(request) => match &runner {
                Some(runner) => runner.run(&request).map(Reply::Done),
                None => Err(SandboxError::new("a run before the guest was loaded")),
            },
        };
        let failed = reply.is_err();
        let reply = reply.unwrap_or_else(|error| Reply::Failed(error.to_string()));
        write_frame(&mut output, &reply.encode())?;
        if failed {
            return Ok(());
        }
    }
}

/// Loads the guest and runs it once, so that a worker that says it is ready is.
fn load(prepared: &Prepared) -> Result<Runner> {
    let runner = Runner::new(
        &prepared.module,
        Some((&prepared.image, prepared.layout)),
        &prepared.archive,
    )?;
    let probe = runner.run(&Request {
        code: b"print(6 * 7)".to_vec(),
        seed: 0,
        limits: Limits::default(),
    })?;
    if probe.stdout == b"42\n" {
        Ok(runner)
    } else {
        Err(SandboxError::new(format!(
            "the sandbox's guest does not run: it answered {probe:?} to print(6 * 7)"
        )))
    }
}
