//! Indices of 64 bits in numpy.

use wasm_encoder::{BlockType, Function, InstructionSink, ValType};

use super::objects::{
    ARRAY_AXES, ARRAY_DATA, ARRAY_SHAPE, FORCE, LONG, LONGLONG, PLAIN, UINT, ULONGLONG, call,
    for_each, leave_unless_for_indices, long, release, type_number, word,
};
use crate::error::Result;
use crate::guest::functions::{Functions, damaged};

/// The address of the pointer to the class `IndexError`.
const INDEX_ERROR: u64 = 26_079_528;

/// The interpreter's message for an index beyond a list.
const MESSAGE: usize = 17_587_707;
const MESSAGE_TEXT: &[u8] = b"index out of range\0";

/// A private flag for `PyArray_FromArray`: `FORCE` if the array is empty, without further effect.
pub const FORCE_IF_EMPTY: i32 = 1 << 30;

/// Makes `PyArray_FromArray` accept integers of 64 bits if all values fit, and reject them otherwise, when it is called
/// for an array of `long` as numpy does for indices. If cutting is requested, as for `dtype=np.int32`, it cuts.
pub fn check_indices(functions: &mut Functions<'_>) -> Result<()> {
    let descriptor = functions.named("PyArray_DescrFromType")?;
    let count = functions.named("PyArray_MultiplyList")?;
    let set_error = functions.named("PyErr_SetString")?;
    let destroyer = functions.named("_Py_Dealloc")?;
    if !functions.data_at(MESSAGE).starts_with(MESSAGE_TEXT) {
        return Err(damaged(format!("there is no error message at {MESSAGE}")));
    }
    let number = functions.named("PyArray_FromArray")?;
    functions.wrap(number, |old| {
        let (array, kind, flags) = (0, 1, 2);
        let (plain, address, left, value) = (3, 4, 5, 6);
        let mut body = Function::new([(3, ValType::I32), (1, ValType::I64)]);
        let mut code = body.instructions();
        code.local_get(flags)
            .i32_const(FORCE_IF_EMPTY)
            .i32_eq()
            .if_(BlockType::Empty)
            .i32_const(0)
            .i32_const(FORCE)
            .local_get(array)
            .i32_load(word(ARRAY_SHAPE))
            .local_get(array)
            .i32_load(word(ARRAY_AXES))
            .call(count)
            .select()
            .local_set(flags)
            .end();
        code.block(BlockType::Empty);
        leave_unless_for_indices(&mut code, kind, flags);
        type_number(&mut code, array);
        code.i32_const(UINT).i32_lt_s().br_if(0);
        type_number(&mut code, array);
        code.i32_const(LONG).i32_eq().br_if(0);
        type_number(&mut code, array);
        code.i32_const(ULONGLONG).i32_gt_s().br_if(0);
        code.local_get(array)
            .i32_const(LONGLONG)
            .call(descriptor)
            .i32_const(PLAIN | FORCE)
            .call(old)
            .local_tee(plain)
            .i32_eqz()
            .if_(BlockType::Empty);
        release(&mut code, kind, destroyer);
        code.i32_const(0).return_().end();
        code.local_get(plain)
            .i32_load(word(ARRAY_DATA))
            .local_set(address)
            .local_get(plain)
            .i32_load(word(ARRAY_SHAPE))
            .local_get(plain)
            .i32_load(word(ARRAY_AXES))
            .call(count)
            .local_set(left);
        for_each(&mut code, address, 8, left, |code| {
            code.local_get(address)
                .i64_load(long(0))
                .local_tee(value)
                .local_get(value)
                .i32_wrap_i64()
                .i64_extend_i32_s()
                .i64_ne()
                .if_(BlockType::Empty);
            release(code, plain, destroyer);
            release(code, kind, destroyer);
            code.i32_const(0)
                .i32_load(word(INDEX_ERROR))
                .i32_const(MESSAGE as i32)
                .call(set_error)
                .i32_const(0)
                .return_()
                .end();
        });
        release(&mut code, plain, destroyer);
        code.local_get(flags)
            .i32_const(FORCE)
            .i32_or()
            .local_set(flags)
            .end();
        call(&mut code, 3, old);
        code.end();
        body
    })
}

/// numpy's description of one part of an index (`npy_index_info`): an object, a value, a kind.
const PART_BYTES: i32 = 12;
const PART_KIND: u64 = 8;
/// `HAS_FANCY`: the object is an array of indices. On the whole index: it contains one.
const FANCY: i32 = 16;

/// Makes the preparation of an index yield only arrays of a pointer's width.
pub fn narrow_indices(functions: &mut Functions<'_>) -> Result<()> {
    let descriptor = functions.named("PyArray_DescrFromType")?;
    let from_array = functions.named("PyArray_FromArray")?;
    let destroyer = functions.named("_Py_Dealloc")?;
    let number = functions.named("prepare_index_noarray")?;
    let (parts, count) = (3, 4);
    let parameters = functions.signature(number)?.params().len() as u32;
    let [kinds, part, left, array, narrow] = [0, 1, 2, 3, 4].map(|local| parameters + local);
    functions.wrap(number, |old| {
        let mut body = Function::new([(5, ValType::I32)]);
        let mut code = body.instructions();
        call(&mut code, parameters, old);
        code.local_tee(kinds)
            .i32_const(0)
            .i32_lt_s()
            .local_get(kinds)
            .i32_const(FANCY)
            .i32_and()
            .i32_eqz()
            .i32_or()
            .if_(BlockType::Empty)
            .local_get(kinds)
            .return_()
            .end();
        let for_each_part = |code: &mut InstructionSink<'_>,
                             body: &dyn Fn(&mut InstructionSink<'_>)| {
            code.local_get(parts)
                .local_set(part)
                .local_get(count)
                .i32_load(word(0))
                .local_set(left);
            for_each(code, part, PART_BYTES, left, |code| body(code));
        };
        // As numpy does when it rejects an index.
        let release_object = |code: &mut InstructionSink<'_>| {
            code.local_get(part)
                .i32_load(word(0))
                .local_tee(array)
                .if_(BlockType::Empty);
            release(code, array, destroyer);
            code.end();
        };
        for_each_part(&mut code, &|code| {
            code.local_get(part)
                .i32_load(word(PART_KIND))
                .i32_const(FANCY)
                .i32_eq()
                .if_(BlockType::Empty)
                .local_get(part)
                .i32_load(word(0))
                .local_tee(array)
                .i32_const(LONG)
                .call(descriptor)
                .i32_const(0)
                .call(from_array)
                .local_tee(narrow)
                .i32_eqz()
                .if_(BlockType::Empty);
            for_each_part(code, &release_object);
            code.i32_const(-1)
                .return_()
                .end()
                .local_get(part)
                .local_get(narrow)
                .i32_store(word(0));
            release(code, array, destroyer);
            code.end();
        });
        code.local_get(kinds).end();
        body
    })
}
