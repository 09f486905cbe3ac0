//! Python binding of the trajectory builder.

use numpy::{PyArray1, ToPyArray};
use pyo3::prelude::*;

use crate::splice as core;

#[pyclass(module = "torl._core")]
pub struct TrajectoryBuilder(core::TrajectoryBuilder);

#[pymethods]
impl TrajectoryBuilder {
    #[new]
    fn new(prompt_token_ids: Vec<i32>) -> PyResult<Self> {
        Ok(Self(core::TrajectoryBuilder::new(prompt_token_ids)?))
    }

    fn append_sampled(
        &mut self,
        token_ids: Vec<i32>,
        logprobs: Vec<f32>,
        policy_version: i32,
    ) -> PyResult<()> {
        Ok(self
            .0
            .append_sampled(&token_ids, &logprobs, policy_version)?)
    }

    fn append_observation(&mut self, token_ids: Vec<i32>) -> PyResult<(usize, usize)> {
        Ok(self.0.append_observation(&token_ids)?)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn context(&self) -> Vec<i32> {
        self.0.context().to_vec()
    }

    #[getter]
    fn token_ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        self.0.token_ids().to_pyarray(py)
    }

    #[getter]
    fn loss_mask<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<bool>> {
        self.0.loss_mask().to_pyarray(py)
    }

    #[getter]
    fn rollout_logprobs<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.0.rollout_logprobs().to_pyarray(py)
    }

    #[getter]
    fn policy_versions<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i32>> {
        self.0.policy_versions().to_pyarray(py)
    }

    #[getter]
    fn turns(&self) -> Vec<(usize, usize)> {
        self.0.turns().to_vec()
    }
}
