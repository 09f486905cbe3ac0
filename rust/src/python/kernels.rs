//! Python face of packing and advantages.

use numpy::{PyArray1, PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;

use crate::packing::Row;

#[pyfunction]
pub fn pack(
    py: Python<'_>,
    lengths: Vec<usize>,
    capacity: usize,
    ranks: usize,
) -> PyResult<Vec<Vec<Row>>> {
    Ok(py.detach(|| crate::packing::pack(&lengths, capacity, ranks))?)
}

#[pyfunction]
pub fn group_advantages<'py>(
    py: Python<'py>,
    estimator: &str,
    rewards: PyReadonlyArray1<'py, f64>,
    groups: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let estimator = estimator.parse()?;
    // Copied: another thread may write to the arrays while the GIL is released.
    let (rewards, groups) = (rewards.as_array().to_vec(), groups.as_array().to_vec());
    let advantages =
        py.detach(|| crate::advantage::group_advantages(estimator, &rewards, &groups))?;
    Ok(advantages.to_pyarray(py))
}
