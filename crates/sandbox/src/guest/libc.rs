//! Functions of the C library that give what programs for Linux expect.
//!
//! `pow(x, 0.5)` is the correctly rounded root, as glibc's nearly always is. And the guest's library numbers errors as
//! WASI does: the interpreter's exceptions, `os.strerror` and (by `errors.py`) the module `errno` use Linux's numbers.

use wasm_encoder::{BlockType, Function, InstructionSink};
use wasmparser::{BinaryReader, FunctionBody, Operator, ValType};

use crate::error::Result;
use crate::guest::functions::{Functions, damaged};

/// Linux's numbers of WASI's errors, from 0 on. The last one, `ENOTCAPABLE`, does not exist there.
const LINUX: [i32; 77] = [
    0, 7, 13, 98, 99, 97, 11, 114, 9, 74, 16, 125, 10, 103, 111, 104, 35, 89, 33, 122, 17, 14, 27,
    113, 43, 84, 115, 4, 22, 5, 106, 21, 40, 24, 31, 90, 72, 36, 100, 102, 101, 23, 105, 19, 2, 8,
    37, 67, 12, 42, 92, 28, 38, 107, 20, 39, 131, 88, 95, 25, 6, 75, 130, 1, 32, 71, 93, 91, 34,
    30, 29, 3, 116, 110, 26, 18, 76,
];

/// glibc's texts of errors, by WASI's numbers, where they differ from those of the guest's library.
const TEXTS: [(i32, &str); 4] = [
    (33, "Too many open files\0"),
    (37, "File name too long\0"),
    (58, "Operation not supported\0"),
    (68, "Numerical result out of range\0"),
];

/// The location of these texts: the far end of the stack in linear memory, which the interpreter never reaches.
const TEXTS_START: usize = 64;

/// Returns the bytes that the changed functions need in memory, with their address.
pub fn data() -> (usize, Vec<u8>) {
    let texts = TEXTS.iter().flat_map(|(_, text)| text.bytes());
    (TEXTS_START, texts.collect())
}

/// Changes the functions.
///
/// # Errors
/// A function is missing or cannot be read.
pub fn behave_as_glibc(functions: &mut Functions<'_>) -> Result<()> {
    let pow = functions.named("pow")?;
    functions.wrap(pow, root_or_power)?;
    let strerror = functions.named("strerror")?;
    functions.wrap(strerror, text)?;
    let to_linux = functions.add(&[ValType::I32], &[ValType::I32], by_table(&LINUX));
    let to_wasi = functions.add(&[ValType::I32], &[ValType::I32], by_table(&wasi()));
    // The text is made from WASI's number; what follows uses Linux's.
    let raise = functions.named("PyErr_SetFromErrnoWithFilenameObjects")?;
    around_call(functions, raise, strerror, |code, number, is_before| {
        if !is_before {
            code.local_get(number).call(to_linux).local_set(number);
        }
    })?;
    let describe = functions.named("os_strerror")?;
    around_call(functions, describe, strerror, |code, _, is_before| {
        if is_before {
            code.call(to_wasi);
        }
    })
}

/// Returns WASI's numbers of Linux's errors, from 0 on. Numbers without an equivalent stay unknown.
fn wasi() -> Vec<i32> {
    let unknown = LINUX.len() as i32;
    let largest = LINUX.iter().max().copied().unwrap_or_default();
    let number = |linux| LINUX.iter().position(|&number| number == linux);
    (0..=largest)
        .map(|linux| number(linux).map_or(unknown, |found| found as i32))
        .collect()
}

/// `x > 0 && y == 0.5 ? sqrt(x) : pow(x, y)`
fn root_or_power(pow: u32) -> Function {
    let mut body = Function::new([]);
    body.instructions()
        .local_get(1)
        .f64_const(0.5.into())
        .f64_eq()
        .local_get(0)
        .f64_const(0.0.into())
        .f64_gt()
        .i32_and()
        .if_(BlockType::Result(wasm_encoder::ValType::F64))
        .local_get(0)
        .f64_sqrt()
        .else_()
        .local_get(0)
        .local_get(1)
        .call(pow)
        .end()
        .end();
    body
}

/// The text of an error, by WASI's number.
fn text(strerror: u32) -> Function {
    let mut body = Function::new([]);
    let mut code = body.instructions();
    let mut start = TEXTS_START;
    for (number, text) in TEXTS {
        code.local_get(0).i32_const(number).i32_eq();
        code.if_(BlockType::Empty);
        code.i32_const(start as i32).return_().end();
        start += text.len();
    }
    code.local_get(0).call(strerror).end();
    body
}

/// A function from a number to its entry in a table; a number beyond the table stays.
fn by_table(table: &[i32]) -> Function {
    let mut body = Function::new([]);
    let mut code = body.instructions();
    for _ in 0..=table.len() {
        code.block(BlockType::Empty);
    }
    let labels: Vec<u32> = (0..table.len() as u32).collect();
    code.local_get(0).br_table(labels, table.len() as u32);
    for entry in table {
        code.end().i32_const(*entry).return_();
    }
    code.end().local_get(0).end();
    body
}

/// Inserts code before and after the only call of `callee` in a function, which passes a local variable.
fn around_call(
    functions: &mut Functions<'_>,
    number: u32,
    callee: u32,
    write: impl Fn(&mut InstructionSink<'_>, u32, bool),
) -> Result<()> {
    let body = functions.body(number)?;
    let reader = FunctionBody::new(BinaryReader::new(body, 0));
    let mut operators = reader.get_operators_reader().map_err(damaged)?;
    let mut changed = Vec::new();
    let (mut copied, mut last, mut calls) = (0, None, 0);
    while !operators.eof() {
        let (operator, start) = operators.read_with_offset().map_err(damaged)?;
        match (&operator, last) {
            (Operator::Call { function_index }, Some(local)) if *function_index == callee => {
                let end = operators.original_position();
                changed.extend_from_slice(&body[copied..start]);
                write(&mut InstructionSink::new(&mut changed), local, true);
                changed.extend_from_slice(&body[start..end]);
                write(&mut InstructionSink::new(&mut changed), local, false);
                (copied, calls) = (end, calls + 1);
            }
            _ => {}
        }
        last = match operator {
            Operator::LocalGet { local_index } => Some(local_index),
            _ => None,
        };
    }
    changed.extend_from_slice(&body[copied..]);
    if calls != 1 {
        return Err(damaged(format!(
            "function {number} calls function {callee} with a variable {calls} times, not once"
        )));
    }
    functions.replace(number, changed)
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{
        CodeSection, ConstExpr, ExportKind, ExportSection, FunctionSection, GlobalSection,
        GlobalType, Module, NameMap, NameSection, TypeSection, ValType,
    };

    use super::*;

    /// `pow` is a product, `strerror` adds a hundred, and the others return its result for their number. The exception's
    /// number is left in a global.
    fn library() -> Vec<u8> {
        let names = [
            "pow",
            "strerror",
            "PyErr_SetFromErrnoWithFilenameObjects",
            "os_strerror",
        ];
        let mut types = TypeSection::new();
        types.ty().function([ValType::F64; 2], [ValType::F64]);
        types.ty().function([ValType::I32], [ValType::I32]);
        let mut functions = FunctionSection::new();
        functions.function(0).function(1).function(1).function(1);
        let mut globals = GlobalSection::new();
        let raised = GlobalType {
            val_type: ValType::I32,
            mutable: true,
            shared: false,
        };
        globals.global(raised, &ConstExpr::i32_const(0));
        let mut bodies = [(); 4].map(|()| Function::new([]));
        bodies[0].instructions().local_get(0).local_get(1).f64_mul();
        bodies[1]
            .instructions()
            .local_get(0)
            .i32_const(100)
            .i32_add();
        for body in &mut bodies[2..] {
            let mut code = body.instructions();
            code.local_get(0).call(1).local_get(0).global_set(0);
        }
        let (mut exports, mut code, mut map) =
            (ExportSection::new(), CodeSection::new(), NameMap::new());
        for (index, (name, body)) in names.iter().zip(&mut bodies).enumerate() {
            exports.export(name, ExportKind::Func, index as u32);
            map.append(index as u32, name);
            body.instructions().end();
            code.function(body);
        }
        exports.export("raised", ExportKind::Global, 0);
        let mut named = NameSection::new();
        named.functions(&map);
        let mut module = Module::new();
        module
            .section(&types)
            .section(&functions)
            .section(&globals)
            .section(&exports)
            .section(&code)
            .section(&named);
        module.finish()
    }

    #[test]
    fn roots_and_error_numbers_are_those_of_linux() {
        let wasm = library();
        let mut functions = Functions::read(&wasm).unwrap();
        behave_as_glibc(&mut functions).unwrap();
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, functions.finish().unwrap()).unwrap();
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let pow = instance
            .get_typed_func::<(f64, f64), f64>(&mut store, "pow")
            .unwrap();
        for (x, y, result) in [
            (2.0, 0.5, 2f64.sqrt()),
            (f64::INFINITY, 0.5, f64::INFINITY),
            (-4.0, 0.5, -2.0),
            (-0.0, 0.5, -0.0),
            (2.0, 0.25, 0.5),
        ] {
            assert_eq!(
                pow.call(&mut store, (x, y)).unwrap().to_bits(),
                result.to_bits()
            );
        }
        let number = |store: &mut wasmtime::Store<()>, name, number| {
            let function = instance
                .get_typed_func::<i32, i32>(&mut *store, name)
                .unwrap();
            function.call(store, number).unwrap()
        };
        for (wasi, linux) in [(44, 2), (20, 17), (76, 76), (77, 77), (-1, -1)] {
            let raise = "PyErr_SetFromErrnoWithFilenameObjects";
            assert_eq!(number(&mut store, raise, wasi), wasi + 100);
            let raised = instance.get_global(&mut store, "raised").unwrap();
            assert_eq!(raised.get(&mut store).unwrap_i32(), linux);
        }
        for (linux, wasi) in [(2, 44), (17, 20), (95, 58)] {
            let text = number(&mut store, "os_strerror", linux);
            assert!(text == wasi + 100 || TEXTS.iter().any(|&(number, _)| number == wasi));
        }
        let (start, texts) = data();
        let pointer = number(&mut store, "strerror", 68) as usize - start;
        assert!(texts[pointer..].starts_with(b"Numerical result out of range\0"));
    }

    #[test]
    fn every_error_of_wasi_has_its_own_number() {
        for (number, linux) in LINUX.iter().enumerate() {
            assert_eq!(wasi()[*linux as usize], number as i32);
        }
    }
}
