//! numpy's default integer, which the guest was compiled to give 32 bits, made 64 bits wide in its code.
//!
//! numpy takes the integer of a pointer's width for the default. On every 64-bit system that is the same as an integer of 64
//! bits, and programs rely on it. The guest's pointers have 32 bits, and a sum of an `arange` was wrong without a word. numpy
//! itself knows machines where `long` is narrower than the default integer (Windows), so what lies above these places is
//! made for it. Pointers, shapes and strides stay as they are: four kinds of places are changed.
//!
//! - Where numpy asks for the default integer it gets the type with 64 bits ([`DEFAULTS`]).
//! - Where it makes an array of indices for a program (`argsort`, `nonzero`), the result is widened ([`results`]).
//! - Where it takes indices of 64 bits, each must fit into 32, or it is an `IndexError` ([`indices`], [`conversions`], and [`buffers`]
//!   for compiled libraries).
//! - Where the legacy generator cuts what it has drawn to 32 bits, it does not ([`legacy`]).
//!
//! Every place is named by its function and the instructions that stand there. A guest in which they stand otherwise, or
//! not as often, is refused.

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

/// `NPY_ARRAY_DEFAULT | NPY_ARRAY_ALIGNED`, as `bincount` asks for them.
const BINCOUNT: i32 = 1281;

/// `NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ENSURECOPY`: negative places are counted from the front in it.
const OWN_COPY: i32 = 0x21;

const DESCRIPTOR: Op = Op::Call("PyArray_DescrFromType");

/// Where the classes of `long` and `long long` are kept (`_Intp_dtype` and `_LongLong_dtype` in `dtypemeta.c`).
const INTP_CLASS: u64 = 27_642_972;
const LONGLONG_CLASS: u64 = 27_642_932;
/// From an integer's type to the one in which it is summed.
const SUM_TYPES: u64 = 22_081_920;

/// Where the legacy generator keeps the texts "long" and "int64".
const TEXT_LONG: u64 = 27_668_500;
const TEXT_INT64: u64 = 27_668_356;

/// A place where the number of a type is followed by the call that asks for it.
const fn descriptor(function: &'static str, times: usize) -> Place {
    Place {
        function,
        times,
        before: &[Op::Const(LONG), DESCRIPTOR],
        after: &[Op::Const(LONGLONG), DESCRIPTOR],
    }
}

const DEFAULTS: [Place; 19] = [
    // A Python integer without a type, in an array: the second is for those that 32 bits hold.
    descriptor("int_default_descriptor", 1),
    descriptor("discover_descriptor_from_pylong", 1),
    Place {
        function: "discover_descriptor_from_pylong",
        times: 1,
        before: &[Op::Const(LONG), Op::Const(LONGLONG), Op::Get(2)],
        after: &[Op::Const(LONGLONG), Op::Const(LONGLONG), Op::Get(2)],
    },
    // A Python integer beside booleans.
    Place {
        function: "int_common_dtype",
        times: 2,
        before: &[Op::Load(INTP_CLASS)],
        after: &[Op::Load(LONGLONG_CLASS)],
    },
    // `dtype=int`.
    descriptor("_convert_from_any", 1),
    descriptor("PyArray_ArangeObj", 1),
    // Sums and products: of booleans; of which types not as they are; from the table of what they are then.
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
    // A universal function of one Python integer, which lies in a field of 16 bytes.
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
    // A universal function of a Python integer beside other things: a stand-in for those that are no default integers.
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
    // Where indices are forced into 32 bits they are checked instead, as everywhere. An empty list, which numpy makes an
    // array of floats of, is an index all the same.
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
    // The legacy generator's integers without a type are those of the type "long": it asks for "int64" instead.
    Place {
        function: "__pyx_pw_5numpy_6random_6mtrand_11RandomState_31randint",
        times: 1,
        before: &[Op::Load(TEXT_LONG)],
        after: &[Op::Load(TEXT_INT64)],
    },
    // The random numbers of the legacy generator as a Python integer: cut to 32 bits on the way.
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
/// When the module is not the one for which the places were found.
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
