//! One run: the compiler's settings, the instance and its memory, the host calls behind it, and the watchdog.

pub mod calls;
pub mod engine;
pub mod errno;
pub mod files;
pub mod host;
pub mod instance;
pub mod native_stack;
pub mod reset;
pub mod runner;
pub mod session;
pub mod watchdog;
