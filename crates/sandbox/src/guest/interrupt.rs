//! Search for the flags that CPython's signal handler sets, so that the host can set them.

use crate::error::{Result, SandboxError};
use crate::guest::functions::Functions;
use crate::run::driver;
use crate::run::instance::Guest;
use crate::run::interrupt::{Interrupt, Word};

const EXPORT: &str = "torl_set_interrupt";
const SIGINT: i32 = 2;

/// Exports the function that simulates a signal, and returns its number. It sets flags, and the interpreter handles them
/// later.
pub fn export(functions: &mut Functions<'_>) -> Result<u32> {
    let number = functions.named("PyErr_SetInterruptEx")?;
    functions.export(EXPORT, number);
    Ok(number)
}

/// Finds the flags in a warmed-up guest, and checks that the interpreter reacts to them. The guest cannot be used
/// afterwards.
pub fn find(guest: &mut Guest) -> Result<Interrupt> {
    let unusable =
        |reason: String| SandboxError::new(format!("the guest cannot be interrupted: {reason}"));
    let stack = guest.stack_pointer()? as usize;
    let before = guest.memory.data(&guest.store)[stack..].to_vec();
    let set: wasmtime::Result<i32> = guest.call(EXPORT, SIGINT);
    match set {
        Ok(0) => {}
        other => return Err(unusable(format!("it ignores its signal ({other:?})"))),
    }
    let after = &guest.memory.data(&guest.store)[stack..];
    let words: Vec<Word> = before
        .chunks_exact(4)
        .zip(after.chunks_exact(4))
        .enumerate()
        .filter(|(_, (old, new))| old != new)
        .map(|(index, (old, new))| {
            let [old, new] =
                [old, new].map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
            Word {
                address: (stack + 4 * index) as u32,
                bits: old ^ new,
            }
        })
        .collect();
    let words = <[Word; Interrupt::WORDS]>::try_from(words)
        .map_err(|words| unusable(format!("its flags are not three words but {words:?}")))?;
    let memory = guest.memory.data(&guest.store);
    let one_bit_each = words.iter().all(|word| {
        let place = word.address as usize..word.address as usize + 4;
        let now = u32::from_le_bytes(memory[place].try_into().expect("four bytes"));
        word.bits.is_power_of_two() && now & word.bits != 0
    });
    if !one_bit_each || !stack.is_multiple_of(4) {
        return Err(unusable(format!(
            "its flags are not single bits: {words:?}"
        )));
    }
    let ended = guest.prepare(driver::RUN)?(&mut guest.store);
    if matches!(ended, Ok(0)) || !flags(guest, &words).is_empty() {
        return Err(unusable(format!(
            "a run ended as if it had not been interrupted ({ended:?})"
        )));
    }
    // The other two flags request a check of the signals, which clears them. It does not find a signal without its flag.
    let mut own = Vec::new();
    for (number, word) in words.iter().enumerate() {
        let others: Vec<Word> = words
            .iter()
            .filter(|other| *other != word)
            .copied()
            .collect();
        let alone = flags_after_run(guest, &words, std::slice::from_ref(word))?;
        let without = flags_after_run(guest, &words, &others)?;
        if alone == [*word] && without.is_empty() {
            own.push(number);
        }
    }
    let [own] = own[..] else {
        return Err(unusable(format!(
            "{} of its flags {words:?} are the signal's own, not one",
            own.len()
        )));
    };
    let mut words = words;
    words.swap(0, own);
    Ok(Interrupt { words })
}

/// Sets some flags at rest, and returns the flags that are set after a run.
fn flags_after_run(
    guest: &mut Guest,
    words: &[Word; Interrupt::WORDS],
    set: &[Word],
) -> Result<Vec<Word>> {
    Interrupt { words: *words }.clear(guest.memory.data_mut(&mut guest.store));
    let base = guest.memory.data_ptr(&guest.store) as usize;
    // SAFETY: the guest's memory is at least as large as when the flags were found.
    set.iter().for_each(|word| unsafe { word.set(base) });
    // Its outcome does not matter.
    let _ = guest.prepare(driver::RUN)?(&mut guest.store);
    Ok(flags(guest, words))
}

fn flags(guest: &Guest, words: &[Word; Interrupt::WORDS]) -> Vec<Word> {
    let base = guest.memory.data_ptr(&guest.store) as usize;
    // SAFETY: as above.
    let is_set = |word: &&Word| unsafe { word.is_set(base) };
    words.iter().filter(is_set).copied().collect()
}
