//! `torl._core`: conversion, GIL release and error mapping, without logic.

mod kernels;
mod scanner;
mod splice;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::InvalidInput;

/// Every error of the core is a `ValueError` in Python.
impl From<InvalidInput> for PyErr {
    fn from(error: InvalidInput) -> Self {
        PyValueError::new_err(error.0)
    }
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<scanner::Vocabulary>()?;
    module.add_class::<scanner::Scanner>()?;
    module.add_class::<scanner::Scan>()?;
    module.add_class::<scanner::CodeBlock>()?;
    module.add_class::<scanner::MarkerMatch>()?;
    module.add_class::<scanner::StopCondition>()?;
    module.add_class::<splice::TrajectoryBuilder>()?;
    module.add_function(wrap_pyfunction!(kernels::pack, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::group_advantages, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::broadcast_to_tokens, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::row_sums, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::discounted_returns, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::generalized_advantages, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::whiten, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::whiten_rows, module)?)?;
    module.add_function(wrap_pyfunction!(kernels::repetition, module)?)?;
    Ok(())
}
