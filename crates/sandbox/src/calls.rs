//! The system calls themselves, and what the guest's imports are linked to.

use wasmtime::{Caller, ExternType, Linker, Module, Val};

use crate::files::{ARCHIVE_DIRECTORY, Files};
use crate::host::{
    CLOCK_START, CLOCK_TICK, CODE_DESCRIPTOR, Checked, GuestMemory, HostState, MONOTONIC_START,
    REPORT_DESCRIPTOR, Stop, errno, host_call,
};

fn fd_write(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    descriptor: i32,
    list: i32,
    count: i32,
    written: i32,
) -> Result<Checked<()>, Stop> {
    let mut total = 0usize;
    for index in 0..count {
        let bytes = match memory
            .vector(list, index)
            .and_then(|(address, length)| memory.slice(address, length))
        {
            Ok(bytes) => bytes,
            Err(code) => return Ok(Err(code)),
        };
        if let Err(code) = state.write(descriptor, bytes)? {
            return Ok(Err(code));
        }
        total += bytes.len();
    }
    Ok(memory.write(written, &(total as u32).to_le_bytes()))
}

fn fd_read(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    descriptor: i32,
    list: i32,
    count: i32,
    read: i32,
) -> Checked<()> {
    let mut total = 0usize;
    for index in 0..count {
        let (address, length) = memory.vector(list, index)?;
        memory.slice(address, length)?;
        let bytes = state.read(descriptor, length)?;
        memory.write(address, bytes)?;
        total += bytes.len();
        if bytes.len() < length {
            break;
        }
    }
    memory.write(read, &(total as u32).to_le_bytes())
}

/// Waiting takes no time: the virtual clock jumps to the earliest deadline. Descriptors are always ready.
fn poll_oneoff(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    subscriptions: i32,
    events: i32,
    count: i32,
    written: i32,
) -> Checked<()> {
    const SUBSCRIPTION_BYTES: i32 = 48;
    const EVENT_BYTES: i32 = 32;
    if count <= 0 {
        return Err(errno::INVAL);
    }
    let at = |index: i32, offset: i32| {
        subscriptions
            .wrapping_add(index.wrapping_mul(SUBSCRIPTION_BYTES))
            .wrapping_add(offset)
    };
    // Per subscription: nanoseconds until it is due. A descriptor is due now.
    let mut earliest = u64::MAX;
    let due = |memory: &GuestMemory<'_>, state: &HostState, index: i32| -> Checked<u64> {
        if memory.slice(at(index, 8), 1)?[0] != 0 {
            return Ok(0);
        }
        let timeout = memory.read_u64(at(index, 24))?;
        let absolute = memory.slice(at(index, 40), 1)?[0] & 1 != 0;
        let now = match memory.read_u32(at(index, 16))? {
            0 => CLOCK_START + state.clock,
            1 => MONOTONIC_START + state.clock,
            _ => return Err(errno::INVAL),
        };
        Ok(if absolute {
            timeout.saturating_sub(now)
        } else {
            timeout
        })
    };
    for index in 0..count {
        earliest = earliest.min(due(memory, state, index)?);
    }
    let mut ready = 0i32;
    for index in 0..count {
        if due(memory, state, index)? > earliest {
            continue;
        }
        let mut event = [0u8; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&memory.read_u64(at(index, 0))?.to_le_bytes());
        event[10] = memory.slice(at(index, 8), 1)?[0];
        memory.write(events.wrapping_add(ready.wrapping_mul(EVENT_BYTES)), &event)?;
        ready += 1;
    }
    // Far beyond any date the guest can show, and far from overflow.
    state.clock = state.clock.saturating_add(earliest).min(1 << 62);
    memory.write(written, &(ready as u32).to_le_bytes())
}

/// The 64-byte `filestat`, or the 24-byte `fdstat`, of a descriptor, with the given file type and size.
fn filestat(file_type: u8, size: u64) -> [u8; 64] {
    let mut stat = [0u8; 64];
    stat[16] = file_type;
    stat[24..32].copy_from_slice(&1u64.to_le_bytes());
    stat[32..40].copy_from_slice(&size.to_le_bytes());
    for time in [40, 48, 56] {
        stat[time..time + 8].copy_from_slice(&CLOCK_START.to_le_bytes());
    }
    stat
}

fn fdstat(file_type: u8) -> [u8; 24] {
    const ALL_RIGHTS: u64 = (1 << 30) - 1;
    let mut stat = [0u8; 24];
    stat[0] = file_type;
    stat[8..16].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
    stat[16..24].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
    stat
}

const CHARACTER_DEVICE: u8 = 2;
const DIRECTORY: u8 = 3;
const REGULAR_FILE: u8 = 4;

/// The file type of an open descriptor.
fn descriptor_type(state: &HostState, descriptor: i32) -> Checked<u8> {
    match descriptor {
        0..=2 | CODE_DESCRIPTOR | REPORT_DESCRIPTOR => Ok(CHARACTER_DEVICE),
        _ if Files::is_directory(descriptor) => Ok(DIRECTORY),
        _ => state.files.size(descriptor).map(|_| REGULAR_FILE),
    }
}

/// Gives `module` its imports. What is not named here answers `ENOSYS` without looking at its arguments.
pub fn link(linker: &mut Linker<HostState>, module: &Module) -> wasmtime::Result<()> {
    type Call<'a> = Caller<'a, HostState>;
    const WASI: &str = "wasi_snapshot_preview1";

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

    linker.func_wrap(
        WASI,
        "clock_time_get",
        |mut c: Call, id: i32, _: i64, out: i32| {
            host_call(&mut c, |memory, state| {
                Ok(state
                    .read_clock(id)
                    .ok_or(errno::INVAL)
                    .and_then(|time| memory.write(out, &time.to_le_bytes())))
            })
        },
    )?;
    linker.func_wrap(WASI, "clock_res_get", |mut c: Call, _: i32, out: i32| {
        host_call(&mut c, |memory, _| {
            Ok(memory.write(out, &CLOCK_TICK.to_le_bytes()))
        })
    })?;
    linker.func_wrap(WASI, "random_get", |mut c: Call, out: i32, length: i32| {
        host_call(&mut c, |memory, state| {
            let start = out as u32 as usize;
            let end = start + length as u32 as usize;
            let Some(target) = memory.0.get_mut(start..end) else {
                return Ok(Err(errno::FAULT));
            };
            for chunk in target.chunks_mut(8) {
                chunk.copy_from_slice(&state.next_random().to_le_bytes()[..chunk.len()]);
            }
            Ok(Ok(()))
        })
    })?;
    linker.func_wrap(
        WASI,
        "fd_write",
        |mut c: Call, fd: i32, list: i32, count: i32, written: i32| {
            host_call(&mut c, |memory, state| {
                fd_write(memory, state, fd, list, count, written)
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_read",
        |mut c: Call, fd: i32, list: i32, count: i32, read: i32| {
            host_call(&mut c, |memory, state| {
                Ok(fd_read(memory, state, fd, list, count, read))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_pread",
        |mut c: Call, fd: i32, list: i32, count: i32, offset: i64, read: i32| {
            host_call(&mut c, |memory, state| {
                let result = state.files.seek(fd, 0, 1).and_then(|saved| {
                    state.files.seek(fd, offset, 0)?;
                    let result = fd_read(memory, state, fd, list, count, read);
                    state.files.seek(fd, saved as i64, 0)?;
                    result
                });
                Ok(result)
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_seek",
        |mut c: Call, fd: i32, offset: i64, whence: i32, out: i32| {
            host_call(&mut c, |memory, state| {
                Ok(state
                    .files
                    .seek(fd, offset, whence)
                    .and_then(|position| memory.write(out, &position.to_le_bytes())))
            })
        },
    )?;
    linker.func_wrap(WASI, "fd_tell", |mut c: Call, fd: i32, out: i32| {
        host_call(&mut c, |memory, state| {
            Ok(state
                .files
                .seek(fd, 0, 1)
                .and_then(|position| memory.write(out, &position.to_le_bytes())))
        })
    })?;
    linker.func_wrap(WASI, "fd_close", |mut c: Call, fd: i32| {
        host_call(&mut c, |_, state| Ok(state.files.close(fd)))
    })?;
    linker.func_wrap(WASI, "fd_fdstat_get", |mut c: Call, fd: i32, out: i32| {
        host_call(&mut c, |memory, state| {
            Ok(descriptor_type(state, fd)
                .and_then(|file_type| memory.write(out, &fdstat(file_type))))
        })
    })?;
    linker.func_wrap(WASI, "fd_filestat_get", |mut c: Call, fd: i32, out: i32| {
        host_call(&mut c, |memory, state| {
            Ok(descriptor_type(state, fd).and_then(|file_type| {
                let size = state.files.size(fd).unwrap_or(0);
                memory.write(out, &filestat(file_type, size))
            }))
        })
    })?;
    linker.func_wrap(WASI, "fd_prestat_get", |mut c: Call, fd: i32, out: i32| {
        host_call(&mut c, |memory, _| {
            if !Files::is_directory(fd) {
                return Ok(Err(errno::BADF));
            }
            let mut prestat = [0u8; 8];
            prestat[4..].copy_from_slice(&(ARCHIVE_DIRECTORY.len() as u32).to_le_bytes());
            Ok(memory.write(out, &prestat))
        })
    })?;
    linker.func_wrap(
        WASI,
        "fd_prestat_dir_name",
        |mut c: Call, fd: i32, out: i32, length: i32| {
            host_call(&mut c, |memory, _| {
                if !Files::is_directory(fd) {
                    return Ok(Err(errno::BADF));
                }
                let length = ARCHIVE_DIRECTORY.len().min(length as u32 as usize);
                Ok(memory.write(out, &ARCHIVE_DIRECTORY.as_bytes()[..length]))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_filestat_get",
        |mut c: Call, fd: i32, _: i32, path: i32, length: i32, out: i32| {
            host_call(&mut c, |memory, state| {
                let found = memory
                    .slice(path, length as u32 as usize)
                    .and_then(|path| state.files.look_up(fd, path));
                Ok(found.and_then(|file| {
                    let stat = match file {
                        Some(size) => filestat(REGULAR_FILE, size),
                        None => filestat(DIRECTORY, 0),
                    };
                    memory.write(out, &stat)
                }))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_open",
        |mut c: Call,
         fd: i32,
         _: i32,
         path: i32,
         length: i32,
         open_flags: i32,
         rights: i64,
         _: i64,
         _: i32,
         out: i32| {
            host_call(&mut c, |memory, state| {
                let opened = memory
                    .slice(path, length as u32 as usize)
                    .and_then(|path| state.files.open(fd, path, open_flags, rights));
                Ok(opened.and_then(|fd| memory.write(out, &fd.to_le_bytes())))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "poll_oneoff",
        |mut c: Call, subscriptions: i32, events: i32, count: i32, written: i32| {
            host_call(&mut c, |memory, state| {
                Ok(poll_oneoff(
                    memory,
                    state,
                    subscriptions,
                    events,
                    count,
                    written,
                ))
            })
        },
    )?;
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
    // The guest's door to functions of its embedder: there are none.
    linker.func_wrap("host", "call", |_: Call, _: i32, _: i32, _: i32, _: i32| {
        -1i32
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::files::Archive;
    use crate::limits::Gate;

    const ARCHIVE: &[u8] = b"the standard library";

    fn state(name: &str, output_limit: u64) -> HostState {
        let path: PathBuf =
            std::env::temp_dir().join(format!("torl-calls-{}-{name}", std::process::id()));
        std::fs::write(&path, ARCHIVE).unwrap();
        let archive = Archive::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        HostState::new(
            Gate::default(),
            archive,
            b"code".to_vec(),
            1,
            1 << 20,
            output_limit,
        )
    }

    /// A memory with a list of one buffer at 0: `length` bytes at 64.
    fn memory(length: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; 256];
        bytes[0] = 64;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[64..70].copy_from_slice(b"output");
        bytes
    }

    #[test]
    fn output_is_kept_up_to_its_limit() {
        let mut state = state("limit", 8);
        let mut bytes = memory(6);
        let mut memory = GuestMemory(&mut bytes);
        assert_eq!(fd_write(&mut memory, &mut state, 1, 0, 1, 32), Ok(Ok(())));
        assert_eq!(memory.read_u32(32), Ok(6));
        assert_eq!(
            fd_write(&mut memory, &mut state, 2, 0, 1, 32),
            Err(Stop::Output)
        );
        assert_eq!(
            (&state.stdout[..], &state.stderr[..]),
            (&b"output"[..], &b"ou"[..])
        );
        assert_eq!(
            fd_write(&mut memory, &mut state, 3, 0, 1, 32),
            Ok(Err(errno::BADF))
        );
    }

    #[test]
    fn the_archive_is_read_in_pieces_and_nothing_else_is() {
        let mut state = state("archive", 0);
        let write = 1 << 6;
        for path in [
            &b"../etc/passwd"[..],
            b"/etc/passwd",
            b"python315.zip/x",
            b"PYTHON315.ZIP",
        ] {
            assert_eq!(state.files.open(3, path, 0, 0), Err(errno::NOENT));
        }
        assert_eq!(
            state.files.open(3, b"python315.zip", 0, write),
            Err(errno::ROFS)
        );
        assert_eq!(
            state.files.open(4, b"python315.zip", 0, 0),
            Err(errno::BADF)
        );
        let fd = state.files.open(3, b"python315.zip", 0, 0).unwrap();
        let mut bytes = memory(7);
        let mut memory = GuestMemory(&mut bytes);
        let mut read = Vec::new();
        loop {
            fd_read(&mut memory, &mut state, fd, 0, 1, 32).unwrap();
            let count = memory.read_u32(32).unwrap() as usize;
            if count == 0 {
                break;
            }
            read.extend_from_slice(memory.slice(64, count).unwrap());
        }
        assert_eq!(read, ARCHIVE);
        assert_eq!(state.files.seek(fd, -1, 0), Err(errno::INVAL));
        assert_eq!(state.files.seek(fd, i64::MAX, 2), Ok(i64::MAX as u64 + 20));
        assert_eq!(state.read(fd, 10), Ok(&[][..]));
        assert_eq!(state.files.close(fd), Ok(()));
        assert_eq!(state.files.close(fd), Err(errno::BADF));
    }

    #[test]
    fn waiting_moves_the_clock_to_the_earliest_deadline() {
        let mut state = state("clock", 0);
        let mut bytes = vec![0u8; 256];
        for (index, timeout) in [5_000u64, 3_000].into_iter().enumerate() {
            let at = index * 48;
            bytes[at] = 10 + index as u8;
            bytes[at + 16] = 1;
            bytes[at + 24..at + 32].copy_from_slice(&timeout.to_le_bytes());
        }
        let mut memory = GuestMemory(&mut bytes);
        assert_eq!(poll_oneoff(&mut memory, &mut state, 0, 96, 2, 200), Ok(()));
        assert_eq!(
            (state.clock, memory.read_u32(200), memory.read_u64(96)),
            (3_000, Ok(1), Ok(11))
        );
        assert_eq!(
            poll_oneoff(&mut memory, &mut state, 0, 96, 0, 200),
            Err(errno::INVAL)
        );
    }

    /// Whatever a guest passes, and whatever its memory holds: an answer, no panic, no access beside the memory.
    #[test]
    fn wild_arguments_are_answered() {
        let mut state = state("wild", 1 << 16);
        let mut random = self::state("source", 0);
        let mut bytes = vec![0u8; 4096];
        for round in 0..200_000 {
            if round % 50 == 0 {
                for chunk in bytes.chunks_mut(8) {
                    // Mostly small numbers, so that some pointers are good.
                    let word = random.next_random();
                    let word = if word.is_multiple_of(4) {
                        word
                    } else {
                        word % 4096
                    };
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
            }
            let mut next = || {
                let word = random.next_random();
                if word.is_multiple_of(3) {
                    (word >> 8) as i32
                } else {
                    ((word >> 8) % 4096) as i32
                }
            };
            let (a, b, c, d) = (next(), next(), next() % 64, next());
            let fd = next() % 8;
            let mut memory = GuestMemory(&mut bytes);
            match round % 4 {
                0 => drop(fd_write(&mut memory, &mut state, fd, a, c, d)),
                1 => drop(fd_read(&mut memory, &mut state, fd, a, c, d)),
                2 => drop(poll_oneoff(&mut memory, &mut state, a, b, c, d)),
                _ => drop(state.files.seek(fd, i64::from(a) << 32, b % 4)),
            }
        }
        assert!(state.stdout.len() + state.stderr.len() <= 1 << 16);
    }
}
