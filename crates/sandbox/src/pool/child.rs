//! A worker process as its parent sees it.

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
use crate::pool::source::{HeldGuest, Program};
use crate::run::runner::{Reuse, Reusing};
use crate::worker::confine::Confinement;
use crate::worker::descriptors;
use crate::worker::protocol::{Order, Reply, SMALL_FRAME, frame_head, take_frame};

/// How long a worker may take to load the guest on a machine that is very busy.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// A worker process and the socket to it. Dropping it kills and reaps the process.
pub struct Child {
    process: std::process::Child,
    stream: UnixStream,
    /// What was received of a frame that is not complete.
    received: Vec<u8>,
    /// It has given its last reply.
    ended: bool,
    /// The CPU time of its process when the last run was sent.
    used_before: Duration,
}

/// Why a worker did not start.
pub struct StartFailure {
    pub error: SandboxError,
    pub kind: Failing,
}

/// What can be said of the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// A signal ended the worker: an accident, maybe.
    Killed,
    /// The system or the worker itself told why, which may pass.
    AsTold,
    /// No try can succeed any more.
    ForGood,
}

impl StartFailure {
    pub fn told(error: SandboxError) -> Self {
        let kind = Failing::AsTold;
        Self { error, kind }
    }

    pub fn lasting(error: SandboxError) -> Self {
        let kind = Failing::ForGood;
        Self { error, kind }
    }
}

/// What came of waiting for a reply.
pub enum Received {
    Reply(Reply),
    /// The deadline passed first. The worker must be replaced: its reply may still come.
    TimedOut,
    /// The process ended, or what it sent makes no sense.
    Gone,
}

impl Child {
    /// Starts a worker, and hands it what is to be open there. It is killed when the *thread* that called this ends.
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
            // The terminal's Ctrl-C is for the parent, which ends its workers itself.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let child = Self {
            process,
            stream,
            received: Vec::new(),
            ended: false,
            used_before: Duration::ZERO,
        };
        // One that cannot take them is found out by the first `receive`.
        let _ = descriptors::send(&child.stream, files);
        Ok(child)
    }

    /// Has a new worker load the guest; says how its runs get fresh state, and which walls are around it.
    ///
    /// # Errors
    /// What the worker, or the lack of an answer, tells; `None` if it ended without a word.
    pub fn load(
        &mut self,
        guest: &HeldGuest,
        reuse: Reuse,
    ) -> std::result::Result<(Reusing, Confinement), Option<SandboxError>> {
        let deadline = Instant::now() + START_DEADLINE;
        let prepared = guest.prepared().clone();
        self.send(&Order::Serve { prepared, reuse }.encode(), deadline);
        let told = match self.receive(Some(deadline)) {
            Received::Reply(Reply::Ready(reusing, walls)) => return Ok((reusing, walls)),
            Received::Reply(Reply::Failed(message)) => message,
            Received::Reply(_) => "a sandbox worker spoke out of turn".into(),
            Received::TimedOut => format!(
                "a sandbox worker was not ready after {} s",
                START_DEADLINE.as_secs()
            ),
            Received::Gone => return Err(None),
        };
        Err(Some(SandboxError::new(told)))
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether an idle worker still holds its end of the socket. Does not reap a process that ended: its number stays
    /// taken, so that nobody signals a stranger.
    pub fn alive(&self) -> bool {
        !self.ended && self.poll(libc::POLLIN, Some(Duration::ZERO)) == Ok(false)
    }

    /// A run begins: from here on its CPU time counts.
    pub fn note_run(&mut self) {
        self.used_before = self.cpu_time();
    }

    /// What the run has used so far, also if the process has ended and is not reaped.
    pub fn cpu_time_of_run(&self) -> Duration {
        self.cpu_time().saturating_sub(self.used_before)
    }

    fn cpu_time(&self) -> Duration {
        // The kernel's number for the CPU clock of a process (`clock_getcpuclockid`).
        let clock = (!(self.id() as libc::clockid_t) << 3) | 2;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is valid for writes. A clock that cannot be read leaves zero.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Whether it has given its last reply.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether there is something to receive within `patience`: an answer, or that the worker has ended.
    pub fn answers_within(&self, patience: Duration) -> bool {
        self.poll(libc::POLLIN, Some(patience)) == Ok(true)
    }

    /// Waits until the socket is ready for `events` or closed; `false` when the time is over before.
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
            // A signal, whose handler has run: for the caller it is as if nothing had happened yet.
            _ => Err(()),
        }
    }

    /// Sends an encoded order. A worker that cannot take it is found out by the `receive` that follows.
    pub fn send(&mut self, order: &[u8], deadline: Instant) {
        let Ok(head) = frame_head(order) else {
            return;
        };
        if order.len() <= SMALL_FRAME {
            self.send_bytes(&[&head, order].concat(), deadline);
        } else if self.send_bytes(&head, deadline) {
            self.send_bytes(order, deadline);
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
                    self.ended = matches!(reply, Reply::Last(_));
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

    /// Waits until the socket is ready for `events` or closed; `false` when the deadline passes first.
    fn wait(&self, events: i16, deadline: Option<Instant>) -> bool {
        loop {
            let time = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match self.poll(events, time) {
                Ok(ready) => return ready,
                Err(()) => continue,
            }
        }
    }

    /// Reaps a worker that has ended, and says how it did.
    pub fn obituary(&mut self, when: &str) -> StartFailure {
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
                Failing::Killed
            } else {
                Failing::AsTold
            },
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Killing one that has ended is no error; what cannot be reaped is the system's to clean up.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Appends what the socket holds ready.
fn read_some(mut stream: &UnixStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    const PIECE: usize = 64 << 10;
    let start = buffer.len();
    buffer.resize(start + PIECE, 0);
    let count = stream.read(&mut buffer[start..]);
    buffer.truncate(start + *count.as_ref().unwrap_or(&0));
    count
}

/// The prepared guest of `cache`, built by a child process from the files in `artifacts` if it is not there yet.
///
/// `progress` is told the name of a stage and the fraction done, and gives the preparation up by returning `false`; it is
/// not called when nothing is to do.
///
/// # Errors
/// When the guest is missing or is not the one torl was made for, or the cache cannot be written.
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
    let order = Order::Prepare {
        artifacts: artifacts.to_path_buf(),
        cache: cache.to_path_buf(),
    };
    child.send(&order.encode(), Instant::now() + START_DEADLINE);
    loop {
        match child.receive(None) {
            Received::Reply(Reply::Progress { stage, fraction }) => {
                if !progress(&stage, fraction) {
                    return Err(SandboxError::new(
                        "the preparation of the guest was given up",
                    ));
                }
            }
            Received::Reply(Reply::Prepared) => break,
            Received::Reply(Reply::Failed(message)) => return Err(SandboxError::new(message)),
            Received::Reply(Reply::Done(_) | Reply::Last(_) | Reply::Ready(..)) => {
                return Err(SandboxError::new("a sandbox worker spoke out of turn"));
            }
            Received::TimedOut | Received::Gone => {
                return Err(child.obituary("while it prepared the guest").error);
            }
        }
    }
    Cache::new(cache).open().ok_or_else(|| {
        SandboxError::new(format!(
            "the guest in {} was damaged right after it was prepared",
            cache.display()
        ))
    })
}
