//! The bytes of every token, in one allocation.

use crate::error::{Result, invalid};

/// The bytes each token id adds to the text. Special tokens, and ids beyond the table, add none.
pub struct Vocabulary {
    bytes: Vec<u8>,
    /// Token `id` is `bytes[offsets[id]..offsets[id + 1]]`.
    offsets: Vec<u32>,
    /// Whether a token contains a newline or a backtick: no other token can start or end a match of the scanner.
    structural: Vec<bool>,
}

impl Vocabulary {
    pub fn new<B: AsRef<[u8]>>(token_bytes: &[B]) -> Result<Self> {
        let total: usize = token_bytes.iter().map(|token| token.as_ref().len()).sum();
        if u32::try_from(total).is_err() {
            return invalid(format!(
                "a vocabulary of {total} bytes: at most 4 GiB are possible"
            ));
        }
        let mut bytes = Vec::with_capacity(total);
        let mut offsets = Vec::with_capacity(token_bytes.len() + 1);
        let mut structural = Vec::with_capacity(token_bytes.len());
        offsets.push(0);
        for token in token_bytes {
            let token = token.as_ref();
            bytes.extend_from_slice(token);
            offsets.push(bytes.len() as u32);
            structural.push(token.iter().any(|byte| matches!(byte, b'\n' | b'`')));
        }
        Ok(Self {
            bytes,
            offsets,
            structural,
        })
    }

    pub fn len(&self) -> usize {
        self.structural.len()
    }

    pub fn is_empty(&self) -> bool {
        self.structural.is_empty()
    }

    /// The bytes of one token; empty for an id beyond the table (a padded embedding has more rows than tokens).
    pub fn token(&self, id: u32) -> &[u8] {
        let id = id as usize;
        if id >= self.len() {
            return &[];
        }
        &self.bytes[self.offsets[id] as usize..self.offsets[id + 1] as usize]
    }

    /// Whether the token contains a newline or a backtick.
    pub fn is_structural(&self, id: u32) -> bool {
        self.structural.get(id as usize).copied().unwrap_or(false)
    }

    /// Returns the bytes of a sequence of tokens.
    pub fn join(&self, ids: &[u32]) -> Vec<u8> {
        let mut text = Vec::with_capacity(ids.iter().map(|&id| self.token(id).len()).sum());
        for &id in ids {
            text.extend_from_slice(self.token(id));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_ids_beyond_the_table() {
        let vocabulary = Vocabulary::new(&[b"ab".as_slice(), b"", b"\n", b"a`"]).unwrap();
        assert_eq!(vocabulary.len(), 4);
        assert_eq!(vocabulary.token(0), b"ab");
        assert_eq!(vocabulary.token(1), b"");
        assert_eq!(vocabulary.token(4), b"");
        assert_eq!(vocabulary.token(u32::MAX), b"");
        assert_eq!(
            [0, 1, 2, 3, 4].map(|id| vocabulary.is_structural(id)),
            [false, false, true, true, false]
        );
        assert_eq!(vocabulary.join(&[3, 9, 2, 0]), b"a`\nab");
    }
}
