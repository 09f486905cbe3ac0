//! Widens numpy's default integer, which was compiled to 32 bits, to 64 bits in the guest's code.
//!
//! numpy uses the integer of a pointer's width as the default. On every 64-bit system that is an integer of 64 bits,
//! and programs rely on it. The guest's pointers have 32 bits, and a sum of an `arange` was silently wrong. numpy
//! supports machines where `long` is narrower than the default integer (Windows), so the code above these places
//! handles the difference. Pointers, shapes and strides stay as they are. Four kinds of places are changed:
//!
//! - Requests for the default integer return the type with 64 bits ([`DEFAULTS`]).
//! - Arrays of indices that numpy makes for a program (`argsort`, `nonzero`) are widened ([`results`]).
//! - Indices of 64 bits must fit into 32, or it is an `IndexError` ([`indices`], [`conversions`], and [`buffers`] for
//!   compiled libraries).
//! - The legacy generator no longer cuts its samples to 32 bits ([`legacy`]).
//!
//! Every place is identified by its function and its instructions. A guest whose instructions differ there, or occur a
//! different number of times, is rejected.

mod buffers;
mod conversions;
mod indices;
mod legacy;
mod objects;
mod places;
mod results;

use crate::error::Result;
use crate::guest::functions::Functions;

use self::indices::FORCE_IF_EMPTY;
use self::objects::{ARRAY, FORCE, LONG, LONG_SCALAR, LONGLONG, PYTHON_INTEGER};
use self::places::{Op, Place};

/// `NPY_ARRAY_DEFAULT | NPY_ARRAY_ALIGNED`, as requested by `bincount`.
const BINCOUNT: i32 = 1281;

/// `NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ENSURECOPY`: negative indices are counted from the front in the copy.
const OWN_COPY: i32 = 0x21;

const DESCRIPTOR: Op = Op::Call("PyArray_DescrFromType");

/// The addresses of the classes of `long` and `long long` (`_Intp_dtype` and `_LongLong_dtype` in `dtypemeta.c`).
const INTP_CLASS: u64 = 27_642_972;
const LONGLONG_CLASS: u64 = 27_642_932;
/// Table from an integer's type to the type of its sum.
const SUM_TYPES: u64 = 22_081_920;

/// The addresses of the legacy generator's texts "long", "l" and "int64".
const TEXT_LONG: u64 = 27_668_500;
const TEXT_L: u64 = 27_668_432;
const TEXT_INT64: u64 = 27_668_356;

/// A place where a type number is followed by the call that requests it.
const fn descriptor(function: &'static str, times: usize) -> Place {
    Place {
        function,
        times,
        before: &[Op::Const(LONG), DESCRIPTOR],
        after: &[Op::Const(LONGLONG), DESCRIPTOR],
    }
}

const DEFAULTS: [Place; 20] = [
    // A Python integer without a type, in an array: the second is for integers that fit into 32 bits.
    descriptor("int_default_descriptor", 1),
    descriptor("discover_descriptor_from_pylong", 1),
    Place {
        function: "discover_descriptor_from_pylong",
        times: 1,
        before: &[Op::Const(LONG), Op::Const(LONGLONG), Op::Get(2)],
        after: &[Op::Const(LONGLONG), Op::Const(LONGLONG), Op::Get(2)],
    },
    // A Python integer combined with booleans.
    Place {
        function: "int_common_dtype",
        times: 2,
        before: &[Op::Load(INTP_CLASS)],
        after: &[Op::Load(LONGLONG_CLASS)],
    },
    // `dtype=int`.
    descriptor("_convert_from_any", 1),
    descriptor("PyArray_ArangeObj", 1),
    // Sums and products: of booleans; the types that are promoted; the table of the promoted types.
    Place {
        function: "reducelike_promote_and_resolve",
        times: 1,
        before: &[Op::Const(LONG)],
        after: &[Op::Const(LONGLONG)],
    },
    Place {
        function: "reducelike_promote_and_resolve",
        times: 1,
        before: &[Op::Const(3), Op::AtMost],
        after: &[Op::Const(7), Op::AtMost],
    },
    Place {
        function: "reducelike_promote_and_resolve",
        times: 1,
        before: &[Op::LoadByte(SUM_TYPES)],
        after: &[Op::LoadByte(SUM_TYPES), Op::Const(2), Op::Add],
    },
    // A universal function of one Python integer, which is in a field of 16 bytes.
    Place {
        function: "ufunc_generic_fastcall",
        times: 1,
        before: &[Op::Get(9), Op::Store(304), Op::Const(LONG), DESCRIPTOR],
        after: &[
            Op::Get(9),
            Op::Long,
            Op::StoreLong(304),
            Op::Const(LONGLONG),
            DESCRIPTOR,
        ],
    },
    // A universal function of a Python integer and other arguments: a stand-in for integers that are not of the default
    // type.
    Place {
        function: "convert_ufunc_arguments",
        times: 1,
        before: &[Op::Load(0), Op::Const(LONG), Op::Equal],
        after: &[Op::Load(0), Op::Const(LONGLONG), Op::Equal],
    },
    Place {
        function: "_multiarray_umath_exec",
        times: 1,
        before: &[
            Op::Const(LONG),
            DESCRIPTOR,
            Op::Const(0),
            Op::Call("PyArray_Zeros"),
        ],
        after: &[
            Op::Const(LONGLONG),
            DESCRIPTOR,
            Op::Const(0),
            Op::Call("PyArray_Zeros"),
        ],
    },
    descriptor("py_resolve_dtypes_generic", 2),
    // Instead of forcing indices into 32 bits, check them, as everywhere. An empty list, which numpy converts to an
    // array of floats, is an index as well.
    Place {
        function: "iter_subscript",
        times: 1,
        before: &[Op::Get(1), Op::Const(FORCE), Op::Call("PyArray_FromArray")],
        after: &[
            Op::Get(1),
            Op::Const(FORCE_IF_EMPTY),
            Op::Call("PyArray_FromArray"),
        ],
    },
    Place {
        function: "iter_ass_subscript",
        times: 1,
        before: &[Op::Get(2), Op::Const(FORCE), Op::Call("PyArray_FromArray")],
        after: &[
            Op::Get(2),
            Op::Const(FORCE_IF_EMPTY),
            Op::Call("PyArray_FromArray"),
        ],
    },
    Place {
        function: "arr_bincount",
        times: 2,
        before: &[Op::Const(BINCOUNT | FORCE)],
        after: &[Op::Const(BINCOUNT)],
    },
    Place {
        function: "partition_prep_kth_array",
        times: 1,
        before: &[DESCRIPTOR, Op::Const(0), Op::Call("PyArray_CastToType")],
        after: &[
            DESCRIPTOR,
            Op::Const(OWN_COPY),
            Op::Call("PyArray_FromArray"),
        ],
    },
    // The legacy generator's integers without a type are those of the type "long", or "l": request "int64" instead.
    Place {
        function: "__pyx_pw_5numpy_6random_6mtrand_11RandomState_31randint",
        times: 1,
        before: &[Op::Load(TEXT_LONG)],
        after: &[Op::Load(TEXT_INT64)],
    },
    Place {
        function: "__pyx_pw_5numpy_6random_6mtrand_11RandomState_43random_integers",
        times: 1,
        before: &[Op::Load(TEXT_L)],
        after: &[Op::Load(TEXT_INT64)],
    },
    // The samples of the legacy generator as a Python integer: cut to 32 bits on the way.
    Place {
        function: "__pyx_f_5numpy_6random_6mtrand_int64_to_long",
        times: 1,
        before: &[Op::Narrow, Op::Call("PyLong_FromLong")],
        after: &[Op::Call("PyLong_FromLongLong")],
    },
];

/// Makes numpy's integers 64 bits wide.
///
/// # Errors
/// The module is not the one that the places were found in.
pub fn widen(functions: &mut Functions<'_>) -> Result<()> {
    for class in [&ARRAY, &LONG_SCALAR, &PYTHON_INTEGER] {
        class.prove(functions)?;
    }
    for place in DEFAULTS.iter().chain(&legacy::PLACES) {
        place.change(functions)?;
    }
    indices::check_indices(functions)?;
    indices::narrow_indices(functions)?;
    conversions::check_conversions(functions)?;
    results::widen_results(functions)?;
    buffers::accept_wide_indices(functions)
}
