//! Finds closed code blocks and the end of the turn in a stream of sampled tokens, exact to the byte.
//!
//! The scanner reads the bytes of one turn. Its events depend on the bytes alone: neither on the tokenization, nor on
//! how the tokens were cut into pieces. `Fences` sets which fences count. With `Fences::Lines`, line by line, for the
//! language "python":
//!
//! - A line that is ```` ```python ````, then only blanks (space, tab, carriage return) and a newline, opens a
//!   block. The code begins after the newline.
//! - A line that begins with ```` ``` ```` closes an open block at its third backtick, regardless of the rest of the
//!   line. The code ends before that line. So ```` ```output ```` closes a block that the model forgot to close,
//!   and ```` ```python ```` inside a block closes it and opens the next.
//! - The marker counts at any position, also in the middle of a line, where it closes nothing.
//!
//! With `Fences::Tags` a block is the text between two tags, such as those of a tool call.
//!
//! A turn ends with a call (the marker, or the first block's closing backtick) or a stop string (`StopCondition`),
//! whichever is complete first; the call wins at the same byte. The rest of that token, the *overshoot*, is then passed
//! to the caller unread. Each turn has its own scanner, so that no state of the previous turn (half a marker, an open
//! block) remains.

use std::sync::Arc;

use crate::error::{Result, invalid};
use crate::fences::{Fence, FenceReader, Fences, Language};
use crate::marker::Marker;
use crate::vocabulary::Vocabulary;

/// The text that calls a tool, and ends the turn.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallEnd {
    Never,
    Marker(Marker),
    /// The third backtick that closes a block.
    Block,
}

/// The conditions that end a turn, in addition to an end-of-sequence token and a token limit, and the fences in use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StopCondition {
    pub call: CallEnd,
    pub fences: Fences,
    /// Strings that end the response with the turn.
    pub stops: Vec<Marker>,
}

/// An event of the scanner. Offsets count bytes from the start of the turn; `overshoot` is the rest of the token that
/// completed it.
pub enum ScanEvent<'a> {
    Block {
        code: &'a [u8],
        start: usize,
        stop: usize,
        overshoot: &'a [u8],
    },
    Marker {
        start: usize,
        stop: usize,
        overshoot: &'a [u8],
    },
    Stop {
        start: usize,
        stop: usize,
        overshoot: &'a [u8],
    },
}

/// The scanner of one turn. Cheap to create; while reading it allocates only for the code of an open block.
pub struct Scanner {
    vocabulary: Arc<Vocabulary>,
    turn: Turn,
}

/// The state of the part read so far.
struct Turn {
    end: StopCondition,
    fences: FenceReader,
    /// Bytes of the marker that the text ends with.
    matched: usize,
    /// Bytes of each stop string that the text ends with.
    stops_matched: Vec<usize>,
    /// Whether a stop string, the marker, or a tag begins with this byte. Text without newline or backtick is skipped
    /// if nothing can begin in it.
    begins: [bool; 256],
    /// Offset of the open block's first byte of code.
    block_start: usize,
    code: Vec<u8>,
    position: usize,
    finished: bool,
}

impl Scanner {
    /// Starts a turn. `at_line_start`: whether the text before the turn is empty or ends with a newline.
    pub fn new(
        vocabulary: Arc<Vocabulary>,
        end: StopCondition,
        at_line_start: bool,
        language: &Language,
    ) -> Self {
        let mut begins = [false; 256];
        for stop in &end.stops {
            begins[usize::from(stop.bytes()[0])] = true;
        }
        if let CallEnd::Marker(marker) = &end.call {
            begins[usize::from(marker.bytes()[0])] = true;
        }
        if let Fences::Tags { open, close } = &end.fences {
            begins[usize::from(open.bytes()[0])] = true;
            begins[usize::from(close.bytes()[0])] = true;
        }
        let turn = Turn {
            fences: FenceReader::new(end.fences.clone(), language, at_line_start),
            matched: 0,
            stops_matched: vec![0; end.stops.len()],
            begins,
            end,
            block_start: 0,
            code: Vec::new(),
            position: 0,
            finished: false,
        };
        Self { vocabulary, turn }
    }

    /// Whether a block has been opened and not closed, at the end of the turn if that has been found: then the marker
    /// is in the middle of a line of code.
    pub fn block_is_open(&self) -> bool {
        self.turn.fences.is_open()
    }

    /// Whether the end of the turn has been found.
    pub fn is_finished(&self) -> bool {
        self.turn.finished
    }

    /// Reads tokens up to and including the one that ends the turn; returns the number of tokens read. Events are
    /// reported in the order in which they complete.
    pub fn feed(&mut self, ids: &[u32], mut on_event: impl FnMut(ScanEvent<'_>)) -> Result<usize> {
        let Self { vocabulary, turn } = self;
        if turn.finished {
            return invalid("this turn has ended; use a new scanner for the next turn");
        }
        for (index, &id) in ids.iter().enumerate() {
            let token = vocabulary.token(id);
            if !vocabulary.is_structural(id) && turn.can_skip(token) {
                if turn.fences.is_open() {
                    turn.code.extend_from_slice(token);
                }
                turn.position += token.len();
            } else {
                turn.feed_token(token, &mut on_event);
            }
            if turn.finished {
                return Ok(index + 1);
            }
        }
        Ok(ids.len())
    }
}

impl Turn {
    /// Whether a token without newline and backtick neither continues nor begins a match.
    fn can_skip(&self, token: &[u8]) -> bool {
        self.fences.is_idle()
            && self.matched == 0
            && self.stops_matched.iter().all(|&matched| matched == 0)
            && !token.iter().any(|&byte| self.begins[usize::from(byte)])
    }

    fn feed_token(&mut self, token: &[u8], on_event: &mut impl FnMut(ScanEvent<'_>)) {
        for (index, &byte) in token.iter().enumerate() {
            let overshoot = &token[index + 1..];
            self.position += 1;
            self.read_fences(byte, overshoot, on_event);
            if !self.finished {
                self.read_marker(byte, overshoot, on_event);
            }
            if !self.finished {
                self.read_stops(byte, overshoot, on_event);
            }
            if self.finished {
                return;
            }
        }
    }

    fn read_fences(
        &mut self,
        byte: u8,
        overshoot: &[u8],
        on_event: &mut impl FnMut(ScanEvent<'_>),
    ) {
        let was_open = self.fences.is_open();
        match self.fences.read(byte) {
            Some(Fence::Opens) => {
                self.block_start = self.position;
                self.code.clear();
            }
            Some(Fence::Closes) => {
                // All but the last byte of the closing fence were added to the code.
                let taken = self.end.fences.closing_length() - 1;
                self.code.truncate(self.code.len() - taken);
                on_event(ScanEvent::Block {
                    code: &self.code,
                    start: self.block_start,
                    stop: self.block_start + self.code.len(),
                    overshoot,
                });
                self.finished = self.end.call == CallEnd::Block;
            }
            None if was_open => self.code.push(byte),
            None => {}
        }
    }

    fn read_marker(
        &mut self,
        byte: u8,
        overshoot: &[u8],
        on_event: &mut impl FnMut(ScanEvent<'_>),
    ) {
        let CallEnd::Marker(marker) = &self.end.call else {
            return;
        };
        self.matched = marker.advance(self.matched, byte);
        if self.matched == marker.bytes().len() {
            self.finished = true;
            on_event(ScanEvent::Marker {
                start: self.position - self.matched,
                stop: self.position,
                overshoot,
            });
        }
    }

    /// If several stop strings end at one byte, the longest is reported.
    fn read_stops(&mut self, byte: u8, overshoot: &[u8], on_event: &mut impl FnMut(ScanEvent<'_>)) {
        let mut longest = 0;
        for (stop, matched) in self.end.stops.iter().zip(&mut self.stops_matched) {
            *matched = stop.advance(*matched, byte);
            if *matched == stop.bytes().len() {
                longest = longest.max(*matched);
            }
        }
        if longest > 0 {
            self.finished = true;
            on_event(ScanEvent::Stop {
                start: self.position - longest,
                stop: self.position,
                overshoot,
            });
        }
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

    fn ended_by(call: CallEnd) -> StopCondition {
        StopCondition {
            call,
            fences: Fences::Lines,
            stops: Vec::new(),
        }
    }

    fn marker(bytes: &[u8]) -> StopCondition {
        ended_by(CallEnd::Marker(Marker::new(bytes).unwrap()))
    }

    fn never() -> StopCondition {
        ended_by(CallEnd::Never)
    }

    fn scanner(vocabulary: Arc<Vocabulary>, end: StopCondition, at_line_start: bool) -> Scanner {
        Scanner::new(
            vocabulary,
            end,
            at_line_start,
            &Language::new("python").unwrap(),
        )
    }

    /// Returns the blocks, the marker's position with whether a block was open there, and the number of tokens read.
    fn scan(text: &[u8], end: StopCondition) -> (Vec<String>, Option<(usize, usize, bool)>, usize) {
        let mut scanner = scanner(byte_vocabulary(), end, true);
        let (mut blocks, mut found) = (Vec::new(), None);
        let consumed = scanner
            .feed(&ids(text), |event| match event {
                ScanEvent::Block {
                    code, start, stop, ..
                } => {
                    assert_eq!(&text[start..stop], code);
                    blocks.push(String::from_utf8_lossy(code).into_owned());
                }
                ScanEvent::Marker { start, stop, .. } | ScanEvent::Stop { start, stop, .. } => {
                    found = Some((start, stop));
                }
            })
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
            !scan(format!("{text}x\n```").as_bytes(), never())
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
            scan(b"```python\na\n```python\nb\n```", never()).0,
            ["a\n", "b\n"]
        );
    }

    #[test]
    fn an_empty_block_and_backticks_in_code() {
        assert_eq!(
            scan(b"```python\n```\n```python\n``\n a```\n```", never()).0,
            ["", "``\n a```\n"]
        );
    }

    #[test]
    fn the_turn_may_begin_inside_a_line() {
        for (at_line_start, expected) in [(false, 0), (true, 1)] {
            let mut scanner = scanner(byte_vocabulary(), never(), at_line_start);
            let mut blocks = 0;
            scanner
                .feed(&ids(b"```python\nx\n```"), |_| blocks += 1)
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
            .feed(&[0, 4, 5, 0, 2, 7, 1], |event| match event {
                ScanEvent::Block {
                    code, overshoot, ..
                } => seen.push((code.to_vec(), overshoot.to_vec())),
                _ => panic!(),
            })
            .unwrap();
        assert_eq!(consumed, 7);
        assert_eq!(seen, [(b"x\n".to_vec(), b"\n`".to_vec())]);
        let mut found = Vec::new();
        let consumed = first
            .feed(&[0, 1, 3, 0, 0], |event| match event {
                ScanEvent::Marker {
                    start,
                    stop,
                    overshoot,
                } => found.push((start, stop, overshoot.to_vec())),
                _ => panic!(),
            })
            .unwrap();
        assert_eq!(consumed, 3);
        // The first seven tokens hold 23 bytes.
        assert_eq!(found, [(23, 32, b"\n1".to_vec())]);
        assert!(first.is_finished());
        assert!(first.feed(&[0], |_| ()).is_err());
        let mut second = scanner(vocabulary, end, true);
        assert_eq!(second.feed(&[3], |_| panic!()).unwrap(), 1);
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
        let mut first = scanner(Arc::clone(&vocabulary), ended_by(CallEnd::Block), true);
        let mut seen = Vec::new();
        let consumed = first
            .feed(&[0, 1, 2, 3], |event| match event {
                ScanEvent::Block {
                    code,
                    stop,
                    overshoot,
                    ..
                } => seen.push((stop, code.to_vec(), overshoot.to_vec())),
                _ => panic!(),
            })
            .unwrap();
        assert_eq!(consumed, 3);
        assert_eq!(seen, [(12, b"x\n".to_vec(), b"\n\n".to_vec())]);
        assert!(first.is_finished() && !first.block_is_open());
        // A fence that closes nothing ends nothing.
        let mut second = scanner(vocabulary, ended_by(CallEnd::Block), true);
        assert_eq!(second.feed(&[2, 2], |_| panic!()).unwrap(), 2);
        assert!(!second.is_finished());
    }

    #[test]
    fn the_language_is_configurable() {
        let blocks = |language: &str, text: &[u8]| {
            let language = Language::new(language).unwrap();
            let mut scanner = Scanner::new(byte_vocabulary(), never(), true, &language);
            let mut blocks = 0;
            scanner.feed(&ids(text), |_| blocks += 1).unwrap();
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

    /// Returns each block with its position, with other fences than those of `scan`.
    fn blocks_by(fences: Fences, text: &[u8]) -> Vec<String> {
        let end = StopCondition { fences, ..never() };
        scan(text, end).0
    }

    #[test]
    fn a_line_that_ends_with_the_opening_fence_opens_where_line_ends_count() {
        let blocks = |text: &[u8]| blocks_by(Fences::LineEnds, text);
        for opener in [
            "Code: ```python\n",
            "  ```python\n",
            "```python3\n",
            "```python copy\n",
            "````python\n",
        ] {
            let text = format!("{opener}x\n```");
            assert_eq!(blocks(text.as_bytes()), ["x\n"], "{opener:?}");
        }
        for text in ["a ```python \nx\n```", "```Python\nx\n```", "```python"] {
            assert!(blocks(text.as_bytes()).is_empty(), "{text:?}");
        }
        assert_eq!(
            blocks(b"```python\na\nb = '```python\nc\n```"),
            ["c\n"],
            "the code begins anew"
        );
        assert_eq!(blocks(b"```python\na\n ```\n```"), ["a\n ```\n"]);
    }

    #[test]
    fn three_backticks_close_at_any_position_with_fences_anywhere() {
        let blocks = |text: &[u8]| blocks_by(Fences::Anywhere, text);
        assert_eq!(blocks(b"<think>```python print(1)``` so"), [" print(1)"]);
        assert_eq!(blocks(b" ```python\n  x\n  ``` "), ["\n  x\n  "]);
        assert_eq!(
            blocks(b"````python3\n`a``b```c```python\n```"),
            ["3\n`a``b", "\n"]
        );
        assert!(blocks(b"```py``` thon```output ```Python").is_empty());
    }

    #[test]
    fn a_block_between_tags() {
        let tag = |bytes: &[u8]| Marker::new(bytes).unwrap();
        let tags = |open: &[u8], close: &[u8]| Fences::Tags {
            open: tag(open),
            close: tag(close),
        };
        let calls = |text: &[u8]| blocks_by(tags(b"<call>", b"</call>"), text);
        assert_eq!(
            calls(b"<<call>{\"a\": \"<call>\"}</<call>\n</call> <call></call></call><call>cut"),
            ["{\"a\": \"<call>\"}</<call>\n", ""]
        );
        assert_eq!(blocks_by(tags(b"|", b"|"), b"a|b|c|d|"), ["b", "d"]);
        assert!(calls(b"```python\nx\n```\n</call>").is_empty());
    }

    #[test]
    fn a_stop_string_ends_the_turn_at_any_position() {
        let stops = ["User:", "er: b", "</answer>"]
            .map(|text| Marker::new(text.as_bytes()).unwrap())
            .to_vec();
        let end = |call| StopCondition {
            stops: stops.clone(),
            ..ended_by(call)
        };
        assert_eq!(
            scan(b"a UUser: b", end(CallEnd::Never)).1,
            Some((3, 8, false))
        );
        let code = b"```python\n'</answer>'\n```";
        assert_eq!(
            scan(code, end(CallEnd::Block)),
            (vec![], Some((11, 20, true)), 20)
        );
        let call = CallEnd::Marker(Marker::new(b"User:").unwrap());
        let vocabulary = Arc::new(Vocabulary::new(&[b"Us".as_slice(), b"er: b"]).unwrap());
        let mut ended = Vec::new();
        scanner(Arc::clone(&vocabulary), end(call), true)
            .feed(&[0, 1], |event| {
                ended.push(matches!(event, ScanEvent::Marker { .. }))
            })
            .unwrap();
        assert_eq!(
            ended,
            [true],
            "a call that ends at the same byte goes first"
        );
        let mut rest = Vec::new();
        scanner(vocabulary, end(CallEnd::Never), true)
            .feed(&[0, 1], |event| match event {
                ScanEvent::Stop { overshoot, .. } => rest.extend_from_slice(overshoot),
                _ => panic!(),
            })
            .unwrap();
        assert_eq!(rest, b" b");
    }

    #[test]
    fn a_marker_may_begin_with_any_byte() {
        assert_eq!(scan(b"the end.", marker(b"end")).1, Some((4, 7, false)));
    }
}
