//! Counts what the target allocates, and ends the process where it is too much.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(address, layout) };
    }
}

/// Runs `body`, which may hold `limit` bytes at a time and must give all of them back.
pub fn bounded(limit: usize, body: impl FnOnce()) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    body();
    let (peak, after) = (PEAK.load(Ordering::Relaxed), HELD.load(Ordering::Relaxed));
    assert!(
        peak - before <= limit,
        "{} bytes were allocated",
        peak - before
    );
    assert!(after <= before + 4096, "{} bytes were kept", after - before);
}
