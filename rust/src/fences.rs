//! Where a code block opens and closes, between fences or tags, byte by byte.

use crate::error::{Result, invalid};
use crate::marker::Marker;

const FENCE: &[u8] = b"```";

/// What stands behind the three backticks that open a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language(Box<[u8]>);

impl Language {
    /// No language has a longer name.
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

/// Which fences count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Fences {
    /// A line of its own opens, but for blanks behind the language; a line that begins with three backticks closes.
    #[default]
    Lines,
    /// A line that begins or ends with the opening fence opens, also within a block, whose code begins anew then
    /// (ToRL's `extract_program`); lines close as in `Lines`.
    LineEnds,
    /// The opening fence opens wherever it stands, and the next three backticks close (ZeroTIR's stop strings).
    Anywhere,
    /// No fence does: these bytes open and close wherever they stand.
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
                "no fences are called {name:?}; choose lines, line_ends or anywhere"
            )),
        }
    }

    /// How many bytes close a block.
    pub fn closing_length(&self) -> usize {
        match self {
            Self::Tags { close, .. } => close.bytes().len(),
            _ => FENCE.len(),
        }
    }
}

/// What a byte completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// The code of a block begins behind this byte.
    Opens,
    /// The third backtick of a closing fence, or the last byte of a closing tag.
    Closes,
}

/// Where in its line the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Only this many bytes of the opening fence so far, less than all.
    Opening(usize),
    /// The opening fence, and nothing but what may stand behind it.
    Opener,
    /// The line does not begin with an opening fence.
    Rest,
}

/// Reads the bytes of one turn.
pub struct FenceReader {
    fences: Fences,
    opener: Marker,
    line: Line,
    /// Bytes of the opening fence, or of the tag that comes next, that the text ends with, wherever they stand.
    matched: usize,
    /// Backticks that the code of the open block ends with, at most two.
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

    /// Whether bytes that are neither newline nor backtick change nothing here.
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

    /// Read on in the search for the opening fence; whether the text before this byte ended with a whole one.
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
