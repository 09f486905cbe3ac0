//! One run: the compiler's settings, the instance and its memory, the host calls, and the watchdog.

pub mod calls;
pub mod cpu_time;
pub mod driver;
pub mod engine;
pub mod host;
pub mod instance;
pub mod interrupt;
pub mod native_stack;
pub mod output;
pub mod protection;
pub mod reset;
pub mod runner;
pub mod virtual_clock;
pub mod watchdog;
