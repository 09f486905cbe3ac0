//! The host's state of a run, and the access of host calls to the guest's memory. Together with `calls` this is the
//! whole interface between untrusted code and the host.
//!
//! It consists of a virtual clock, a seeded random stream, standard input with the text of the request, standard output
//! and error up to a limit, and a file system in memory. Every other call of WASI returns `ENOSYS`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wasmtime::{Caller, Memory, ResourceLimiter};

use crate::errno::{self, Checked};
use crate::error::{Result as HostResult, SandboxError};
use crate::files::{Archive, FileSystem, Target, Tree};
use crate::request::Request;
use crate::run::driver;
use crate::run::output::Output;
use crate::run::virtual_clock::{CLOCK_START, Counters, VirtualClock};
use crate::run::watchdog::Gate;
use crate::wire::{Reader, Writer};

/// Files of the driver in addition to the standard three: the run's code to read, its report to write.
pub const CODE_DESCRIPTOR: i32 = 1000;
pub const REPORT_DESCRIPTOR: i32 = 1001;
/// The file to which the driver writes its progress in the code, in bytes, at the end of each statement of a session's
/// run. A single byte delays interrupts (1) or allows them (0).
pub const PROGRESS_DESCRIPTOR: i32 = 1002;
/// The file of the program's alarm, in the form of `VirtualClock::set_alarm`.
pub const ALARM_DESCRIPTOR: i32 = 1003;
/// Maximum size of a report; longer ones are truncated. The driver never writes that much, but the guest could.
const REPORT_LIMIT: usize = 4 << 20;

/// The number of bytes that a host call moves between checks of the run's time.
pub const PIECE: usize = 1 << 20;

/// The reason why a host call ended the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The run's time is over.
    Expired,
    /// The output limit is reached.
    Output,
    /// `os._exit(code)` or the like.
    Exit(i32),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the host ended the run: {self:?}")
    }
}

impl std::error::Error for Stop {}

/// The host's state of one run, dropped after it.
pub struct HostState {
    pub memory: Option<Memory>,
    pub counters: Option<Counters>,
    /// Shared with the watchdog, which may have to report the outcome of the run.
    pub output: Arc<Mutex<Output>>,
    pub report: Vec<u8>,
    /// Whether the guest asked for more memory than it got.
    pub memory_refused: bool,
    /// Whether the system refused memory that the limit allows.
    pub starved: bool,
    gate: Gate,
    pub files: FileSystem,
    /// The files before the run, if the outcome includes changed files.
    files_before: Option<Tree>,
    stdin: Unread,
    code: Unread,
    pub clock: VirtualClock,
    random: u64,
    memory_limit: usize,
    output_limit: usize,
}

/// Unread bytes of an input stream.
struct Unread {
    bytes: Vec<u8>,
    position: usize,
}

impl Unread {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, position: 0 }
    }

    fn read(&mut self, target: &mut [u8]) -> usize {
        let rest = &self.bytes[self.position..];
        let count = rest.len().min(target.len());
        target[..count].copy_from_slice(&rest[..count]);
        self.position += count;
        count
    }
}

impl HostState {
    /// Returns the state before a run.
    ///
    /// # Errors
    /// The request's files cannot be created, which [`Request::check`] detects.
    pub fn new(gate: Gate, archive: Archive, request: &Request) -> HostResult<Self> {
        let limits = &request.limits;
        let mut files = FileSystem::new(archive, limits.files_bytes, CLOCK_START);
        put_files(&mut files, request, CLOCK_START)
            .map_err(|path| SandboxError::new(format!("cannot create the file {path:?}")))?;
        Ok(Self {
            memory: None,
            counters: None,
            output: Arc::default(),
            report: Vec::new(),
            memory_refused: false,
            starved: false,
            gate,
            files_before: request.return_files.then(|| files.tree().clone()),
            files,
            stdin: Unread::new(request.stdin.clone()),
            code: Unread::new(driver::input(request)),
            clock: VirtualClock::default(),
            random: request.seed,
            memory_limit: usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX),
            output_limit: usize::try_from(limits.output_bytes).unwrap_or(usize::MAX),
        })
    }

    /// Returns every file that the run created or changed, if the outcome includes them.
    pub fn changed_files(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let before = self.files_before.as_ref();
        before.map_or_else(Vec::new, |before| {
            self.files.tree().files_changed_since(before)
        })
    }

    /// Ends a long host call when the run's time is over.
    pub fn check_time(&self) -> Result<(), Stop> {
        if self.gate.is_expired() {
            Err(Stop::Expired)
        } else {
            Ok(())
        }
    }

    /// Returns the host's state for the next run of a session: the clock with its alarm, the random stream, the files.
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer
            .number(self.clock.now())
            .number(self.random)
            .bytes(&self.clock.alarm());
        self.files.encode(&mut writer);
        writer.0
    }

    /// Loads the state that was saved after the last run of a session.
    pub fn load(&mut self, saved: &[u8], request: &Request) -> HostResult<()> {
        let read = || {
            let mut reader = Reader(saved);
            let (now, random) = (reader.number()?, reader.number()?);
            let mut clock = VirtualClock::starting_at(now, self.clock.work());
            clock.set_alarm(reader.bytes()?);
            let archive = self.files.archive().clone();
            let files = FileSystem::decode(&mut reader, archive, request.limits.files_bytes)?;
            reader.end((clock, random, files))
        };
        let damaged = |error: &dyn std::fmt::Display| {
            SandboxError::new(format!(
                "the state of a sandbox session is damaged: {error}"
            ))
        };
        (self.clock, self.random, self.files) = read().map_err(|error| damaged(&error))?;
        Ok(())
    }

    /// Writes the files of the request into the session's file system.
    ///
    /// # Errors
    /// The path of the first file that cannot be created.
    pub fn put_files(&mut self, request: &Request) -> Result<(), String> {
        put_files(&mut self.files, request, self.clock.real_time())?;
        self.files_before = request.return_files.then(|| self.files.tree().clone());
        Ok(())
    }

    #[cfg(test)]
    pub fn expire(&self) {
        self.gate.expire();
    }

    /// Returns the time of a change to the file system.
    pub fn next_time(&mut self) -> u64 {
        self.clock.note_change();
        self.clock.real_time()
    }

    /// Returns the next eight bytes of the run's random stream (SplitMix64; Steele, Lea and Flood 2014).
    pub fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Checks that a descriptor is open for writing, at an explicit position if `positioned`.
    pub fn check_writable(&self, descriptor: i32, positioned: bool) -> Checked<()> {
        match descriptor {
            REPORT_DESCRIPTOR | PROGRESS_DESCRIPTOR | ALARM_DESCRIPTOR => Ok(()),
            _ => self.files.check_writable(descriptor, positioned),
        }
    }

    pub fn check_readable(&self, descriptor: i32, positioned: bool) -> Checked<()> {
        match descriptor {
            CODE_DESCRIPTOR | ALARM_DESCRIPTOR => Ok(()),
            _ => self.files.check_readable(descriptor, positioned),
        }
    }

    /// The output so far.
    pub fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes as many of `bytes` as fit.
    pub fn write(
        &mut self,
        descriptor: i32,
        position: Option<u64>,
        bytes: &[u8],
    ) -> Result<Checked<usize>, Stop> {
        if descriptor == REPORT_DESCRIPTOR {
            let room = REPORT_LIMIT - self.report.len();
            self.report
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
            return Ok(Ok(bytes.len()));
        }
        if descriptor == PROGRESS_DESCRIPTOR {
            match bytes {
                [held] => self.gate.hold_interrupts(*held != 0),
                _ => self
                    .gate
                    .note_progress(bytes.try_into().map_or(0, u32::from_le_bytes)),
            }
            return Ok(Ok(bytes.len()));
        }
        if descriptor == ALARM_DESCRIPTOR {
            self.clock.set_alarm(bytes);
            return Ok(Ok(bytes.len()));
        }
        let target = match self.files.target(descriptor) {
            Ok(Target::Node(_)) => {
                let now = self.next_time();
                return Ok(self.files.write(descriptor, position, bytes, now));
            }
            Ok(target) => target,
            Err(code) => return Ok(Err(code)),
        };
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.output_limit - output.len();
        let sink = match target {
            Target::Stdout => &mut output.stdout,
            Target::Stderr => &mut output.stderr,
            _ => return Ok(Err(errno::BADF)),
        };
        sink.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            return Err(Stop::Output);
        }
        Ok(Ok(bytes.len()))
    }

    /// Reads into `target`; fewer bytes than its length at the end.
    pub fn read(
        &mut self,
        descriptor: i32,
        position: Option<u64>,
        target: &mut [u8],
    ) -> Checked<usize> {
        if descriptor == CODE_DESCRIPTOR {
            return Ok(self.code.read(target));
        }
        if descriptor == ALARM_DESCRIPTOR {
            let alarm = self.clock.alarm();
            let count = alarm.len().min(target.len());
            target[..count].copy_from_slice(&alarm[..count]);
            return Ok(count);
        }
        match self.files.target(descriptor)? {
            Target::Stdin => Ok(self.stdin.read(target)),
            _ => self.files.read(descriptor, position, target),
        }
    }
}

/// The error is the path of the file that cannot be created.
fn put_files(files: &mut FileSystem, request: &Request, now: u64) -> Result<(), String> {
    for (path, bytes) in &request.files {
        files.put(path, bytes, now).map_err(|_| path.clone())?;
    }
    Ok(())
}

impl ResourceLimiter for HostState {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let allowed = desired <= self.memory_limit;
        self.memory_refused |= !allowed;
        if allowed {
            self.gate.note_memory(desired as u64);
        }
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory_refused = true;
        // The engine's own limits, which are the same in every run, are "exceeded". The system refuses all else.
        self.starved |= !error.to_string().contains("exceed");
        Ok(())
    }

    fn table_growing(
        &mut self,
        _current: usize,
        _desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

/// The guest's memory during a host call. Every access is checked; a wild pointer is the guest's `EFAULT`.
pub struct GuestMemory<'a>(pub &'a mut [u8]);

impl GuestMemory<'_> {
    pub fn slice(&self, address: i32, length: usize) -> Checked<&[u8]> {
        let start = address as u32 as usize;
        self.0.get(start..start + length).ok_or(errno::FAULT)
    }

    pub fn slice_mut(&mut self, address: i32, length: usize) -> Checked<&mut [u8]> {
        let start = address as u32 as usize;
        self.0.get_mut(start..start + length).ok_or(errno::FAULT)
    }

    pub fn write(&mut self, address: i32, bytes: &[u8]) -> Checked<()> {
        self.slice_mut(address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    pub fn read_u32(&self, address: i32) -> Checked<u32> {
        let bytes = self.slice(address, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    pub fn read_u64(&self, address: i32) -> Checked<u64> {
        let bytes = self.slice(address, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// Returns the `index`th buffer of a scatter/gather list: its address and length.
    pub fn vector(&self, list: i32, index: i32) -> Checked<(i32, usize)> {
        let entry = list.wrapping_add(index.wrapping_mul(8));
        let address = self.read_u32(entry)?;
        let length = self.read_u32(entry.wrapping_add(4))?;
        Ok((address as i32, length as usize))
    }
}

/// Runs the body of a host call between the watchdog's gates, with separate borrows of the guest's memory and the
/// host's state.
pub fn host_call(
    caller: &mut Caller<'_, HostState>,
    body: impl FnOnce(&mut GuestMemory<'_>, &mut HostState) -> Result<Checked<()>, Stop>,
) -> wasmtime::Result<i32> {
    let gate = caller.data().gate.clone();
    if !gate.enter() {
        return Err(Stop::Expired.into());
    }
    let memory = caller
        .data()
        .memory
        .expect("the memory is set before the first call");
    let (bytes, state) = memory.data_and_store_mut(caller);
    let answer = body(&mut GuestMemory(bytes), state);
    if !gate.leave() {
        return Err(Stop::Expired.into());
    }
    match answer? {
        Ok(()) => Ok(errno::SUCCESS),
        Err(code) => Ok(code),
    }
}

/// Returns the state of a run without a time limit, over a small archive.
#[cfg(test)]
pub fn state_for_tests(request: &Request) -> HostState {
    HostState::new(Gate::default(), Archive::for_tests(), request).unwrap()
}
