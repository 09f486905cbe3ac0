//! Search for a byte sequence in a stream, independent of how it is cut.

use crate::error::{Result, invalid};

/// A byte sequence with its Knuth-Morris-Pratt table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Marker {
    bytes: Vec<u8>,
    /// `fallback[n]`: the number of bytes still matched if the byte after the first n + 1 does not match.
    fallback: Vec<usize>,
}

impl Marker {
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return invalid(
                "the marker is empty; use StopCondition.never() for turns without a marker",
            );
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

    /// Returns the number of matched bytes after one more byte. `matched` must not be a complete match.
    pub fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.bytes[matched] != byte {
            matched = self.fallback[matched - 1];
        }
        matched + usize::from(self.bytes[matched] == byte)
    }
}
