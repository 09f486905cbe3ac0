//! `torl_sandbox._core`: conversion of requests and outcomes. Waiting, queueing and processes are in `torl-sandbox`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use torl_sandbox::{
    Cache, Job, Limits, Outcome, Pool, Request, Reuse, RunError, RunResult, SessionState, Settings,
    Status,
};

pyo3::import_exception!(torl_sandbox.errors, SandboxError);

fn to_python(error: torl_sandbox::SandboxError) -> PyErr {
    SandboxError::new_err(error.to_string())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The result of one run, as `torl_sandbox.Execution`, and the state of the session after it.
#[pyclass(frozen, get_all, module = "torl_sandbox._core")]
pub struct SandboxOutcome {
    status: &'static str,
    stdout: String,
    stderr: String,
    exception_type: Option<String>,
    exception_line: Option<String>,
    traceback: Option<String>,
    cpu_seconds: f64,
    wall_seconds: f64,
    peak_memory_bytes: u64,
    value: Option<String>,
    files: Vec<(Py<PyBytes>, Py<PyBytes>)>,
    state: Option<Py<SandboxState>>,
}

impl SandboxOutcome {
    fn of(py: Python<'_>, outcome: Outcome) -> PyResult<Self> {
        let (exception_type, exception_line, traceback) =
            outcome.exception.map_or((None, None, None), |exception| {
                let traceback = Some(exception.traceback).filter(|text| !text.is_empty());
                (Some(exception.type_name), Some(exception.line), traceback)
            });
        let bytes_of = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        let state = outcome
            .session
            .map(|state| Py::new(py, SandboxState(state)));
        Ok(Self {
            status: outcome.status.name(),
            stdout: text(outcome.stdout),
            stderr: text(outcome.stderr),
            exception_type,
            exception_line,
            traceback,
            cpu_seconds: outcome.cpu_time.as_secs_f64(),
            wall_seconds: outcome.wall_time.as_secs_f64(),
            peak_memory_bytes: outcome.peak_memory_bytes,
            value: outcome.value,
            files: outcome
                .files
                .iter()
                .map(|(path, content)| (bytes_of(path), bytes_of(content)))
                .collect(),
            state: state.transpose()?,
        })
    }
}

/// Delivers a result to Python. An exception of the callback is reported to the unraisable hook.
fn deliver(callback: &Py<PyAny>, result: RunResult) {
    Python::attach(|py| {
        let (outcome, error) = match result {
            Ok(outcome) => match SandboxOutcome::of(py, outcome) {
                Ok(outcome) => (Some(outcome), None),
                Err(error) => (None, Some(error.into_value(py))),
            },
            Err(RunError::Cancelled) => (None, None),
            Err(error) => (None, Some(to_exception(&error).into_value(py))),
        };
        if let Err(error) = callback.call1(py, (outcome, error)) {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    });
}

fn to_exception(error: &RunError) -> PyErr {
    match error {
        RunError::Refused(reason) => PyValueError::new_err(reason.clone()),
        _ => SandboxError::new_err(error.to_string()),
    }
}

/// The exception of a Python signal handler that ran while a call waited, if any.
#[derive(Default)]
struct Interruption(Option<PyErr>);

impl Interruption {
    fn check(&mut self) -> bool {
        if self.0.is_none() {
            self.0 = Python::attach(|py| py.check_signals().err());
        }
        self.0.is_some()
    }
}

/// The state that a session carries from one run to the next.
#[pyclass(frozen, module = "torl_sandbox._core")]
pub struct SandboxState(Arc<SessionState>);

#[pymethods]
impl SandboxState {
    /// The state before the first run.
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// The size of the state in bytes.
    fn __len__(&self) -> usize {
        self.0.size()
    }
}

/// The resource limits of one run. Without arguments: the defaults.
#[pyclass(frozen, get_all, module = "torl_sandbox._core")]
pub struct SandboxLimits {
    cpu_seconds: f64,
    wall_seconds: f64,
    memory_bytes: u64,
    output_bytes: u64,
    files_bytes: u64,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            cpu_seconds: limits.cpu_time.as_secs_f64(),
            wall_seconds: limits.wall_time.as_secs_f64(),
            memory_bytes: limits.memory_bytes,
            output_bytes: limits.output_bytes,
            files_bytes: limits.files_bytes,
        }
    }
}

#[pymethods]
impl SandboxLimits {
    #[new]
    #[pyo3(signature = (
        *, cpu_seconds = None, wall_seconds = None, memory_bytes = None, output_bytes = None, files_bytes = None
    ))]
    fn new(
        cpu_seconds: Option<f64>,
        wall_seconds: Option<f64>,
        memory_bytes: Option<u64>,
        output_bytes: Option<u64>,
        files_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let default = Self::default();
        let limits = Self {
            cpu_seconds: cpu_seconds.unwrap_or(default.cpu_seconds),
            wall_seconds: wall_seconds.unwrap_or(default.wall_seconds),
            memory_bytes: memory_bytes.unwrap_or(default.memory_bytes),
            output_bytes: output_bytes.unwrap_or(default.output_bytes),
            files_bytes: files_bytes.unwrap_or(default.files_bytes),
        };
        limits.to_rust().map(|_| limits)
    }

    /// Returns a copy with less CPU time or memory, if the arguments are lower.
    #[pyo3(signature = (*, cpu_seconds = f64::INFINITY, memory_bytes = u64::MAX))]
    fn lowered(&self, cpu_seconds: f64, memory_bytes: u64) -> PyResult<Self> {
        let limits = Self {
            cpu_seconds: self.cpu_seconds.min(cpu_seconds),
            memory_bytes: self.memory_bytes.min(memory_bytes),
            ..*self
        };
        limits.to_rust().map(|_| limits)
    }
}

impl SandboxLimits {
    fn to_rust(&self) -> PyResult<Limits> {
        let duration = |seconds: f64| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|error| PyValueError::new_err(error.to_string()))
        };
        Ok(Limits {
            cpu_time: duration(self.cpu_seconds)?,
            wall_time: duration(self.wall_seconds)?,
            memory_bytes: self.memory_bytes,
            output_bytes: self.output_bytes,
            files_bytes: self.files_bytes,
        })
    }
}

/// The inputs of a run in addition to its code, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct RunInput<'py> {
    seed: u64,
    stdin: Vec<u8>,
    files: Vec<(String, Bound<'py, PyBytes>)>,
    return_files: bool,
    value: bool,
    caller: u64,
}

/// The request for one run.
#[pyclass(frozen, module = "torl_sandbox._core")]
pub struct SandboxRequest(Arc<Request>);

#[pymethods]
impl SandboxRequest {
    #[new]
    fn new(
        code: Vec<u8>,
        input: RunInput<'_>,
        limits: &SandboxLimits,
        state: Option<Bound<'_, SandboxState>>,
    ) -> PyResult<Self> {
        let request = Request {
            code,
            seed: input.seed,
            limits: limits.to_rust()?,
            stdin: input.stdin,
            files: input
                .files
                .into_iter()
                .map(|(path, content)| (path, content.as_bytes().to_vec()))
                .collect(),
            return_files: input.return_files,
            value: input.value,
            session: state.map(|state| Arc::clone(&state.get().0)),
            caller: input.caller,
        };
        request.check().map_err(PyValueError::new_err)?;
        Ok(Self(request.into()))
    }
}

/// A submitted run.
#[pyclass(frozen, module = "torl_sandbox._core")]
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

/// A pool of worker processes with a loaded guest.
#[pyclass(frozen, module = "torl_sandbox._core")]
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
        reuse_guest: bool,
        verify_every: u64,
        result_cache_bytes: usize,
    ) -> PyResult<Self> {
        let settings = Settings {
            workers,
            reuse: Reuse {
                enabled: reuse_guest,
                verify_every,
            },
            result_cache_bytes,
        };
        let mut interruption = Interruption::default();
        let result = py.detach(|| {
            let prepared = Cache::new(&cache).open().ok_or_else(|| {
                torl_sandbox::SandboxError::new(format!(
                    "no prepared guest in {}; run `python -m torl_sandbox check`",
                    cache.display()
                ))
            })?;
            Pool::new(command, prepared, settings, || interruption.check())
        });
        match (result, interruption.0) {
            (_, Some(error)) => Err(error),
            (Ok(pool), None) => Ok(Self {
                pool: Arc::new(pool),
            }),
            (Err(error), None) => Err(to_python(error)),
        }
    }

    /// Runs and waits; an exception of a signal handler cancels the run.
    fn run(&self, py: Python<'_>, request: &SandboxRequest) -> PyResult<SandboxOutcome> {
        let mut interruption = Interruption::default();
        let request = request.0.clone();
        let result = py.detach(|| self.pool.run(request, || interruption.check()));
        match (result, interruption.0) {
            (_, Some(error)) => Err(error),
            (Ok(outcome), None) => SandboxOutcome::of(py, outcome),
            (Err(error), None) => Err(to_exception(&error)),
        }
    }

    /// Runs all requests and waits; the outcomes are in the order of the requests.
    fn run_batch(
        &self,
        py: Python<'_>,
        requests: Vec<Bound<'_, SandboxRequest>>,
    ) -> PyResult<Vec<SandboxOutcome>> {
        let requests = requests
            .iter()
            .map(|request| request.get().0.clone())
            .collect();
        let mut interruption = Interruption::default();
        let results = py.detach(|| self.pool.run_batch(requests, || interruption.check()));
        if let Some(error) = interruption.0 {
            return Err(error);
        }
        let outcomes = results.map_err(|error| to_exception(&error))?;
        outcomes
            .into_iter()
            .map(|outcome| SandboxOutcome::of(py, outcome))
            .collect()
    }

    /// Submits a run. `callback(outcome, error)` receives an outcome, or an error, or neither if the run was cancelled.
    fn submit(&self, py: Python<'_>, request: &SandboxRequest, callback: Py<PyAny>) -> SandboxRun {
        let request = request.0.clone();
        let job = py.detach(|| {
            self.pool
                .submit(request, move |result| deliver(&callback, result))
        });
        SandboxRun {
            pool: Arc::clone(&self.pool),
            job,
        }
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let statistics = py.detach(|| self.pool.statistics()).map_err(to_python)?;
        let counts = PyDict::new(py);
        for status in Status::ALL {
            counts.set_item(status.name(), statistics.outcomes[status as usize])?;
        }
        for (name, count) in [
            ("shared", statistics.shared),
            ("cancelled", statistics.cancelled),
            ("retried", statistics.retried),
            ("workers_replaced", statistics.workers_replaced),
            ("failed_starts", statistics.failed_starts),
            ("queued", statistics.queued),
            ("running", statistics.running),
        ] {
            counts.set_item(name, count)?;
        }
        Ok(counts)
    }

    /// Returns `(upper bound in seconds, runs)` of every bucket up to the last non-empty one.
    fn latency(&self, py: Python<'_>) -> PyResult<Vec<(f64, u64)>> {
        let statistics = py.detach(|| self.pool.statistics()).map_err(to_python)?;
        let buckets = statistics.latency.buckets;
        let used = buckets
            .iter()
            .rposition(|&count| count > 0)
            .map_or(0, |last| last + 1);
        let bound = |index: usize| (1u64 << index) as f64 / 1e6;
        Ok(buckets[..used]
            .iter()
            .enumerate()
            .map(|(index, &count)| (bound(index), count))
            .collect())
    }

    /// Returns the reason why every run has a fresh guest; `None` if guests are reused.
    fn fresh_guest_reason(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let reusing = py.detach(|| self.pool.reusing()).map_err(to_python)?;
        Ok(reusing.err())
    }

    /// The fields of `torl_sandbox.Confinement`, in its order.
    fn confinement(&self, py: Python<'_>) -> PyResult<(Option<u32>, bool, Vec<String>)> {
        let confinement = py.detach(|| self.pool.confinement()).map_err(to_python)?;
        Ok((
            confinement.landlock,
            confinement.seccomp,
            confinement.missing,
        ))
    }

    fn processes(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        py.detach(|| self.pool.processes()).map_err(to_python)
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
            let answer = Python::attach(|py| {
                py.check_signals()
                    .and_then(|()| progress.call1(py, (stage, fraction)).map(drop))
            });
            match answer {
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

/// Returns the paths of this build's guest in `cache`: module, memory image, standard library.
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

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SandboxWorkers>()?;
    module.add_class::<SandboxLimits>()?;
    module.add_class::<SandboxOutcome>()?;
    module.add_class::<SandboxRequest>()?;
    module.add_class::<SandboxState>()?;
    module.add_class::<SandboxRun>()?;
    module.add_function(wrap_pyfunction!(prepare_sandbox, module)?)?;
    module.add_function(wrap_pyfunction!(sandbox_files, module)?)?;
    module.add_function(wrap_pyfunction!(serve_sandbox, module)?)?;
    Ok(())
}
