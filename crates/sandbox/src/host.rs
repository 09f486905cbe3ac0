//! What the host keeps for a run, and how a call reaches the guest's memory. With `calls` beside it this is the whole
//! surface between untrusted code and the host.
//!
//! There is a virtual clock, a seeded random stream, standard input that is at its end, standard output and error
//! that are kept up to a limit, one read-only file (the standard library), and nothing else: every other call of
//! WASI answers `ENOSYS`.

use wasmtime::{Caller, Memory, ResourceLimiter};

use crate::files::{Archive, Files};
use crate::limits::Gate;

/// Files the driver uses besides the standard three: the run's code to read, its report to write.
pub const CODE_DESCRIPTOR: i32 = 1000;
pub const REPORT_DESCRIPTOR: i32 = 1001;
/// A report is cut here; the driver never writes that much, but the guest could.
const REPORT_LIMIT: usize = 4 << 20;

/// The virtual clock at the start of every run: 2026-01-01T00:00:00Z.
pub const CLOCK_START: u64 = 1_767_225_600_000_000_000;
/// The monotonic clock then. Not zero, so that differences of early readings stay positive.
pub const MONOTONIC_START: u64 = 1_000_000_000_000;
/// How far each reading moves the clock, so that code waiting for time to pass comes to its end.
pub const CLOCK_TICK: u64 = 1_000;

/// `errno` values of `wasi_snapshot_preview1`.
pub mod errno {
    pub const SUCCESS: i32 = 0;
    pub const BADF: i32 = 8;
    pub const FAULT: i32 = 21;
    pub const INVAL: i32 = 28;
    pub const ISDIR: i32 = 31;
    pub const NOENT: i32 = 44;
    pub const NOSYS: i32 = 52;
    pub const ROFS: i32 = 69;
    pub const SPIPE: i32 = 70;
}

/// Why a host call ended the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The run's time was over.
    Expired,
    /// The output limit was reached.
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

/// All the host keeps for one run, and drops after it.
pub struct HostState {
    pub memory: Option<Memory>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub report: Vec<u8>,
    /// Whether the guest asked for more memory than its limit.
    pub memory_refused: bool,
    gate: Gate,
    pub files: Files,
    code: Vec<u8>,
    code_read: usize,
    pub clock: u64,
    random: u64,
    memory_limit: usize,
    output_limit: usize,
}

impl HostState {
    pub fn new(
        gate: Gate,
        archive: Archive,
        code: Vec<u8>,
        seed: u64,
        memory_limit: u64,
        output_limit: u64,
    ) -> Self {
        Self {
            memory: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            report: Vec::new(),
            memory_refused: false,
            gate,
            files: Files::new(archive),
            code,
            code_read: 0,
            clock: 0,
            random: seed,
            memory_limit: usize::try_from(memory_limit).unwrap_or(usize::MAX),
            output_limit: usize::try_from(output_limit).unwrap_or(usize::MAX),
        }
    }

    pub fn read_clock(&mut self, clock: i32) -> Option<u64> {
        self.clock += CLOCK_TICK;
        match clock {
            0 => Some(CLOCK_START + self.clock),
            1 => Some(MONOTONIC_START + self.clock),
            2 | 3 => Some(self.clock),
            _ => None,
        }
    }

    /// The next eight bytes of the run's random stream (SplitMix64; Steele, Lea and Flood 2014).
    pub fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn write(&mut self, descriptor: i32, bytes: &[u8]) -> Result<Result<(), i32>, Stop> {
        let room = self.output_limit - self.stdout.len() - self.stderr.len();
        let sink = match descriptor {
            1 => &mut self.stdout,
            2 => &mut self.stderr,
            REPORT_DESCRIPTOR => {
                let room = REPORT_LIMIT - self.report.len();
                self.report
                    .extend_from_slice(&bytes[..bytes.len().min(room)]);
                return Ok(Ok(()));
            }
            _ => return Ok(Err(errno::BADF)),
        };
        sink.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room {
            return Err(Stop::Output);
        }
        Ok(Ok(()))
    }

    /// Bytes from a descriptor's current position; empty at its end.
    pub fn read(&mut self, descriptor: i32, length: usize) -> Result<&[u8], i32> {
        match descriptor {
            0 => Ok(&[]),
            CODE_DESCRIPTOR => {
                let start = self.code_read;
                self.code_read = self.code.len().min(start.saturating_add(length));
                Ok(&self.code[start..self.code_read])
            }
            _ => self.files.read(descriptor, length),
        }
    }
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
        Ok(allowed)
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

/// What a call came to: an `errno` for the guest if it failed.
pub type Checked<T> = Result<T, i32>;

impl GuestMemory<'_> {
    pub fn slice(&self, address: i32, length: usize) -> Checked<&[u8]> {
        let start = address as u32 as usize;
        self.0.get(start..start + length).ok_or(errno::FAULT)
    }

    pub fn write(&mut self, address: i32, bytes: &[u8]) -> Checked<()> {
        let start = address as u32 as usize;
        self.0
            .get_mut(start..start + bytes.len())
            .ok_or(errno::FAULT)?
            .copy_from_slice(bytes);
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

    /// The `index`th buffer of a scatter/gather list: its address and length.
    pub fn vector(&self, list: i32, index: i32) -> Checked<(i32, usize)> {
        let entry = list.wrapping_add(index.wrapping_mul(8));
        let address = self.read_u32(entry)?;
        let length = self.read_u32(entry.wrapping_add(4))?;
        Ok((address as i32, length as usize))
    }
}

/// Runs the body of a host call between the watchdog's gates, with the guest's memory and the host's state apart.
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
