//! Arrays of indices that numpy makes for a program, widened before they are returned.

use wasm_encoder::{BlockType, Function, ValType};

use super::objects::{
    CLASS, ITEMS, LENGTH, LONG, LONG_SCALAR, LONGLONG, PYTHON_INTEGER, REFERENCES, call, for_each,
    is_array, pass_error_on, reference, release, type_number, word,
};
use crate::error::Result;
use crate::guest::functions::Functions;

/// Condition for widening a result.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// The elements of the result, if it is a tuple; an array is unchanged.
    Inside,
    /// If the first argument is a Python integer; otherwise the result has the type of the argument.
    OfCount,
}

/// Functions that programs call, and that return integers of a pointer's width.
const RESULTS: [(&str, When); 20] = [
    ("array_argmax", When::Always),
    ("array_argmin", When::Always),
    ("array_argpartition", When::Always),
    ("array_argsort", When::Always),
    ("array_lexsort", When::Always),
    ("array_searchsorted", When::Always),
    ("array_count_nonzero", When::Always),
    ("arr_bincount", When::Always),
    ("arr_ravel_multi_index", When::Always),
    ("array_nonzero", When::Inside),
    ("array_where", When::Inside),
    ("arr_unravel_index", When::Inside),
    (RANDOM_BINOMIAL, When::Always),
    (RANDOM_MULTINOMIAL, When::Always),
    (RANDOM_CHOICE, When::OfCount),
    (RANDOM_PERMUTATION, When::OfCount),
    (TREE_QUERY, When::Inside),
    (TREE_BALL, When::Always),
    (TREE_PAIRS, When::Always),
    (TREE_COUNT, When::Always),
];
const RANDOM_BINOMIAL: &str = "__pyx_pw_5numpy_6random_6mtrand_11RandomState_87binomial";
const RANDOM_MULTINOMIAL: &str = "__pyx_pw_5numpy_6random_6mtrand_11RandomState_103multinomial";
const RANDOM_CHOICE: &str = "__pyx_pw_5numpy_6random_6mtrand_11RandomState_35choice";
const RANDOM_PERMUTATION: &str = "__pyx_pw_5numpy_6random_6mtrand_11RandomState_109permutation";

const TREE_QUERY: &str =
    "__pyx_pw_5scipy_7spatial_8_ckdtree_7cKDTree_7query(_object*, _object* const*, long, _object*)";
const TREE_BALL: &str = "__pyx_pw_5scipy_7spatial_8_ckdtree_7cKDTree_9query_ball_point(_object*, _object* const*, long, _object*)";
const TREE_PAIRS: &str = "__pyx_pw_5scipy_7spatial_8_ckdtree_7cKDTree_13query_pairs(_object*, _object* const*, long, _object*)";
const TREE_COUNT: &str = "__pyx_pw_5scipy_7spatial_8_ckdtree_7cKDTree_17count_neighbors(_object*, _object* const*, long, _object*)";

/// The legacy generator's narrowing of arrays of 64 bits.
const NARROWING: &str = "__pyx_f_5numpy_6random_6mtrand_int64_to_long";

/// Widens the results of all functions.
pub fn widen_results(functions: &mut Functions<'_>) -> Result<()> {
    let widened = add_widened(functions)?;
    let inside = add_widened_inside(functions, widened)?;
    for (name, when) in RESULTS {
        let number = functions.named(name)?;
        let parameters = functions.signature(number)?.params().len() as u32;
        functions.wrap(number, |old| match when {
            When::Always => then(parameters, old, widened),
            When::Inside => then(parameters, old, inside),
            When::OfCount => then_if_count(parameters, old, widened),
        })?;
    }
    let subtype = functions.named("PyType_IsSubtype")?;
    let narrowing = functions.named(NARROWING)?;
    functions.wrap(narrowing, |old| unless_array(old, subtype))
}

/// `return widened(old(...))`
fn then(parameters: u32, old: u32, widened: u32) -> Function {
    let mut body = Function::new([]);
    let mut code = body.instructions();
    call(&mut code, parameters, old);
    code.call(widened).end();
    body
}

/// The same if the first argument is a Python integer. The arguments are contiguous after the second parameter; without
/// one, the result is an error.
fn then_if_count(parameters: u32, old: u32, widened: u32) -> Function {
    let result = parameters;
    let mut body = Function::new([(1, ValType::I32)]);
    let mut code = body.instructions();
    call(&mut code, parameters, old);
    code.local_tee(result)
        .if_(BlockType::Empty)
        .local_get(1)
        .i32_load(word(0))
        .i32_load(word(CLASS))
        .i32_const(PYTHON_INTEGER.address)
        .i32_eq()
        .if_(BlockType::Empty)
        .local_get(result)
        .call(widened)
        .return_()
        .end()
        .end()
        .local_get(result)
        .end();
    body
}

/// Returns an array unchanged, anything else through `old`.
fn unless_array(old: u32, subtype: u32) -> Function {
    let mut body = Function::new([]);
    let mut code = body.instructions();
    is_array(&mut code, subtype);
    code.if_(BlockType::Empty);
    reference(&mut code, 0);
    code.local_get(0)
        .return_()
        .end()
        .local_get(0)
        .call(old)
        .end();
    body
}

/// Adds a function that takes a new object and returns it, or a copy with 64 bits if it is an array or a scalar of
/// `long`. An array with other references is the `out` of a call, and is returned unchanged.
fn add_widened(functions: &mut Functions<'_>) -> Result<u32> {
    let subtype = functions.named("PyType_IsSubtype")?;
    let descriptor = functions.named("PyArray_DescrFromType")?;
    let cast = functions.named("PyArray_CastToType")?;
    let from_scalar = functions.named("PyArray_FromScalar")?;
    let to_scalar = functions.named("PyArray_Return")?;
    let destroyer = functions.named("_Py_Dealloc")?;
    let result = 1;
    let mut body = Function::new([(1, ValType::I32)]);
    let mut code = body.instructions();
    pass_error_on(&mut code);
    is_array(&mut code, subtype);
    code.if_(BlockType::Empty);
    type_number(&mut code, 0);
    code.i32_const(LONG)
        .i32_eq()
        .local_get(0)
        .i32_load(word(REFERENCES))
        .i32_const(1)
        .i32_eq()
        .i32_and()
        .if_(BlockType::Empty)
        .local_get(0)
        .i32_const(LONGLONG)
        .call(descriptor)
        .i32_const(0)
        .call(cast)
        .local_set(result);
    release(&mut code, 0, destroyer);
    code.local_get(result)
        .return_()
        .end()
        .local_get(0)
        .return_()
        .end();
    code.local_get(0)
        .i32_load(word(CLASS))
        .i32_const(LONG_SCALAR.address)
        .i32_eq()
        .if_(BlockType::Empty)
        .local_get(0)
        .i32_const(LONGLONG)
        .call(descriptor)
        .call(from_scalar)
        .local_set(result);
    release(&mut code, 0, destroyer);
    code.local_get(result)
        .call(to_scalar)
        .return_()
        .end()
        .local_get(0)
        .end();
    functions.add_like(descriptor, body.into_raw_body())
}

/// Adds a function that widens the elements of a new tuple, and returns an array unchanged.
fn add_widened_inside(functions: &mut Functions<'_>, widened: u32) -> Result<u32> {
    let subtype = functions.named("PyType_IsSubtype")?;
    let descriptor = functions.named("PyArray_DescrFromType")?;
    let destroyer = functions.named("_Py_Dealloc")?;
    let (slot, left) = (1, 2);
    let mut body = Function::new([(2, ValType::I32)]);
    let mut code = body.instructions();
    pass_error_on(&mut code);
    is_array(&mut code, subtype);
    code.if_(BlockType::Empty).local_get(0).return_().end();
    code.local_get(0)
        .i32_load(word(LENGTH))
        .local_set(left)
        .local_get(0)
        .local_set(slot);
    for_each(&mut code, slot, 4, left, |code| {
        code.local_get(slot)
            .local_get(slot)
            .i32_load(word(ITEMS))
            .call(widened)
            .i32_store(word(ITEMS))
            .local_get(slot)
            .i32_load(word(ITEMS))
            .i32_eqz()
            .if_(BlockType::Empty);
        release(code, 0, destroyer);
        code.i32_const(0).return_().end();
    });
    code.local_get(0).end();
    functions.add_like(descriptor, body.into_raw_body())
}
