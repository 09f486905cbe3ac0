//! The bytes of one file, in pages that clones share.
//!
//! No operation moves more bytes than it was passed: a file grows without being copied, a hole takes no memory, and a
//! clone costs one pointer for each page.

use std::io;
use std::sync::Arc;

use crate::wire::{Reader, Writer, malformed};

/// A full page is large enough for the allocator to return it to the system as soon as it is freed.
const PAGE: usize = 256 << 10;

/// Bytes past the end of a page's vector, and of missing pages, are zero. No vector reaches past `length`.
#[derive(Clone, Default, Debug)]
pub struct Contents {
    length: u64,
    pages: Vec<Option<Arc<Vec<u8>>>>,
}

/// Returns the page that contains the byte at a position, and its offset in the page.
fn place(position: u64) -> (usize, usize) {
    let page = PAGE as u64;
    ((position / page) as usize, (position % page) as usize)
}

impl Contents {
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Copies bytes from `position` on into the start of `target`; fewer at the end of the file.
    pub fn read(&self, position: u64, target: &mut [u8]) -> usize {
        let available = self.length.saturating_sub(position);
        let count = target
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < count {
            let (index, offset) = place(position + done as u64);
            let part = (PAGE - offset).min(count - done);
            let piece = &mut target[done..done + part];
            let stored = match self.pages.get(index) {
                Some(Some(page)) => page.get(offset..).unwrap_or_default(),
                _ => &[],
            };
            let stored = &stored[..stored.len().min(part)];
            piece[..stored.len()].copy_from_slice(stored);
            piece[stored.len()..].fill(0);
            done += part;
        }
        count
    }

    /// Writes `bytes` at `position`; the gap between the old end and `position` becomes zero.
    pub fn write(&mut self, position: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (index, offset) = place(position + done as u64);
            let part = (PAGE - offset).min(bytes.len() - done);
            if self.pages.len() <= index {
                self.pages.resize(index + 1, None);
            }
            let page = Arc::make_mut(self.pages[index].get_or_insert_default());
            let end = offset + part;
            if page.len() < end {
                if page.capacity() < end {
                    page.reserve_exact(end.max(2 * page.len()).min(PAGE) - page.len());
                }
                page.resize(end, 0);
            }
            page[offset..end].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
        if done > 0 {
            self.length = self.length.max(position + done as u64);
        }
    }

    /// Truncates the file, or extends it with zeros.
    pub fn resize(&mut self, length: u64) {
        if length < self.length {
            let (index, offset) = place(length);
            self.pages.truncate(index + usize::from(offset > 0));
            if offset > 0
                && let Some(Some(page)) = self.pages.get_mut(index)
                && page.len() > offset
            {
                Arc::make_mut(page).truncate(offset);
            }
        }
        self.length = length;
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.read(0, &mut bytes);
        bytes
    }

    pub fn encode(&self, writer: &mut Writer) {
        let stored = || {
            let pages = self.pages.iter().enumerate();
            pages.filter_map(|(index, page)| Some((index, page.as_ref()?)))
        };
        writer.number(self.length).number(stored().count() as u64);
        for (index, page) in stored() {
            writer.number(index as u64).bytes(page);
        }
    }

    pub fn decode(reader: &mut Reader<'_>, limit: u64) -> io::Result<Self> {
        let length = reader.number()?;
        if length > limit {
            return Err(malformed());
        }
        let mut contents = Self::default();
        for _ in 0..reader.number()? {
            let start = reader.number()?.checked_mul(PAGE as u64);
            let page = reader.bytes()?;
            let start = start.filter(|&start| {
                start >= contents.length
                    && page.len() <= PAGE
                    && start + page.len() as u64 <= length
            });
            contents.write(start.ok_or_else(malformed)?, page);
        }
        contents.resize(length);
        Ok(contents)
    }
}

impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        let page = |contents: &Self, index: usize| -> Option<Arc<Vec<u8>>> {
            contents.pages.get(index).cloned().flatten()
        };
        let equal = |index: usize| match (page(self, index), page(other, index)) {
            (Some(ours), Some(theirs)) if Arc::ptr_eq(&ours, &theirs) => true,
            (ours, theirs) => {
                let (ours, theirs) = (ours.unwrap_or_default(), theirs.unwrap_or_default());
                let common = ours.len().min(theirs.len());
                ours[..common] == theirs[..common]
                    && ours[common..]
                        .iter()
                        .chain(&theirs[common..])
                        .all(|&byte| byte == 0)
            }
        };
        self.length == other.length && (0..self.pages.len().max(other.pages.len())).all(equal)
    }
}

impl Eq for Contents {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation on pages and on one plain vector, at positions around the borders of pages.
    #[test]
    fn pages_behave_as_one_vector() {
        let mut random = 1u64;
        let mut next = |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        let page = PAGE as u64;
        for _ in 0..200 {
            let mut contents = Contents::default();
            let mut plain: Vec<u8> = Vec::new();
            for step in 0..20u8 {
                let position = (next(4) * page + next(7)).saturating_sub(3);
                let length = [next(5), next(2 * page), page][next(3) as usize] as usize;
                let before = (contents.clone(), plain.clone());
                match next(3) {
                    0 => {
                        contents.resize(position);
                        plain.resize(position as usize, 0);
                    }
                    1 => {
                        let bytes = vec![step + 1; length];
                        contents.write(position, &bytes);
                        if length > 0 {
                            let end = position as usize + length;
                            plain.resize(plain.len().max(end), 0);
                            plain[position as usize..end].copy_from_slice(&bytes);
                        }
                    }
                    _ => {
                        let mut target = vec![0xaa; length];
                        let count = contents.read(position, &mut target);
                        let start = plain.len().min(position as usize);
                        let expected = &plain[start..plain.len().min(start + length)];
                        assert_eq!(&target[..count], expected);
                        assert!(target[count..].iter().all(|&byte| byte == 0xaa));
                    }
                }
                assert_eq!(contents.to_vec(), plain);
                assert_eq!(
                    before.0.to_vec(),
                    before.1,
                    "a clone changed with its original"
                );
                assert_eq!(before.0 == contents, before.1 == plain);
            }
            let mut writer = Writer::default();
            contents.encode(&mut writer);
            let decoded = Contents::decode(&mut Reader(&writer.0), contents.len()).unwrap();
            assert_eq!(decoded, contents);
        }
    }

    #[test]
    fn a_hole_takes_no_memory() {
        let mut contents = Contents::default();
        contents.resize(1 << 40);
        assert_eq!((contents.len(), contents.pages.len()), (1 << 40, 0));
        contents.resize(0);
        contents.write(1 << 30, b"x");
        assert_eq!(contents.pages.iter().flatten().count(), 1);
    }

    #[test]
    fn malformed_pages_are_refused() {
        let encode = |length: u64, pages: &[(u64, &[u8])]| {
            let mut writer = Writer::default();
            writer.number(length).number(pages.len() as u64);
            for (index, page) in pages {
                writer.number(*index).bytes(page);
            }
            Contents::decode(&mut Reader(&writer.0), 1 << 20).is_err()
        };
        assert!(!encode(5, &[(0, b"abc")]));
        assert!(encode(2, &[(0, b"abc")]));
        assert!(encode(2 << 20, &[]));
        assert!(encode(1 << 20, &[(1, b"a"), (0, b"b")]));
        assert!(encode(1 << 20, &[(u64::MAX, b"a")]));
        assert!(encode(1 << 20, &[(0, &[1; PAGE + 1])]));
    }
}
