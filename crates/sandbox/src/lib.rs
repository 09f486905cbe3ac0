//! Untrusted Python in WebAssembly: a snapshot guest, hard limits, a pool of worker processes.
//!
//! A *run* is one snippet in a fresh state of the guest, under [`Limits`], ending in an [`Outcome`]. Runs happen in
//! worker processes ([`worker`]); a [`Pool`] owns the workers, the queue and the deadlines. What the snippet does wrong
//! is data; what the host does wrong is a [`SandboxError`].

mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod limits;
mod outcome;
mod pool;
mod request;
mod run;
mod wire;
pub mod worker;

pub use error::{Result, SandboxError};
pub use guest::{Cache, Prepared};
pub use limits::Limits;
pub use outcome::{Exception, Outcome, Status};
pub use pool::{Job, Latency, Pool, RunError, RunResult, Settings, Statistics, prepare};
pub use request::Request;
pub use run::runner::{Reuse, Reusing};
pub use run::session::SessionState;
pub use worker::confine::Confinement;
