//! The state of a session between runs, as a value.
//!
//! A session is neither a process nor an instance: it is the difference between the guest's memory after a run and the
//! image, plus the host's state. Any worker can continue from it, two runs can continue from the same one (a fork), and
//! the loss of a worker does not affect it.

use crate::error::{Result, SandboxError};

/// Differences are stored in blocks of this many bytes: a cache line, in which a changed counter is rarely alone.
const BLOCK: usize = 64;

/// The state of a session between two runs; empty before the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionState {
    /// The size of the guest's memory.
    pub memory_bytes: u64,
    /// Runs of changed blocks: number of the first (4 bytes), number of blocks (4 bytes), their bytes.
    pub memory: Vec<u8>,
    pub host: Vec<u8>,
}

impl SessionState {
    /// Whether the session has had a run.
    pub fn is_begun(&self) -> bool {
        self.memory_bytes > 0
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.memory.len() + self.host.len()
    }

    /// Returns the state of a guest after a run, unless it takes more than `limit` bytes. `written` contains the bytes
    /// below the end of the image that may differ from it.
    pub fn capture(
        memory: &[u8],
        image: &[u8],
        written: &[std::ops::Range<usize>],
        host: Vec<u8>,
        limit: usize,
    ) -> Option<Self> {
        let mut changes = Changes {
            room: limit.checked_sub(host.len())?,
            ..Changes::default()
        };
        for range in written {
            let pairs = memory[range.clone()]
                .chunks_exact(BLOCK)
                .zip(image[range.clone()].chunks_exact(BLOCK));
            for (index, (now, then)) in pairs.enumerate() {
                if now != then {
                    changes.push(range.start / BLOCK + index, now);
                }
            }
        }
        let grown = memory[image.len()..].chunks_exact(BLOCK);
        for (index, now) in grown.enumerate() {
            if now != [0; BLOCK] {
                changes.push(image.len() / BLOCK + index, now);
            }
        }
        (changes.bytes.len() <= changes.room).then_some(Self {
            memory_bytes: memory.len() as u64,
            memory: changes.bytes,
            host,
        })
    }

    /// Writes the state into a memory that is equal to the image, and at least as large as the state's.
    pub fn apply(&self, memory: &mut [u8]) -> Result<()> {
        let damaged = || SandboxError::new("the state of a sandbox session is damaged");
        let mut rest = &self.memory[..];
        while !rest.is_empty() {
            let (first, tail) = rest.split_first_chunk().ok_or_else(damaged)?;
            let (count, tail) = tail.split_first_chunk().ok_or_else(damaged)?;
            let start = u32::from_le_bytes(*first) as usize * BLOCK;
            let length = u32::from_le_bytes(*count) as usize * BLOCK;
            let (bytes, tail) = tail.split_at_checked(length).ok_or_else(damaged)?;
            memory
                .get_mut(start..start + length)
                .ok_or_else(damaged)?
                .copy_from_slice(bytes);
            rest = tail;
        }
        Ok(())
    }
}

/// Changed blocks in ascending order; adjacent ones share one head.
#[derive(Default)]
struct Changes {
    bytes: Vec<u8>,
    /// Maximum size: further blocks are dropped.
    room: usize,
    /// Position of the last head's count, and the number of the block that would continue it.
    last: Option<(usize, usize)>,
}

impl Changes {
    fn push(&mut self, block: usize, bytes: &[u8]) {
        if self.bytes.len() > self.room {
            return;
        }
        let place = match self.last {
            Some((place, next)) if next == block => place,
            _ => {
                self.bytes.extend_from_slice(&(block as u32).to_le_bytes());
                self.bytes.extend_from_slice(&0u32.to_le_bytes());
                self.bytes.len() - 4
            }
        };
        let count = &mut self.bytes[place..place + 4];
        let more = u32::from_le_bytes((&*count).try_into().expect("four bytes")) + 1;
        count.copy_from_slice(&more.to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        self.last = Some((place, block + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn image() -> Vec<u8> {
        (0..8 * PAGE).map(|index| (index / 7) as u8).collect()
    }

    #[test]
    fn a_captured_state_can_be_applied() {
        let image = image();
        let mut memory = image.clone();
        for index in [0, 1, 63, 64, 128, 5000, 5 * PAGE - 1, 8 * PAGE - 1] {
            memory[index] ^= 0xff;
        }
        memory.resize(12 * PAGE, 0);
        memory[9 * PAGE + 3] = 1;
        memory[12 * PAGE - 1] = 2;
        let written = [0..2 * PAGE, 4 * PAGE..5 * PAGE, 7 * PAGE..8 * PAGE];
        let captured = |limit| SessionState::capture(&memory, &image, &written, vec![7], limit);
        let state = captured(usize::MAX).unwrap();
        assert_eq!(captured(state.size()).as_ref(), Some(&state));
        assert_eq!(captured(state.size() - 1), None);
        assert_eq!(captured(0), None);
        assert!(state.is_begun());
        assert_eq!(
            (state.memory_bytes, &state.host[..]),
            (12 * PAGE as u64, &[7][..])
        );
        // Eight blocks, the first three of them adjacent.
        assert_eq!(state.memory.len(), 8 * BLOCK + 6 * 8);
        let mut other = image.clone();
        other.resize(12 * PAGE, 0);
        state.apply(&mut other).unwrap();
        assert!(other == memory);
    }

    #[test]
    fn a_state_that_does_not_fit_is_refused() {
        let image = image();
        let mut memory = image.clone();
        memory[8 * PAGE - 1] ^= 1;
        let state = SessionState::capture(
            &memory,
            &image,
            std::slice::from_ref(&(0..8 * PAGE)),
            Vec::new(),
            usize::MAX,
        )
        .unwrap();
        assert!(state.apply(&mut vec![0; 7 * PAGE]).is_err());
        for length in 1..state.memory.len() {
            let cut = SessionState {
                memory: state.memory[..length].to_vec(),
                ..state.clone()
            };
            assert!(cut.apply(&mut vec![0; 8 * PAGE]).is_err());
        }
    }
}
