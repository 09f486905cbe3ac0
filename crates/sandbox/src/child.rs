//! A worker process as its parent sees it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cache::{Cache, Progress};
use crate::error::{Result, SandboxError};
use crate::guest::Prepared;
use crate::protocol::{Order, Reply, read_frame, write_frame};

/// How long a worker may take to load the guest on a machine that is very busy.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// A worker process and the socket to it. Dropping it kills and reaps the process.
pub struct Child {
    process: std::process::Child,
    stream: UnixStream,
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
    /// Starts a worker with `command`. It is killed when the *thread* that called this ends.
    pub fn spawn(command: &[OsString]) -> Result<Self> {
        let (program, arguments) = command.split_first().ok_or_else(|| {
            SandboxError::new("the command that starts a sandbox worker is empty")
        })?;
        let cannot = |error: io::Error| {
            SandboxError::new(format!(
                "cannot start a sandbox worker with {}: {error}",
                program.display()
            ))
        };
        let (stream, theirs) = UnixStream::pair().map_err(cannot)?;
        let process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // The terminal's Ctrl-C is for the parent, which ends its workers itself.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        Ok(Self { process, stream })
    }

    /// Starts a worker that has the guest loaded.
    pub fn serving(command: &[OsString], prepared: &Prepared) -> Result<Self> {
        let mut child = Self::spawn(command)?;
        let deadline = Instant::now() + START_DEADLINE;
        child.send(&Order::Serve(prepared.clone()), deadline);
        match child.receive(Some(deadline)) {
            Received::Reply(Reply::Ready) => Ok(child),
            Received::Reply(Reply::Failed(message)) => Err(SandboxError::new(message)),
            Received::Reply(_) => Err(SandboxError::new("a sandbox worker spoke out of turn")),
            Received::TimedOut => Err(SandboxError::new(format!(
                "a sandbox worker was not ready after {} s",
                START_DEADLINE.as_secs()
            ))),
            Received::Gone => Err(child.obituary("while it started")),
        }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether an idle worker still holds its end of the socket. Does not reap a process that ended: its number stays
    /// taken, so that nobody signals a stranger.
    pub fn alive(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }

    /// Sends an order. A worker that cannot take it is found out by the `receive` that follows.
    pub fn send(&mut self, order: &Order, deadline: Instant) {
        let mut stream = Deadlined {
            stream: &self.stream,
            deadline: Some(deadline),
        };
        let _ = write_frame(&mut stream, &order.encode());
    }

    pub fn receive(&mut self, deadline: Option<Instant>) -> Received {
        let mut stream = Deadlined {
            stream: &self.stream,
            deadline,
        };
        match read_frame(&mut stream).and_then(|body| Reply::decode(&body)) {
            Ok(reply) => Received::Reply(reply),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Received::TimedOut,
            Err(_) => Received::Gone,
        }
    }

    fn obituary(&mut self, when: &str) -> SandboxError {
        let _ = self.process.kill();
        let how = self
            .process
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        SandboxError::new(format!("a sandbox worker ended {when} ({how})"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Killing one that has ended is no error; what cannot be reaped is the system's to clean up.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A socket on which reading and writing end at a deadline with `TimedOut`, however slowly bytes trickle.
struct Deadlined<'a> {
    stream: &'a UnixStream,
    deadline: Option<Instant>,
}

impl Deadlined<'_> {
    fn remaining(&self) -> io::Result<Option<Duration>> {
        match self.deadline {
            None => Ok(None),
            Some(deadline) => deadline
                .checked_duration_since(Instant::now())
                .filter(|remaining| !remaining.is_zero())
                .map(Some)
                .ok_or_else(|| io::ErrorKind::TimedOut.into()),
        }
    }
}

fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        io::ErrorKind::TimedOut.into()
    } else {
        error
    }
}

impl Read for Deadlined<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.remaining()?)?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Deadlined<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.remaining()?)?;
        self.stream.write(buffer).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
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
    let mut child = Child::spawn(command)?;
    let order = Order::Prepare {
        artifacts: artifacts.to_path_buf(),
        cache: cache.to_path_buf(),
    };
    child.send(&order, Instant::now() + START_DEADLINE);
    loop {
        match child.receive(None) {
            Received::Reply(Reply::Progress { stage, fraction }) => {
                if !progress(&stage, fraction) {
                    return Err(SandboxError::new(
                        "the preparation of the guest was given up",
                    ));
                }
            }
            Received::Reply(Reply::Ready) => break,
            Received::Reply(Reply::Failed(message)) => return Err(SandboxError::new(message)),
            Received::Reply(Reply::Done(_)) => {
                return Err(SandboxError::new("a sandbox worker spoke out of turn"));
            }
            Received::TimedOut | Received::Gone => {
                return Err(child.obituary("while it prepared the guest"));
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
