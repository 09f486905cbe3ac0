//! Memory layout of the interpreter's and numpy's objects, for code that is added to the guest.

use wasm_encoder::{BlockType, InstructionSink, MemArg};

use crate::error::Result;
use crate::guest::functions::{Functions, damaged};

/// Type numbers of numpy (`NPY_TYPES` in its `ndarraytypes.h`).
pub const UINT: i32 = 6;
pub const LONG: i32 = 7;
pub const LONGLONG: i32 = 9;
pub const ULONGLONG: i32 = 10;

/// `NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED`.
pub const PLAIN: i32 = 0x301;
/// `NPY_ARRAY_FORCECAST`: values that do not fit are cut.
pub const FORCE: i32 = 0x10;
/// A class of the interpreter or of numpy at a fixed address. Its name is checked.
pub struct Class {
    pub address: i32,
    pub name: &'static str,
}

pub const ARRAY: Class = Class {
    address: 26_443_132,
    name: "numpy.ndarray",
};
pub const LONG_SCALAR: Class = Class {
    address: 26_435_440,
    name: "numpy.int32",
};
pub const PYTHON_INTEGER: Class = Class {
    address: 26_106_228,
    name: "int",
};
/// Offsets in the interpreter's and numpy's structures (`PyObject`, `PyVarObject`, `PyTupleObject`, `PyTypeObject`,
/// `PyArrayObject_fields`, `PyArray_Descr`) on 32 bits.
pub const REFERENCES: u64 = 0;
pub const CLASS: u64 = 4;
pub const LENGTH: u64 = 8;
pub const ITEMS: u64 = 16;
pub const CLASS_NAME: usize = 12;
pub const ARRAY_DATA: u64 = 8;
pub const ARRAY_AXES: u64 = 12;
pub const ARRAY_SHAPE: u64 = 16;
pub const ARRAY_TYPE: u64 = 28;
pub const TYPE_NUMBER: u64 = 16;

/// Higher reference counts belong to immortal objects.
pub const MAX_REFERENCES: i32 = 0x3fff_ffff;

impl Class {
    pub fn prove(&self, functions: &Functions<'_>) -> Result<()> {
        let pointer = functions.data_at(self.address as usize + CLASS_NAME);
        let name = pointer.first_chunk().map_or(&[][..], |&pointer| {
            functions.data_at(u32::from_le_bytes(pointer) as usize)
        });
        if name.split(|&byte| byte == 0).next() == Some(self.name.as_bytes()) {
            return Ok(());
        }
        Err(damaged(format!(
            "there is no class {} at {}",
            self.name, self.address
        )))
    }
}

pub const fn word(offset: u64) -> MemArg {
    MemArg {
        offset,
        align: 2,
        memory_index: 0,
    }
}

pub const fn long(offset: u64) -> MemArg {
    MemArg {
        offset,
        align: 3,
        memory_index: 0,
    }
}

/// Calls `old` with all parameters.
pub fn call(code: &mut InstructionSink<'_>, parameters: u32, old: u32) {
    for parameter in 0..parameters {
        code.local_get(parameter);
    }
    code.call(old);
}

/// Leaves the enclosing block unless an array of `long` is requested as for indices, without cutting. `kind` and
/// `flags` are the parameters of the numpy function that specify this.
pub fn leave_unless_for_indices(code: &mut InstructionSink<'_>, kind: u32, flags: u32) {
    code.local_get(kind)
        .i32_eqz()
        .br_if(0)
        .local_get(kind)
        .i32_load(word(TYPE_NUMBER))
        .i32_const(LONG)
        .i32_ne()
        .br_if(0)
        .local_get(flags)
        .i32_const(FORCE)
        .i32_and()
        .br_if(0);
}

/// Checks that the first parameter is an array.
pub fn is_array(code: &mut InstructionSink<'_>, subtype: u32) {
    code.local_get(0)
        .i32_load(word(CLASS))
        .i32_const(ARRAY.address)
        .call(subtype);
}

/// Checks that an object is an array and not of a subclass.
pub fn is_plain_array(code: &mut InstructionSink<'_>, object: u32) {
    code.local_get(object)
        .i32_load(word(CLASS))
        .i32_const(ARRAY.address)
        .i32_eq();
}

/// Adds a reference to an object.
pub fn reference(code: &mut InstructionSink<'_>, object: u32) {
    code.local_get(object)
        .i32_load(word(REFERENCES))
        .i32_const(MAX_REFERENCES)
        .i32_le_s()
        .if_(BlockType::Empty)
        .local_get(object)
        .local_get(object)
        .i32_load(word(REFERENCES))
        .i32_const(1)
        .i32_add()
        .i32_store(word(REFERENCES))
        .end();
}

/// Releases a reference to an object.
pub fn release(code: &mut InstructionSink<'_>, object: u32, destroyer: u32) {
    code.local_get(object)
        .i32_load(word(REFERENCES))
        .i32_const(MAX_REFERENCES)
        .i32_le_s()
        .if_(BlockType::Empty)
        .local_get(object)
        .local_get(object)
        .i32_load(word(REFERENCES))
        .i32_const(1)
        .i32_sub()
        .i32_store(word(REFERENCES))
        .local_get(object)
        .i32_load(word(REFERENCES))
        .i32_eqz()
        .if_(BlockType::Empty)
        .local_get(object)
        .call(destroyer)
        .end()
        .end();
}

/// Executes `body` for each of `left` contiguous items from `item` on, which are the given number of bytes apart.
/// Consumes both locals.
pub fn for_each<'a>(
    code: &mut InstructionSink<'a>,
    item: u32,
    bytes: i32,
    left: u32,
    body: impl FnOnce(&mut InstructionSink<'a>),
) {
    code.block(BlockType::Empty)
        .loop_(BlockType::Empty)
        .local_get(left)
        .i32_eqz()
        .br_if(1);
    body(code);
    code.local_get(item)
        .i32_const(bytes)
        .i32_add()
        .local_set(item)
        .local_get(left)
        .i32_const(1)
        .i32_sub()
        .local_set(left)
        .br(0)
        .end()
        .end();
}

/// Returns null if the first parameter is null, which represents an error.
pub fn pass_error_on(code: &mut InstructionSink<'_>) {
    code.local_get(0)
        .i32_eqz()
        .if_(BlockType::Empty)
        .i32_const(0)
        .return_()
        .end();
}

/// Loads the type number of an array.
pub fn type_number(code: &mut InstructionSink<'_>, array: u32) {
    code.local_get(array)
        .i32_load(word(ARRAY_TYPE))
        .i32_load(word(TYPE_NUMBER));
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{ConstExpr, DataSection, MemorySection, MemoryType, Module};

    #[test]
    fn a_class_is_proved_by_its_name() {
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: 1,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        let mut data = DataSection::new();
        data.active(0, &ConstExpr::i32_const(100), *b"list\0tuple\0");
        data.active(
            0,
            &ConstExpr::i32_const(200 + CLASS_NAME as i32),
            105_u32.to_le_bytes(),
        );
        let mut module = Module::new();
        module.section(&memories).section(&data);
        let wasm = module.finish();
        let functions = Functions::read(&wasm).unwrap();
        let class = |address, name| Class { address, name };
        assert!(class(200, "tuple").prove(&functions).is_ok());
        for wrong in [
            class(200, "list"),
            class(204, "tuple"),
            class(0, "tuple"),
            class(200, "tupl"),
        ] {
            assert!(wrong.prove(&functions).is_err());
        }
    }
}
