//! Untrusted Python in WebAssembly: a snapshot guest, hard limits, a pool of worker processes.
//!
//! A *run* is one snippet in a fresh state of the guest, under [`Limits`], ending in an [`Outcome`]. Runs happen in
//! worker processes ([`worker`]); a [`Pool`] owns the workers, the queue and the deadlines. What the snippet does wrong
//! is data; what the host does wrong is a [`SandboxError`].

mod cache;
mod calls;
mod child;
mod confine;
mod driver;
mod engine;
mod errno;
mod error;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod host;
mod job;
mod limits;
mod module;
mod outcome;
mod pool;
mod protocol;
mod request;
mod reset;
mod session;
mod sharing;
mod statistics;
mod wire;
pub mod worker;

pub use cache::Cache;
pub use child::prepare;
pub use confine::Confinement;
pub use engine::{Reuse, Reusing};
pub use error::{Result, SandboxError};
pub use guest::Prepared;
pub use job::{Job, RunError, RunResult};
pub use limits::Limits;
pub use outcome::{Exception, Outcome, Status};
pub use pool::{Pool, Settings};
pub use request::Request;
pub use session::SessionState;
pub use statistics::{Latency, Statistics};
