//! Revokes access to the memory of a guest whose time is over, and restores it for code of the runtime that copies it
//! at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Result, SandboxError};

/// Address space reserved for a guest's memory: the full range of 32-bit addresses.
pub const MEMORY_RESERVATION: usize = 1 << 32;

/// Size of the window that is restored for a fault in the runtime's own code.
const LIFTED_WINDOW: usize = 64 << 20;

/// The protected memory, for the signal handler, which can access nothing else. Zero: none.
static PROTECTED_BASE: AtomicUsize = AtomicUsize::new(0);

/// Whether a memory is protected.
pub fn is_protected() -> bool {
    PROTECTED_BASE.load(Ordering::SeqCst) != 0
}

/// Clears the protection state: the run is over.
pub fn forget() {
    PROTECTED_BASE.store(0, Ordering::SeqCst);
}

/// Revokes all access to the guest's memory. The caller holds the watchdog's lock, or is the run's own thread: the
/// memory is still mapped.
pub fn protect(base: usize) {
    PROTECTED_BASE.store(base, Ordering::SeqCst);
    // SAFETY: the range is the reservation of a live guest memory, which only the guest and host calls use; the gate
    // excludes host calls.
    let code = unsafe {
        libc::mprotect(
            base as *mut libc::c_void,
            MEMORY_RESERVATION,
            libc::PROT_NONE,
        )
    };
    // Without it the run cannot be ended from inside; the parent kills the process at the wall-clock deadline.
    debug_assert_eq!(code, 0);
}

/// Restores guest memory for code of the runtime that faulted on it, and forwards every other fault.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let base = PROTECTED_BASE.load(Ordering::SeqCst);
    // SAFETY: the kernel passes a valid `siginfo_t`.
    let address = unsafe { (*info).si_addr() } as usize;
    if base != 0 && address.wrapping_sub(base) < MEMORY_RESERVATION {
        // The memory is aligned to the host's pages only.
        let start = (address & !0xffff).max(base);
        let length = LIFTED_WINDOW.min(base + MEMORY_RESERVATION - start);
        // SAFETY: `mprotect` is a plain system call, and the range is in the reservation of the run that expired.
        let code = unsafe {
            libc::mprotect(
                start as *mut libc::c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if code == 0 {
            return;
        }
    }
    // SAFETY: resets the signal to its default; the fault occurs again on return and ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Installs the fault handler. Must be called before the first wasmtime engine is made: faults outside of the guest are
/// forwarded to the handler that was installed before wasmtime's.
pub fn install_fault_handler() -> Result<()> {
    // SAFETY: a zeroed `sigaction` is valid, and the handler only makes system calls.
    let code = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut())
    };
    if code == 0 {
        Ok(())
    } else {
        Err(SandboxError::new(format!(
            "cannot install the fault handler: {}",
            std::io::Error::last_os_error()
        )))
    }
}
