//! Bytes that are sought in a stream, however it is cut.

use crate::error::{Result, invalid};

/// Some bytes, with their Knuth-Morris-Pratt table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Marker {
    bytes: Vec<u8>,
    /// `fallback[n]`: how many bytes are still matched when the byte after the first n + 1 does not fit.
    fallback: Vec<usize>,
}

impl Marker {
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return invalid("the marker is empty; TurnEnd.never() is for turns without one");
        }
        let mut fallback = vec![0; bytes.len()];
        let mut matched = 0;
        for index in 1..bytes.len() {
            while matched > 0 && bytes[index] != bytes[matched] {
                matched = fallback[matched - 1];
            }
            if bytes[index] == bytes[matched] {
                matched += 1;
            }
            fallback[index] = matched;
        }
        Ok(Self {
            bytes: bytes.to_vec(),
            fallback,
        })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes are matched after one more, of `matched` before it. A whole match must not be handed back in.
    pub fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.bytes[matched] != byte {
            matched = self.fallback[matched - 1];
        }
        matched + usize::from(self.bytes[matched] == byte)
    }
}
