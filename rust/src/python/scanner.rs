//! Python face of the vocabulary and the scanner.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

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

#[pyclass(frozen, get_all, module = "torl._core")]
pub struct CodeBlock {
    code: String,
    start: usize,
    stop: usize,
    token_index: usize,
    overshoot: Py<PyBytes>,
}

#[pymethods]
impl CodeBlock {
    fn __repr__(&self) -> String {
        format!(
            "CodeBlock(code={:?}, start={}, stop={}, token_index={})",
            self.code, self.start, self.stop, self.token_index
        )
    }
}

#[pyclass(frozen, get_all, module = "torl._core")]
pub struct Marker {
    start: usize,
    stop: usize,
    token_index: usize,
    overshoot: Py<PyBytes>,
    inside_block: bool,
}

#[pymethods]
impl Marker {
    fn __repr__(&self) -> String {
        let inside_block = if self.inside_block { "True" } else { "False" };
        format!(
            "Marker(start={}, stop={}, token_index={}, inside_block={inside_block})",
            self.start, self.stop, self.token_index
        )
    }
}

#[pyclass(frozen, get_all, module = "torl._core")]
pub struct Scan {
    blocks: Vec<Py<CodeBlock>>,
    marker: Option<Py<Marker>>,
    consumed: usize,
    overshoot: Option<Py<PyBytes>>,
}

/// What a scan found, before it becomes Python objects.
#[derive(Default)]
struct Found {
    blocks: Vec<(String, usize, usize, usize, Vec<u8>)>,
    marker: Option<(usize, usize, usize, Vec<u8>, bool)>,
}

impl Found {
    /// What the token that ended the turn holds beyond that end.
    fn overshoot(&self, py: Python<'_>) -> Py<PyBytes> {
        let of_marker = self.marker.as_ref().map(|marker| &marker.3);
        let overshoot = of_marker.or(self.blocks.last().map(|block| &block.4));
        PyBytes::new(py, overshoot.map_or(&[], Vec::as_slice)).unbind()
    }
}

#[pyclass(module = "torl._core")]
pub struct Scanner(core::Scanner);

#[pymethods]
impl Scanner {
    #[new]
    #[pyo3(signature = (vocabulary, marker, at_line_start = true, *, stop_at_block = false))]
    fn new(
        vocabulary: &Vocabulary,
        marker: Option<&[u8]>,
        at_line_start: bool,
        stop_at_block: bool,
    ) -> PyResult<Self> {
        let stop = match (marker, stop_at_block) {
            (None, false) => core::Stop::Never,
            (None, true) => core::Stop::Block,
            (Some(marker), false) => core::Stop::Marker(core::Marker::new(marker)?),
            (Some(_), true) => {
                return Ok(invalid(
                    "a turn ends at a marker or at a block, not at both",
                )?);
            }
        };
        Ok(Self(core::Scanner::new(
            Arc::clone(&vocabulary.0),
            stop,
            at_line_start,
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

    #[pyo3(signature = (at_line_start = true))]
    fn reset(&mut self, at_line_start: bool) {
        self.0.reset(at_line_start);
    }

    #[getter]
    fn position(&self) -> usize {
        self.0.position()
    }

    #[getter]
    fn tokens(&self) -> usize {
        self.0.tokens()
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
        let overshoot = self.0.is_finished().then(|| found.overshoot(py));
        let blocks = found
            .blocks
            .into_iter()
            .map(|(code, start, stop, token_index, overshoot)| {
                let overshoot = PyBytes::new(py, &overshoot).unbind();
                Py::new(
                    py,
                    CodeBlock {
                        code,
                        start,
                        stop,
                        token_index,
                        overshoot,
                    },
                )
            });
        let marker = found
            .marker
            .map(|(start, stop, token_index, overshoot, inside_block)| {
                let overshoot = PyBytes::new(py, &overshoot).unbind();
                Py::new(
                    py,
                    Marker {
                        start,
                        stop,
                        token_index,
                        overshoot,
                        inside_block,
                    },
                )
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
                let code = String::from_utf8_lossy(block.code).into_owned();
                blocks.push((
                    code,
                    block.start,
                    block.stop,
                    block.token_index,
                    block.overshoot.to_vec(),
                ));
            },
            |found| {
                let overshoot = found.overshoot.to_vec();
                *marker = Some((
                    found.start,
                    found.stop,
                    found.token_index,
                    overshoot,
                    found.inside_block,
                ));
            },
        )
    }
}
