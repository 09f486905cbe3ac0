//! The native stack of the thread that runs the guest, which keeps every page that a deep run ever touched.

use std::mem::MaybeUninit;

/// The part of the stack that ordinary runs use again anyway.
const KEPT: usize = 1 << 20;
const PAGE: usize = 4096;

/// The stack of the thread that created it.
pub struct NativeStack {
    lowest: usize,
}

impl NativeStack {
    /// Returns `None` if the system does not report the stack.
    pub fn of_this_thread() -> Option<Self> {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let (mut lowest, mut size) = (std::ptr::null_mut(), 0);
        let mut guard = 0;
        // SAFETY: the structure is initialized by the first call, which is checked, and destroyed by the last.
        let known = unsafe {
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return None;
            }
            let attributes = attributes.as_mut_ptr();
            let known = libc::pthread_attr_getstack(attributes, &raw mut lowest, &raw mut size)
                == 0
                && libc::pthread_attr_getguardsize(attributes, &raw mut guard) == 0;
            libc::pthread_attr_destroy(attributes);
            known
        };
        let lowest = (lowest as usize + guard).next_multiple_of(PAGE);
        known.then_some(Self { lowest })
    }

    /// Returns the pages below the used ones to the system. Call it on the creating thread. Cheap without such pages.
    pub fn release_unused(&self) {
        let here = 0u8;
        let end = ((&raw const here as usize) & !(PAGE - 1)).saturating_sub(KEPT);
        if end > self.lowest {
            // SAFETY: the range is part of this thread's stack, far below all live frames.
            unsafe {
                libc::madvise(
                    self.lowest as *mut libc::c_void,
                    end - self.lowest,
                    libc::MADV_DONTNEED,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident() -> usize {
        let numbers = std::fs::read_to_string("/proc/thread-self/smaps_rollup").unwrap();
        let line = numbers
            .lines()
            .find_map(|line| line.strip_prefix("Private_Dirty:"))
            .unwrap();
        let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes << 10
    }

    #[inline(never)]
    fn deep(levels: usize) -> usize {
        let page = std::hint::black_box([levels as u8; PAGE]);
        match levels {
            0 => resident(),
            _ => {
                std::hint::black_box(deep(levels - 1)) + usize::from(page[levels % PAGE] == 255) / 2
            }
        }
    }

    #[test]
    fn the_stack_of_a_deep_call_is_released() {
        std::thread::Builder::new()
            .stack_size(64 << 20)
            .spawn(|| {
                let stack = NativeStack::of_this_thread().unwrap();
                let at_depth = deep(8 << 10);
                stack.release_unused();
                let after = resident();
                assert!(after + (24 << 20) < at_depth, "{after} {at_depth}");
            })
            .unwrap()
            .join()
            .unwrap();
    }
}
