//! A worker process: serves the orders that come in on its standard input, one after the other, until it ends.

use std::fs::File;
use std::io::BufReader;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::error::{Result, SandboxError};
use crate::guest::Cache;
use crate::guest::Prepared;
use crate::held::Held;
use crate::request::Request;
use crate::run::engine::RUNNER_STACK;
use crate::run::runner::{Reuse, Reusing, Runner};
use crate::worker::confine::Confinement;
use crate::worker::protocol::{Order, Reply, read_frame, write_frame};

pub(crate) mod confine;
pub(crate) mod descriptors;
pub(crate) mod protocol;

const THREAD_NAME: &str = "torl-guest";

/// Serves orders from the socket that is this process's standard input. Returns when the peer has ended, or `false` when
/// something is wrong with it.
///
/// Call it first thing in a process made for it: it closes every other descriptor and lowers the process's limits.
pub fn main() -> bool {
    // SAFETY: by contract descriptor 0 is the socket, and nothing else in the process uses it.
    let stream = unsafe { UnixStream::from_raw_fd(0) };
    confine::detach();
    let stream = Arc::new(stream);
    let served = Arc::clone(&stream);
    let thread = std::thread::Builder::new()
        .name(THREAD_NAME.into())
        .stack_size(RUNNER_STACK)
        .spawn(move || serve(&served));
    match thread {
        Ok(thread) => matches!(thread.join(), Ok(Ok(()))),
        Err(error) => {
            let _ = descriptors::receive(&stream);
            refuse(&stream, &SandboxError::thread(THREAD_NAME, &error));
            false
        }
    }
}

/// Answers the first order with why there is no other, so that the parent knows.
fn refuse(stream: &UnixStream, reason: &SandboxError) {
    let _ = read_frame(&mut BufReader::new(stream));
    let _ = write_frame(&mut { stream }, &Reply::Failed(reason.to_string()).encode());
}

fn serve(stream: &UnixStream) -> std::io::Result<()> {
    let mut files = descriptors::receive(stream).inspect_err(|error| {
        let reason = format!("a worker cannot take the files of its guest: {error}");
        refuse(stream, &SandboxError::new(reason));
    })?;
    let mut input = BufReader::new(stream);
    let mut output = stream;
    let mut runner: Option<Runner> = None;
    // What went wrong after the last reply. It is the answer to the next order.
    let mut fault: Option<SandboxError> = None;
    loop {
        let body = match read_frame(&mut input) {
            Ok(body) => body,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let reply = match Order::decode(&body)? {
            Order::Serve { prepared, reuse } => {
                let stream = stream.try_clone()?;
                load(&prepared, std::mem::take(&mut files), reuse).map(
                    |(mut loaded, reusing, walls)| {
                        loaded.set_last_resort(move |outcome| {
                            // Without the answer the parent finds its worker gone.
                            let reply = Reply::Last(Box::new(outcome));
                            let _ = write_frame(&mut &stream, &reply.encode());
                        });
                        runner = Some(loaded);
                        Reply::Ready(reusing, walls)
                    },
                )
            }
            Order::Prepare { artifacts, cache } => {
                let mut progress = |stage: &str, fraction: f64| {
                    let reply = Reply::Progress {
                        stage: stage.to_owned(),
                        fraction,
                    };
                    // A parent that gives up kills this process; one that has ended is noticed at the next read.
                    write_frame(&mut { stream }, &reply.encode()).is_ok()
                };
                Cache::new(cache)
                    .prepare(&artifacts, &mut progress)
                    .map(|_| Reply::Prepared)
            }
            Order::Run(request) => match (&mut runner, fault.take()) {
                (_, Some(fault)) => Err(fault),
                (Some(runner), None) => runner
                    .run(&request)
                    .map(|outcome| Reply::Done(Box::new(outcome))),
                (None, None) => Err(SandboxError::new("a run before the guest was loaded")),
            },
        };
        let failed = reply.is_err();
        let reply = reply.unwrap_or_else(|error| Reply::Failed(error.to_string()));
        write_frame(&mut output, &reply.encode())?;
        if failed {
            return Ok(());
        }
        // Nobody waits for this: the outcome is on its way.
        fault = runner.as_mut().and_then(|runner| runner.restore().err());
    }
}

/// Loads the guest from its open files, puts up the walls and runs it twice, so that a worker that says it is ready is; says how its runs get
/// fresh state, and which walls there are.
fn load(
    prepared: &Prepared,
    files: Vec<File>,
    reuse: Reuse,
) -> Result<(Runner, Reusing, Confinement)> {
    let [module, image, archive] = <[File; 3]>::try_from(files)
        .map_err(|_| SandboxError::new("a worker was not handed the files of its guest"))?;
    let mut runner = Runner::of(
        Held::of(prepared.module.clone(), module)?,
        Some((Held::of(prepared.image.clone(), image)?, prepared.layout)),
        &Held::of(prepared.archive.clone(), archive)?,
    )?;
    let reusing = if reuse.enabled {
        runner.keep_guest(reuse.verify_every)
    } else {
        Err("switched off".into())
    };
    let walls = confine::confine();
    for _ in 0..2 {
        let probe = runner.run(&Request {
            code: b"print(6 * 7)".to_vec(),
            ..Request::default()
        })?;
        if probe.stdout != b"42\n" {
            return Err(SandboxError::new(format!(
                "the sandbox's guest does not run: it answered {probe:?} to print(6 * 7)"
            )));
        }
    }
    runner.restore()?;
    Ok((runner, reusing, walls))
}
