//! Scalars and lists of 64 bits that numpy uses as indices.
//!
//! An array of 64 bits is checked when it is converted to the pointer's width (`indices.rs`). A numpy scalar, or a list
//! of them, is not: numpy cuts each to the requested type. So it is first converted to an array of its own type.

use wasm_encoder::{BlockType, Function, ValType};

use super::objects::{
    UINT, ULONGLONG, call, is_array, leave_unless_for_indices, release, type_number,
};
use crate::error::Result;
use crate::guest::functions::Functions;

/// Makes `PyArray_FromAny` convert through an array if an array of `long` without cutting is requested.
pub fn check_conversions(functions: &mut Functions<'_>) -> Result<()> {
    let subtype = functions.named("PyType_IsSubtype")?;
    let from_array = functions.named("PyArray_FromArray")?;
    let clear = functions.named("PyErr_Clear")?;
    let destroyer = functions.named("_Py_Dealloc")?;
    let number = functions.named("PyArray_FromAny")?;
    let parameters = functions.signature(number)?.params().len() as u32;
    let (given, kind, least, most, flags) = (0, 1, 2, 3, 4);
    let [array, result] = [0, 1].map(|local| parameters + local);
    functions.wrap(number, |old| {
        let mut body = Function::new([(2, ValType::I32)]);
        let mut code = body.instructions();
        code.block(BlockType::Empty);
        leave_unless_for_indices(&mut code, kind, flags);
        is_array(&mut code, subtype);
        code.br_if(0)
            .local_get(given)
            .i32_const(0)
            .local_get(least)
            .local_get(most)
            .i32_const(0)
            .i32_const(0)
            .call(old)
            .local_tee(array)
            .i32_eqz()
            .if_(BlockType::Empty)
            // The second attempt reports the error again.
            .call(clear)
            .br(1)
            .end();
        type_number(&mut code, array);
        code.i32_const(UINT).i32_ge_s();
        type_number(&mut code, array);
        code.i32_const(ULONGLONG)
            .i32_le_s()
            .i32_and()
            .if_(BlockType::Empty)
            .local_get(array)
            .local_get(kind)
            .local_get(flags)
            .call(from_array)
            .local_set(result);
        release(&mut code, array, destroyer);
        code.local_get(result).return_().end();
        release(&mut code, array, destroyer);
        code.end();
        call(&mut code, parameters, old);
        code.end();
        body
    })
}
