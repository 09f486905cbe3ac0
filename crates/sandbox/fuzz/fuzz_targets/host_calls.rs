//! Arbitrary programs of host calls, over a small memory.
#![no_main]

mod allocation;

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use torl_sandbox::fuzzing::HostCalls;

/// Maximum memory of the host for one run with at most 64 KiB of output, its bookkeeping included.
const HELD_BYTES: usize = 16 << 20;

thread_local! {
    static HOST_CALLS: LazyCell<HostCalls> = LazyCell::new(HostCalls::default);
}

fuzz_target!(|program: &[u8]| {
    HOST_CALLS.with(|host_calls| {
        let first = host_calls.play(program);
        allocation::bounded(HELD_BYTES, || assert_eq!(host_calls.play(program), first));
    });
});
