//! The sandbox: conversion of requests and outcomes. Waiting, queueing and processes are in `torl-sandbox`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use torl_sandbox::{Cache, Job, Limits, Outcome, Pool, Request, RunError, RunResult, Status};

pyo3::import_exception!(torl.errors, SandboxError);

fn to_python(error: torl_sandbox::SandboxError) -> PyErr {
    SandboxError::new_err(error.to_string())
}

/// The fields of `torl.types.Outcome`, in its order.
type OutcomeFields = (
    &'static str,
    String,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    f64,
    f64,
    u64,
);

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn fields(outcome: Outcome) -> OutcomeFields {
    let (type_name, line, traceback) = outcome.exception.map_or((None, None, None), |exception| {
        let traceback = Some(exception.traceback).filter(|text| !text.is_empty());
        (Some(exception.type_name), Some(exception.line), traceback)
    });
    (
        outcome.status.name(),
        text(outcome.stdout),
        text(outcome.stderr),
        type_name,
        line,
        traceback,
        outcome.cpu_time.as_secs_f64(),
        outcome.wall_time.as_secs_f64(),
        outcome.peak_memory_bytes,
    )
}

/// Hands a result to Python; what the callback raises has nowhere to go but the unraisable hook.
fn deliver(callback: &Py<PyAny>, result: RunResult) {
    Python::attach(|py| {
        let (outcome, error) = match result {
            Ok(outcome) => (Some(fields(outcome)), None),
            Err(RunError::Cancelled) => (None, None),
            Err(error) => (
                None,
                Some(SandboxError::new_err(error.to_string()).into_value(py)),
            ),
        };
        if let Err(error) = callback.call1(py, (outcome, error)) {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    });
}

/// A run that was submitted.
#[pyclass(frozen)]
pub struct SandboxRun {
    pool: Arc<Pool>,
    job: Arc<Job>,
}

#[pymethods]
impl SandboxRun {
    fn cancel(&self, py: Python<'_>) -> bool {
        py.detach(|| self.pool.cancel(&self.job))
    }
}

/// Worker processes with the guest loaded.
#[pyclass(frozen)]
pub struct SandboxWorkers {
    pool: Arc<Pool>,
}

#[pymethods]
impl SandboxWorkers {
    #[new]
    fn new(
        py: Python<'_>,
        command: Vec<OsString>,
        cache: PathBuf,
        workers: usize,
    ) -> PyResult<Self> {
        let pool = py
            .detach(|| {
                let prepared = Cache::new(&cache).open().ok_or_else(|| {
                    torl_sandbox::SandboxError::new(format!(
                        "no prepared guest in {}; run `python -m torl.sandbox check`",
                        cache.display()
                    ))
                })?;
                Pool::new(command, prepared, workers)
            })
            .map_err(to_python)?;
        Ok(Self {
            pool: Arc::new(pool),
        })
    }

    /// `callback(outcome, error)`: the fields of an outcome, or an error, or neither when the run was cancelled.
    #[pyo3(signature = (code, *, seed, cpu_seconds, wall_seconds, memory_bytes, output_bytes, callback))]
    #[allow(clippy::too_many_arguments)]
    fn submit(
        &self,
        py: Python<'_>,
        code: Vec<u8>,
        seed: u64,
        cpu_seconds: f64,
        wall_seconds: f64,
        memory_bytes: u64,
        output_bytes: u64,
        callback: Py<PyAny>,
    ) -> PyResult<SandboxRun> {
        let duration = |seconds: f64| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
        };
        let request = Request {
            code,
            seed,
            limits: Limits {
                cpu_time: duration(cpu_seconds)?,
                wall_time: duration(wall_seconds)?,
                memory_bytes,
                output_bytes,
            },
        };
        let job = py.detach(|| {
            self.pool
                .submit(request, move |result| deliver(&callback, result))
        });
        Ok(SandboxRun {
            pool: Arc::clone(&self.pool),
            job,
        })
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = py.detach(|| self.pool.statistics());
        let counts = PyDict::new(py);
        for status in Status::ALL {
            counts.set_item(status.name(), statistics.outcomes[status as usize])?;
        }
        for (name, count) in [
            ("cancelled", statistics.cancelled),
            ("retried", statistics.retried),
            ("workers_replaced", statistics.workers_replaced),
            ("queued", statistics.queued),
            ("running", statistics.running),
        ] {
            counts.set_item(name, count)?;
        }
        Ok(counts)
    }

    fn processes(&self, py: Python<'_>) -> Vec<u32> {
        py.detach(|| self.pool.processes())
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.pool.close());
    }
}

/// Prepares the guest in a child process, unless `cache` holds it already.
#[pyfunction]
pub fn prepare_sandbox(
    py: Python<'_>,
    command: Vec<OsString>,
    artifacts: PathBuf,
    cache: PathBuf,
    progress: Py<PyAny>,
) -> PyResult<()> {
    let mut interrupted = None;
    let result = py.detach(|| {
        let mut tell = |stage: &str, fraction: f64| {
            let told = Python::attach(|py| {
                py.check_signals()
                    .and_then(|()| progress.call1(py, (stage, fraction)).map(drop))
            });
            match told {
                Ok(()) => true,
                Err(error) => {
                    interrupted = Some(error);
                    false
                }
            }
        };
        torl_sandbox::prepare(&command, &artifacts, &cache, &mut tell)
    });
    match interrupted {
        Some(error) => Err(error),
        None => result.map(drop).map_err(to_python),
    }
}

/// Where this build keeps the parts of its guest in `cache`: module, memory image, standard library.
#[pyfunction]
pub fn sandbox_files(cache: PathBuf) -> [PathBuf; 3] {
    Cache::new(cache).files()
}

/// Turns this process into a sandbox worker. Never returns.
#[pyfunction]
pub fn serve_sandbox(py: Python<'_>) {
    let ended_well = py.detach(torl_sandbox::worker::main);
    std::process::exit(i32::from(!ended_well));
}
