//! The functions of a guest module, found by name and changed one by one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{
    CodeSection, ConstExpr, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, Module, RawSection, SectionId, TypeSection,
};
use wasmparser::{
    DataKind, FuncType, KnownCustom, Name, Operator, Parser, Payload, TypeRef, ValType,
};

use crate::error::{Result, SandboxError};

pub fn damaged(reason: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(format!("the guest module cannot be changed: {reason}"))
}

/// A module whose functions can be replaced and extended. Function numbers are those of the whole module, imports
/// included.
pub struct Functions<'a> {
    wasm: &'a [u8],
    signatures: Vec<FuncType>,
    imported: u32,
    types: Vec<u32>,
    bodies: Vec<Cow<'a, [u8]>>,
    names: HashMap<&'a str, Vec<u32>>,
    data: Vec<(usize, &'a [u8])>,
    /// Number of the globals that it had.
    globals: u32,
    counters: u32,
    exported: Vec<(&'static str, ExportKind, u32)>,
}

impl<'a> Functions<'a> {
    pub fn read(wasm: &'a [u8]) -> Result<Self> {
        let mut module = Self {
            wasm,
            signatures: Vec::new(),
            imported: 0,
            types: Vec::new(),
            bodies: Vec::new(),
            names: HashMap::new(),
            data: Vec::new(),
            globals: 0,
            counters: 0,
            exported: Vec::new(),
        };
        for payload in Parser::new(0).parse_all(wasm) {
            module.note(payload.map_err(damaged)?)?;
        }
        Ok(module)
    }

    fn note(&mut self, payload: Payload<'a>) -> Result<()> {
        match payload {
            Payload::TypeSection(reader) => {
                for signature in reader.into_iter_err_on_gc_types() {
                    self.signatures.push(signature.map_err(damaged)?);
                }
            }
            Payload::ImportSection(reader) => {
                for import in reader.into_imports() {
                    let import = import.map_err(damaged)?;
                    self.imported += u32::from(matches!(import.ty, TypeRef::Func(_)));
                }
            }
            Payload::FunctionSection(reader) => {
                for kind in reader {
                    self.types.push(kind.map_err(damaged)?);
                }
            }
            Payload::CodeSectionEntry(body) => {
                self.bodies.push(Cow::Borrowed(&self.wasm[body.range()]));
            }
            Payload::GlobalSection(reader) => self.globals = reader.count(),
            Payload::DataSection(reader) => {
                for segment in reader {
                    let segment = segment.map_err(damaged)?;
                    if let DataKind::Active { offset_expr, .. } = segment.kind
                        && let Ok(Operator::I32Const { value }) =
                            offset_expr.get_operators_reader().read()
                    {
                        self.data.push((value as u32 as usize, segment.data));
                    }
                }
            }
            Payload::CustomSection(section) => {
                if let KnownCustom::Name(names) = section.as_known() {
                    for names in names {
                        if let Name::Function(functions) = names.map_err(damaged)? {
                            for function in functions {
                                let function = function.map_err(damaged)?;
                                let numbers = self.names.entry(function.name).or_default();
                                numbers.push(function.index);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the number of the only function called `name`.
    pub fn named(&self, name: &str) -> Result<u32> {
        match self.names.get(name).map_or(&[][..], Vec::as_slice) {
            [number] => Ok(*number),
            found => Err(damaged(format!(
                "it has {} functions named {name}, not one",
                found.len()
            ))),
        }
    }

    /// Returns the numbers of all functions whose names begin with the prefix, in order.
    pub fn beginning_with(&self, name: &str) -> Vec<u32> {
        let mut found: Vec<u32> = self
            .names
            .iter()
            .filter(|(found, _)| found.starts_with(name))
            .flat_map(|(_, numbers)| numbers.iter().copied())
            .collect();
        found.sort_unstable();
        found
    }

    /// Returns the numbers of all functions whose names end with the suffix.
    pub fn ending_with<'n>(&'n self, name: &'n str) -> impl Iterator<Item = u32> + 'n {
        let found = self
            .names
            .iter()
            .filter(move |(found, _)| found.ends_with(name));
        found.flat_map(|(_, numbers)| numbers.iter().copied())
    }

    /// Returns the numbers of all functions that are not imported.
    pub fn own(&self) -> Range<u32> {
        self.imported..self.imported + self.bodies.len() as u32
    }

    fn place(&self, number: u32) -> Result<usize> {
        number
            .checked_sub(self.imported)
            .map(|own| own as usize)
            .filter(|&own| own < self.bodies.len())
            .ok_or_else(|| damaged(format!("function {number} is imported")))
    }

    pub fn body(&self, number: u32) -> Result<&[u8]> {
        Ok(&self.bodies[self.place(number)?])
    }

    pub fn signature(&self, number: u32) -> Result<&FuncType> {
        let kind = self.types[self.place(number)?];
        self.signatures
            .get(kind as usize)
            .ok_or_else(|| damaged(format!("it has no type {kind}")))
    }

    pub fn replace(&mut self, number: u32, body: Vec<u8>) -> Result<()> {
        let place = self.place(number)?;
        self.bodies[place] = Cow::Owned(body);
        Ok(())
    }

    /// Adds a function of the same type as another one, and returns its number.
    pub fn add_like(&mut self, model: u32, body: Vec<u8>) -> Result<u32> {
        let kind = self.types[self.place(model)?];
        self.types.push(kind);
        self.bodies.push(Cow::Owned(body));
        Ok(self.own().end - 1)
    }

    /// Adds a function, and returns its number.
    pub fn add(&mut self, parameters: &[ValType], results: &[ValType], body: Function) -> u32 {
        let wanted = FuncType::new(parameters.iter().copied(), results.iter().copied());
        let known = self.signatures.iter().position(|found| *found == wanted);
        let kind = known.unwrap_or_else(|| {
            self.signatures.push(wanted);
            self.signatures.len() - 1
        });
        self.types.push(kind as u32);
        self.bodies.push(Cow::Owned(body.into_raw_body()));
        self.own().end - 1
    }

    /// Replaces a function for its callers. The new body receives the number under which the old function is available.
    pub fn wrap(&mut self, number: u32, body: impl FnOnce(u32) -> Function) -> Result<()> {
        let old = self.body(number)?.to_vec();
        let moved = self.add_like(number, old)?;
        self.replace(number, body(moved).into_raw_body())
    }

    /// Exports a function under a name.
    pub fn export(&mut self, name: &'static str, number: u32) {
        self.exported.push((name, ExportKind::Func, number));
    }

    /// Adds a global with the number 0 in 64 bits, exports it under a name, and returns its number.
    pub fn add_counter(&mut self, name: &'static str) -> u32 {
        let number = self.globals + self.counters;
        self.counters += 1;
        self.exported.push((name, ExportKind::Global, number));
        number
    }

    /// Returns the bytes that the module's data puts at an address, up to the end of their segment.
    pub fn data_at(&self, address: usize) -> &'a [u8] {
        self.data
            .iter()
            .find_map(|(start, bytes)| bytes.get(address.checked_sub(*start)?..))
            .unwrap_or_default()
    }

    /// Returns the changed module, without its custom sections: their names are those of the original functions.
    pub fn finish(&self) -> Result<Vec<u8>> {
        let mut module = Module::new();
        for payload in Parser::new(0).parse_all(self.wasm) {
            let payload = payload.map_err(damaged)?;
            match &payload {
                Payload::CustomSection(_) | Payload::CodeSectionEntry(_) => {}
                Payload::TypeSection(reader) => {
                    let mut section = TypeSection::new();
                    RoundtripReencoder
                        .parse_type_section(&mut section, reader.clone())
                        .map_err(damaged)?;
                    for added in &self.signatures[section.len() as usize..] {
                        let added = RoundtripReencoder
                            .func_type(added.clone())
                            .map_err(damaged)?;
                        section.ty().func_type(&added);
                    }
                    module.section(&section);
                }
                Payload::FunctionSection(_) => {
                    let mut section = FunctionSection::new();
                    for &kind in &self.types {
                        section.function(kind);
                    }
                    module.section(&section);
                }
                Payload::GlobalSection(reader) => {
                    let mut section = GlobalSection::new();
                    RoundtripReencoder
                        .parse_global_section(&mut section, reader.clone())
                        .map_err(damaged)?;
                    let counter = GlobalType {
                        val_type: wasm_encoder::ValType::I64,
                        mutable: true,
                        shared: false,
                    };
                    for _ in 0..self.counters {
                        section.global(counter, &ConstExpr::i64_const(0));
                    }
                    module.section(&section);
                }
                Payload::ExportSection(reader) => {
                    let mut section = ExportSection::new();
                    RoundtripReencoder
                        .parse_export_section(&mut section, reader.clone())
                        .map_err(damaged)?;
                    for &(name, kind, number) in &self.exported {
                        section.export(name, kind, number);
                    }
                    module.section(&section);
                }
                Payload::CodeSectionStart { .. } => {
                    let mut section = CodeSection::new();
                    for body in &self.bodies {
                        section.raw(body);
                    }
                    module.section(&section);
                }
                _ => {
                    if let Some((id, range)) = payload.as_section()
                        && id != u8::from(SectionId::Code)
                    {
                        let data = &self.wasm[range];
                        module.section(&RawSection { id, data });
                    }
                }
            }
        }
        Ok(module.finish())
    }
}
