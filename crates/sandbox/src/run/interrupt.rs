//! An interrupt of the interpreter in the guest, triggered from the outside.
//!
//! At each loop iteration and function call, CPython checks for a signal and raises the exception of the signal's
//! handler: `KeyboardInterrupt`. Its own signal handler only sets flags. The host sets the same flags, at any
//! instruction of the guest. Each is set by one atomic operation, so no store of the guest can lose another's bits. A
//! store of the guest can lose the host's bits (if it has read a word and writes it back), so the caller repeats the
//! interrupt a little later.
//!
//! Only the signal's own flag states whether the interrupt still has to be handled: the interpreter stores to it once,
//! when it calls the signal's handler. The other flags request a check of all signals, and CPython sets them again when
//! a handler has raised. So a repetition sets the other flags only: a check that finds no signal has no effect.

use std::sync::atomic::{AtomicU32, Ordering};

/// The flags of an interrupt: their addresses in the guest's memory, and their bits. The signal's own flag is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupt {
    pub words: [Word; Self::WORDS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// A multiple of four.
    pub address: u32,
    pub bits: u32,
}

impl Interrupt {
    /// Flags: this signal has arrived, a signal has arrived, and the interpreter has an event to handle.
    pub const WORDS: usize = 3;

    /// Sets the flags in the memory at `base`.
    ///
    /// # Safety
    /// All of the image must be mapped there, for reading and writing.
    pub unsafe fn set(&self, base: usize) {
        for word in &self.words {
            // SAFETY: guaranteed by the caller.
            unsafe { word.set(base) };
        }
    }

    /// Requests the check again, if the interpreter has not handled the interrupt yet.
    ///
    /// # Safety
    /// As for `set`.
    pub unsafe fn repeat(&self, base: usize) {
        let [own, check @ ..] = &self.words;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if own.is_set(base) {
                check.iter().for_each(|word| word.set(base));
            }
        }
    }

    /// Clears the flags in a guest that is not running.
    pub fn clear(&self, memory: &mut [u8]) {
        for Word { address, bits } in self.words {
            let place = address as usize..address as usize + 4;
            let bytes: &mut [u8; 4] = (&mut memory[place]).try_into().expect("four bytes");
            *bytes = (u32::from_le_bytes(*bytes) & !bits).to_le_bytes();
        }
    }
}

impl Word {
    /// # Safety
    /// As for `Interrupt::set`.
    pub unsafe fn set(&self, base: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.at(base) }.fetch_or(self.bits, Ordering::SeqCst);
    }

    /// # Safety
    /// As for `Interrupt::set`.
    pub unsafe fn is_set(&self, base: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.at(base) }.load(Ordering::SeqCst) & self.bits != 0
    }

    /// # Safety
    /// As for `Interrupt::set`.
    unsafe fn at(&self, base: usize) -> &AtomicU32 {
        let place = (base + self.address as usize) as *mut u32;
        // SAFETY: in the image, and aligned. The guest's own accesses are plain loads and stores of compiled code.
        unsafe { AtomicU32::from_ptr(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPT: Interrupt = Interrupt {
        words: [
            Word {
                address: 252,
                bits: 1 << 6,
            },
            Word {
                address: 8,
                bits: 1 << 8,
            },
            Word {
                address: 12,
                bits: 1 << 30,
            },
        ],
    };

    /// Indices of the words in memory that differ.
    fn changed(memory: &[u32], before: &[u32]) -> Vec<usize> {
        (0..memory.len())
            .filter(|&i| memory[i] != before[i])
            .collect()
    }

    #[test]
    fn set_bits_are_cleared_and_other_bits_stay() {
        let mut memory: Vec<u32> = (0..64).collect();
        let before = memory.clone();
        // SAFETY: the memory is large enough.
        unsafe { INTERRUPT.set(memory.as_mut_ptr() as usize) };
        assert_eq!(changed(&memory, &before), [2, 3, 63]);
        let mut bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        INTERRUPT.clear(&mut bytes);
        let left: Vec<u8> = before.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes, left);
    }

    /// The states between the stores of CPython's `handle_signals`, which clears the last flag, the second and the
    /// first, calls the handler, and sets the other two again because that has raised.
    #[test]
    fn a_repetition_never_causes_a_second_interrupt() {
        let [own, tripped, check] = INTERRUPT.words.map(|word| (word.address / 4, word.bits));
        let unhandled = [vec![own], vec![own, tripped], vec![own, check]];
        let handled = [vec![], vec![tripped], vec![tripped, check]];
        for (states, remains) in [(unhandled, true), (handled, false)] {
            for state in states {
                let mut memory = vec![0u32; 64];
                for &(index, bits) in &state {
                    memory[index as usize] |= bits;
                }
                let before = memory.clone();
                // SAFETY: the memory is large enough.
                unsafe { INTERRUPT.repeat(memory.as_mut_ptr() as usize) };
                if remains {
                    for (index, bits) in [own, tripped, check] {
                        assert_eq!(memory[index as usize], bits, "{state:?}");
                    }
                } else {
                    assert_eq!(memory, before, "{state:?}");
                }
            }
        }
    }
}
