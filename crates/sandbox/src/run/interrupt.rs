//! An interrupt of the interpreter in the guest, triggered from the outside.
//!
//! At each loop iteration and function call, CPython checks for a signal and raises the exception of the signal's
//! handler: `KeyboardInterrupt`. Its own signal handler only sets flags. The host sets the same flags, at any
//! instruction of the guest. Each is set by one atomic operation, so no store of the guest can lose another's bits. A
//! store of the guest can lose the host's bits (if it has read a word and writes it back), so the caller checks again a
//! little later.

use std::sync::atomic::{AtomicU32, Ordering};

/// The flags of an interrupt: their addresses in the guest's memory, and their bits.
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
            // SAFETY: in the image, and aligned. The guest's own accesses are plain loads and stores of compiled code.
            unsafe { word.at(base) }.fetch_or(word.bits, Ordering::SeqCst);
        }
    }

    /// Whether the interpreter has not handled it yet.
    ///
    /// # Safety
    /// As for `set`.
    pub unsafe fn is_set(&self, base: usize) -> bool {
        self.words.iter().any(|word| {
            // SAFETY: as in `set`.
            unsafe { word.at(base) }.load(Ordering::SeqCst) & word.bits != 0
        })
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
    unsafe fn at(&self, base: usize) -> &AtomicU32 {
        let place = (base + self.address as usize) as *mut u32;
        // SAFETY: guaranteed by the caller.
        unsafe { AtomicU32::from_ptr(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_bits_are_cleared_and_other_bits_stay() {
        let mut memory: Vec<u32> = (0..64).collect();
        let before = memory.clone();
        let interrupt = Interrupt {
            words: [(8, 1 << 8), (12, 1 << 30), (252, 1 << 6)]
                .map(|(address, bits)| Word { address, bits }),
        };
        let base = memory.as_mut_ptr() as usize;
        // SAFETY: the memory is large enough.
        unsafe {
            assert!(!interrupt.is_set(base));
            interrupt.set(base);
            assert!(interrupt.is_set(base));
        }
        let changed: Vec<usize> = (0..64).filter(|&i| memory[i] != before[i]).collect();
        assert_eq!(changed, [2, 3, 63]);
        let mut bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        interrupt.clear(&mut bytes);
        let left: Vec<u8> = before.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes, left);
    }
}
