//! Python binding of packing and advantages.

use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::advantage::{self, Rows};
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
    let advantages = py.detach(|| advantage::group_advantages(estimator, &rewards, &groups))?;
    Ok(advantages.into_pyarray(py))
}

// The kernels on rows take a few milliseconds for a million tokens, less than copying their arrays twice. They read the
// arrays in place and keep the GIL, so that no other thread writes to them at the same time.

/// Returns the elements of an argument that must be contiguous.
fn slice<'a, T: Element>(name: &str, array: &'a PyReadonlyArray1<'_, T>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(|_| {
        PyValueError::new_err(format!(
            "{name} must be contiguous: pass a copy (numpy.ascontiguousarray)"
        ))
    })
}

#[pyfunction]
pub fn broadcast_to_tokens<'py>(
    py: Python<'py>,
    values: PyReadonlyArray1<'py, f64>,
    lengths: PyReadonlyArray1<'py, i64>,
    mask: PyReadonlyArray1<'py, bool>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let rows = Rows::new(slice("lengths", &lengths)?, slice("mask", &mask)?)?;
    Ok(advantage::broadcast_to_tokens(slice("values", &values)?, rows)?.into_pyarray(py))
}

#[pyfunction]
pub fn row_sums<'py>(
    py: Python<'py>,
    values: PyReadonlyArray1<'py, f32>,
    lengths: PyReadonlyArray1<'py, i64>,
    mask: PyReadonlyArray1<'py, bool>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let rows = Rows::new(slice("lengths", &lengths)?, slice("mask", &mask)?)?;
    Ok(advantage::row_sums(slice("values", &values)?, rows)?.into_pyarray(py))
}

#[pyfunction]
pub fn discounted_returns<'py>(
    py: Python<'py>,
    rewards: PyReadonlyArray1<'py, f64>,
    token_rewards: Option<PyReadonlyArray1<'py, f32>>,
    lengths: PyReadonlyArray1<'py, i64>,
    mask: PyReadonlyArray1<'py, bool>,
    discount: f64,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let rows = Rows::new(slice("lengths", &lengths)?, slice("mask", &mask)?)?;
    let token_rewards = token_rewards
        .as_ref()
        .map(|array| slice("token_rewards", array))
        .transpose()?;
    let returns =
        advantage::discounted_returns(slice("rewards", &rewards)?, token_rewards, rows, discount)?;
    Ok(returns.into_pyarray(py))
}

type Arrays<'py> = (Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<f32>>);

#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "aligned arrays, by keyword in Python"
)]
pub fn generalized_advantages<'py>(
    py: Python<'py>,
    rewards: PyReadonlyArray1<'py, f64>,
    token_rewards: Option<PyReadonlyArray1<'py, f32>>,
    values: PyReadonlyArray1<'py, f32>,
    lengths: PyReadonlyArray1<'py, i64>,
    mask: PyReadonlyArray1<'py, bool>,
    discount: f64,
    gae_lambda: f64,
) -> PyResult<Arrays<'py>> {
    let rows = Rows::new(slice("lengths", &lengths)?, slice("mask", &mask)?)?;
    let token_rewards = token_rewards
        .as_ref()
        .map(|array| slice("token_rewards", array))
        .transpose()?;
    let (advantages, returns) = advantage::generalized_advantages(
        slice("rewards", &rewards)?,
        token_rewards,
        slice("values", &values)?,
        rows,
        discount,
        gae_lambda,
    )?;
    Ok((advantages.into_pyarray(py), returns.into_pyarray(py)))
}

#[pyfunction]
pub fn whiten<'py>(
    py: Python<'py>,
    values: PyReadonlyArray1<'py, f32>,
    lengths: PyReadonlyArray1<'py, i64>,
    mask: PyReadonlyArray1<'py, bool>,
) -> PyResult<Bound<'py, PyArray1<f32>>> {
    let rows = Rows::new(slice("lengths", &lengths)?, slice("mask", &mask)?)?;
    Ok(advantage::whiten(slice("values", &values)?, rows)?.into_pyarray(py))
}

#[pyfunction]
pub fn whiten_rows<'py>(
    py: Python<'py>,
    values: PyReadonlyArray1<'py, f64>,
    lengths: PyReadonlyArray1<'py, i64>,
    mask: PyReadonlyArray1<'py, bool>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let rows = Rows::new(slice("lengths", &lengths)?, slice("mask", &mask)?)?;
    Ok(advantage::whiten_rows(slice("values", &values)?, rows)?.into_pyarray(py))
}

/// Return the fraction of a text's substrings that occur earlier in it, from 0 to 1.
///
/// ORZ's and ZeroTIR's `repeatness`, in linear time: 2 / (n (n + 1)) times the sum of the longest common prefixes of
/// neighbors in the suffix array, over n characters.
#[pyfunction]
pub fn repetition(py: Python<'_>, text: &str) -> f64 {
    let symbols: Vec<u32> = text.chars().map(u32::from).collect();
    py.detach(|| crate::repetition::repetition(&symbols))
}
