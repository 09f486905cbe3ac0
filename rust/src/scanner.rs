//! Find closed code blocks and the end of the turn in a stream of sampled tokens, exact to the byte.
//!
//! The scanner reads the bytes of one turn. What it finds depends on the bytes alone: not on how they were cut
//! into tokens, nor on how the tokens were cut into pieces. The rules, line by line, for the language "python":
//!
//! - A line that is ```` ```python ````, then only blanks (space, tab, carriage return) and a newline, opens a
//!   block. The code begins after the newline.
//! - A line that begins with ```` ``` ```` closes an open block at its third backtick, whatever follows on the
//!   line. The code ends before that line. So ```` ```output ```` closes a block that the model forgot to close,
//!   and ```` ```python ```` inside a block closes it and opens the next.
//! - The marker counts wherever it stands, also in the middle of a line, where it closes nothing.
//!
//! What ends the turn is the marker, or the first block's closing backtick, or nothing (`TurnEnd`). Then the rest of that
//! token, the *overshoot*, is handed to the caller unread. Each turn has a scanner of its own, so that nothing of the last
//! one (half a marker, an open block) is left.

use std::sync::Arc;

use crate::error::{Result, invalid};
use crate::vocabulary::Vocabulary;

/// What stands behind the three backticks of a line that opens a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language(Box<[u8]>);

impl Language {
    /// Longer names would not fit the count in `Line::Language`; there are none.
    const LONGEST: usize = 64;

    pub fn new(name: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'#');
        if name.is_empty() || name.len() > Self::LONGEST || !name.bytes().all(allowed) {
            return invalid(format!(
                "the language {name:?} must be 1 to {} ASCII letters, digits, '+', '-' or '#'",
                Self::LONGEST
            ));
        }
        Ok(Self(name.as_bytes().into()))
    }
}

/// Where in its line the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Only this many backticks so far, at most two.
    Backticks(u8),
    /// ```` ``` ```` and this many bytes of the language.
    Language(u8),
    /// ```` ``` ````, the language, and at least one blank.
    Blank,
    /// Nothing that stands on the rest of this line opens or closes a block.
    Rest,
}

/// The bytes that end a turn, with their Knuth-Morris-Pratt table.
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

    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.bytes[matched] != byte {
            matched = self.fallback[matched - 1];
        }
        matched + usize::from(self.bytes[matched] == byte)
    }

    /// Whether every match begins in a token that the vocabulary calls structural.
    fn begins_structural(&self) -> bool {
        matches!(self.bytes[0], b'\n' | b'`')
    }
}

/// What ends a turn beside an end-of-sequence token and its limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    Never,
    Marker(Marker),
    /// The third backtick that closes a block.
    Block,
}

/// A block that has just been closed. Offsets count bytes from the start of the turn.
pub struct CodeBlock<'a> {
    pub code: &'a [u8],
    pub start: usize,
    pub stop: usize,
    /// What the token with the third backtick of the closing line holds after it.
    pub overshoot: &'a [u8],
}

/// The marker, complete. Offsets as in `CodeBlock`.
pub struct MarkerMatch<'a> {
    pub start: usize,
    pub stop: usize,
    /// What the token with the marker's last byte holds after it.
    pub overshoot: &'a [u8],
}

/// The state of one turn. Cheap to create; while it reads it allocates only for the code of an open block.
pub struct Scanner {
    vocabulary: Arc<Vocabulary>,
    turn: Turn,
}

/// What has been read of a turn.
struct Turn {
    end: TurnEnd,
    language: Language,
    line: Line,
    matched: usize,
    /// Offset of the open block's first byte of code.
    block_start: Option<usize>,
    code: Vec<u8>,
    position: usize,
    finished: bool,
}

impl Scanner {
    /// `at_line_start`: whether the text before the turn ends with a newline, or there is none.
    pub fn new(
        vocabulary: Arc<Vocabulary>,
        end: TurnEnd,
        at_line_start: bool,
        language: Language,
    ) -> Self {
        let turn = Turn {
            end,
            language,
            line: if at_line_start {
                Line::Backticks(0)
            } else {
                Line::Rest
            },
            matched: 0,
            block_start: None,
            code: Vec::new(),
            position: 0,
            finished: false,
        };
        Self { vocabulary, turn }
    }

    /// Whether a block has been opened and not closed, by the end of the turn if that has been found: then the marker
    /// stands in the middle of a line of code.
    pub fn block_is_open(&self) -> bool {
        self.turn.block_start.is_some()
    }

    /// Whether what ends the turn has been found in it.
    pub fn is_finished(&self) -> bool {
        self.turn.finished
    }

    /// Read tokens up to and including the one that ends the turn; give back how many were read.
    /// Blocks and the marker are reported in the order in which they end.
    pub fn feed(
        &mut self,
        ids: &[u32],
        mut on_block: impl FnMut(CodeBlock<'_>),
        mut on_marker: impl FnMut(MarkerMatch<'_>),
    ) -> Result<usize> {
        let Self { vocabulary, turn } = self;
        if turn.finished {
            return invalid("this turn is over; the next one needs a scanner of its own");
        }
        let skips = match &turn.end {
            TurnEnd::Marker(marker) => marker.begins_structural(),
            TurnEnd::Never | TurnEnd::Block => true,
        };
        for (index, &id) in ids.iter().enumerate() {
            let token = vocabulary.token(id);
            if skips
                && turn.line == Line::Rest
                && turn.matched == 0
                && !vocabulary.is_structural(id)
            {
                if turn.block_start.is_some() {
                    turn.code.extend_from_slice(token);
                }
                turn.position += token.len();
            } else {
                turn.feed_token(token, &mut on_block, &mut on_marker);
            }
            if turn.finished {
                return Ok(index + 1);
            }
        }
        Ok(ids.len())
    }
}

impl Turn {
    fn feed_token(
        &mut self,
        token: &[u8],
        on_block: &mut impl FnMut(CodeBlock<'_>),
        on_marker: &mut impl FnMut(MarkerMatch<'_>),
    ) {
        for (index, &byte) in token.iter().enumerate() {
            let overshoot = &token[index + 1..];
            let was_open = self.block_start.is_some();
            let line = self.line;
            self.line = next_line(line, byte, &self.language.0);
            self.position += 1;
            if line == Line::Backticks(2) && byte == b'`' {
                if let Some(start) = self.block_start.take() {
                    // The first two backticks were taken for code.
                    self.code.truncate(self.code.len() - 2);
                    on_block(CodeBlock {
                        code: &self.code,
                        start,
                        stop: start + self.code.len(),
                        overshoot,
                    });
                    self.code.clear();
                    if matches!(self.end, TurnEnd::Block) {
                        self.finished = true;
                        return;
                    }
                }
            } else if was_open {
                self.code.push(byte);
            } else if byte == b'\n' && opens(line, &self.language.0) {
                self.block_start = Some(self.position);
            }
            if let TurnEnd::Marker(marker) = &self.end {
                self.matched = marker.advance(self.matched, byte);
                if self.matched == marker.bytes.len() {
                    self.finished = true;
                    on_marker(MarkerMatch {
                        start: self.position - self.matched,
                        stop: self.position,
                        overshoot,
                    });
                    return;
                }
            }
        }
    }
}

fn next_line(line: Line, byte: u8, language: &[u8]) -> Line {
    match (line, byte) {
        (_, b'\n') => Line::Backticks(0),
        (Line::Backticks(2), b'`') => Line::Language(0),
        (Line::Backticks(count), b'`') => Line::Backticks(count + 1),
        (Line::Language(count), byte) if language.get(usize::from(count)) == Some(&byte) => {
            Line::Language(count + 1)
        }
        (line, b' ' | b'\t' | b'\r') if opens(line, language) => Line::Blank,
        _ => Line::Rest,
    }
}

/// Whether a newline here opens a block.
fn opens(line: Line, language: &[u8]) -> bool {
    match line {
        Line::Blank => true,
        Line::Language(count) => usize::from(count) == language.len(),
        Line::Backticks(_) | Line::Rest => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary in which id n is the byte n.
    fn byte_vocabulary() -> Arc<Vocabulary> {
        let tokens: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
        Arc::new(Vocabulary::new(&tokens).unwrap())
    }

    fn ids(text: &[u8]) -> Vec<u32> {
        text.iter().copied().map(u32::from).collect()
    }

    fn marker(bytes: &[u8]) -> TurnEnd {
        TurnEnd::Marker(Marker::new(bytes).unwrap())
    }

    fn scanner(vocabulary: Arc<Vocabulary>, end: TurnEnd, at_line_start: bool) -> Scanner {
        Scanner::new(
            vocabulary,
            end,
            at_line_start,
            Language::new("python").unwrap(),
        )
    }

    /// The blocks, the place of the marker with whether a block was open there, and how many tokens were read.
    fn scan(text: &[u8], end: TurnEnd) -> (Vec<String>, Option<(usize, usize, bool)>, usize) {
        let mut scanner = scanner(byte_vocabulary(), end, true);
        let (mut blocks, mut found) = (Vec::new(), None);
        let consumed = scanner
            .feed(
                &ids(text),
                |block| {
                    assert_eq!(&text[block.start..block.stop], block.code);
                    blocks.push(String::from_utf8_lossy(block.code).into_owned());
                },
                |marker| found = Some((marker.start, marker.stop)),
            )
            .unwrap();
        let found = found.map(|(start, stop)| (start, stop, scanner.block_is_open()));
        (blocks, found, consumed)
    }

    #[test]
    fn a_block_and_the_marker() {
        let text = b"Let us see.\n```python\nprint(1)\n```\n```output\n18";
        let (blocks, marker, consumed) = scan(text, marker(b"```output"));
        assert_eq!(blocks, ["print(1)\n"]);
        assert_eq!(marker, Some((35, 44, false)));
        assert_eq!(consumed, 44);
    }

    #[test]
    fn openers() {
        let opens = |text: &str| {
            !scan(format!("{text}x\n```").as_bytes(), TurnEnd::Never)
                .0
                .is_empty()
        };
        assert!(opens("```python\n"));
        assert!(opens("```python \t\r\n"));
        assert!(opens("a\n```python\n"));
        for text in [
            "```py\n",
            "```python3\n",
            "```python x\n",
            " ```python\n",
            "a ```python\n",
            "````python\n",
            "``python\n",
        ] {
            assert!(!opens(text), "{text:?}");
        }
    }

    #[test]
    fn the_marker_line_closes_a_block_that_was_left_open() {
        let (blocks, marker, _) = scan(b"```python\nx\n```output", marker(b"```output"));
        assert_eq!(blocks, ["x\n"]);
        assert_eq!(marker, Some((12, 21, false)));
    }

    #[test]
    fn a_marker_inside_a_line_of_code_closes_nothing() {
        let (blocks, marker, _) = scan(b"```python\nx = '```output", marker(b"```output"));
        assert!(blocks.is_empty());
        assert_eq!(marker, Some((15, 24, true)));
    }

    #[test]
    fn an_opener_inside_a_block_closes_it_and_opens_the_next() {
        assert_eq!(
            scan(b"```python\na\n```python\nb\n```", TurnEnd::Never).0,
            ["a\n", "b\n"]
        );
    }

    #[test]
    fn an_empty_block_and_backticks_in_code() {
        assert_eq!(
            scan(b"```python\n```\n```python\n``\n a```\n```", TurnEnd::Never).0,
            ["", "``\n a```\n"]
        );
    }

    #[test]
    fn the_turn_may_begin_inside_a_line() {
        for (at_line_start, expected) in [(false, 0), (true, 1)] {
            let mut scanner = scanner(byte_vocabulary(), TurnEnd::Never, at_line_start);
            let mut blocks = 0;
            scanner
                .feed(&ids(b"```python\nx\n```"), |_| blocks += 1, |_| ())
                .unwrap();
            assert_eq!(blocks, expected);
        }
    }

    #[test]
    fn tokens_shared_with_the_text_around_and_a_turn_that_ends() {
        let vocabulary = Arc::new(
            Vocabulary::new(&[
                b"``".as_slice(),
                b"`out",
                b"",
                b"put\n1",
                b"`python\nx",
                b"\n```\n`",
            ])
            .unwrap(),
        );
        let end = marker(b"```output");
        let mut first = scanner(Arc::clone(&vocabulary), end.clone(), true);
        let mut seen = Vec::new();
        let consumed = first
            .feed(
                &[0, 4, 5, 0, 2, 7, 1],
                |block| seen.push((block.code.to_vec(), block.overshoot.to_vec())),
                |_| panic!(),
            )
            .unwrap();
        assert_eq!(consumed, 7);
        assert_eq!(seen, [(b"x\n".to_vec(), b"\n`".to_vec())]);
        let mut found = Vec::new();
        let consumed = first
            .feed(
                &[0, 1, 3, 0, 0],
                |_| panic!(),
                |marker| found.push((marker.start, marker.stop, marker.overshoot.to_vec())),
            )
            .unwrap();
        assert_eq!(consumed, 3);
        // The first seven tokens hold 23 bytes.
        assert_eq!(found, [(23, 32, b"\n1".to_vec())]);
        assert!(first.is_finished());
        assert!(first.feed(&[0], |_| (), |_| ()).is_err());
        let mut second = scanner(vocabulary, end, true);
        assert_eq!(second.feed(&[3], |_| panic!(), |_| panic!()).unwrap(), 1);
    }

    #[test]
    fn a_turn_that_ends_with_its_first_block() {
        let tokens = [
            b"```python\nx".as_slice(),
            b"\n`",
            b"``\n\n",
            b"```python\ny\n```",
        ];
        let vocabulary = Arc::new(Vocabulary::new(&tokens).unwrap());
        let mut first = scanner(Arc::clone(&vocabulary), TurnEnd::Block, true);
        let mut seen = Vec::new();
        let consumed = first
            .feed(
                &[0, 1, 2, 3],
                |block| seen.push((block.stop, block.code.to_vec(), block.overshoot.to_vec())),
                |_| panic!(),
            )
            .unwrap();
        assert_eq!(consumed, 3);
        assert_eq!(seen, [(12, b"x\n".to_vec(), b"\n\n".to_vec())]);
        assert!(first.is_finished() && !first.block_is_open());
        // A fence that closes nothing ends nothing.
        let mut second = scanner(vocabulary, TurnEnd::Block, true);
        assert_eq!(second.feed(&[2, 2], |_| panic!(), |_| panic!()).unwrap(), 2);
        assert!(!second.is_finished());
    }

    #[test]
    fn the_language_is_the_callers() {
        let blocks = |language: &str, text: &[u8]| {
            let language = Language::new(language).unwrap();
            let mut scanner = Scanner::new(byte_vocabulary(), TurnEnd::Never, true, language);
            let mut blocks = 0;
            scanner
                .feed(&ids(text), |_| blocks += 1, |_| panic!())
                .unwrap();
            blocks
        };
        assert_eq!(blocks("c", b"```c\nx\n```\n```c++\ny\n```"), 1);
        assert_eq!(blocks("c++", b"```c\nx\n```\n```c++\t\ny\n```"), 1);
        assert_eq!(blocks("python", b"```c\nx\n```\n```c++\ny\n```"), 0);
        for name in ["", "py thon", "py\n", "`", "caf\u{e9}", &"x".repeat(65)] {
            assert!(Language::new(name).is_err(), "{name:?}");
        }
        assert!(Language::new(&"x".repeat(64)).is_ok());
    }

    #[test]
    fn a_marker_that_overlaps_itself() {
        assert_eq!(scan(b"aabaabaab", marker(b"aabaab")).1, Some((0, 6, false)));
        assert_eq!(
            scan(b"````output", marker(b"```output")).1,
            Some((1, 10, false))
        );
        assert!(Marker::new(b"").is_err());
    }

    #[test]
    fn a_marker_may_begin_with_any_byte() {
        assert_eq!(scan(b"the end.", marker(b"end")).1, Some((4, 7, false)));
    }
}
