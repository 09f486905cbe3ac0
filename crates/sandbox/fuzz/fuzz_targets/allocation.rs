//! Counts the allocations of the target, and ends the process if they exceed the limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: all work is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let allocated = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(allocated, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(address, layout) };
    }
}

/// Runs `body`, which may hold `limit` bytes at a time and must release all of them.
pub fn bounded(limit: usize, body: impl FnOnce()) {
    let before = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    body();
    let (peak, after) = (
        PEAK.load(Ordering::Relaxed),
        ALLOCATED.load(Ordering::Relaxed),
    );
    assert!(
        peak - before <= limit,
        "{} bytes were allocated",
        peak - before
    );
    assert!(after <= before + 4096, "{} bytes were kept", after - before);
}
