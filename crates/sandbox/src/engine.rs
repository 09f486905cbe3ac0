//! The compiler's settings, and one run: a fresh instance over a private copy of the memory image.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use wasmtime::{Collector, Config, Engine, Instance, InstancePre, Linker, Module, OptLevel, Store};

use crate::calls;
use crate::driver;
use crate::error::{Result, SandboxError};
use crate::files::Archive;
use crate::host::{HostState, Stop};
use crate::limits::{Limits, MEMORY_RESERVATION, Watchdog, thread_cpu_time};
use crate::module::STACK_POINTER_EXPORT;
use crate::outcome::{Outcome, Status};

const WASM_PAGE: u64 = 64 << 10;

/// Native stack a guest may use. The interpreter's own guard against recursion counts its stack in linear memory and
/// must strike first: some of its functions use thirty times as much here as there.
const GUEST_STACK: usize = 128 << 20;
/// Stack of the thread that runs the guest. Only what is used takes memory.
pub const RUNNER_STACK: usize = GUEST_STACK + (8 << 20);

fn broken(action: &str, error: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(format!("the sandbox's engine cannot {action}: {error}"))
}

/// Names the settings below. Change it with them: it is part of the cache's key.
pub const SETTINGS: &str = "1";

fn config() -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_exceptions(true)
        .wasm_tail_call(true)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .relaxed_simd_deterministic(true)
        .collector(Collector::DeferredReferenceCounting)
        .max_wasm_stack(GUEST_STACK)
        // Unused, but the engine refuses a guest stack that is larger.
        .async_stack_size(GUEST_STACK + (4 << 20))
        .memory_reservation(MEMORY_RESERVATION as u64)
        .memory_may_move(false)
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

pub fn new_engine() -> Result<Engine> {
    Engine::new(&config()).map_err(|error| broken("start", error))
}

/// What a memory image holds beside the bytes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLayout {
    /// A multiple of the WebAssembly page.
    pub bytes: u64,
    pub stack_pointer: u32,
}

/// One run to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub code: Vec<u8>,
    pub seed: u64,
    pub limits: Limits,
}

/// Runs code on the thread that made it.
pub struct Runner {
    engine: Engine,
    instance: InstancePre<HostState>,
    image: Option<(File, ImageLayout)>,
    archive: Archive,
    watchdog: Watchdog,
}

/// An instance and the store it lives in.
pub struct Guest {
    pub store: Store<HostState>,
    pub instance: Instance,
}

impl Runner {
    /// A runner of the compiled guest at `module`. Without an image the guest starts as published, without its data.
    pub fn new(module: &Path, image: Option<(&Path, ImageLayout)>, archive: &Path) -> Result<Self> {
        // First of all: it installs the handler that wasmtime's own passes faults on to.
        let watchdog = Watchdog::start()?;
        let engine = new_engine()?;
        // SAFETY: the file is what this very engine configuration serialised; the cache has verified it.
        let compiled = unsafe { Module::deserialize_file(&engine, module) }
            .map_err(|error| broken(&format!("load {}", module.display()), error))?;
        let mut linker = Linker::new(&engine);
        calls::link(&mut linker, &compiled).map_err(|error| broken("link the guest", error))?;
        let instance = linker
            .instantiate_pre(&compiled)
            .map_err(|error| broken("link the guest", error))?;
        let image = image
            .map(|(path, layout)| {
                File::open(path)
                    .map(|file| (file, layout))
                    .map_err(|error| SandboxError::file("open", path, &error))
            })
            .transpose()?;
        Ok(Self {
            engine,
            instance,
            image,
            archive: Archive::open(archive)?,
            watchdog,
        })
    }

    /// A new guest, its memory a private copy-on-write mapping of the image.
    pub fn instantiate(&self, request: &Request) -> Result<Guest> {
        let state = HostState::new(
            self.watchdog.gate(),
            self.archive.clone(),
            driver::input(request.seed, &request.code),
            request.seed,
            request.limits.memory_bytes,
            request.limits.output_bytes,
        );
        let mut store = Store::new(&self.engine, state);
        let instance = self
            .instance
            .instantiate(&mut store)
            .map_err(|error| broken("make an instance", error))?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| broken("use the guest", "it exports no memory"))?;
        if let Some((file, layout)) = &self.image {
            let missing = layout.bytes.saturating_sub(memory.data_size(&store) as u64);
            memory
                .grow(&mut store, missing / WASM_PAGE)
                .map_err(|error| broken("reserve the guest's memory", error))?;
            map_image(memory.data_ptr(&store), file, layout.bytes)?;
        }
        store.data_mut().memory = Some(memory);
        if let Some((_, layout)) = &self.image {
            let stack_pointer = stack_pointer(&instance, &mut store)?;
            if stack_pointer != layout.stack_pointer {
                return Err(broken(
                    "use the memory image",
                    format!(
                        "its stack pointer is {}, the module's {stack_pointer}",
                        layout.stack_pointer
                    ),
                ));
            }
        }
        // Only now: the image itself may be larger than the limit of the run, which then may not grow at all.
        store.limiter(|state| state);
        Ok(Guest { store, instance })
    }

    /// Runs `request` from start to end. An error means that the host is broken, never that the code is.
    pub fn run(&self, request: &Request) -> Result<Outcome> {
        let started = Instant::now();
        let cpu_started = thread_cpu_time();
        let mut guest = self.instantiate(request)?;
        let call = guest.prepare(driver::RUN)?;
        let memory = guest.store.data().memory.expect("set by instantiate");
        let armament = self
            .watchdog
            .arm(&request.limits, memory.data_ptr(&guest.store));
        let result = call(&mut guest.store);
        let expired = armament.expired();
        drop(armament);
        let peak_memory_bytes = memory.data_size(&guest.store) as u64;
        let state = guest.store.into_data();
        let mut outcome = conclude(result, state, expired);
        outcome.peak_memory_bytes = peak_memory_bytes;
        outcome.cpu_time = thread_cpu_time().saturating_sub(cpu_started);
        outcome.wall_time = started.elapsed();
        Ok(outcome)
    }
}

impl Guest {
    /// Writes source text into the guest; the result runs it.
    #[allow(clippy::type_complexity)]
    pub fn prepare(
        &mut self,
        source: &str,
    ) -> Result<impl FnOnce(&mut Store<HostState>) -> wasmtime::Result<i32> + use<>> {
        let store = &mut self.store;
        let unusable = |error| broken("call the guest", error);
        let allocate = self
            .instance
            .get_typed_func::<i32, i32>(&mut *store, "host_alloc")
            .map_err(unusable)?;
        let turn = self
            .instance
            .get_typed_func::<(i32, i32), i32>(&mut *store, "turn")
            .map_err(unusable)?;
        let length = i32::try_from(source.len())
            .map_err(|_| broken("call the guest", "the source is too long"))?;
        let address = allocate.call(&mut *store, length).map_err(unusable)?;
        let memory = store.data().memory.expect("set by instantiate");
        memory
            .write(&mut *store, address as u32 as usize, source.as_bytes())
            .map_err(|error| broken("write to the guest", error))?;
        Ok(move |store: &mut Store<HostState>| turn.call(store, (address, length)))
    }

    pub fn stack_pointer(&mut self) -> Result<u32> {
        stack_pointer(&self.instance, &mut self.store)
    }
}

/// The stack pointer, which between calls is where it was at the start.
fn stack_pointer(instance: &Instance, store: &mut Store<HostState>) -> Result<u32> {
    instance
        .get_global(&mut *store, STACK_POINTER_EXPORT)
        .and_then(|global| global.get(&mut *store).i32())
        .map(|value| value as u32)
        .ok_or_else(|| broken("use the guest", "it exports no stack pointer"))
}

/// Maps the image over the start of the guest's memory, copy-on-write.
fn map_image(base: *mut u8, file: &File, bytes: u64) -> Result<()> {
    // SAFETY: `base` starts the memory of a guest that is not running, which has at least `bytes` bytes; the new
    // private mapping takes the place of its pages and is unmapped with the rest of the memory's reservation.
    let address = unsafe {
        libc::mmap(
            base.cast(),
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
            0,
        )
    };
    if address == base.cast() {
        Ok(())
    } else {
        Err(broken(
            "map the memory image",
            std::io::Error::last_os_error(),
        ))
    }
}

/// Reads from what a run left behind how it ended.
fn conclude(result: wasmtime::Result<i32>, state: HostState, expired: bool) -> Outcome {
    let exception = driver::exception(&state.report);
    let status = match &result {
        Ok(_) => driver::status(&state.report),
        Err(error) => match error.downcast_ref::<Stop>() {
            Some(Stop::Expired) => Status::Timeout,
            Some(Stop::Output) => Status::OutputLimit,
            Some(Stop::Exit(0)) => Status::Ok,
            Some(Stop::Exit(_)) => Status::Error,
            // The fault by which the watchdog ends a run is the only trap of a run whose time is over.
            None if expired => Status::Timeout,
            None => Status::Crash,
        },
    };
    Outcome {
        status,
        stdout: state.stdout,
        stderr: state.stderr,
        exception,
        cpu_time: Duration::ZERO,
        wall_time: Duration::ZERO,
        peak_memory_bytes: 0,
    }
}
