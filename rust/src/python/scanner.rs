//! Python face of the vocabulary, the ends of turns, and the scanner.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::error::invalid;
use crate::scanner as core;
use crate::vocabulary as table;

/// A piece this long is scanned without the GIL; a shorter one is done before the GIL could change hands.
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

    /// To be sent to other processes.
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

#[pyclass(frozen, eq, hash, module = "torl._core")]
#[derive(PartialEq, Hash)]
pub struct TurnEnd(core::TurnEnd);

#[pymethods]
impl TurnEnd {
    #[staticmethod]
    fn never() -> Self {
        Self(core::TurnEnd::Never)
    }

    #[staticmethod]
    fn marker(bytes: &[u8]) -> PyResult<Self> {
        Ok(Self(core::TurnEnd::Marker(core::Marker::new(bytes)?)))
    }

    #[staticmethod]
    fn block() -> Self {
        Self(core::TurnEnd::Block)
    }

    #[getter]
    fn kind(&self) -> &'static str {
        match &self.0 {
            core::TurnEnd::Never => "never",
            core::TurnEnd::Marker(_) => "marker",
            core::TurnEnd::Block => "block",
        }
    }

    #[getter]
    fn marker_bytes<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        match &self.0 {
            core::TurnEnd::Marker(marker) => Some(PyBytes::new(py, marker.bytes())),
            core::TurnEnd::Never | core::TurnEnd::Block => None,
        }
    }

    fn to_plain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let plain = PyDict::new(py);
        plain.set_item("kind", self.kind())?;
        plain.set_item("marker", self.marker_bytes(py))?;
        Ok(plain)
    }

    /// A class method, because those can be pickled.
    #[classmethod]
    fn from_plain(_: &Bound<'_, PyType>, plain: &Bound<'_, PyDict>) -> PyResult<Self> {
        let field = |name| {
            let value = plain.get_item(name)?;
            value.map_or_else(
                || Ok(invalid(format!("the end of a turn has no field {name:?}"))?),
                PyResult::Ok,
            )
        };
        let kind: String = field("kind")?.extract()?;
        let marker: Option<Vec<u8>> = field("marker")?.extract()?;
        match (kind.as_str(), marker) {
            ("never", None) => Ok(Self::never()),
            ("marker", Some(bytes)) => Self::marker(&bytes),
            ("block", None) => Ok(Self::block()),
            _ => Ok(invalid(format!("no turn ends like this: {plain}"))?),
        }
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyDict>,))> {
        let from_plain = slf.get_type().getattr("from_plain")?;
        Ok((from_plain, (slf.get().to_plain(slf.py())?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let argument = match self.marker_bytes(py) {
            Some(bytes) => bytes.repr()?.to_string(),
            None => String::new(),
        };
        Ok(format!("TurnEnd.{}({argument})", self.kind()))
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
    consumed: usize,
    overshoot: Option<Py<PyBytes>>,
}

/// What a scan found, before it becomes Python objects.
#[derive(Default)]
struct Found {
    blocks: Vec<FoundBlock>,
    marker: Option<FoundMarker>,
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

impl Found {
    /// What the token that ended the turn holds beyond that end.
    fn overshoot(&self) -> &[u8] {
        match (&self.marker, self.blocks.last()) {
            (Some(marker), _) => &marker.overshoot,
            (None, Some(block)) => &block.overshoot,
            (None, None) => &[],
        }
    }
}

#[pyclass(module = "torl._core")]
pub struct Scanner(core::Scanner);

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(signature = (vocabulary, end, at_line_start = true, *, language = "python"))]
    fn new(
        vocabulary: &Vocabulary,
        end: &TurnEnd,
        at_line_start: bool,
        language: &str,
    ) -> PyResult<Self> {
        Ok(Self(core::Scanner::new(
            Arc::clone(&vocabulary.0),
            end.0.clone(),
            at_line_start,
            core::Language::new(language)?,
        )))
    }

    fn feed(&mut self, py: Python<'_>, token_ids: Vec<u32>) -> PyResult<Scan> {
        let mut found = Found::default();
        let consumed = if token_ids.len() < LONG_PIECE {
            self.scan(&token_ids, &mut found)?
        } else {
            py.detach(|| self.scan(&token_ids, &mut found))?
        };
        self.report(py, found, consumed)
    }

    fn feed_token(&mut self, py: Python<'_>, token_id: u32) -> PyResult<Option<Scan>> {
        let mut found = Found::default();
        self.scan(&[token_id], &mut found)?;
        if found.blocks.is_empty() && found.marker.is_none() {
            return Ok(None);
        }
        self.report(py, found, 1).map(Some)
    }

    #[getter]
    fn block_is_open(&self) -> bool {
        self.0.block_is_open()
    }

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
        let marker = found.marker.map(|marker| {
            let marker = MarkerMatch {
                start: marker.start,
                stop: marker.stop,
                overshoot: bytes_of(&marker.overshoot),
            };
            Py::new(py, marker)
        });
        Ok(Scan {
            blocks: blocks.collect::<PyResult<_>>()?,
            marker: marker.transpose()?,
            consumed,
            overshoot,
        })
    }

    fn scan(&mut self, token_ids: &[u32], found: &mut Found) -> crate::error::Result<usize> {
        let Found { blocks, marker } = found;
        self.0.feed(
            token_ids,
            |block| {
                blocks.push(FoundBlock {
                    code: String::from_utf8_lossy(block.code).into_owned(),
                    start: block.start,
                    stop: block.stop,
                    overshoot: block.overshoot.to_vec(),
                });
            },
            |found| {
                *marker = Some(FoundMarker {
                    start: found.start,
                    stop: found.stop,
                    overshoot: found.overshoot.to_vec(),
                });
            },
        )
    }
}
