//! Indices of 64 bits for compiled libraries that read indices of a pointer's width.
//!
//! Functions compiled by Cython request the memory of an array and compare its type with the one that they were
//! compiled for. In scipy and pandas they take indices as `intp_t`, which has 32 bits here. If one rejects an array of
//! 64 bits that it only reads, it is called again with a copy of 32 bits, in which every value must fit. An array that
//! it writes to is still rejected if it has other references.

use wasm_encoder::{BlockType, Function};
use wasmparser::{BinaryReader, FunctionBody, Operator};

use super::objects::{
    LONG, LONGLONG, PLAIN, REFERENCES, call, is_plain_array, release, type_number, word,
};
use crate::error::Result;
use crate::guest::functions::{Functions, damaged};

/// The functions that request memory, by the prefixes of their names, the function that they do it with, their number,
/// and the number of arguments on the stack after the flags.
const READERS: [Reader; 2] = [
    Reader {
        name: "__Pyx__GetBufferAndValidate",
        asks: "PyObject_GetBuffer",
        behind_object: 1,
        behind_flags: 0,
        least: 30,
    },
    Reader {
        name: "__Pyx_ValidateAndInit_memviewslice",
        asks: "__pyx_memoryview_new",
        behind_object: 0,
        behind_flags: 2,
        least: 10,
    },
];
/// `PyBUF_WRITABLE`.
const WRITABLE: i32 = 1;

struct Reader {
    name: &'static str,
    asks: &'static str,
    behind_object: usize,
    behind_flags: usize,
    least: usize,
}

/// The source of a reader's flags.
#[derive(Clone, Copy)]
enum Flags {
    Parameter(u32),
    Known(i32),
}

/// Makes all readers accept indices of 64 bits.
pub fn accept_wide_indices(functions: &mut Functions<'_>) -> Result<()> {
    let descriptor = functions.named("PyArray_DescrFromType")?;
    let from_array = functions.named("PyArray_FromArray")?;
    let clear = functions.named("PyErr_Clear")?;
    let destroyer = functions.named("_Py_Dealloc")?;
    for reader in &READERS {
        let mut accepting = 0;
        for number in functions.beginning_with(reader.name) {
            let parameters = functions.signature(number)?.params().len() as u32;
            let Some((object, flags)) = reader.arguments(functions, number, parameters)? else {
                continue;
            };
            accepting += 1;
            functions.wrap(number, |old| {
                again(
                    parameters,
                    object,
                    flags,
                    old,
                    [descriptor, from_array, clear, destroyer],
                )
            })?;
        }
        if accepting < reader.least {
            return Err(damaged(format!(
                "it has {accepting} functions {}",
                reader.name
            )));
        }
    }
    Ok(())
}

impl Reader {
    /// Returns the parameter with the object, and the flags, if the object is a parameter that is requested once.
    fn arguments(
        &self,
        functions: &Functions<'_>,
        number: u32,
        parameters: u32,
    ) -> Result<Option<(u32, Flags)>> {
        let asked = functions.beginning_with(self.asks);
        let body = FunctionBody::new(BinaryReader::new(functions.body(number)?, 0));
        let mut operators = Vec::new();
        for operator in body.get_operators_reader().map_err(damaged)? {
            operators.push(operator.map_err(damaged)?);
        }
        let calls: Vec<usize> = (0..operators.len())
            .filter(|&index| {
                matches!(operators[index], Operator::Call { function_index } if asked.contains(&function_index))
            })
            .collect();
        let [call] = calls[..] else { return Ok(None) };
        let Some(flags) = call.checked_sub(self.behind_flags + 1) else {
            return Ok(None);
        };
        let Some(object) = flags.checked_sub(self.behind_object + 1) else {
            return Ok(None);
        };
        let flags = match operators[flags] {
            Operator::LocalGet { local_index } if local_index < parameters => {
                Flags::Parameter(local_index)
            }
            Operator::I32Const { value } => Flags::Known(value),
            _ => return Ok(None),
        };
        Ok(match operators[object] {
            Operator::LocalGet { local_index } if local_index < parameters => {
                Some((local_index, flags))
            }
            _ => None,
        })
    }
}

/// Calls `old`. If that fails on an array of 64 bits that is read, or has no other reference, clears the error and
/// calls it with a copy of 32 bits.
fn again(
    parameters: u32,
    object: u32,
    flags: Flags,
    old: u32,
    [descriptor, from_array, clear, destroyer]: [u32; 4],
) -> Function {
    let (result, copy) = (parameters, parameters + 1);
    let mut body = Function::new([(2, wasm_encoder::ValType::I32)]);
    let mut code = body.instructions();
    call(&mut code, parameters, old);
    code.local_tee(result)
        .i32_const(-1)
        .i32_ne()
        .if_(BlockType::Empty)
        .local_get(result)
        .return_()
        .end()
        .block(BlockType::Empty);
    is_plain_array(&mut code, object);
    code.i32_eqz().br_if(0);
    type_number(&mut code, object);
    code.i32_const(LONGLONG).i32_ne().br_if(0);
    match flags {
        Flags::Parameter(parameter) => code.local_get(parameter),
        Flags::Known(value) => code.i32_const(value),
    };
    code.i32_const(WRITABLE)
        .i32_and()
        .local_get(object)
        .i32_load(word(REFERENCES))
        .i32_const(1)
        .i32_ne()
        .i32_and()
        .br_if(0);
    code.call(clear)
        .local_get(object)
        .i32_const(LONG)
        .call(descriptor)
        .i32_const(PLAIN)
        .call(from_array)
        .local_tee(copy)
        .i32_eqz()
        .br_if(0)
        .local_get(copy)
        .local_set(object);
    call(&mut code, parameters, old);
    code.local_set(result);
    release(&mut code, copy, destroyer);
    code.end().local_get(result).end();
    body
}
