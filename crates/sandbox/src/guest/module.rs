//! The published guest, taken apart: code for the compiler, and the initial bytes of its memory.
//!
//! The compiled module contains no data. A run maps an image of the warmed-up memory instead. So one compilation serves
//! the warm-up and every run after it, and a change to the warm-up requires no compilation.

use wasm_encoder::{ExportKind, ExportSection, RawSection};
use wasmparser::{
    DataKind, ExternalKind, GlobalType, MemoryType, Operator, Parser, Payload, ValType,
};

use crate::error::{Result, SandboxError};
use crate::run::instance::STACK_POINTER_EXPORT;
use crate::run::virtual_clock::{ALARM_EXPORT, WORK_EXPORT};

/// A guest split into its code and its data segments.
pub struct SplitModule<'a> {
    /// The module without data and custom sections, with its stack pointer exported.
    pub code: Vec<u8>,
    /// `(address, bytes)` of every active data segment, in order.
    pub segments: Vec<(usize, &'a [u8])>,
}

/// Mutable globals of which the host uses differences only.
const COUNTERS: [&str; 2] = [WORK_EXPORT, ALARM_EXPORT];

fn damaged(reason: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(format!("the guest module cannot be used: {reason}"))
}

/// Splits `wasm`, and checks the assumptions of the memory image.
///
/// A run starts from an image of the linear memory alone. That is the whole state of the guest only if it has one
/// memory, one mutable global (the stack pointer, at rest between calls) and the counters of the host, no start function, no passive data that the
/// code could still copy in or drop, and no instruction that changes a table. Any other module is rejected.
pub fn split(wasm: &[u8]) -> Result<SplitModule<'_>> {
    let mut code = wasm_encoder::Module::new();
    let mut segments = Vec::new();
    let mut memories: Vec<MemoryType> = Vec::new();
    let mut globals: Vec<GlobalType> = Vec::new();
    let mut counters: Vec<u32> = Vec::new();
    let copy = |module: &mut wasm_encoder::Module, id: u8, range: std::ops::Range<usize>| {
        module.section(&RawSection {
            id,
            data: &wasm[range],
        });
    };
    // Functions are copied as one section; the parser still visits their bodies one by one.
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(damaged)?;
        match &payload {
            Payload::MemorySection(reader) => {
                for memory in reader.clone() {
                    memories.push(memory.map_err(damaged)?);
                }
            }
            Payload::GlobalSection(reader) => {
                for global in reader.clone() {
                    globals.push(global.map_err(damaged)?.ty);
                }
            }
            Payload::ImportSection(reader) => {
                for import in reader.clone().into_imports() {
                    let import = import.map_err(damaged)?;
                    if !matches!(import.ty, wasmparser::TypeRef::Func(_)) {
                        return Err(damaged(format!(
                            "it imports {} {}, which is not a function",
                            import.module, import.name
                        )));
                    }
                }
            }
            Payload::StartSection { .. } => return Err(damaged("it has a start function")),
            Payload::DataCountSection { .. } => {
                return Err(damaged(
                    "its code may use passive data (it has a data count section)",
                ));
            }
            Payload::ExportSection(reader) => {
                let mut exports = ExportSection::new();
                for export in reader.clone() {
                    let export = export.map_err(damaged)?;
                    let kind = match export.kind {
                        ExternalKind::Func => ExportKind::Func,
                        ExternalKind::Memory => ExportKind::Memory,
                        ExternalKind::Global if COUNTERS.contains(&export.name) => {
                            counters.push(export.index);
                            ExportKind::Global
                        }
                        other => {
                            return Err(damaged(format!("it exports {} ({other:?})", export.name)));
                        }
                    };
                    exports.export(export.name, kind, export.index);
                }
                exports.export(STACK_POINTER_EXPORT, ExportKind::Global, 0);
                code.section(&exports);
                continue;
            }
            Payload::DataSection(reader) => {
                for segment in reader.clone() {
                    let segment = segment.map_err(damaged)?;
                    match segment.kind {
                        DataKind::Passive if segment.data.is_empty() => {}
                        DataKind::Passive => return Err(damaged("it has passive data")),
                        DataKind::Active {
                            memory_index: 0,
                            offset_expr,
                        } => match offset_expr.get_operators_reader().read() {
                            Ok(Operator::I32Const { value }) => {
                                segments.push((value as u32 as usize, segment.data));
                            }
                            _ => return Err(damaged("a data segment has no constant address")),
                        },
                        DataKind::Active { .. } => {
                            return Err(damaged("data for a second memory"));
                        }
                    }
                }
                continue;
            }
            Payload::CodeSectionEntry(body) => {
                for operator in body.get_operators_reader().map_err(damaged)? {
                    let operator = operator.map_err(damaged)?;
                    if changes_more_than_memory(&operator) {
                        return Err(damaged(format!("its code has {operator:?}")));
                    }
                }
            }
            Payload::CustomSection(_) => continue,
            _ => {}
        }
        if let Some((id, range)) = payload.as_section() {
            copy(&mut code, id, range);
        }
    }
    if memories.len() != 1 || memories[0].memory64 || memories[0].shared {
        return Err(damaged("it must have exactly one plain 32-bit memory"));
    }
    let mutable: Vec<u32> = (0..globals.len() as u32)
        .filter(|&number| globals[number as usize].mutable && !counters.contains(&number))
        .collect();
    if mutable != [0] || globals[0].content_type != ValType::I32 {
        return Err(damaged(
            "it must have exactly one mutable global, number 0, the stack pointer",
        ));
    }
    Ok(SplitModule {
        code: code.finish(),
        segments,
    })
}

/// Whether an instruction changes state outside of the linear memory.
fn changes_more_than_memory(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
            | Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{
        CodeSection, ConstExpr, DataSection, Function, FunctionSection, GlobalSection,
        MemorySection, TypeSection,
    };

    /// A small guest: one memory, the stack pointer, a function, data at 16 and at 40.
    fn guest(change: impl FnOnce(&mut Parts)) -> Vec<u8> {
        let mut parts = Parts::default();
        parts.types.ty().function([], []);
        parts.functions.function(0);
        parts.memory(false);
        parts.global(true);
        parts.exports.export("memory", ExportKind::Memory, 0);
        parts.body.instructions().nop();
        parts.data.active(0, &ConstExpr::i32_const(16), *b"abc");
        parts.data.active(0, &ConstExpr::i32_const(40), *b"de");
        parts.data.passive([]);
        change(&mut parts);
        parts.body.instructions().end();
        let mut code = CodeSection::new();
        code.function(&parts.body);
        let mut module = wasm_encoder::Module::new();
        module
            .section(&parts.types)
            .section(&parts.functions)
            .section(&parts.memories)
            .section(&parts.globals)
            .section(&parts.exports)
            .section(&code)
            .section(&parts.data);
        module.finish()
    }

    struct Parts {
        types: TypeSection,
        functions: FunctionSection,
        memories: MemorySection,
        globals: GlobalSection,
        exports: ExportSection,
        body: Function,
        data: DataSection,
    }

    impl Default for Parts {
        fn default() -> Self {
            Self {
                types: TypeSection::default(),
                functions: FunctionSection::default(),
                memories: MemorySection::default(),
                globals: GlobalSection::default(),
                exports: ExportSection::default(),
                body: Function::new([]),
                data: DataSection::default(),
            }
        }
    }

    impl Parts {
        fn memory(&mut self, memory64: bool) {
            self.memories.memory(wasm_encoder::MemoryType {
                minimum: 1,
                maximum: None,
                memory64,
                shared: false,
                page_size_log2: None,
            });
        }

        fn global(&mut self, mutable: bool) {
            let global = wasm_encoder::GlobalType {
                val_type: wasm_encoder::ValType::I32,
                mutable,
                shared: false,
            };
            self.globals.global(global, &ConstExpr::i32_const(65536));
        }
    }

    #[test]
    fn data_is_taken_out_and_the_stack_pointer_exported() {
        let wasm = guest(|_| {});
        let split = split(&wasm).unwrap();
        assert_eq!(split.segments, [(16, &b"abc"[..]), (40, &b"de"[..])]);
        let mut exports = Vec::new();
        for payload in Parser::new(0).parse_all(&split.code) {
            match payload.unwrap() {
                Payload::DataSection(_) => panic!("data is left"),
                Payload::ExportSection(reader) => {
                    exports = reader
                        .into_iter()
                        .map(|export| export.unwrap().name)
                        .collect();
                }
                _ => {}
            }
        }
        assert_eq!(exports, ["memory", STACK_POINTER_EXPORT]);
        wasmparser::validate(&split.code).unwrap();
    }

    #[test]
    fn state_that_an_image_of_the_memory_would_miss_is_refused() {
        type Change = fn(&mut Parts);
        let changes: [(Change, &str); 6] = [
            (|parts| parts.global(true), "one mutable global"),
            (|parts| parts.memory(false), "one plain 32-bit memory"),
            (
                |parts| {
                    parts.data.passive(*b"x");
                },
                "passive data",
            ),
            (
                |parts| {
                    parts.data.active(1, &ConstExpr::i32_const(0), *b"x");
                },
                "a second memory",
            ),
            (
                |parts| {
                    parts
                        .body
                        .instructions()
                        .i32_const(0)
                        .i32_const(0)
                        .i32_const(0)
                        .memory_init(0, 2);
                },
                "MemoryInit",
            ),
            (
                |parts| {
                    parts.body.instructions().data_drop(2);
                },
                "DataDrop",
            ),
        ];
        for (change, reason) in changes {
            let wasm = guest(change);
            let error = split(&wasm).err().expect(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
        let unshared = guest(|parts| parts.global(false));
        assert!(split(&unshared).is_ok());
        assert!(split(b"\0asm").is_err());
    }
}
