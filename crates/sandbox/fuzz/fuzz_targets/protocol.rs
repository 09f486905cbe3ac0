//! Arbitrary bytes as a message between the pool and a worker.
#![no_main]

mod allocation;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Decoded and encoded twice; text that is not UTF-8 triples, and vectors grow by doubling.
    allocation::bounded(64 * bytes.len() + 4096, || {
        torl_sandbox::fuzzing::protocol(bytes)
    });
});
