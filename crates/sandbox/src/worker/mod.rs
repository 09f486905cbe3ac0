//! A worker process: executes the commands from its standard input, one after the other, until it exits.

use std::fs::File;
use std::io::BufReader;
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::error::{Result, SandboxError};
use crate::guest::Cache;
use crate::guest::Prepared;
use crate::pinned::PinnedFile;
use crate::request::Request;
use crate::run::engine::RUNNER_STACK;
use crate::run::runner::{Reuse, Reusing, Runner};
use crate::worker::confine::Confinement;
use crate::worker::protocol::{Command, Reply, read_frame, write_frame};

pub(crate) mod confine;
pub(crate) mod descriptors;
pub(crate) mod protocol;

const THREAD_NAME: &str = "torl-guest";

/// Executes commands from the socket on standard input. Returns when the peer has exited, or `false` on an error.
///
/// Call it first in a dedicated process: it closes every other descriptor and lowers the process's limits.
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

/// Answers the first command with the reason why the worker cannot serve, for the parent.
fn refuse(stream: &UnixStream, reason: &SandboxError) {
    let _ = read_frame(&mut BufReader::new(stream));
    let _ = write_frame(&mut { stream }, &Reply::Failed(reason.clone()).encode());
}

fn serve(stream: &UnixStream) -> std::io::Result<()> {
    let mut files = descriptors::receive(stream).inspect_err(|error| {
        let reason = format!("a worker cannot take the files of its guest: {error}");
        refuse(stream, &SandboxError::new(reason));
    })?;
    let mut input = BufReader::new(stream);
    let mut output = stream;
    let mut runner: Option<Runner> = None;
    // A failure after the last reply. It is the reply to the next command.
    let mut fault: Option<SandboxError> = None;
    loop {
        let body = match read_frame(&mut input) {
            Ok(body) => body,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let reply = match Command::decode(&body)? {
            Command::Serve { prepared, reuse } => {
                let stream = stream.try_clone()?;
                load(&prepared, std::mem::take(&mut files), reuse).map(
                    |(mut loaded, reusing, confinement)| {
                        loaded.set_last_resort(move |outcome, progress| {
                            // If the reply is lost, the parent detects that its worker exited.
                            let reply = Reply::Last(Box::new(outcome), progress);
                            let _ = write_frame(&mut &stream, &reply.encode());
                        });
                        runner = Some(loaded);
                        Reply::Ready(reusing, confinement)
                    },
                )
            }
            Command::Prepare { artifacts, cache } => {
                let mut progress = |stage: &str, fraction: f64| {
                    let reply = Reply::Progress {
                        stage: stage.to_owned(),
                        fraction,
                    };
                    // A parent that cancels kills this process; a parent that exited is noticed at the next read.
                    write_frame(&mut { stream }, &reply.encode()).is_ok()
                };
                Cache::new(cache)
                    .prepare(&artifacts, &mut progress)
                    .map(|_| Reply::Prepared)
            }
            Command::Run(request) => match (&mut runner, fault.take()) {
                (_, Some(fault)) => Err(fault),
                (Some(runner), None) => runner
                    .run(&request)
                    .map(|outcome| Reply::Done(Box::new(outcome))),
                (None, None) => Err(SandboxError::new(
                    "received a run before the guest was loaded",
                )),
            },
        };
        let failed = reply.is_err();
        let reply = reply.unwrap_or_else(Reply::Failed);
        write_frame(&mut output, &reply.encode())?;
        if failed {
            return Ok(());
        }
        // This delays no caller: the outcome has been sent.
        fault = runner.as_mut().and_then(|runner| runner.restore().err());
    }
}

/// Loads the guest from its open files, confines the process and runs the guest twice, so that a worker that reports
/// ready is ready. Returns whether the guest is reused, and the confinement.
fn load(
    prepared: &Prepared,
    files: Vec<File>,
    reuse: Reuse,
) -> Result<(Runner, Reusing, Confinement)> {
    let [module, image, archive] = <[File; 3]>::try_from(files)
        .map_err(|_| SandboxError::new("a worker did not receive the files of its guest"))?;
    let mut runner = Runner::of(
        PinnedFile::of(prepared.module.clone(), module)?,
        Some((
            PinnedFile::of(prepared.image.clone(), image)?,
            prepared.layout,
        )),
        &PinnedFile::of(prepared.archive.clone(), archive)?,
    )?;
    let reusing = if reuse.enabled {
        runner.keep_guest(reuse.verify_every)
    } else {
        Err("switched off".into())
    };
    let confinement = confine::confine();
    for _ in 0..2 {
        let probe = runner.run(&Request {
            code: b"print(6 * 7)".to_vec(),
            ..Request::default()
        })?;
        if probe.stdout != b"42\n" {
            return Err(SandboxError::new(format!(
                "the sandbox's guest does not work: print(6 * 7) returned {probe:?}"
            )));
        }
    }
    runner.restore()?;
    Ok((runner, reusing, confinement))
}
