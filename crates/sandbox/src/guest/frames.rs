//! A frame on the stack in linear memory for a function of the guest that has none.
//!
//! CPython decides by the stack pointer how deep its C code has gone. To the guest that is the pointer of the stack in
//! linear memory, on which most functions put nothing: their variables live on the native stack, which the guest
//! cannot see. So `_Py_Dealloc`, which destroys deeply nested structures by recursion until little of the stack is left and by
//! a list from there, never found that little was left, and ended at the guard page of the native stack.

use std::ops::Range;

use wasm_encoder::{CodeSection, Function, FunctionSection, Module, RawSection, SectionId};
use wasmparser::{FunctionBody, KnownCustom, Name, Parser, Payload};

use crate::error::{Result, SandboxError};

fn damaged(reason: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(format!("the guest module cannot be changed: {reason}"))
}

/// Lets each call of the function `name`, which takes one pointer and returns nothing, take `bytes` of the stack in linear
/// memory while it lasts. Names are lost: they are those of the functions before.
///
/// Who calls the function calls a new one by its number, which moves the stack pointer (global 0) and calls the old one by
/// a number at the end. A call that ends in an exception leaves the pointer to who catches it, as every function does.
pub fn give_frame(wasm: &[u8], name: &str, bytes: u32) -> Result<Vec<u8>> {
    let target = function_named(wasm, name)?;
    let mut module = Module::new();
    let mut imported = 0;
    let mut types: Vec<u32> = Vec::new();
    let mut bodies: Vec<Range<usize>> = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(damaged)?;
        match &payload {
            Payload::ImportSection(reader) => {
                for import in reader.clone().into_imports() {
                    let import = import.map_err(damaged)?;
                    imported += u32::from(matches!(import.ty, wasmparser::TypeRef::Func(_)));
                }
            }
            Payload::FunctionSection(reader) => {
                for kind in reader.clone() {
                    types.push(kind.map_err(damaged)?);
                }
                let own = target
                    .checked_sub(imported)
                    .and_then(|own| types.get(own as usize).copied())
                    .ok_or_else(|| damaged(format!("{name} is not its own")))?;
                let mut functions = FunctionSection::new();
                for &kind in types.iter().chain([&own]) {
                    functions.function(kind);
                }
                module.section(&functions);
                continue;
            }
            Payload::CodeSectionEntry(body) => {
                bodies.push(FunctionBody::range(body));
                if bodies.len() == types.len() {
                    let number = imported + types.len() as u32;
                    let mut code = CodeSection::new();
                    let place = (target - imported) as usize;
                    for (index, body) in bodies.iter().enumerate() {
                        if index == place {
                            code.function(&framed_call(number, bytes));
                        } else {
                            code.raw(&wasm[body.clone()]);
                        }
                    }
                    code.raw(&wasm[bodies[place].clone()]);
                    module.section(&code);
                }
                continue;
            }
            Payload::CustomSection(_) => continue,
            _ => {}
        }
        if let Some((id, range)) = payload.as_section()
            && id != u8::from(SectionId::Code)
        {
            module.section(&RawSection {
                id,
                data: &wasm[range],
            });
        }
    }
    Ok(module.finish())
}

/// `sp -= bytes; function(pointer); sp += bytes`
fn framed_call(function: u32, bytes: u32) -> Function {
    let mut body = Function::new([]);
    body.instructions()
        .global_get(0)
        .i32_const(bytes as i32)
        .i32_sub()
        .global_set(0)
        .local_get(0)
        .call(function)
        .global_get(0)
        .i32_const(bytes as i32)
        .i32_add()
        .global_set(0)
        .end();
    body
}

/// The number of the one function that the module calls `name`.
fn function_named(wasm: &[u8], name: &str) -> Result<u32> {
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let Payload::CustomSection(section) = payload.map_err(damaged)? else {
            continue;
        };
        let KnownCustom::Name(names) = section.as_known() else {
            continue;
        };
        for names in names {
            let Name::Function(functions) = names.map_err(damaged)? else {
                continue;
            };
            for function in functions {
                let function = function.map_err(damaged)?;
                if function.name == name {
                    found.push(function.index);
                }
            }
        }
    }
    match found[..] {
        [index] => Ok(index),
        _ => Err(damaged(format!(
            "it has {} functions named {name}, not one",
            found.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{
        BlockType, ConstExpr, ExportKind, ExportSection, GlobalSection, GlobalType, NameMap,
        NameSection, TypeSection, ValType,
    };

    const TOP: i32 = 1 << 16;

    /// `f(n)` calls itself until n is 0, and keeps the stack pointer that it finds there.
    fn recursion(names: &[(u32, &str)]) -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([ValType::I32], []);
        let mut functions = FunctionSection::new();
        functions.function(0).function(0);
        let mut globals = GlobalSection::new();
        let kind = GlobalType {
            val_type: ValType::I32,
            mutable: true,
            shared: false,
        };
        globals.global(kind, &ConstExpr::i32_const(TOP));
        globals.global(kind, &ConstExpr::i32_const(0));
        let mut exports = ExportSection::new();
        exports
            .export("f", ExportKind::Func, 1)
            .export("now", ExportKind::Global, 0)
            .export("lowest", ExportKind::Global, 1);
        let mut other = Function::new([]);
        other.instructions().end();
        let mut body = Function::new([]);
        body.instructions()
            .local_get(0)
            .if_(BlockType::Empty)
            .local_get(0)
            .i32_const(1)
            .i32_sub()
            .call(1)
            .else_()
            .global_get(0)
            .global_set(1)
            .end()
            .end();
        let mut code = CodeSection::new();
        code.function(&other).function(&body);
        let mut map = NameMap::new();
        for (index, name) in names {
            map.append(*index, name);
        }
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
    fn each_call_takes_its_bytes_and_gives_them_back() {
        let wasm = give_frame(&recursion(&[(0, "g"), (1, "f")]), "f", 48).unwrap();
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, &wasm).unwrap();
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let f = instance.get_typed_func::<i32, ()>(&mut store, "f").unwrap();
        f.call(&mut store, 9).unwrap();
        let mut global = |name: &str| {
            let global = instance.get_global(&mut store, name).unwrap();
            global.get(&mut store).unwrap_i32()
        };
        assert_eq!(global("lowest"), TOP - 10 * 48);
        assert_eq!(global("now"), TOP);
    }

    #[test]
    fn a_function_that_is_not_there_once_is_refused() {
        for names in [&[(0, "g")][..], &[(0, "f"), (1, "f")]] {
            assert!(give_frame(&recursion(names), "f", 48).is_err());
        }
    }
}
