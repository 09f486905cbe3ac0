//! `torl._core`: conversion, GIL release and error mapping; no logic of its own.

use pyo3::prelude::*;

#[pymodule]
fn _core(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
