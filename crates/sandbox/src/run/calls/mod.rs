//! The host calls of a guest, in groups, and the linking of its imports.

mod clock;
mod descriptors;
mod paths;

use wasmtime::{Caller, ExternType, Linker, Module, Val};

use crate::errno::{self, Checked};
use crate::run::host::{GuestMemory, HostState, PIECE, Stop, host_call};

type Call<'a> = Caller<'a, HostState>;

const WASI: &str = "wasi_snapshot_preview1";

/// Links the imports of `module`. Calls that are not defined here return `ENOSYS` without reading their arguments.
pub fn link(linker: &mut Linker<HostState>, module: &Module) -> wasmtime::Result<()> {
    for import in module.imports() {
        if let ExternType::Func(signature) = import.ty() {
            linker.func_new(
                import.module(),
                import.name(),
                signature,
                |_, _, results| {
                    results.fill(Val::I32(errno::NOSYS));
                    Ok(())
                },
            )?;
        }
    }
    linker.allow_shadowing(true);
    clock::link(linker)?;
    descriptors::link(linker)?;
    paths::link(linker)?;
    link_process(linker)
}

/// Randomness, arguments, environment, exit.
fn link_process(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "random_get", |mut c: Call, out: i32, length: i32| {
        host_call(&mut c, |memory, state| random(memory, state, out, length))
    })?;
    linker.func_wrap(WASI, "sched_yield", |_: Call| errno::SUCCESS)?;
    linker.func_wrap(
        WASI,
        "proc_exit",
        |_: Call, code: i32| -> wasmtime::Result<()> { Err(Stop::Exit(code).into()) },
    )?;
    for sizes in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(WASI, sizes, |mut c: Call, count: i32, bytes: i32| {
            host_call(&mut c, |memory, _| {
                Ok(memory
                    .write(count, &[0; 4])
                    .and_then(|()| memory.write(bytes, &[0; 4])))
            })
        })?;
    }
    for list in ["args_get", "environ_get"] {
        linker.func_wrap(WASI, list, |_: Call, _: i32, _: i32| errno::SUCCESS)?;
    }
    // The guest's entry point to functions of its embedder, which provides no functions.
    linker.func_wrap("host", "call", |_: Call, _: i32, _: i32, _: i32, _: i32| {
        -1i32
    })?;
    Ok(())
}

fn random(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    out: i32,
    length: i32,
) -> Result<Checked<()>, Stop> {
    let target = match memory.slice_mut(out, length as u32 as usize) {
        Ok(target) => target,
        Err(code) => return Ok(Err(code)),
    };
    for piece in target.chunks_mut(PIECE) {
        state.check_time()?;
        for chunk in piece.chunks_mut(8) {
            chunk.copy_from_slice(&state.next_random().to_le_bytes()[..chunk.len()]);
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{
        EntityType, ExportKind, ExportSection, ImportSection, MemorySection, MemoryType,
        TypeSection, ValType,
    };
    use wasmtime::{Engine, Instance, Store};

    use super::*;
    use crate::limits::Limits;
    use crate::request::Request;
    use crate::run::host::state_for_tests;

    const MEMORY: usize = 64 << 10;

    /// Every call that the guest imports and the host answers, with its parameters: `i` for 32 bits, `I` for 64.
    const CALLS: [(&str, &str); 35] = [
        ("args_get", "ii"),
        ("args_sizes_get", "ii"),
        ("clock_res_get", "ii"),
        ("clock_time_get", "iIi"),
        ("environ_get", "ii"),
        ("environ_sizes_get", "ii"),
        ("fd_advise", "iIIi"),
        ("fd_close", "i"),
        ("fd_datasync", "i"),
        ("fd_fdstat_get", "ii"),
        ("fd_fdstat_set_flags", "ii"),
        ("fd_filestat_get", "ii"),
        ("fd_filestat_set_size", "iI"),
        ("fd_filestat_set_times", "iIIi"),
        ("fd_pread", "iiiIi"),
        ("fd_prestat_dir_name", "iii"),
        ("fd_prestat_get", "ii"),
        ("fd_pwrite", "iiiIi"),
        ("fd_read", "iiii"),
        ("fd_readdir", "iiiIi"),
        ("fd_seek", "iIii"),
        ("fd_sync", "i"),
        ("fd_tell", "ii"),
        ("fd_write", "iiii"),
        ("path_create_directory", "iii"),
        ("path_filestat_get", "iiiii"),
        ("path_filestat_set_times", "iiiiIIi"),
        ("path_link", "iiiiiii"),
        ("path_open", "iiiiiIIii"),
        ("path_readlink", "iiiiii"),
        ("path_remove_directory", "iii"),
        ("path_rename", "iiiiii"),
        ("path_symlink", "iiiii"),
        ("path_unlink_file", "iii"),
        ("poll_oneoff", "iiii"),
    ];

    /// A module that exports its imports and one page of memory.
    fn module() -> Vec<u8> {
        let (mut types, mut imports, mut exports) = (
            TypeSection::new(),
            ImportSection::new(),
            ExportSection::new(),
        );
        for (index, (name, parameters)) in CALLS.iter().chain(&[("random_get", "ii")]).enumerate() {
            let kind = |letter| {
                if letter == b'I' {
                    ValType::I64
                } else {
                    ValType::I32
                }
            };
            types.ty().function(
                parameters.bytes().map(kind).collect::<Vec<_>>(),
                [ValType::I32],
            );
            imports.import(WASI, name, EntityType::Function(index as u32));
            exports.export(name, ExportKind::Func, index as u32);
        }
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: 1,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        exports.export("memory", ExportKind::Memory, 0);
        let mut module = wasm_encoder::Module::new();
        module
            .section(&types)
            .section(&imports)
            .section(&memories)
            .section(&exports);
        module.finish()
    }

    fn guest(state: HostState) -> (Store<HostState>, Instance) {
        let engine = Engine::default();
        let module = Module::new(&engine, module()).unwrap();
        let mut linker = Linker::new(&engine);
        link(&mut linker, &module).unwrap();
        let mut store = Store::new(&engine, state);
        let instance = linker.instantiate(&mut store, &module).unwrap();
        store.data_mut().memory = instance.get_memory(&mut store, "memory");
        (store, instance)
    }

    /// Arbitrary arguments and memory of a guest cause an answer: no panic, and no access outside of the memory.
    #[test]
    fn wild_arguments_are_answered() {
        let request = Request {
            limits: Limits {
                output_bytes: 1 << 20,
                files_bytes: 1 << 20,
                ..Limits::default()
            },
            stdin: vec![b'x'; 1000],
            ..Request::default()
        };
        let mut source = state_for_tests(&request);
        let mut random = || source.next_random();
        let (mut store, instance) = guest(state_for_tests(&request));
        let mut answers = std::collections::BTreeMap::<i32, u64>::new();
        for round in 0..300_000 {
            if round % 50 == 0 {
                let memory = store.data().memory.unwrap();
                for chunk in memory.data_mut(&mut store)[..8192].chunks_mut(8) {
                    // Mostly small numbers, so that some pointers are valid; occasionally a path.
                    let word = match random() {
                        word if word % 4 == 0 => word,
                        word if word % 4 == 1 => u64::from_le_bytes(*b"work/a/b"),
                        word => word % 8192,
                    };
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
            }
            let (name, parameters) = CALLS[(random() % CALLS.len() as u64) as usize];
            let arguments = parameters.chars().map(|letter| {
                let word = random();
                let word = match word % 8 {
                    0 => word >> 8,
                    1..=3 => (word >> 8) % 8192,
                    _ => (word >> 8) % 16,
                };
                if letter == 'I' {
                    Val::I64(word as i64)
                } else {
                    Val::I32(word as i32)
                }
            });
            let arguments: Vec<Val> = arguments.collect();
            let call = instance.get_func(&mut store, name).unwrap();
            let mut answer = [Val::I32(0)];
            match call.call(&mut store, &arguments, &mut answer) {
                Ok(()) => *answers.entry(answer[0].unwrap_i32()).or_default() += 1,
                Err(error) => assert_eq!(error.downcast_ref::<Stop>(), Some(&Stop::Output)),
            }
        }
        // The calls were effective.
        for code in [
            errno::SUCCESS,
            errno::BADF,
            errno::FAULT,
            errno::NOENT,
            errno::NOTDIR,
        ] {
            assert!(
                answers.get(&code).is_some_and(|&count| count > 20),
                "{answers:?}"
            );
        }
        assert!(!answers.contains_key(&errno::NOSYS));
        let state = store.data();
        assert!(state.output().len() <= 1 << 20);
    }

    #[test]
    fn a_long_call_ends_with_the_time() {
        let mut state = state_for_tests(&Request::default());
        let mut bytes = vec![0; MEMORY];
        let mut memory = GuestMemory(&mut bytes);
        assert_eq!(random(&mut memory, &mut state, 0, 8), Ok(Ok(())));
        state.expire();
        assert_eq!(random(&mut memory, &mut state, 0, 8), Err(Stop::Expired));
    }
}
