//! The function that destroys objects: a stack frame in linear memory, and a count of its calls.
//!
//! CPython measures the depth of its C code by the stack pointer. In the guest that is the pointer of the stack in
//! linear memory, on which most functions put nothing: their variables are on the native stack, which the guest cannot
//! see. So `_Py_Dealloc` never noticed a nearly full stack and hit the guard page of the native stack. (It destroys
//! deeply nested structures by recursion while there is stack left, and with a list from then on.)
//!
//! Nearly every statement destroys an object, so the calls measure the work of a program: in a computation the virtual
//! clock advances with their number, which is the same in every run. At a number that the host sets, the alarm's signal
//! arrives.

use wasm_encoder::{BlockType, Function};

use crate::error::Result;
use crate::guest::functions::Functions;
use crate::run::virtual_clock::{ALARM_EXPORT, WORK_EXPORT};

const SIGALRM: i32 = 14;

/// Makes each call of the function `name`, which takes one pointer and returns nothing, use `bytes` of the stack in
/// linear memory for its duration, and counts the calls. `signal` is the function that simulates a signal.
///
/// Callers of the function call a new one under its number. It moves the stack pointer (global 0) and calls the old one
/// under a number at the end. A call that ends in an exception leaves the pointer to the catcher, as every function
/// does.
pub fn add_stack_frame(
    functions: &mut Functions<'_>,
    name: &str,
    bytes: u32,
    signal: u32,
) -> Result<()> {
    let target = functions.named(name)?;
    let work = functions.add_counter(WORK_EXPORT);
    let alarm = functions.add_counter(ALARM_EXPORT);
    functions.wrap(target, |old| framed_call(old, bytes, work, alarm, signal))
}

/// `if (++work == alarm) signal(SIGALRM); sp -= bytes; function(pointer); sp += bytes`
fn framed_call(function: u32, bytes: u32, work: u32, alarm: u32, signal: u32) -> Function {
    let mut body = Function::new([]);
    body.instructions()
        .global_get(work)
        .i64_const(1)
        .i64_add()
        .global_set(work)
        .global_get(work)
        .global_get(alarm)
        .i64_eq()
        .if_(BlockType::Empty)
        .i32_const(SIGALRM)
        .call(signal)
        .drop()
        .end()
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

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{
        CodeSection, ConstExpr, ExportKind, ExportSection, FunctionSection, GlobalSection,
        GlobalType, Module, NameMap, NameSection, TypeSection, ValType,
    };
    use wasmtime::Val;

    const TOP: i32 = 1 << 16;

    /// `f(n)` calls itself until n is 0, and records the stack pointer there.
    fn recursion(names: &[(u32, &str)]) -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([ValType::I32], []);
        types.ty().function([ValType::I32], [ValType::I32]);
        let mut functions = FunctionSection::new();
        functions.function(0).function(0).function(1);
        let mut globals = GlobalSection::new();
        let kind = GlobalType {
            val_type: ValType::I32,
            mutable: true,
            shared: false,
        };
        globals.global(kind, &ConstExpr::i32_const(TOP));
        globals.global(kind, &ConstExpr::i32_const(0));
        globals.global(kind, &ConstExpr::i32_const(0));
        let mut exports = ExportSection::new();
        exports
            .export("f", ExportKind::Func, 1)
            .export("now", ExportKind::Global, 0)
            .export("lowest", ExportKind::Global, 1)
            .export("signal", ExportKind::Global, 2);
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
        let mut signal = Function::new([]);
        signal.instructions().local_get(0).global_set(2);
        signal.instructions().i32_const(0).end();
        let mut code = CodeSection::new();
        code.function(&other).function(&body).function(&signal);
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
    fn each_call_reserves_its_bytes_and_is_counted() {
        let wasm = recursion(&[(0, "g"), (1, "f")]);
        let mut functions = Functions::read(&wasm).unwrap();
        add_stack_frame(&mut functions, "f", 48, 2).unwrap();
        let wasm = functions.finish().unwrap();
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, &wasm).unwrap();
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let f = instance.get_typed_func::<i32, ()>(&mut store, "f").unwrap();
        let [lowest, now, signal, work, alarm] =
            ["lowest", "now", "signal", WORK_EXPORT, ALARM_EXPORT]
                .map(|name| instance.get_global(&mut store, name).unwrap());
        alarm.set(&mut store, Val::I64(21)).unwrap();
        f.call(&mut store, 9).unwrap();
        assert_eq!(lowest.get(&mut store).unwrap_i32(), TOP - 10 * 48);
        assert_eq!(now.get(&mut store).unwrap_i32(), TOP);
        assert_eq!(work.get(&mut store).unwrap_i64(), 10);
        f.call(&mut store, 9).unwrap();
        assert_eq!(signal.get(&mut store).unwrap_i32(), 0);
        f.call(&mut store, 0).unwrap();
        assert_eq!(signal.get(&mut store).unwrap_i32(), SIGALRM);
    }

    #[test]
    fn a_function_that_is_not_unique_is_rejected() {
        for names in [&[(0, "g")][..], &[(0, "f"), (1, "f")]] {
            let wasm = recursion(names);
            let mut functions = Functions::read(&wasm).unwrap();
            assert!(add_stack_frame(&mut functions, "f", 48, 2).is_err());
        }
    }
}
