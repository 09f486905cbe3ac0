//! Python binding of the vocabulary, the stop conditions, and the scanner.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::error::invalid;
use crate::fences::{Fences, Language};
use crate::marker::Marker;
use crate::scanner as core;
use crate::vocabulary as table;

/// A piece this long is scanned without the GIL. A shorter piece is scanned before the GIL could be handed over.
const LONG_PIECE: usize = 4096;

#[pyclass(frozen, module = "torl._core")]
pub struct Vocabulary(Arc<table::Vocabulary>);

#[pymethods]
impl Vocabulary {
    #[new]
    fn new(token_bytes: Vec<Vec<u8>>) -> PyResult<Self> {
        Ok(Self(Arc::new(table::Vocabulary::new(&token_bytes)?)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Supports pickling, to send vocabularies to other processes.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> (Bound<'py, PyType>, (Vec<Bound<'py, PyBytes>>,)) {
        let table = &slf.get().0;
        let ids = 0..table.len() as u32;
        let tokens = ids.map(|id| PyBytes::new(slf.py(), table.token(id)));
        (slf.get_type(), (tokens.collect(),))
    }

    fn decode_bytes<'py>(&self, py: Python<'py>, token_ids: Vec<u32>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.join(&token_ids))
    }

    fn decode(&self, token_ids: Vec<u32>) -> String {
        String::from_utf8_lossy(&self.0.join(&token_ids)).into_owned()
    }
}

/// The condition that ends a turn, in addition to an end-of-sequence token and the token limit.
///
/// The condition is a tool call or a stop string. `fences` selects the fences of code blocks: "lines" (alone on a
/// line), "line_ends" (also at the end of a line, as in ToRL's code) or "anywhere" (as in ZeroTIR's).
#[pyclass(frozen, eq, hash, module = "torl._core")]
#[derive(PartialEq, Hash)]
pub struct StopCondition(core::StopCondition);

impl StopCondition {
    fn with(call: core::CallEnd, fences: &str) -> PyResult<Self> {
        Ok(Self(core::StopCondition {
            call,
            fences: Fences::from_name(fences)?,
            stops: Vec::new(),
        }))
    }
}

#[pymethods]
impl StopCondition {
    /// Return a condition without a call. `with_stops` adds stop strings.
    #[staticmethod]
    #[pyo3(signature = (*, fences = "lines"))]
    fn never(fences: &str) -> PyResult<Self> {
        Self::with(core::CallEnd::Never, fences)
    }

    /// Return a condition that is met by the last of these bytes, at any position, such as b"```output".
    ///
    /// Raises:
    ///     ValueError: The bytes are empty, or the name of the fences is unknown.
    #[staticmethod]
    #[pyo3(signature = (bytes, *, fences = "lines"))]
    fn marker(bytes: &[u8], fences: &str) -> PyResult<Self> {
        Self::with(core::CallEnd::Marker(Marker::new(bytes)?), fences)
    }

    /// Return a condition that is met by the third backtick that closes the turn's first code block.
    #[staticmethod]
    #[pyo3(signature = (*, fences = "lines"))]
    fn block(fences: &str) -> PyResult<Self> {
        Self::with(core::CallEnd::Block, fences)
    }

    /// Return a condition whose blocks are the text between two tags. With `ends_turn`, the first block ends the turn.
    ///
    /// Raises:
    ///     ValueError: A tag is empty.
    #[staticmethod]
    #[pyo3(signature = (open, close, *, ends_turn = false))]
    fn tagged(open: &[u8], close: &[u8], ends_turn: bool) -> PyResult<Self> {
        Ok(Self(core::StopCondition {
            call: if ends_turn {
                core::CallEnd::Block
            } else {
                core::CallEnd::Never
            },
            fences: Fences::Tags {
                open: Marker::new(open)?,
                close: Marker::new(close)?,
            },
            stops: Vec::new(),
        }))
    }

    /// Return the condition without its call, for a turn after the last permitted call.
    fn without_call(&self) -> Self {
        Self(core::StopCondition {
            call: core::CallEnd::Never,
            ..self.0.clone()
        })
    }

    /// Return the condition with stop strings: the last character of any of them ends the response.
    ///
    /// Raises:
    ///     ValueError: A stop string is empty.
    fn with_stops(&self, stops: Vec<String>) -> PyResult<Self> {
        let stops = stops.iter().map(|stop| Marker::new(stop.as_bytes()));
        Ok(Self(core::StopCondition {
            stops: stops.collect::<Result<_, _>>()?,
            ..self.0.clone()
        }))
    }

    /// "never", "marker" or "block".
    #[getter]
    fn kind(&self) -> &'static str {
        match &self.0.call {
            core::CallEnd::Never => "never",
            core::CallEnd::Marker(_) => "marker",
            core::CallEnd::Block => "block",
        }
    }

    /// The bytes of a marker; None for other kinds.
    #[getter]
    fn marker_bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.0.call {
            core::CallEnd::Marker(marker) => Some(PyBytes::new(py, marker.bytes())),
            core::CallEnd::Never | core::CallEnd::Block => None,
        }
    }

    /// "lines", "line_ends", "anywhere", or "tags" if blocks are the text between tags.
    #[getter]
    fn fences(&self) -> &'static str {
        self.0.fences.name()
    }

    /// The tags that open and close a block, if it has tags instead of fences.
    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        match &self.0.fences {
            Fences::Tags { open, close } => Some((
                PyBytes::new(py, open.bytes()),
                PyBytes::new(py, close.bytes()),
            )),
            _ => None,
        }
    }

    /// The stop strings.
    #[getter]
    fn stops(&self) -> Vec<String> {
        let stops = self.0.stops.iter();
        stops
            .map(|stop| String::from_utf8_lossy(stop.bytes()).into_owned())
            .collect()
    }

    /// Return a dictionary of plain values, for a message to another process.
    fn to_plain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let plain = PyDict::new(py);
        plain.set_item("kind", self.kind())?;
        plain.set_item("marker", self.marker_bytes(py))?;
        plain.set_item("fences", self.fences())?;
        let tags = self.tags(py).map(|(open, close)| vec![open, close]);
        plain.set_item("tags", tags)?;
        plain.set_item("stops", self.stops())?;
        Ok(plain)
    }

    /// Return the condition that `to_plain` encoded.
    ///
    /// Raises:
    ///     ValueError: The dictionary holds other values.
    #[classmethod]
    fn from_plain(_: &Bound<'_, PyType>, plain: &Bound<'_, PyDict>) -> PyResult<Self> {
        let field = |name| {
            let value = plain.get_item(name)?;
            value.map_or_else(
                || Ok(invalid(format!("a stop condition has no field {name:?}"))?),
                PyResult::Ok,
            )
        };
        let kind: String = field("kind")?.extract()?;
        let marker: Option<Vec<u8>> = field("marker")?.extract()?;
        let fences: String = field("fences")?.extract()?;
        let tags: Option<Vec<Vec<u8>>> = field("tags")?.extract()?;
        let end = match (kind.as_str(), marker, tags.as_deref()) {
            ("never" | "block", None, Some([open, close])) if fences == "tags" => {
                Self::tagged(open, close, kind == "block")
            }
            ("never", None, None) => Self::never(&fences),
            ("marker", Some(bytes), None) => Self::marker(&bytes, &fences),
            ("block", None, None) => Self::block(&fences),
            _ => Ok(invalid(format!("invalid stop condition: {plain}"))?),
        }?;
        end.with_stops(field("stops")?.extract()?)
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        let from_plain = slf.get_type().getattr("from_plain")?;
        Ok((from_plain, (slf.get().to_plain(slf.py())?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut arguments = Vec::new();
        if let Some(bytes) = self.marker_bytes(py) {
            arguments.push(bytes.repr()?.to_string());
        }
        if let Some((open, close)) = self.tags(py) {
            arguments.extend([open.repr()?.to_string(), close.repr()?.to_string()]);
            if self.0.call == core::CallEnd::Block {
                arguments.push("ends_turn=True".to_owned());
            }
        } else if self.0.fences != Fences::default() {
            arguments.push(format!("fences={:?}", self.fences()));
        }
        let stops = match self.stops() {
            none if none.is_empty() => String::new(),
            some => format!(".with_stops({some:?})"),
        };
        let made_by = match self.0.fences {
            Fences::Tags { .. } => "tagged",
            _ => self.kind(),
        };
        Ok(format!(
            "StopCondition.{made_by}({}){stops}",
            arguments.join(", ")
        ))
    }
}

#[pyclass(frozen, get_all, module = "torl._core")]
pub struct CodeBlock {
    code: String,
    start: usize,
    stop: usize,
    overshoot: Py<PyBytes>,
}

#[pymethods]
impl CodeBlock {
    fn __repr__(&self) -> String {
        format!(
            "CodeBlock(code={:?}, start={}, stop={})",
            self.code, self.start, self.stop
        )
    }
}

#[pyclass(frozen, get_all, module = "torl._core")]
pub struct MarkerMatch {
    start: usize,
    stop: usize,
    overshoot: Py<PyBytes>,
}

#[pymethods]
impl MarkerMatch {
    fn __repr__(&self) -> String {
        format!("MarkerMatch(start={}, stop={})", self.start, self.stop)
    }
}

#[pyclass(frozen, get_all, module = "torl._core")]
pub struct Scan {
    blocks: Vec<Py<CodeBlock>>,
    marker: Option<Py<MarkerMatch>>,
    stop: Option<Py<MarkerMatch>>,
    consumed: usize,
    overshoot: Option<Py<PyBytes>>,
}

/// The events of a scan, before they become Python objects.
#[derive(Default)]
struct Found {
    blocks: Vec<FoundBlock>,
    marker: Option<FoundMarker>,
    stop: Option<FoundMarker>,
}

struct FoundBlock {
    code: String,
    start: usize,
    stop: usize,
    overshoot: Vec<u8>,
}

struct FoundMarker {
    start: usize,
    stop: usize,
    overshoot: Vec<u8>,
}

impl FoundMarker {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<MarkerMatch>> {
        let matched = MarkerMatch {
            start: self.start,
            stop: self.stop,
            overshoot: PyBytes::new(py, &self.overshoot).unbind(),
        };
        Py::new(py, matched)
    }
}

impl Found {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.marker.is_none() && self.stop.is_none()
    }

    /// The bytes after the end of the turn in the token that completed it.
    fn overshoot(&self) -> &[u8] {
        match (&self.marker, &self.stop, self.blocks.last()) {
            (Some(end), _, _) | (None, Some(end), _) => &end.overshoot,
            (None, None, Some(block)) => &block.overshoot,
            (None, None, None) => &[],
        }
    }

    fn note(&mut self, event: core::ScanEvent<'_>) {
        match event {
            core::ScanEvent::Block {
                code,
                start,
                stop,
                overshoot,
            } => self.blocks.push(FoundBlock {
                code: String::from_utf8_lossy(code).into_owned(),
                start,
                stop,
                overshoot: overshoot.to_vec(),
            }),
            core::ScanEvent::Marker {
                start,
                stop,
                overshoot,
            } => {
                self.marker = Some(FoundMarker {
                    start,
                    stop,
                    overshoot: overshoot.to_vec(),
                });
            }
            core::ScanEvent::Stop {
                start,
                stop,
                overshoot,
            } => {
                self.stop = Some(FoundMarker {
                    start,
                    stop,
                    overshoot: overshoot.to_vec(),
                });
            }
        }
    }
}

/// Finds code blocks and the end of one turn in its tokens, exact to the byte.
///
/// The result depends on the bytes of the turn only, and not on their division into tokens or calls.
///
/// Args:
///     vocabulary: Bytes of the model's tokens.
///     end: Condition that ends the turn.
///     at_line_start: Whether the text before the turn is empty or ends with a newline.
///     language: Word after the three backticks that open a block.
///
/// Raises:
///     ValueError: The language is not 1 to 64 ASCII letters, digits, "+", "-" or "#".
#[pyclass(module = "torl._core")]
pub struct Scanner(core::Scanner);

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(signature = (vocabulary, end, at_line_start = true, *, language = "python"))]
    fn new(
        vocabulary: &Vocabulary,
        end: &StopCondition,
        at_line_start: bool,
        language: &str,
    ) -> PyResult<Self> {
        Ok(Self(core::Scanner::new(
            Arc::clone(&vocabulary.0),
            end.0.clone(),
            at_line_start,
            &Language::new(language)?,
        )))
    }

    /// Read tokens, up to and including the one that ends the turn.
    ///
    /// Raises:
    ///     ValueError: The turn has already ended; each turn needs a new scanner.
    fn feed(&mut self, py: Python<'_>, token_ids: Vec<u32>) -> PyResult<Scan> {
        let mut found = Found::default();
        let consumed = if token_ids.len() < LONG_PIECE {
            self.scan(&token_ids, &mut found)?
        } else {
            py.detach(|| self.scan(&token_ids, &mut found))?
        };
        self.report(py, found, consumed)
    }

    /// Read one token. Return None unless a block closes or the turn ends with it.
    ///
    /// Raises:
    ///     ValueError: The turn has already ended.
    fn feed_token(&mut self, py: Python<'_>, token_id: u32) -> PyResult<Option<Scan>> {
        let mut found = Found::default();
        self.scan(&[token_id], &mut found)?;
        if found.is_empty() {
            return Ok(None);
        }
        self.report(py, found, 1).map(Some)
    }

    /// Whether a block is open, or was open when the turn ended.
    #[getter]
    fn block_is_open(&self) -> bool {
        self.0.block_is_open()
    }

    /// Whether the turn has ended.
    #[getter]
    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Scanner {
    fn report(&self, py: Python<'_>, found: Found, consumed: usize) -> PyResult<Scan> {
        let bytes_of = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        let overshoot = self.0.is_finished().then(|| bytes_of(found.overshoot()));
        let blocks = found.blocks.into_iter().map(|block| {
            let block = CodeBlock {
                code: block.code,
                start: block.start,
                stop: block.stop,
                overshoot: bytes_of(&block.overshoot),
            };
            Py::new(py, block)
        });
        let into_python = |end: FoundMarker| end.into_python(py);
        Ok(Scan {
            blocks: blocks.collect::<PyResult<_>>()?,
            marker: found.marker.map(into_python).transpose()?,
            stop: found.stop.map(into_python).transpose()?,
            consumed,
            overshoot,
        })
    }

    fn scan(&mut self, token_ids: &[u32], found: &mut Found) -> crate::error::Result<usize> {
        self.0.feed(token_ids, |find| found.note(find))
    }
}
