//! Places in the guest's code: the expected instructions and their replacements.

use wasm_encoder::InstructionSink;
use wasmparser::{BinaryReader, FunctionBody, Operator};

use super::objects::{long, word};
use crate::error::Result;
use crate::guest::functions::{Functions, damaged};
use wasm_encoder::MemArg;

/// An instruction that occurs at the places.
#[derive(Clone, Copy)]
pub enum Op {
    Add,
    AtMost,
    Call(&'static str),
    Const(i32),
    Equal,
    Float(f64),
    FloatLess,
    Get(u32),
    Less,
    Load(u64),
    LoadByte(u64),
    Long,
    LongUnsigned,
    Narrow,
    Store(u64),
    StoreLong(u64),
    Tee(u32),
    Truncate,
    TruncateLong,
}

pub struct Place {
    pub function: &'static str,
    pub times: usize,
    pub before: &'static [Op],
    pub after: &'static [Op],
}

impl Place {
    /// Replaces the old instructions with the new ones.
    pub fn change(&self, functions: &mut Functions<'_>) -> Result<()> {
        let number = functions.named(self.function)?;
        let body = functions.body(number)?;
        let mut operators = Vec::new();
        let reader = FunctionBody::new(BinaryReader::new(body, 0));
        for operator in reader
            .get_operators_reader()
            .map_err(damaged)?
            .into_iter_with_offsets()
        {
            operators.push(operator.map_err(damaged)?);
        }
        let mut changed = Vec::with_capacity(body.len() + 64);
        let mut copied = 0;
        let mut found = 0;
        for window in operators.windows(self.before.len() + 1) {
            let start = window[0].1;
            let mut equal = start >= copied;
            for (op, (operator, _)) in self.before.iter().zip(window) {
                equal = equal && op.is(operator, functions)?;
            }
            if equal {
                changed.extend_from_slice(&body[copied..start]);
                for op in self.after {
                    op.write(&mut changed, functions)?;
                }
                copied = window[self.before.len()].1;
                found += 1;
            }
        }
        if found != self.times {
            return Err(damaged(format!(
                "{} has the expected instructions {found} times, not {}",
                self.function, self.times
            )));
        }
        changed.extend_from_slice(&body[copied..]);
        functions.replace(number, changed)
    }
}

impl Op {
    fn is(self, operator: &Operator<'_>, functions: &Functions<'_>) -> Result<bool> {
        Ok(match (self, operator) {
            (Self::Add, Operator::I32Add)
            | (Self::AtMost, Operator::I32LeU)
            | (Self::Equal, Operator::I32Eq)
            | (Self::FloatLess, Operator::F64Lt)
            | (Self::Less, Operator::I32LtS)
            | (Self::Long, Operator::I64ExtendI32S)
            | (Self::LongUnsigned, Operator::I64ExtendI32U)
            | (Self::Narrow, Operator::I32WrapI64)
            | (Self::Truncate, Operator::I32TruncSatF64S)
            | (Self::TruncateLong, Operator::I64TruncSatF64S) => true,
            (Self::Call(name), Operator::Call { function_index }) => {
                functions.named(name)? == *function_index
            }
            (Self::Const(expected), Operator::I32Const { value }) => expected == *value,
            (Self::Float(expected), Operator::F64Const { value }) => {
                expected.to_bits() == value.bits()
            }
            (Self::Get(expected), Operator::LocalGet { local_index })
            | (Self::Tee(expected), Operator::LocalTee { local_index }) => expected == *local_index,
            (Self::Load(offset), Operator::I32Load { memarg })
            | (Self::LoadByte(offset), Operator::I32Load8U { memarg })
            | (Self::Store(offset), Operator::I32Store { memarg })
            | (Self::StoreLong(offset), Operator::I64Store { memarg }) => offset == memarg.offset,
            _ => false,
        })
    }

    fn write(self, bytes: &mut Vec<u8>, functions: &Functions<'_>) -> Result<()> {
        let mut code = InstructionSink::new(bytes);
        match self {
            Self::Add => code.i32_add(),
            Self::AtMost => code.i32_le_u(),
            Self::Call(name) => code.call(functions.named(name)?),
            Self::Const(value) => code.i32_const(value),
            Self::Equal => code.i32_eq(),
            Self::Float(value) => code.f64_const(value.into()),
            Self::FloatLess => code.f64_lt(),
            Self::Get(local) => code.local_get(local),
            Self::Less => code.i32_lt_s(),
            Self::Load(offset) => code.i32_load(word(offset)),
            Self::LoadByte(offset) => code.i32_load8_u(MemArg {
                align: 0,
                ..word(offset)
            }),
            Self::Long => code.i64_extend_i32_s(),
            Self::LongUnsigned => code.i64_extend_i32_u(),
            Self::Narrow => code.i32_wrap_i64(),
            Self::Store(offset) => code.i32_store(word(offset)),
            Self::StoreLong(offset) => code.i64_store(long(offset)),
            Self::Tee(local) => code.local_tee(local),
            Self::Truncate => code.i32_trunc_sat_f64_s(),
            Self::TruncateLong => code.i64_trunc_sat_f64_s(),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{
        CodeSection, Function, FunctionSection, Module, NameMap, NameSection, TypeSection, ValType,
    };

    /// `f() = 7 + 7`, and `g() = 1`.
    fn module() -> Vec<u8> {
        let mut types = TypeSection::new();
        types.ty().function([], [ValType::I32]);
        let mut functions = FunctionSection::new();
        functions.function(0).function(0);
        let mut f = Function::new([]);
        f.instructions().i32_const(7).i32_const(7).i32_add().end();
        let mut g = Function::new([]);
        g.instructions().i32_const(1).end();
        let mut code = CodeSection::new();
        code.function(&f).function(&g);
        let mut map = NameMap::new();
        map.append(0, "f");
        map.append(1, "g");
        let mut names = NameSection::new();
        names.functions(&map);
        let mut module = Module::new();
        module
            .section(&types)
            .section(&functions)
            .section(&code)
            .section(&names);
        module.finish()
    }

    fn changed(times: usize, before: &'static [Op], after: &'static [Op]) -> Result<Vec<u8>> {
        let wasm = module();
        let mut functions = Functions::read(&wasm)?;
        let function = "f";
        Place {
            function,
            times,
            before,
            after,
        }
        .change(&mut functions)?;
        functions.finish()
    }

    #[test]
    fn instructions_are_replaced_by_others_of_another_length() {
        const AFTER: &[Op] = &[Op::Const(90_000), Op::Call("g"), Op::Add, Op::Add];
        let wasm = changed(1, &[Op::Const(7), Op::Add], AFTER).unwrap();
        wasmparser::validate(&wasm).unwrap();
        let functions = Functions::read(&wasm).unwrap();
        let body = FunctionBody::new(BinaryReader::new(functions.body(0).unwrap(), 0));
        let left: Vec<_> = body
            .get_operators_reader()
            .unwrap()
            .into_iter()
            .flatten()
            .collect();
        assert_eq!(
            left[..2],
            [
                Operator::I32Const { value: 7 },
                Operator::I32Const { value: 90_000 }
            ]
        );
        assert_eq!(left.len(), 6);
    }

    #[test]
    fn a_place_with_an_unexpected_count_is_rejected() {
        assert!(changed(2, &[Op::Const(7)], &[Op::Const(9)]).is_ok());
        for (times, before) in [
            (1, &[Op::Const(7)][..]),
            (1, &[Op::Const(8)]),
            (1, &[Op::Add, Op::Const(7)]),
        ] {
            let error = changed(times, before, &[Op::Const(9)])
                .unwrap_err()
                .to_string();
            assert!(error.contains("f has the expected instructions"), "{error}");
        }
    }
}
