//! The parent's handle of a worker process.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::error::{Result, SandboxError};
use crate::guest::{Cache, Prepared, Progress};
use crate::pool::settings::POLL_INTERVAL;
use crate::pool::source::{PinnedGuest, Program};
use crate::run::runner::{Reuse, Reusing};
use crate::worker::confine::Confinement;
use crate::worker::descriptors;
use crate::worker::protocol::{Command, Reply, SMALL_FRAME, frame_head, take_frame};

/// Maximum time that a worker may take to load the guest on a very busy machine.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// A worker process and the socket to it. Dropping it kills and reaps the process.
pub struct Child {
    process: std::process::Child,
    stream: UnixStream,
    /// The received part of an incomplete frame.
    received: Vec<u8>,
    /// The CPU time of its process when the last run was sent.
    used_before: Duration,
}

/// The failure to start a worker.
pub struct StartFailure {
    pub error: SandboxError,
    pub kind: StartFailureKind,
}

/// The prospects of another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFailureKind {
    /// A signal ended the worker, possibly by accident.
    Killed,
    /// The system or the worker reported an error, which may be temporary.
    Reported,
    /// No further attempt can succeed.
    Permanent,
}

impl StartFailure {
    pub fn reported(error: SandboxError) -> Self {
        let kind = StartFailureKind::Reported;
        Self { error, kind }
    }

    pub fn permanent(error: SandboxError) -> Self {
        let kind = StartFailureKind::Permanent;
        Self { error, kind }
    }
}

/// The result of waiting for a reply.
pub enum Received {
    Reply(Reply),
    /// The deadline passed. The reply may still arrive: a worker whose run it is must be replaced.
    TimedOut,
    /// The process exited, or sent an invalid message.
    Gone,
}

impl Child {
    /// Starts a worker, and passes it its open files. It is killed when the *thread* that called this exits.
    pub fn spawn(program: &Program, files: &[BorrowedFd<'_>]) -> Result<Self> {
        let cannot = |error: io::Error| {
            SandboxError::new(format!(
                "cannot start a sandbox worker with {}: {error}",
                program.name().display()
            ))
        };
        let (stream, theirs) = UnixStream::pair().map_err(cannot)?;
        let process = program
            .command()
            .map_err(cannot)?
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Ctrl-C in the terminal is for the parent, which ends its workers itself.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let child = Self {
            process,
            stream,
            received: Vec::new(),
            used_before: Duration::ZERO,
        };
        // A failure is detected by the first `receive`.
        let _ = descriptors::send(&child.stream, files);
        Ok(child)
    }

    /// Makes a new worker load the guest; returns whether its guest is reused, and its confinement.
    ///
    /// # Errors
    /// The error reported by the worker, or its timeout; `None` if it exited without a reply.
    pub fn load(
        &mut self,
        guest: &PinnedGuest,
        reuse: Reuse,
    ) -> std::result::Result<(Reusing, Confinement), Option<SandboxError>> {
        let deadline = Instant::now() + START_DEADLINE;
        let prepared = guest.prepared().clone();
        self.send(&Command::Serve { prepared, reuse }.encode(), deadline);
        let error = match self.receive(Some(deadline)) {
            Received::Reply(Reply::Ready(reusing, confinement)) => {
                return Ok((reusing, confinement));
            }
            Received::Reply(Reply::Failed(error)) => error,
            Received::Reply(_) => SandboxError::new("a sandbox worker sent an unexpected reply"),
            Received::TimedOut => SandboxError::new(format!(
                "a sandbox worker was not ready after {} s",
                START_DEADLINE.as_secs()
            )),
            Received::Gone => return Err(None),
        };
        Err(Some(error))
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether an idle worker still holds its end of the socket. Does not reap an exited process: its process id stays
    /// taken, so that no other process is signaled by mistake.
    pub fn alive(&self) -> bool {
        // A signal during the call says nothing about the worker. A run on one that has exited is lost and repeated.
        self.poll(libc::POLLIN, Some(Duration::ZERO)) != Ok(true)
    }

    /// Records the start of a run: from now on its CPU time counts.
    pub fn note_run(&mut self) {
        self.used_before = self.cpu_time();
    }

    /// Returns the CPU time of the run so far, also if the process has exited and is not reaped.
    pub fn cpu_time_of_run(&self) -> Duration {
        self.cpu_time().saturating_sub(self.used_before)
    }

    fn cpu_time(&self) -> Duration {
        // The kernel's id of the CPU clock of a process (`clock_getcpuclockid`).
        let clock = (!(self.id() as libc::clockid_t) << 3) | 2;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is valid for writes. A clock that cannot be read leaves zero.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Whether a reply or the worker's exit can be received within `patience`.
    pub fn answers_within(&self, patience: Duration) -> bool {
        self.poll(libc::POLLIN, Some(patience)) == Ok(true)
    }

    /// Waits until the socket is ready for `events` or closed; returns `false` on timeout.
    fn poll(&self, events: i16, time: Option<Duration>) -> std::result::Result<bool, ()> {
        let mut entry = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events,
            revents: 0,
        };
        let time = time.map(|time| libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        });
        let pointer = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one valid entry, and a time that outlives the call.
        match unsafe { libc::ppoll(&raw mut entry, 1, pointer, std::ptr::null()) } {
            0 => Ok(false),
            1 => Ok(true),
            // A signal, whose handler has run: the caller continues to wait.
            _ => Err(()),
        }
    }

    /// Sends an encoded command. A failure is detected by the next `receive`.
    pub fn send(&mut self, command: &[u8], deadline: Instant) {
        let Ok(head) = frame_head(command) else {
            return;
        };
        if command.len() <= SMALL_FRAME {
            self.send_bytes(&[&head, command].concat(), deadline);
        } else if self.send_bytes(&head, deadline) {
            self.send_bytes(command, deadline);
        }
    }

    fn send_bytes(&self, bytes: &[u8], deadline: Instant) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            // SAFETY: the pointer and the length are those of `rest`.
            let sent = unsafe {
                libc::send(
                    self.stream.as_raw_fd(),
                    rest.as_ptr().cast(),
                    rest.len(),
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if sent >= 0 {
                rest = &rest[sent as usize..];
            } else if io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
                || !self.wait(libc::POLLOUT, Some(deadline))
            {
                return false;
            }
        }
        true
    }

    pub fn receive(&mut self, deadline: Option<Instant>) -> Received {
        loop {
            match take_frame(&mut self.received) {
                Ok(Some(body)) => {
                    let Ok(reply) = Reply::decode(&body) else {
                        return Received::Gone;
                    };
                    return Received::Reply(reply);
                }
                Ok(None) => {}
                Err(_) => return Received::Gone,
            }
            if !self.wait(libc::POLLIN, deadline) {
                return Received::TimedOut;
            }
            match read_some(&self.stream, &mut self.received) {
                Ok(0) => return Received::Gone,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::Gone,
            }
        }
    }

    /// Waits until the socket is ready for `events` or closed; returns `false` on timeout.
    fn wait(&self, events: i16, deadline: Option<Instant>) -> bool {
        loop {
            let time = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match self.poll(events, time) {
                Ok(ready) => return ready,
                Err(()) => continue,
            }
        }
    }

    /// Reaps an exited worker, and reports its exit status.
    pub fn exit_report(&mut self, when: &str) -> StartFailure {
        let _ = self.process.kill();
        let status = self.process.wait();
        let how = match &status {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let killed = status.is_ok_and(|status| status.signal().is_some());
        StartFailure {
            error: SandboxError::new(format!("a sandbox worker ended {when} ({how})")),
            kind: if killed {
                StartFailureKind::Killed
            } else {
                StartFailureKind::Reported
            },
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Killing an exited process is not an error. The system cleans up a process that cannot be reaped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Appends the available bytes of the socket.
fn read_some(mut stream: &UnixStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    const PIECE: usize = 64 << 10;
    let start = buffer.len();
    buffer.resize(start + PIECE, 0);
    let count = stream.read(&mut buffer[start..]);
    buffer.truncate(start + *count.as_ref().unwrap_or(&0));
    count
}

/// Returns the prepared guest of `cache`. If it is missing, a child process builds it from the files in `artifacts`.
///
/// `progress` receives the name of a stage and the completed fraction, again and again during a long stage, and cancels
/// the preparation by returning `false`. It is not called if the guest is already prepared.
///
/// # Errors
/// The guest is missing or is not the version that torl was made for, or the cache is not writable.
pub fn prepare(
    command: &[OsString],
    artifacts: &Path,
    cache: &Path,
    progress: &mut Progress<'_>,
) -> Result<Prepared> {
    if let Some(prepared) = Cache::new(cache).open() {
        return Ok(prepared);
    }
    let mut child = Child::spawn(&Program::hold(command)?, &[])?;
    let command = Command::Prepare {
        artifacts: artifacts.to_path_buf(),
        cache: cache.to_path_buf(),
    };
    child.send(&command.encode(), Instant::now() + START_DEADLINE);
    let mut latest = ("starting".to_owned(), 0.0);
    loop {
        match child.receive(Some(Instant::now() + POLL_INTERVAL)) {
            Received::Reply(Reply::Progress { stage, fraction }) => latest = (stage, fraction),
            // It waits for another process, or works on a long stage: the caller may want to cancel.
            Received::TimedOut => {}
            Received::Reply(Reply::Prepared) => break,
            Received::Reply(Reply::Failed(error)) => return Err(error),
            Received::Reply(Reply::Done(_) | Reply::Last(..) | Reply::Ready(..)) => {
                return Err(SandboxError::new(
                    "a sandbox worker sent an unexpected reply",
                ));
            }
            Received::Gone => {
                return Err(child.exit_report("while it prepared the guest").error);
            }
        }
        if !progress(&latest.0, latest.1) {
            return Err(SandboxError::new(
                "the preparation of the guest was cancelled",
            ));
        }
    }
    Cache::new(cache).open().ok_or_else(|| {
        SandboxError::new(format!(
            "the guest in {} was damaged right after it was prepared",
            cache.display()
        ))
    })
}
