//! Find closed ```` ```python ```` blocks and the end of the turn in a stream of sampled tokens, exact to the byte.
//!
//! The scanner reads the bytes of one turn. What it finds depends on the bytes alone: not on how they were cut
//! into tokens, nor on how the tokens were cut into pieces. The rules, line by line:
//!
//! - A line that is ```` ```python ````, then only blanks (space, tab, carriage return) and a newline, opens a
//!   block. The code begins after the newline.
//! - A line that begins with ```` ``` ```` closes an open block at its third backtick, whatever follows on the
//!   line. The code ends before that line. So ```` ```output ```` closes a block that the model forgot to close,
//!   and ```` ```python ```` inside a block closes it and opens the next.
//! - The marker counts wherever it stands, also in the middle of a line, where it closes nothing.
//!
//! What ends the turn is the marker, or the first block's closing backtick, or nothing (`Stop`). Then the rest of that
//! token, the *overshoot*, is handed to the caller unread. `reset` begins the next turn: nothing of the last one (half a
//! marker, an open block) is left.

use std::sync::Arc;

use crate::error::{Result, invalid};
use crate::vocabulary::Vocabulary;

const LANGUAGE: &[u8] = b"python";

/// Where in its line the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Only this many backticks so far, at most two.
    Backticks(u8),
    /// ```` ``` ```` and this many bytes of `LANGUAGE`.
    Language(u8),
    /// ```` ```python ```` and at least one blank.
    Blank,
    /// Nothing that stands on the rest of this line opens or closes a block.
    Rest,
}

/// The stop marker with its Knuth-Morris-Pratt table.
pub struct Marker {
    bytes: Vec<u8>,
    /// `fallback[n]`: how many bytes are still matched when the byte after the first n + 1 does not fit.
    fallback: Vec<usize>,
}

impl Marker {
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return invalid("the marker is empty; give None for a scanner without a marker");
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

/// What ends a turn.
pub enum Stop {
    Never,
    Marker(Marker),
    /// The third backtick that closes a block.
    Block,
}

/// A block that has just been closed. Offsets count bytes, and `token_index` tokens, from the start of the turn.
pub struct CodeBlock<'a> {
    pub code: &'a [u8],
    pub start: usize,
    pub stop: usize,
    /// The token that holds the third backtick of the closing line.
    pub token_index: usize,
    /// What that token holds after the backtick.
    pub overshoot: &'a [u8],
}

/// The marker, complete. Offsets as in `CodeBlock`.
pub struct MarkerMatch<'a> {
    pub start: usize,
    pub stop: usize,
    /// The token that holds the marker's last byte.
    pub token_index: usize,
    /// What that token holds after the marker.
    pub overshoot: &'a [u8],
    /// Whether a block was still open (a marker in the middle of a line of code).
    pub inside_block: bool,
}

/// The state of one turn. Cheap to create; allocates only while a block is open, to keep its code.
pub struct Scanner {
    vocabulary: Arc<Vocabulary>,
    turn: Turn,
}

/// What has been read of a turn.
struct Turn {
    stop: Stop,
    line: Line,
    matched: usize,
    /// Offset of the open block's first byte of code.
    block_start: Option<usize>,
    code: Vec<u8>,
    position: usize,
    tokens: usize,
    finished: bool,
}

impl Scanner {
    /// `at_line_start`: whether the text before the turn ends with a newline, or there is none.
    pub fn new(vocabulary: Arc<Vocabulary>, stop: Stop, at_line_start: bool) -> Self {
        let mut turn = Turn {
            stop,
            line: Line::Rest,
            matched: 0,
            block_start: None,
            code: Vec::new(),
            position: 0,
            tokens: 0,
            finished: false,
        };
        turn.reset(at_line_start);
        Self { vocabulary, turn }
    }

    /// Begin the next turn.
    pub fn reset(&mut self, at_line_start: bool) {
        self.turn.reset(at_line_start);
    }

    /// Bytes read in this turn.
    pub fn position(&self) -> usize {
        self.turn.position
    }

    /// Tokens read in this turn.
    pub fn tokens(&self) -> usize {
        self.turn.tokens
    }

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
            return invalid("this turn is over; call reset() before the next turn");
        }
        let skips = match &turn.stop {
            Stop::Marker(marker) => marker.begins_structural(),
            Stop::Never | Stop::Block => true,
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
            turn.tokens += 1;
            if turn.finished {
                return Ok(index + 1);
            }
        }
        Ok(ids.len())
    }
}

impl Turn {
    fn reset(&mut self, at_line_start: bool) {
        self.line = if at_line_start {
            Line::Backticks(0)
        } else {
            Line::Rest
        };
        self.matched = 0;
        self.block_start = None;
        self.code.clear();
        self.position = 0;
        self.tokens = 0;
        self.finished = false;
    }

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
            self.line = next_line(line, byte);
            self.position += 1;
            if line == Line::Backticks(2) && byte == b'`' {
                if let Some(start) = self.block_start.take() {
                    // The first two backticks were taken for code.
                    self.code.truncate(self.code.len() - 2);
                    on_block(CodeBlock {
                        code: &self.code,
                        start,
                        stop: start + self.code.len(),
                        token_index: self.tokens,
                        overshoot,
                    });
                    self.code.clear();
                    if matches!(self.stop, Stop::Block) {
                        self.finished = true;
                        return;
                    }
                }
            } else if was_open {
                self.code.push(byte);
            } else if byte == b'\n' && matches!(line, Line::Blank | Line::Language(6)) {
                self.block_start = Some(self.position);
            }
            if let Stop::Marker(marker) = &self.stop {
                self.matched = marker.advance(self.matched, byte);
                if self.matched == marker.bytes.len() {
                    self.finished = true;
                    on_marker(MarkerMatch {
                        start: self.position - self.matched,
                        stop: self.position,
                        token_index: self.tokens,
                        overshoot,
                        inside_block: self.block_start.is_some(),
                    });
                    return;
                }
            }
        }
    }
}

fn next_line(line: Line, byte: u8) -> Line {
    match (line, byte) {
        (_, b'\n') => Line::Backticks(0),
        (Line::Backticks(2), b'`') => Line::Language(0),
        (Line::Backticks(count), b'`') => Line::Backticks(count + 1),
        (Line::Language(count), byte) if LANGUAGE.get(usize::from(count)) == Some(&byte) => {
            Line::Language(count + 1)
        }
        (Line::Language(6) | Line::Blank, b' ' | b'\t' | b'\r') => Line::Blank,
        _ => Line::Rest,
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

    fn scan(
        text: &[u8],
        marker: Option<&[u8]>,
    ) -> (Vec<String>, Option<(usize, usize, bool)>, usize) {
        let mut scanner = Scanner::new(
            byte_vocabulary(),
            marker.map_or(Stop::Never, |bytes| {
                Stop::Marker(Marker::new(bytes).unwrap())
            }),
            true,
        );
        let ids: Vec<u32> = text.iter().copied().map(u32::from).collect();
        let (mut blocks, mut found) = (Vec::new(), None);
        let consumed = scanner
            .feed(
                &ids,
                |block| {
                    assert_eq!(&text[block.start..block.stop], block.code);
                    assert_eq!(block.token_index, block.stop + 2);
                    blocks.push(String::from_utf8_lossy(block.code).into_owned());
                },
                |marker| found = Some((marker.start, marker.stop, marker.inside_block)),
            )
            .unwrap();
        (blocks, found, consumed)
    }

    #[test]
    fn a_block_and_the_marker() {
        let text = b"Let us see.\n```python\nprint(1)\n```\n```output\n18";
        let (blocks, marker, consumed) = scan(text, Some(b"```output"));
        assert_eq!(blocks, ["print(1)\n"]);
        assert_eq!(marker, Some((35, 44, false)));
        assert_eq!(consumed, 44);
    }

    #[test]
    fn openers() {
        let opens = |text: &str| !scan(format!("{text}x\n```").as_bytes(), None).0.is_empty();
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
        let (blocks, marker, _) = scan(b"```python\nx\n```output", Some(b"```output"));
        assert_eq!(blocks, ["x\n"]);
        assert_eq!(marker, Some((12, 21, false)));
    }

    #[test]
    fn a_marker_inside_a_line_of_code_closes_nothing() {
        let (blocks, marker, _) = scan(b"```python\nx = '```output", Some(b"```output"));
        assert!(blocks.is_empty());
        assert_eq!(marker, Some((15, 24, true)));
    }

    #[test]
    fn an_opener_inside_a_block_closes_it_and_opens_the_next() {
        assert_eq!(
            scan(b"```python\na\n```python\nb\n```", None).0,
            ["a\n", "b\n"]
        );
    }

    #[test]
    fn an_empty_block_and_backticks_in_code() {
        assert_eq!(
            scan(b"```python\n```\n```python\n``\n a```\n```", None).0,
            ["", "``\n a```\n"]
        );
    }

    #[test]
    fn the_turn_may_begin_inside_a_line() {
        let ids: Vec<u32> = b"```python\nx\n```"
            .iter()
            .copied()
            .map(u32::from)
            .collect();
        let mut scanner = Scanner::new(byte_vocabulary(), Stop::Never, false);
        let mut blocks = 0;
        scanner.feed(&ids, |_| blocks += 1, |_| ()).unwrap();
        assert_eq!(blocks, 0);
        scanner.reset(true);
        scanner.feed(&ids, |_| blocks += 1, |_| ()).unwrap();
        assert_eq!(blocks, 1);
    }

    #[test]
    fn tokens_shared_with_the_text_around_and_a_turn_that_ends() {
        let vocabulary = Vocabulary::new(&[
            b"``".as_slice(),
            b"`out",
            b"",
            b"put\n1",
            b"`python\nx",
            b"\n```\n`",
        ])
        .unwrap();
        let mut scanner = Scanner::new(
            Arc::new(vocabulary),
            Stop::Marker(Marker::new(b"```output").unwrap()),
            true,
        );
        let mut seen = Vec::new();
        let mut found = Vec::new();
        let on_block = |block: CodeBlock<'_>| {
            seen.push((
                block.token_index,
                block.code.to_vec(),
                block.overshoot.to_vec(),
            ))
        };
        let on_marker =
            |marker: MarkerMatch<'_>| found.push((marker.token_index, marker.overshoot.to_vec()));
        let consumed = scanner
            .feed(&[0, 4, 5, 0, 2, 7, 1], on_block, on_marker)
            .unwrap();
        assert_eq!(consumed, 7);
        assert_eq!(seen, [(2, b"x\n".to_vec(), b"\n`".to_vec())]);
        assert!(found.is_empty());
        let consumed = scanner
            .feed(
                &[0, 1, 3, 0, 0],
                |_| panic!(),
                |marker| found.push((marker.token_index, marker.overshoot.to_vec())),
            )
            .unwrap();
        assert_eq!(consumed, 3);
        assert_eq!(found, [(9, b"\n1".to_vec())]);
        assert!(scanner.is_finished());
        assert!(scanner.feed(&[0], |_| (), |_| ()).is_err());
        scanner.reset(true);
        assert_eq!(scanner.feed(&[3], |_| panic!(), |_| panic!()).unwrap(), 1);
        assert_eq!((scanner.tokens(), scanner.position()), (1, 5));
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
        let mut scanner = Scanner::new(vocabulary, Stop::Block, true);
        let mut seen = Vec::new();
        let consumed = scanner
            .feed(
                &[0, 1, 2, 3],
                |block| seen.push((block.code.to_vec(), block.overshoot.to_vec())),
                |_| panic!(),
            )
            .unwrap();
        assert_eq!((consumed, scanner.position()), (3, 15));
        assert_eq!(seen, [(b"x\n".to_vec(), b"\n\n".to_vec())]);
        assert!(scanner.is_finished() && !scanner.block_is_open());
        scanner.reset(true);
        // A fence that closes nothing ends nothing.
        assert_eq!(
            scanner.feed(&[2, 2], |_| panic!(), |_| panic!()).unwrap(),
            2
        );
        assert!(!scanner.is_finished());
    }

    #[test]
    fn a_marker_that_overlaps_itself() {
        assert_eq!(scan(b"aabaabaab", Some(b"aabaab")).1, Some((0, 6, false)));
        assert_eq!(
            scan(b"````output", Some(b"```output")).1,
            Some((1, 10, false))
        );
        assert!(Marker::new(b"").is_err());
    }
}
