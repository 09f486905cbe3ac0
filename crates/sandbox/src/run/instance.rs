//! One instance of the guest, whose memory is a private copy-on-write mapping of the image.

use std::fs::File;
use std::os::fd::AsRawFd;

use wasmtime::{Engine, Instance, InstancePre, Memory, Store, TypedFunc, Val};

use crate::error::Result;
use crate::pinned::PinnedFile;
use crate::run::engine::{engine_error, out_of_address_space};
use crate::run::host::HostState;
use crate::run::interrupt::{Interrupt, Word};
use crate::run::reset::Image;
use crate::run::virtual_clock::{ALARM_EXPORT, Counters, VirtualClock, WORK_EXPORT};

/// The name of the exported stack pointer of the guest's module, whose value at rest is checked.
pub const STACK_POINTER_EXPORT: &str = "torl_stack_pointer";

const WASM_PAGE: u64 = 64 << 10;

/// The metadata of a memory image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLayout {
    /// A multiple of the WebAssembly page.
    pub bytes: u64,
    pub stack_pointer: u32,
    pub interrupt: Interrupt,
}

impl ImageLayout {
    /// Number of its fields in addition to the size.
    pub const NUMBERS: usize = 1 + 2 * Interrupt::WORDS;

    /// Returns all fields but the size, which is the size of the image's file.
    pub fn numbers(&self) -> [u32; Self::NUMBERS] {
        let [a, b, c] = self.interrupt.words.map(|word| (word.address, word.bits));
        [self.stack_pointer, a.0, a.1, b.0, b.1, c.0, c.1]
    }

    /// Reconstructs the layout from the result of `numbers`; `None` if it is invalid.
    pub fn of_numbers(bytes: u64, numbers: [u32; Self::NUMBERS]) -> Option<Self> {
        let [stack_pointer, a0, a1, b0, b1, c0, c1] = numbers;
        let words = [(a0, a1), (b0, b1), (c0, c1)].map(|(address, bits)| Word { address, bits });
        let inside =
            |word: &Word| word.address.is_multiple_of(4) && u64::from(word.address) + 4 <= bytes;
        words.iter().all(inside).then_some(Self {
            bytes,
            stack_pointer,
            interrupt: Interrupt { words },
        })
    }
}

/// The memory image every guest starts from.
pub struct LoadedImage {
    file: File,
    pub layout: ImageLayout,
    /// The image for comparison.
    pub image: Image,
}

impl LoadedImage {
    pub fn of(pinned: PinnedFile, layout: ImageLayout) -> Result<Self> {
        let image = Image::map(&pinned.file, layout.bytes as usize)?;
        Ok(Self {
            file: pinned.file,
            layout,
            image,
        })
    }
}

/// An instance and the store it lives in.
pub struct Guest {
    pub store: Store<HostState>,
    pub memory: Memory,
    instance: Instance,
    allocate: TypedFunc<i32, i32>,
    turn: TypedFunc<(i32, i32), i32>,
}

impl Guest {
    /// Creates an instance of `module`. Its memory is the image; without an image it is as the module declares it.
    pub fn new(
        engine: &Engine,
        module: &InstancePre<HostState>,
        image: Option<&LoadedImage>,
        state: HostState,
    ) -> Result<Self> {
        let mut store = Store::new(engine, state);
        let instance = module
            .instantiate(&mut store)
            .map_err(|error| out_of_address_space("make an instance", error))?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| engine_error("use the guest", "it exports no memory"))?;
        let unusable = |error| engine_error("use the guest", error);
        let allocate = instance
            .get_typed_func(&mut store, "host_alloc")
            .map_err(unusable)?;
        let turn = instance
            .get_typed_func(&mut store, "turn")
            .map_err(unusable)?;
        let mut guest = Self {
            store,
            memory,
            instance,
            allocate,
            turn,
        };
        if let Some(LoadedImage { file, layout, .. }) = image {
            guest.grow_to(layout.bytes)?;
            map_image(memory.data_ptr(&guest.store), file, layout.bytes)?;
        }
        guest.connect()?;
        // Only now: the image may be larger than the limit of the run, whose memory may then not grow at all.
        guest.store.limiter(|state| state);
        Ok(guest)
    }

    /// Gives a new state of the host access to the instance.
    pub fn connect(&mut self) -> Result<()> {
        let store = &mut self.store;
        let work = self.instance.get_global(&mut *store, WORK_EXPORT);
        let alarm = self.instance.get_global(&mut *store, ALARM_EXPORT);
        let (Some(work), Some(alarm)) = (work, alarm) else {
            return Err(engine_error("use the guest", "it exports no counters"));
        };
        // The last run may have left an alarm.
        alarm
            .set(&mut *store, Val::I64(0))
            .map_err(|error| engine_error("use the guest", error))?;
        let counters = Counters { work, alarm };
        let start = counters.work(&mut *store);
        let state = store.data_mut();
        state.memory = Some(self.memory);
        state.counters = Some(counters);
        state.clock = VirtualClock::starting_at(state.clock.now(), start);
        Ok(())
    }

    /// Grows the memory to `bytes`, if it is smaller.
    pub fn grow_to(&mut self, bytes: u64) -> Result<()> {
        let missing = bytes.saturating_sub(self.memory.data_size(&self.store) as u64);
        self.memory
            .grow(&mut self.store, missing / WASM_PAGE)
            .map(drop)
            .map_err(|error| engine_error("grow the guest's memory", error))
    }

    /// Overwrites the whole memory, after growing it to this size.
    pub fn fill(&mut self, memory: &[u8]) -> Result<()> {
        self.grow_to(memory.len() as u64)?;
        self.memory
            .write(&mut self.store, 0, memory)
            .map_err(|error| engine_error("fill the guest's memory", error))
    }

    /// Writes source text into the guest; the returned function runs it.
    #[allow(clippy::type_complexity)]
    pub fn prepare(
        &mut self,
        source: &str,
    ) -> Result<impl FnOnce(&mut Store<HostState>) -> wasmtime::Result<i32> + use<>> {
        let length = i32::try_from(source.len())
            .map_err(|_| engine_error("call the guest", "the source is too long"))?;
        let address = self
            .allocate
            .call(&mut self.store, length)
            .map_err(|error| engine_error("call the guest", error))?;
        self.memory
            .write(&mut self.store, address as u32 as usize, source.as_bytes())
            .map_err(|error| engine_error("write to the guest", error))?;
        let turn = self.turn.clone();
        Ok(move |store: &mut Store<HostState>| turn.call(store, (address, length)))
    }

    /// Calls an exported function.
    pub fn call(&mut self, name: &str, argument: i32) -> wasmtime::Result<i32> {
        self.instance
            .get_typed_func(&mut self.store, name)?
            .call(&mut self.store, argument)
    }

    /// Returns the stack pointer, which between calls has its initial value.
    pub fn stack_pointer(&mut self) -> Result<u32> {
        self.instance
            .get_global(&mut self.store, STACK_POINTER_EXPORT)
            .and_then(|global| global.get(&mut self.store).i32())
            .map(|value| value as u32)
            .ok_or_else(|| engine_error("use the guest", "it exports no stack pointer"))
    }
}

/// Maps the image over the start of the guest's memory, copy-on-write.
fn map_image(base: *mut u8, file: &File, bytes: u64) -> Result<()> {
    // SAFETY: `base` starts the memory of a guest that is not running, which has at least `bytes` bytes; the new
    // private mapping replaces its pages and is unmapped with the rest of the memory's reservation.
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
        Err(engine_error(
            "map the memory image",
            std::io::Error::last_os_error(),
        ))
    }
}
