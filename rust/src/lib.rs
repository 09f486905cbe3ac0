//! The native core of torl. The algorithms are plain Rust on slices; `python` holds every line of PyO3.

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
