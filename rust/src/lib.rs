//! The native core of torl. The algorithms are plain Rust on slices; `python` holds every line of PyO3.

mod python;
