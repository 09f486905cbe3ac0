//! The compiler's settings, and the stack limits of compiled code.

use std::sync::OnceLock;

use wasmtime::{Collector, Config, Engine, OptLevel};

use crate::error::{Result, SandboxError};
use crate::run::protection::MEMORY_RESERVATION;

/// Native stack of a guest. The interpreter's own guard against recursion counts its stack in linear memory and must
/// take effect first: some of its functions use thirty times as much native stack.
const GUEST_STACK: usize = 128 << 20;
/// Stack of the thread that runs the guest. Only the used part takes memory.
pub const RUNNER_STACK: usize = GUEST_STACK + (8 << 20);

/// Returns the error of a failed engine operation: the operation, and the error with its causes.
pub fn engine_error(action: &str, error: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(format!("the sandbox's engine cannot {action}: {error:#}"))
}

/// The limit on this process's address space in MiB, if there was one when its engine was made. The confinement of a
/// worker removes the system call that reads it.
static ADDRESS_SPACE: OnceLock<Option<u64>> = OnceLock::new();

fn address_space() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure is valid for writes.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur >> 20)
}

/// `engine_error` for operations that need much address space: mentions a limit on it.
pub fn out_of_address_space(action: &str, error: impl std::fmt::Display) -> SandboxError {
    match ADDRESS_SPACE.get().copied().flatten() {
        None => engine_error(action, error),
        Some(limit) => engine_error(
            action,
            format!(
                "{error:#}; the limit on the address space (ulimit -v) is {limit} MiB, and a worker reserves about 6 GiB, \
                 most of which takes no memory: raise it"
            ),
        ),
    }
}

/// The version of the settings below, part of the cache's key. Change it with them.
pub const SETTINGS: &str = "1";

fn config() -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_exceptions(true)
        .wasm_tail_call(true)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .relaxed_simd_deterministic(true)
        .collector(Collector::DeferredReferenceCounting)
        .max_wasm_stack(GUEST_STACK)
        // Unused, but the engine rejects a guest stack that is larger.
        .async_stack_size(GUEST_STACK + (4 << 20))
        .memory_reservation(MEMORY_RESERVATION as u64)
        .memory_may_move(false)
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

pub fn new_engine() -> Result<Engine> {
    ADDRESS_SPACE.get_or_init(address_space);
    Engine::new(&config()).map_err(|error| engine_error("start", error))
}
