//! Detection of opening and closing code blocks, between fences or tags, byte by byte.

use crate::error::{Result, invalid};
use crate::marker::Marker;

const FENCE: &[u8] = b"```";

/// The language name after the three backticks that open a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language(Box<[u8]>);

impl Language {
    /// Maximum length of a language name.
    const MAX_LANGUAGE_BYTES: usize = 64;

    pub fn new(name: &str) -> Result<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'#');
        if name.is_empty() || name.len() > Self::MAX_LANGUAGE_BYTES || !name.bytes().all(allowed) {
            return invalid(format!(
                "the language {name:?} must be 1 to {} ASCII letters, digits, '+', '-' or '#'",
                Self::MAX_LANGUAGE_BYTES
            ));
        }
        Ok(Self(name.as_bytes().into()))
    }
}

/// The fences that delimit code blocks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Fences {
    /// A separate line opens a block, with optional blanks after the language; a line that begins with three backticks
    /// closes.
    #[default]
    Lines,
    /// A line that begins or ends with the opening fence opens a block, also within a block, whose code then restarts
    /// (ToRL's `extract_program`). Lines close as in `Lines`.
    LineEnds,
    /// The opening fence opens at any position, and the next three backticks close (ZeroTIR's stop strings).
    Anywhere,
    /// Fences are ignored: these bytes open and close at any position.
    Tags { open: Marker, close: Marker },
}

impl Fences {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::LineEnds => "line_ends",
            Self::Anywhere => "anywhere",
            Self::Tags { .. } => "tags",
        }
    }

    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "lines" => Ok(Self::Lines),
            "line_ends" => Ok(Self::LineEnds),
            "anywhere" => Ok(Self::Anywhere),
            _ => invalid(format!(
                "unknown fences {name:?}; choose one of lines, line_ends or anywhere"
            )),
        }
    }

    /// The number of bytes that close a block.
    pub fn closing_length(&self) -> usize {
        match self {
            Self::Tags { close, .. } => close.bytes().len(),
            _ => FENCE.len(),
        }
    }
}

/// The event that a byte completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// The code of a block begins after this byte.
    Opens,
    /// The third backtick of a closing fence, or the last byte of a closing tag.
    Closes,
}

/// The position of the next byte in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// This many bytes of the opening fence so far, less than all.
    Opening(usize),
    /// The opening fence, optionally followed by blanks.
    Opener,
    /// The line does not begin with an opening fence.
    Rest,
}

/// Reader of the bytes of one turn.
pub struct FenceReader {
    fences: Fences,
    opener: Marker,
    line: Line,
    /// Bytes of the opening fence, or of the next tag, that the text ends with, at any position.
    matched: usize,
    /// Backticks at the end of the open block's code, at most two.
    backticks: usize,
    is_open: bool,
}

impl FenceReader {
    pub fn new(fences: Fences, language: &Language, at_line_start: bool) -> Self {
        let line = if at_line_start {
            Line::Opening(0)
        } else {
            Line::Rest
        };
        Self {
            fences,
            opener: Marker::new(&[FENCE, &language.0].concat()).expect("a fence is not empty"),
            line,
            matched: 0,
            backticks: 0,
            is_open: false,
        }
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether bytes other than newline and backtick leave the state unchanged.
    pub fn is_idle(&self) -> bool {
        match self.fences {
            Fences::Tags { .. } => self.matched == 0,
            Fences::Lines => self.line == Line::Rest,
            Fences::LineEnds => !matches!(self.line, Line::Opening(_)) && self.matched == 0,
            Fences::Anywhere => self.matched == 0 && self.backticks == 0,
        }
    }

    pub fn read(&mut self, byte: u8) -> Option<Fence> {
        match self.fences {
            Fences::Tags { .. } => self.read_tags(byte),
            Fences::Anywhere => self.read_anywhere(byte),
            Fences::Lines | Fences::LineEnds => self.read_in_lines(byte),
        }
    }

    fn read_in_lines(&mut self, byte: u8) -> Option<Fence> {
        let before = self.line;
        let ends_with_opener = self.fences == Fences::LineEnds && self.advance(byte);
        self.line = self.next_line(byte);
        if byte == b'\n' {
            let opens = before == Line::Opener || ends_with_opener;
            self.is_open |= opens;
            return opens.then_some(Fence::Opens);
        }
        let closes = self.is_open && before == Line::Opening(FENCE.len() - 1) && byte == b'`';
        self.is_open &= !closes;
        closes.then_some(Fence::Closes)
    }

    /// Continues the search for the opening fence; returns whether the text before this byte ended with a complete
    /// fence.
    fn advance(&mut self, byte: u8) -> bool {
        let whole = self.matched == self.opener.bytes().len();
        let matched = if whole { 0 } else { self.matched };
        self.matched = self.opener.advance(matched, byte);
        whole
    }

    fn next_line(&self, byte: u8) -> Line {
        let opener = self.opener.bytes();
        match self.line {
            _ if byte == b'\n' => Line::Opening(0),
            Line::Opening(count) if opener[count] == byte => {
                if count + 1 == opener.len() {
                    Line::Opener
                } else {
                    Line::Opening(count + 1)
                }
            }
            Line::Opener if self.fences == Fences::LineEnds => Line::Opener,
            Line::Opener if matches!(byte, b' ' | b'\t' | b'\r') => Line::Opener,
            _ => Line::Rest,
        }
    }

    fn read_tags(&mut self, byte: u8) -> Option<Fence> {
        let Fences::Tags { open, close } = &self.fences else {
            unreachable!("there are tags");
        };
        let sought = if self.is_open { close } else { open };
        self.matched = sought.advance(self.matched, byte);
        if self.matched < sought.bytes().len() {
            return None;
        }
        self.matched = 0;
        self.is_open = !self.is_open;
        Some(if self.is_open {
            Fence::Opens
        } else {
            Fence::Closes
        })
    }

    fn read_anywhere(&mut self, byte: u8) -> Option<Fence> {
        if !self.is_open {
            self.matched = self.opener.advance(self.matched, byte);
            self.is_open = self.matched == self.opener.bytes().len();
            if self.is_open {
                self.matched = 0;
            }
            return self.is_open.then_some(Fence::Opens);
        }
        self.backticks = if byte == b'`' { self.backticks + 1 } else { 0 };
        self.is_open = self.backticks < FENCE.len();
        if !self.is_open {
            self.backticks = 0;
        }
        (!self.is_open).then_some(Fence::Closes)
    }
}
