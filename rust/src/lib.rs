//! The native core of torl. The algorithms are plain Rust on slices; all PyO3 code is in `python`.

pub mod advantage;
pub mod error;
pub mod fences;
pub mod marker;
pub mod packing;
pub mod repetition;
pub mod scanner;
pub mod splice;
pub mod vocabulary;

mod python;
