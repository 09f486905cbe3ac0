//! Samples of numpy's legacy generator, which counts in C's `long`: 32 bits here.
//!
//! Its functions return 64 bits, but cut the sample to 32 bits on the way. The sample is a float, which is converted to
//! 64 bits here. A Poisson sample comes from the other generators' function, which is the same except for the width:
//! `random_poisson` in numpy's distributions.c is compiled twice.

use super::places::{Op, Place};

/// The largest integers of 32 and 64 bits, as floats.
const LARGEST: f64 = i32::MAX as f64;
const MAX_LONG: f64 = i64::MAX as f64;

/// In `legacy_logseries`: the sample as an integer, and a float that is unused from that point on.
const DRAWN: u32 = 7;
const UNUSED: u32 = 6;

pub const PLACES: [Place; 6] = [
    Place {
        function: "legacy_random_geometric",
        times: 1,
        before: &[Op::Truncate, Op::Long],
        after: &[Op::TruncateLong],
    },
    // Redraws larger samples.
    Place {
        function: "legacy_random_zipf",
        times: 1,
        before: &[Op::Float(LARGEST)],
        after: &[Op::Float(MAX_LONG)],
    },
    Place {
        function: "legacy_random_zipf",
        times: 1,
        before: &[Op::Truncate, Op::Long],
        after: &[Op::TruncateLong],
    },
    // Redraws samples below 1.
    Place {
        function: "legacy_logseries",
        times: 1,
        before: &[Op::Truncate, Op::Tee(DRAWN), Op::Const(1), Op::Less],
        after: &[Op::Tee(UNUSED), Op::Float(1.0), Op::FloatLess],
    },
    Place {
        function: "legacy_logseries",
        times: 1,
        before: &[Op::Get(DRAWN), Op::LongUnsigned],
        after: &[Op::Get(UNUSED), Op::TruncateLong],
    },
    Place {
        function: "legacy_negative_binomial",
        times: 1,
        before: &[Op::Call("npy_legacy_random_poisson"), Op::Long],
        after: &[Op::Call("random_poisson")],
    },
];
