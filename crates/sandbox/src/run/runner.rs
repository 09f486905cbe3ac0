//! Execution of one run: a new or restored guest, from the request to the outcome.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::{Engine, InstancePre, Linker, Module};

use crate::error::{Result, SandboxError};
use crate::files::Archive;
use crate::outcome::{Exception, Outcome, Status};
use crate::pinned::PinnedFile;
use crate::request::{Request, STATE_LIMIT};
use crate::run::calls;
use crate::run::cpu_time::thread_cpu_time;
use crate::run::driver;
use crate::run::engine::{engine_error, new_engine, out_of_address_space};
use crate::run::host::{HostState, Stop};
use crate::run::instance::{Guest, ImageLayout, LoadedImage};
use crate::run::native_stack::NativeStack;
use crate::run::reset::{Tracked, Tracker};
use crate::run::watchdog::{Ended, Watchdog};
use crate::session::SessionState;

/// Runs code on the thread that created it.
pub struct Runner {
    engine: Engine,
    instance: InstancePre<HostState>,
    image: Option<LoadedImage>,
    archive: Archive,
    watchdog: Watchdog,
    stack: Option<NativeStack>,
    kept: Option<Kept>,
}

/// Whether a guest is kept and restored to the image after each run, if the system allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    pub enabled: bool,
    /// Number of runs after which the whole memory is compared with the image, to verify the reset (0: never).
    pub verify_every: u64,
}

impl Default for Reuse {
    fn default() -> Self {
        Self {
            enabled: true,
            verify_every: 20_000,
        }
    }
}

/// Whether a guest is kept, or the reason why every run has a new one.
pub type Reusing = std::result::Result<(), String>;

/// The guest that is kept between runs.
struct Kept {
    tracker: Tracker,
    guest: Option<(Guest, Tracked)>,
    /// Whether the guest has run since it was last equal to the image.
    used: bool,
    verification: Verification,
}

/// Periodic comparison of the whole memory with the image.
struct Verification {
    /// 0: never.
    every: u64,
    runs: u64,
}

/// Returns the error of compiled code that cannot be loaded from a file.
fn cannot_load(module: &PinnedFile, error: wasmtime::Error) -> SandboxError {
    let action = format!("load {}", module.path.display());
    if is_mounted_noexec(&module.file) {
        let directory = module.path.parent().unwrap_or(&module.path).display();
        return engine_error(
            &action,
            format!(
                "{error:#}; {directory} is on a file system that is mounted noexec: set XDG_CACHE_HOME to a directory \
                 on another"
            ),
        );
    }
    out_of_address_space(&action, error)
}

fn is_mounted_noexec(file: &File) -> bool {
    // SAFETY: a zeroed `statvfs` is valid and valid for writes; the descriptor is open.
    unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        libc::fstatvfs(file.as_raw_fd(), &raw mut system) == 0
            && system.f_flag & libc::ST_NOEXEC != 0
    }
}

impl Runner {
    /// Returns a runner of the compiled guest at `module`. Without an image, the guest starts as published, without its
    /// data.
    pub fn new(module: &Path, image: Option<(&Path, ImageLayout)>, archive: &Path) -> Result<Self> {
        let image = image.map(|(path, layout)| Ok((PinnedFile::open(path)?, layout)));
        Self::of(
            PinnedFile::open(module)?,
            image.transpose()?,
            &PinnedFile::open(archive)?,
        )
    }

    /// Returns a runner from open files.
    pub fn of(
        module: PinnedFile,
        image: Option<(PinnedFile, ImageLayout)>,
        archive: &PinnedFile,
    ) -> Result<Self> {
        // First: it installs the handler to which wasmtime's own forwards faults.
        let watchdog = Watchdog::start()?;
        let engine = new_engine()?;
        let file = module
            .file
            .try_clone()
            .map_err(|error| SandboxError::file("hold", &module.path, &error))?;
        // SAFETY: the file was serialized by this engine configuration; the cache has verified it.
        let compiled = unsafe { Module::deserialize_open_file(&engine, file) }
            .map_err(|error| cannot_load(&module, error))?;
        let mut linker = Linker::new(&engine);
        calls::link(&mut linker, &compiled)
            .map_err(|error| engine_error("link the guest", error))?;
        let instance = linker
            .instantiate_pre(&compiled)
            .map_err(|error| engine_error("link the guest", error))?;
        let image = image
            .map(|(file, layout)| LoadedImage::of(file, layout))
            .transpose()?;
        if let Some(image) = &image {
            watchdog.set_interrupt(image.layout.interrupt);
        }
        Ok(Self {
            engine,
            instance,
            image,
            archive: Archive::of(archive)?,
            watchdog,
            stack: NativeStack::of_this_thread(),
            kept: None,
        })
    }

    /// Sets the callback that reports a run that cannot be ended from outside, right before this process exits.
    pub fn set_last_resort(&mut self, report: impl Fn(Outcome, u32) + Send + 'static) {
        self.watchdog.set_last_resort(report);
    }

    /// Keeps a guest between runs from now on and restores its memory to the image, if the system allows it.
    pub fn keep_guest(&mut self, verify_every: u64) -> Reusing {
        let tracker = Tracker::open().map_err(|error| error.to_string())?;
        self.kept = Some(Kept {
            tracker,
            guest: None,
            used: false,
            verification: Verification {
                every: verify_every,
                runs: 0,
            },
        });
        Ok(())
    }

    /// Returns the host's state of a run that is about to start.
    fn host_state(&self, request: &Request) -> Result<HostState> {
        HostState::new(self.watchdog.gate(), self.archive.clone(), request)
    }

    /// Creates a guest whose memory is a private copy-on-write mapping of the image.
    pub fn instantiate(&self, request: &Request) -> Result<Guest> {
        let state = self.host_state(request)?;
        let mut guest = Guest::new(&self.engine, &self.instance, self.image.as_ref(), state)?;
        self.check_stack_pointer(&mut guest)?;
        Ok(guest)
    }

    /// Replaces the host's state of a used guest, and nothing else.
    pub fn renew(&self, guest: &mut Guest, request: &Request) -> Result<()> {
        *guest.store.data_mut() = self.host_state(request)?;
        guest.connect()
    }

    /// Returns a guest equal to the image: the kept one, or a new one.
    fn guest(&mut self, request: &Request) -> Result<(Guest, Option<Tracked>)> {
        self.put_back()?;
        if let Some((mut guest, tracked)) = self.kept.as_mut().and_then(|kept| kept.guest.take()) {
            self.renew(&mut guest, request)?;
            return Ok((guest, Some(tracked)));
        }
        let guest = self.instantiate(request)?;
        let base = guest.memory.data_ptr(&guest.store);
        let tracked = match (&self.kept, &self.image) {
            (Some(kept), Some(image)) => Some(Tracked::start(&kept.tracker, base, &image.image)?),
            _ => None,
        };
        Ok((guest, tracked))
    }

    /// Runs `request` from start to end. An error means that the host failed, never the code.
    ///
    /// A run of a session whose time is over is interrupted, and the session continues from that state. If the
    /// interrupt does not end it, or it was stopped for another reason, its state is unusable: the guest was in the
    /// middle of an operation. But the run is repeatable. So its complete statements are executed again, in the
    /// remaining wall-clock time, and the session continues from there.
    pub fn run(&mut self, request: &Request) -> Result<Outcome> {
        let (outcome, progress) = self.run_once(request)?;
        let Some(again) = request.repetition(progress, &outcome) else {
            return Ok(outcome);
        };
        let (again, _) = self.run_once(&again)?;
        Ok(outcome.with_state_of(again))
    }

    /// Runs `request`, and returns the end of the last complete statement, if it belongs to a session.
    fn run_once(&mut self, request: &Request) -> Result<(Outcome, u32)> {
        let started = Instant::now();
        let cpu_started = thread_cpu_time();
        let (mut guest, mut tracked) = self.guest(request)?;
        let session = request.session.as_deref();
        match session.map_or(Ok(Ok(())), |state| resume(&mut guest, state, request))? {
            Ok(()) => {}
            Err(Unresumed::Refused(exception)) => {
                self.keep(guest, tracked);
                let status = match exception.type_name.as_str() {
                    "MemoryError" => Status::Memory,
                    _ => Status::Error,
                };
                let mut outcome = Outcome::without_guest(status, started.elapsed());
                outcome.stderr = exception.traceback.clone().into_bytes();
                outcome.exception = Some(exception);
                return Ok((outcome, 0));
            }
            Err(Unresumed::Damaged(reason)) => {
                let mut outcome = Outcome::without_guest(Status::Crash, started.elapsed());
                outcome.stderr = format!("{reason}\n").into_bytes();
                return Ok((outcome, 0));
            }
        }
        let armament = self.watchdog.arm(
            &request.limits,
            guest.memory.data_ptr(&guest.store),
            guest.memory.data_size(&guest.store) as u64,
            Arc::clone(&guest.store.data().output),
            session.is_some(),
        );
        let prepared = guest.prepare(driver::RUN);
        let called = prepared.map(|call| call(&mut guest.store));
        let ended = armament.end();
        // Even the preparation runs code of the guest, until the time ends and on memory that a session may have
        // damaged: its end is the outcome.
        let result = match called {
            Err(error) if ended.expired || session.is_some_and(SessionState::is_begun) => {
                Err(wasmtime::Error::new(error))
            }
            other => other?,
        };
        let ended_well = result.is_ok() && !ended.expired;
        if let Some(image) = self
            .image
            .as_ref()
            .filter(|_| ended_well && ended.interrupted)
        {
            let memory = guest.memory.data_mut(&mut guest.store);
            image.layout.interrupt.clear(memory);
        }
        let mut outcome = conclude(result, guest.store.data_mut(), ended);
        outcome.peak_memory_bytes = guest.memory.data_size(&guest.store) as u64;
        outcome.cpu_time = thread_cpu_time().saturating_sub(cpu_started);
        if ended_well {
            if session.is_some() {
                let room = STATE_LIMIT.saturating_sub(outcome.size());
                match self.state_after(&mut guest, tracked.as_mut(), room)? {
                    Some(state) => outcome.session = Some(state.into()),
                    None => undo(&mut outcome, room),
                }
            }
            self.keep(guest, tracked);
        }
        outcome.wall_time = started.elapsed();
        Ok((outcome, ended.progress))
    }

    /// Keeps a guest for the next run. A trapped guest must not be kept: its state outside of the linear memory is
    /// unknown.
    fn keep(&mut self, guest: Guest, tracked: Option<Tracked>) {
        let size = guest.memory.data_size(&guest.store) as u64;
        if let (Some(tracked), Some(kept), Some(image)) = (tracked, &mut self.kept, &self.image)
            // A memory that grew does not shrink.
            && size == image.layout.bytes
        {
            kept.guest = Some((guest, tracked));
            kept.used = true;
        }
    }

    /// Returns the state for the next run of a session; `None` if it takes more than `limit` bytes.
    fn state_after(
        &self,
        guest: &mut Guest,
        tracked: Option<&mut Tracked>,
        limit: usize,
    ) -> Result<Option<SessionState>> {
        let image = self
            .image
            .as_ref()
            .map(|image| image.image.bytes())
            .ok_or_else(|| engine_error("keep a session", "there is no memory image"))?;
        let written = match (tracked, &self.kept) {
            (Some(tracked), Some(kept)) => tracked.written(&kept.tracker, image.len())?,
            // The written pages are unknown: compare all of it.
            _ => std::iter::once(0..image.len()).collect(),
        };
        let (memory, host) = guest.memory.data_and_store_mut(&mut guest.store);
        let host = host.save();
        Ok(SessionState::capture(memory, image, &written, host, limit))
    }

    /// Releases the stack of a deep run, and restores the kept guest to the image, if it has run. Call it after the
    /// outcome was delivered, when no caller waits.
    ///
    /// # Errors
    /// State of a run may remain in the guest: this process must not run another.
    pub fn restore(&mut self) -> Result<()> {
        if let Some(stack) = &self.stack {
            stack.release_unused();
        }
        self.put_back()
    }

    fn put_back(&mut self) -> Result<()> {
        let Some(kept) = self.kept.as_mut().filter(|kept| kept.used) else {
            return Ok(());
        };
        kept.used = false;
        let (Some((mut guest, mut tracked)), Some(image)) = (kept.guest.take(), &self.image) else {
            return Ok(());
        };
        let memory = guest.memory.data_mut(&mut guest.store);
        tracked.restore(&kept.tracker, memory, image.image.bytes())?;
        if kept.verification.is_due() && memory != image.image.bytes() {
            return Err(engine_error(
                "trust the kept guest",
                "its memory differs from the image after it was restored",
            )
            .fatal());
        }
        self.check_stack_pointer(&mut guest)?;
        // The files and inputs of the run take no memory until the next one.
        self.renew(&mut guest, &Request::default())?;
        if let Some(kept) = &mut self.kept {
            kept.guest = Some((guest, tracked));
        }
        Ok(())
    }

    /// Checks that the stack pointer has its initial value, as it must between calls.
    fn check_stack_pointer(&self, guest: &mut Guest) -> Result<()> {
        let Some(layout) = self.image.as_ref().map(|image| image.layout) else {
            return Ok(());
        };
        let found = guest.stack_pointer()?;
        if found == layout.stack_pointer {
            return Ok(());
        }
        let expected = layout.stack_pointer;
        Err(engine_error(
            "trust the guest",
            format!("its stack pointer is {found}, not {expected}"),
        )
        .fatal())
    }
}

/// The reason why a session does not continue, which is the outcome of its run.
enum Unresumed {
    /// It has more memory than the request allows, or the files of the request do not fit.
    Refused(Exception),
    /// Its state cannot be loaded, and the guest's memory may hold a part of it.
    Damaged(SandboxError),
}

/// Turns a guest that is equal to the image into the state of a session. The inner error is caused by the session, the
/// outer one by the host.
fn resume(
    guest: &mut Guest,
    session: &SessionState,
    request: &Request,
) -> Result<std::result::Result<(), Unresumed>> {
    if !session.is_begun() {
        return Ok(Ok(()));
    }
    let (needed, allowed) = (session.memory_bytes, request.limits.memory_bytes);
    let image = guest.memory.data_size(&guest.store) as u64;
    if needed > image && needed > allowed {
        return Ok(Err(Unresumed::Refused(exception(
            "MemoryError",
            format!(
                "the session uses {needed} bytes of memory, but this run is limited to {allowed}"
            ),
        ))));
    }
    guest.grow_to(needed)?;
    let (memory, host) = guest.memory.data_and_store_mut(&mut guest.store);
    let loaded = session
        .apply(memory)
        .and_then(|()| host.load(&session.host, request));
    if let Err(reason) = loaded {
        return Ok(Err(Unresumed::Damaged(reason)));
    }
    Ok(host.put_files(request).map_err(|path| {
        Unresumed::Refused(exception(
            "OSError",
            format!("cannot create the file {path:?} in the directory of the session"),
        ))
    }))
}

/// Returns an exception that no statement has raised.
fn exception(type_name: &str, message: String) -> Exception {
    let line = format!("{type_name}: {message}");
    Exception {
        type_name: type_name.into(),
        traceback: format!("{line}\n"),
        line,
    }
}

/// Changes the outcome of a run whose state exceeds the limit: its session is the same as before.
fn undo(outcome: &mut Outcome, limit: usize) {
    let raised = exception(
        "MemoryError",
        format!(
            "the session would keep more than {limit} bytes, so it is as it was before this part; delete \
             variables that are not needed any more"
        ),
    );
    outcome.status = Status::Memory;
    outcome
        .stderr
        .extend_from_slice(raised.traceback.as_bytes());
    outcome.exception = Some(raised);
}

impl Verification {
    fn is_due(&mut self) -> bool {
        self.runs += 1;
        self.every != 0 && self.runs.is_multiple_of(self.every)
    }
}

/// Determines the outcome of a run from its final state.
fn conclude(result: wasmtime::Result<i32>, state: &mut HostState, ended: Ended) -> Outcome {
    let too_late = ended.expired || ended.interrupted;
    let status = match &result {
        // It finished just as its time was over: its memory may be protected.
        Ok(_) if too_late => Status::Timeout,
        Ok(_) => driver::status(&state.report),
        Err(error) => match error.downcast_ref::<Stop>() {
            Some(Stop::Expired) => Status::Timeout,
            Some(Stop::Output) => Status::OutputLimit,
            Some(Stop::Exit(_)) if too_late => Status::Timeout,
            Some(Stop::Exit(0)) => Status::Ok,
            Some(Stop::Exit(_)) => Status::Error,
            // The watchdog's fault is the only trap of a run whose time is over.
            None if ended.expired => Status::Timeout,
            // The interpreter does not handle every failed allocation: it aborts, or dereferences a null pointer.
            None if state.memory_refused => Status::Memory,
            None => Status::Crash,
        },
    };
    // The guest may write a report and exit with 0.
    let mut exception = driver::exception(&state.report).filter(|_| status != Status::Ok);
    let mut output = state.output();
    if too_late && let Some(exception) = exception.take() {
        // The watchdog raised it: the program's output is before it.
        let shown = exception.traceback.as_bytes();
        if exception.type_name == "KeyboardInterrupt" && output.stderr.ends_with(shown) {
            let written = output.stderr.len() - shown.len();
            output.stderr.truncate(written);
        }
    }
    Outcome {
        status,
        value: driver::value(&state.report).filter(|_| !too_late),
        files: state.changed_files(),
        stdout: std::mem::take(&mut output.stdout),
        stderr: std::mem::take(&mut output.stderr),
        exception,
        session: None,
        cpu_time: Duration::ZERO,
        wall_time: Duration::ZERO,
        peak_memory_bytes: 0,
        starved: state.starved,
    }
}
