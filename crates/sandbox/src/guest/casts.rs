//! Floats that do not fit into an integer, converted as x86-64 converts them.
//!
//! C leaves the result of `(int)x` undefined for a NaN or a number that is too large, and so does numpy's `astype`.
//! WebAssembly saturates. On x86-64, where most programs are written, the result is the smallest integer ("integer
//! indefinite"), and unsigned integers of 32 bits and fewer are cut out of a signed integer: -3.7 becomes 253 as a
//! byte, not 0. So every such instruction is replaced with a call.

use wasm_encoder::{Function, InstructionSink};
use wasmparser::{BinaryReader, FunctionBody, Operator, ValType};

use crate::error::Result;
use crate::guest::functions::{Functions, damaged};

const TWO_TO_31: f64 = 2_147_483_648.0;
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// numpy's casts to bytes and to integers of 16 bits, which compilers for x86-64 cut out of a signed integer of 32
/// bits.
const SHORT_CASTS: [&str; 2] = ["_to_ubyte", "_to_ushort"];

/// The functions that replace the instructions, for floats of one width.
struct Conversions {
    to_int: u32,
    to_unsigned: u32,
    to_long: u32,
    to_unsigned_long: u32,
}

/// Replaces every conversion of a float to an integer.
///
/// # Errors
/// A function cannot be read.
pub fn convert_as_x86(functions: &mut Functions<'_>) -> Result<()> {
    let own = functions.own();
    let short: Vec<u32> = SHORT_CASTS
        .iter()
        .flat_map(|name| functions.ending_with(name))
        .collect();
    let double = conversions(functions, ValType::F64);
    let float = conversions(functions, ValType::F32);
    for number in own {
        let body = functions.body(number)?;
        let mut changed = Vec::new();
        let mut copied = 0;
        let reader = FunctionBody::new(BinaryReader::new(body, 0));
        let mut operators = reader.get_operators_reader().map_err(damaged)?;
        while !operators.eof() {
            let (operator, start) = operators.read_with_offset().map_err(damaged)?;
            let function = match operator {
                Operator::I32TruncSatF64S => double.to_int,
                Operator::I32TruncSatF32S => float.to_int,
                Operator::I32TruncSatF64U if short.contains(&number) => double.to_int,
                Operator::I32TruncSatF32U if short.contains(&number) => float.to_int,
                Operator::I32TruncSatF64U => double.to_unsigned,
                Operator::I32TruncSatF32U => float.to_unsigned,
                Operator::I64TruncSatF64S => double.to_long,
                Operator::I64TruncSatF32S => float.to_long,
                Operator::I64TruncSatF64U => double.to_unsigned_long,
                Operator::I64TruncSatF32U => float.to_unsigned_long,
                _ => continue,
            };
            changed.extend_from_slice(&body[copied..start]);
            InstructionSink::new(&mut changed).call(function);
            copied = operators.original_position();
        }
        if copied > 0 {
            changed.extend_from_slice(&body[copied..]);
            functions.replace(number, changed)?;
        }
    }
    Ok(())
}

fn conversions(functions: &mut Functions<'_>, from: ValType) -> Conversions {
    let mut add = |to: ValType, write: &dyn Fn(&mut InstructionSink<'_>)| {
        let mut body = Function::new([]);
        write(&mut body.instructions());
        body.instructions().end();
        functions.add(&[from], &[to], body)
    };
    // A number of 32 bits is a number of 64 bits as well.
    let number = |code: &mut InstructionSink<'_>| {
        code.local_get(0);
        if from == ValType::F32 {
            code.f64_promote_f32();
        }
    };
    let to_int = add(ValType::I32, &|code| {
        number(code);
        code.i32_trunc_sat_f64_s().i32_const(i32::MIN);
        number(code);
        code.f64_const(TWO_TO_31.into()).f64_lt().select();
    });
    let to_long = add(ValType::I64, &|code| {
        number(code);
        code.i64_trunc_sat_f64_s().i64_const(i64::MIN);
        number(code);
        code.f64_const(TWO_TO_63.into()).f64_lt().select();
    });
    let to_unsigned = add(ValType::I32, &|code| {
        code.local_get(0).call(to_long).i32_wrap_i64();
    });
    // From 2**63 on: the remainder, plus 2**63; a NaN does not compare as larger.
    let to_unsigned_long = add(ValType::I64, &|code| {
        number(code);
        code.f64_const(TWO_TO_63.into()).f64_sub();
        if from == ValType::F32 {
            code.f32_demote_f64();
        }
        code.call(to_long).i64_const(i64::MIN).i64_xor();
        code.local_get(0).call(to_long);
        number(code);
        code.f64_const(TWO_TO_63.into()).f64_ge().select();
    });
    Conversions {
        to_int,
        to_unsigned,
        to_long,
        to_unsigned_long,
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::arch::x86_64::{
        _mm_cvttsd_si32, _mm_cvttsd_si64, _mm_cvttss_si32, _mm_cvttss_si64, _mm_set_sd, _mm_set_ss,
    };

    use wasm_encoder::{
        CodeSection, ExportKind, ExportSection, FunctionSection, Module, NameMap, NameSection,
        TypeSection, ValType,
    };

    use super::*;

    const NAMES: [&str; 10] = [
        "int",
        "unsigned",
        "x_to_ubyte",
        "long",
        "unsigned_long",
        "int_f",
        "unsigned_f",
        "x_to_ushort",
        "long_f",
        "unsigned_long_f",
    ];

    /// Returns a module with one function for each instruction, and with those of bytes.
    fn converted() -> (wasmtime::Store<()>, wasmtime::Instance) {
        let mut module = Module::new();
        let (mut types, mut functions) = (TypeSection::new(), FunctionSection::new());
        let (mut exports, mut code) = (ExportSection::new(), CodeSection::new());
        let mut names = NameMap::new();
        for (index, name) in NAMES.into_iter().enumerate() {
            let from = if index < 5 {
                ValType::F64
            } else {
                ValType::F32
            };
            let to = if index % 5 < 3 {
                ValType::I32
            } else {
                ValType::I64
            };
            types.ty().function([from], [to]);
            functions.function(index as u32);
            exports.export(name, ExportKind::Func, index as u32);
            names.append(index as u32, name);
            let mut body = Function::new([]);
            let mut sink = body.instructions();
            sink.local_get(0);
            match index {
                0 => sink.i32_trunc_sat_f64_s(),
                1 | 2 => sink.i32_trunc_sat_f64_u(),
                3 => sink.i64_trunc_sat_f64_s(),
                4 => sink.i64_trunc_sat_f64_u(),
                5 => sink.i32_trunc_sat_f32_s(),
                6 | 7 => sink.i32_trunc_sat_f32_u(),
                8 => sink.i64_trunc_sat_f32_s(),
                _ => sink.i64_trunc_sat_f32_u(),
            };
            sink.end();
            code.function(&body);
        }
        let mut named = NameSection::new();
        named.functions(&names);
        module
            .section(&types)
            .section(&functions)
            .section(&exports)
            .section(&code)
            .section(&named);
        let wasm = module.finish();
        let mut functions = Functions::read(&wasm).unwrap();
        convert_as_x86(&mut functions).unwrap();
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, functions.finish().unwrap()).unwrap();
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        (store, instance)
    }

    fn numbers() -> Vec<f64> {
        let edges = [
            0.0,
            0.5,
            3.7,
            255.5,
            300.0,
            70_000.5,
            TWO_TO_31,
            2.0 * TWO_TO_31,
            1e10,
            TWO_TO_63,
            2.0 * TWO_TO_63,
            1e30,
        ];
        let around = edges.iter().flat_map(|&edge| {
            [
                edge.next_down(),
                edge,
                edge.next_up(),
                edge - 1.0,
                edge + 1.0,
            ]
        });
        let all = around.chain([1.5e19, f64::INFINITY, f64::MIN_POSITIVE]);
        all.flat_map(|number| [number, -number])
            .chain([f64::NAN])
            .collect()
    }

    #[test]
    fn every_conversion_is_what_this_machine_computes() {
        let (mut store, instance) = converted();
        for x in numbers() {
            let y = x as f32;
            // SAFETY: every machine of this architecture has these instructions.
            let (int, long, int_f, long_f) = unsafe {
                (
                    _mm_cvttsd_si32(_mm_set_sd(x)),
                    _mm_cvttsd_si64(_mm_set_sd(x)),
                    _mm_cvttss_si32(_mm_set_ss(y)),
                    _mm_cvttss_si64(_mm_set_ss(y)),
                )
            };
            let shifted = |x: f64| unsafe { _mm_cvttsd_si64(_mm_set_sd(x - TWO_TO_63)) } ^ i64::MIN;
            let unsigned_long = if x >= TWO_TO_63 { shifted(x) } else { long };
            let unsigned_long_f = if y >= TWO_TO_63 as f32 {
                shifted(y.into())
            } else {
                long_f
            };
            let expected = [
                int.into(),
                (long as i32).into(),
                int.into(),
                long,
                unsigned_long,
                int_f.into(),
                (long_f as i32).into(),
                int_f.into(),
                long_f,
                unsigned_long_f,
            ];
            for (index, (name, expected)) in NAMES.into_iter().zip(expected).enumerate() {
                let function = instance.get_func(&mut store, name).unwrap();
                let given = if index < 5 {
                    wasmtime::Val::from(x)
                } else {
                    wasmtime::Val::from(y)
                };
                let mut found = [wasmtime::Val::I64(0)];
                function.call(&mut store, &[given], &mut found).unwrap();
                let found = found[0].i64().or(found[0].i32().map(i64::from)).unwrap();
                assert_eq!(found, expected, "{name} of {x}");
            }
        }
    }
}
