//! From the published guest to the memory image that every run starts from.

use std::path::Path;

use crate::error::{Result, SandboxError};
use crate::guest::module::SplitModule;
use crate::guest::{interrupt, libc, library};
use crate::limits::Limits;
use crate::request::Request;
use crate::run::driver;
use crate::run::instance::{Guest, ImageLayout};
use crate::run::runner::Runner;

pub const ERRORS: &str = include_str!("errors.py");
pub const INTEGERS: &str = include_str!("integers/names.py");
pub const WARM_UP: &str = include_str!("warmup.py");
pub const CONDITIONING: &str = include_str!("conditioning.py");

/// Warms up the guest and returns its memory, from which every run starts.
///
/// `compiled` is the module without data, `split` contains its published data.
pub fn warm_up(
    compiled: &Path,
    archive: &Path,
    split: &SplitModule<'_>,
) -> Result<(Vec<u8>, ImageLayout)> {
    let runner = Runner::new(compiled, None, archive)?;
    let mut guest = runner.instantiate(&rehearsal(b""))?;
    let (address, bytes) = libc::data();
    for (address, bytes) in split
        .segments
        .iter()
        .copied()
        .chain([(address, &bytes[..])])
    {
        guest
            .memory
            .write(&mut guest.store, address, bytes)
            .map_err(|error| {
                SandboxError::new(format!("the guest's data does not fit: {error}"))
            })?;
    }
    let stack_pointer = guest.stack_pointer()?;
    // First: modules copy the numbers of errors when they are imported.
    evaluate(&mut guest, &install("_torl_errors", ERRORS))?;
    evaluate(&mut guest, &install("_torl_integers", INTEGERS))?;
    evaluate(&mut guest, &install("_torl_driver", driver::SOURCE))?;
    evaluate(&mut guest, "import _torl_driver; _torl_driver.set_up()")?;
    for (name, source) in library::MODULES {
        evaluate(&mut guest, &install(name, source))?;
    }
    evaluate(&mut guest, &install("_torl_warmup", WARM_UP))?;
    evaluate(&mut guest, &install("_torl_conditioning", CONDITIONING))?;
    let mut memory = at_rest(&mut guest, stack_pointer)?;
    evaluate(
        &mut guest,
        "import _torl_conditioning; _torl_conditioning.report_lasting_objects()",
    )?;
    make_immortal(&mut memory, &guest.store.data().report)?;
    // The search for the objects has left traces in that guest: continue with another.
    drop(guest);
    let mut guest = runner.instantiate(&rehearsal(b""))?;
    guest.fill(&memory)?;
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
        interrupt: interrupt::find(&mut guest)?,
    };
    Ok((memory, layout))
}

/// The guest's own evaluation of a turn parses and compiles its text, which takes longer than a short run. From now on
/// a turn runs the driver, regardless of its text.
const TURNS_ARE_RUNS: &str = "
import _reactor, _torl_driver
_reactor._run_turn = lambda text, name: _torl_driver.run()
";

/// Runs after the conditioning, so that memory takes the layout that the next run starts with.
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

/// Returns a copy of the guest's memory between two calls.
fn at_rest(guest: &mut Guest, expected: u32) -> Result<Vec<u8>> {
    let stack_pointer = guest.stack_pointer()?;
    if stack_pointer != expected {
        return Err(SandboxError::new(format!(
            "the guest's stack pointer moved during the warm-up, from {expected} to {stack_pointer}"
        )));
    }
    Ok(guest.memory.data(&guest.store).to_vec())
}

/// The reference count of immortal objects, on 32 bits.
const IMMORTAL: u32 = 5 << 28;
/// Upper bound of the reference counts in the warmed-up guest.
const MAX_REFERENCES: u32 = 1 << 24;

/// Makes the objects at `addresses` (four bytes each) immortal: their reference counts never change again.
///
/// A few of them were made by the search itself and are not in `memory`, where their blocks are free. A free block
/// starts with a pointer or zero, which cannot be a reference count: pointers are larger, because the stack is below
/// everything else.
fn make_immortal(memory: &mut [u8], addresses: &[u8]) -> Result<()> {
    let mut strangers = 0;
    for address in addresses.chunks_exact(4) {
        let address = u32::from_le_bytes(address.try_into().expect("four bytes")) as usize;
        let count = memory.get_mut(address..address + 4).unwrap_or_default();
        match <[u8; 4]>::try_from(&*count).map(u32::from_le_bytes) {
            Ok(1..=MAX_REFERENCES) => count.copy_from_slice(&IMMORTAL.to_le_bytes()),
            Ok(IMMORTAL..) => {}
            _ => strangers += 1,
        }
    }
    let objects = addresses.len() / 4;
    if objects < 100_000 || strangers > 200 {
        return Err(SandboxError::new(format!(
            "the search for the guest's objects returned {objects}, of which {strangers} do not exist"
        )));
    }
    Ok(())
}

/// Maximum recursion of the interpreter's C code, in bytes of the guest's stack in linear memory.
pub const RECURSION_STACK: u32 = 3 << 20;

/// Raises the limits of the interpreter's guard against C recursion.
///
/// CPython stores three consecutive addresses for it: the top of the stack, a soft limit (`RecursionError` below it)
/// and a hard limit. The guest was built for hosts with small stacks, with limits 112 and 120 KiB below the top: a
/// recursive function under `lru_cache` stops at depth 201, but reaches thousands natively. The stack itself has 16
/// MiB.
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

/// Returns Python code that makes an importable module from its source.
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

/// Returns `text` as a Python string literal.
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
