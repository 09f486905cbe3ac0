//! Untrusted Python in WebAssembly: a snapshot guest, hard limits, a pool of worker processes.
//!
//! A *run* is one snippet in a fresh state of the guest, under [`Limits`], ending in an [`Outcome`]. Runs happen in
//! worker processes ([`worker`]); a [`Pool`] owns the workers, the queue and the deadlines. What the snippet does wrong
//! is data; what the host does wrong is a [`SandboxError`].

mod cache;
mod calls;
mod child;
mod driver;
mod engine;
mod error;
mod files;
mod guest;
mod host;
mod limits;
mod module;
mod outcome;
mod pool;
mod protocol;
pub mod worker;

pub use cache::Cache;
pub use child::prepare;
pub use engine::Request;
pub use error::{Result, SandboxError};
pub use guest::Prepared;
pub use limits::Limits;
pub use outcome::{Exception, Outcome, Status};
pub use pool::{Job, Pool, RunError, RunResult, Statistics};
