//! The calls on open descriptors: streams, files, directories.

#[cfg(test)]
mod tests;

use wasmtime::Linker;

use super::{Call, WASI};
use crate::errno::{self, Checked};
use crate::files::{Descriptors, FileType, Stat, Target};
use crate::run::host::{GuestMemory, HostState, PIECE, Stop, host_call};

/// Maximum number of buffers in one call, as on Linux.
const MAXIMUM_BUFFERS: i32 = 1024;

const FLAG_APPEND: u16 = 1 << 0;
const FLAG_NONBLOCK: u16 = 1 << 2;

pub const RIGHT_READ: u64 = 1 << 1;
pub const RIGHT_WRITE: u64 = 1 << 6;
const ALL_RIGHTS: u64 = (1 << 30) - 1;

/// A directory entry as `fd_readdir` writes it, before its name.
const ENTRY_BYTES: usize = 24;

pub fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    link_contents(linker)?;
    link_positions(linker)?;
    link_properties(linker)?;
    link_directories(linker)
}

/// Reading and writing.
fn link_contents(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        WASI,
        "fd_write",
        |mut c: Call, fd: i32, list: i32, count: i32, written: i32| {
            host_call(&mut c, |memory, state| {
                write(memory, state, (fd, None), (list, count), written)
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_pwrite",
        |mut c: Call, fd: i32, list: i32, count: i32, offset: i64, written: i32| {
            host_call(&mut c, |memory, state| {
                write(memory, state, (fd, Some(offset)), (list, count), written)
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_read",
        |mut c: Call, fd: i32, list: i32, count: i32, read_bytes: i32| {
            host_call(&mut c, |memory, state| {
                read(memory, state, (fd, None), (list, count), read_bytes)
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_pread",
        |mut c: Call, fd: i32, list: i32, count: i32, offset: i64, read_bytes: i32| {
            host_call(&mut c, |memory, state| {
                read(memory, state, (fd, Some(offset)), (list, count), read_bytes)
            })
        },
    )?;
    Ok(())
}

fn link_positions(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
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
    // Written data is complete: no disk has to be synced. Streams cannot be synced.
    for sync in ["fd_sync", "fd_datasync"] {
        linker.func_wrap(WASI, sync, |mut c: Call, fd: i32| {
            host_call(&mut c, |_, state| {
                Ok(state.files.target(fd).and_then(|target| match target {
                    Target::Node(_) => Ok(()),
                    _ => Err(errno::INVAL),
                }))
            })
        })?;
    }
    linker.func_wrap(
        WASI,
        "fd_advise",
        |mut c: Call, fd: i32, _: i64, _: i64, _: i32| {
            host_call(&mut c, |_, state| Ok(state.files.seek(fd, 0, 1).map(drop)))
        },
    )?;
    Ok(())
}

fn link_properties(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_fdstat_get", |mut c: Call, fd: i32, out: i32| {
        host_call(&mut c, |memory, state| {
            Ok(fdstat(state, fd).and_then(|stat| memory.write(out, &stat)))
        })
    })?;
    linker.func_wrap(
        WASI,
        "fd_fdstat_set_flags",
        |mut c: Call, fd: i32, flags: i32| {
            host_call(&mut c, |_, state| {
                let flags = flags as u16;
                if flags & !(FLAG_APPEND | FLAG_NONBLOCK) != 0 {
                    return Ok(Err(errno::INVAL));
                }
                Ok(state.files.set_append(fd, flags & FLAG_APPEND != 0))
            })
        },
    )?;
    linker.func_wrap(WASI, "fd_filestat_get", |mut c: Call, fd: i32, out: i32| {
        host_call(&mut c, |memory, state| {
            Ok(state
                .files
                .stat(fd)
                .and_then(|stat| memory.write(out, &filestat(&stat))))
        })
    })?;
    linker.func_wrap(
        WASI,
        "fd_filestat_set_size",
        |mut c: Call, fd: i32, size: i64| {
            host_call(&mut c, |_, state| {
                let now = state.next_time();
                Ok(state.files.resize(fd, size, now))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_filestat_set_times",
        |mut c: Call, fd: i32, accessed: i64, modified: i64, flags: i32| {
            host_call(&mut c, |_, state| {
                let now = state.next_time();
                Ok(times(accessed, modified, flags, now)
                    .and_then(|times| state.files.set_times(fd, times, now)))
            })
        },
    )?;
    Ok(())
}

fn link_directories(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_prestat_get", |mut c: Call, fd: i32, out: i32| {
        host_call(&mut c, |memory, _| {
            Ok(Descriptors::preopened_path(fd).and_then(|path| {
                let mut prestat = [0u8; 8];
                prestat[4..].copy_from_slice(&(path.len() as u32).to_le_bytes());
                memory.write(out, &prestat)
            }))
        })
    })?;
    linker.func_wrap(
        WASI,
        "fd_prestat_dir_name",
        |mut c: Call, fd: i32, out: i32, length: i32| {
            host_call(&mut c, |memory, _| {
                Ok(Descriptors::preopened_path(fd).and_then(|path| {
                    let length = path.len().min(length as u32 as usize);
                    memory.write(out, &path.as_bytes()[..length])
                }))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "fd_readdir",
        |mut c: Call, fd: i32, buffer: i32, length: i32, cookie: i64, used: i32| {
            host_call(&mut c, |memory, state| {
                let buffer = (buffer, length as u32 as usize);
                Ok(read_directory(
                    memory,
                    state,
                    fd,
                    buffer,
                    cookie as u64,
                    used,
                ))
            })
        },
    )?;
    Ok(())
}

/// Returns the buffers of a scatter/gather list.
fn buffers(memory: &GuestMemory<'_>, (list, count): (i32, i32)) -> Checked<Vec<(i32, usize)>> {
    if !(0..=MAXIMUM_BUFFERS).contains(&count) {
        return Err(errno::INVAL);
    }
    (0..count)
        .map(|index| {
            let (address, length) = memory.vector(list, index)?;
            memory.slice(address, length)?;
            Ok((address, length))
        })
        .collect()
}

fn position(offset: Option<i64>) -> Checked<Option<u64>> {
    offset
        .map(|offset| u64::try_from(offset).map_err(|_| errno::INVAL))
        .transpose()
}

/// Writes the buffers of a list, up to the first that is not written completely.
fn write(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    (descriptor, offset): (i32, Option<i64>),
    list: (i32, i32),
    written: i32,
) -> Result<Checked<()>, Stop> {
    let prepared = state
        .check_writable(descriptor, offset.is_some())
        .and_then(|()| Ok((position(offset)?, buffers(memory, list)?)));
    let (start, buffers) = match prepared {
        Ok(prepared) => prepared,
        Err(code) => return Ok(Err(code)),
    };
    let mut total = 0usize;
    'buffers: for (address, length) in buffers {
        let bytes = match memory.slice(address, length) {
            Ok(bytes) => bytes,
            Err(code) => return Ok(Err(code)),
        };
        for piece in bytes.chunks(PIECE) {
            state.check_time()?;
            let at = start.map(|start| start.saturating_add(total as u64));
            match state.write(descriptor, at, piece)? {
                Ok(count) => {
                    total += count;
                    if count < piece.len() {
                        break 'buffers;
                    }
                }
                Err(_) if total > 0 => break 'buffers,
                Err(code) => return Ok(Err(code)),
            }
        }
    }
    Ok(memory.write(written, &(total as u32).to_le_bytes()))
}

/// Fills the buffers of a list, up to the first that is not filled.
fn read(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    (descriptor, offset): (i32, Option<i64>),
    list: (i32, i32),
    read_bytes: i32,
) -> Result<Checked<()>, Stop> {
    let prepared = state
        .check_readable(descriptor, offset.is_some())
        .and_then(|()| Ok((position(offset)?, buffers(memory, list)?)));
    let (start, buffers) = match prepared {
        Ok(prepared) => prepared,
        Err(code) => return Ok(Err(code)),
    };
    let mut total = 0usize;
    'buffers: for (address, length) in buffers {
        let target = match memory.slice_mut(address, length) {
            Ok(target) => target,
            Err(code) => return Ok(Err(code)),
        };
        for piece in target.chunks_mut(PIECE) {
            state.check_time()?;
            let at = start.map(|start| start.saturating_add(total as u64));
            let count = match state.read(descriptor, at, piece) {
                Ok(count) => count,
                Err(code) => return Ok(Err(code)),
            };
            total += count;
            if count < piece.len() {
                break 'buffers;
            }
        }
    }
    Ok(memory.write(read_bytes, &(total as u32).to_le_bytes()))
}

fn read_directory(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    descriptor: i32,
    (buffer, length): (i32, usize),
    cookie: u64,
    used: i32,
) -> Checked<()> {
    let target = memory.slice_mut(buffer, length)?;
    let mut filled = 0usize;
    state.files.list(descriptor, cookie, |next, inode, node| {
        let mut entry = [0u8; ENTRY_BYTES];
        entry[..8].copy_from_slice(&next.to_le_bytes());
        entry[8..16].copy_from_slice(&inode.to_le_bytes());
        entry[16..20].copy_from_slice(&(node.name.len() as u32).to_le_bytes());
        entry[20] = FileType::of(&node.kind) as u8;
        for part in [&entry[..], &node.name] {
            let count = part.len().min(length - filled);
            target[filled..filled + count].copy_from_slice(&part[..count]);
            filled += count;
        }
        // A full buffer, whose last entry may be cut, signals that there are more entries.
        filled < length
    })?;
    memory.write(used, &(filled as u32).to_le_bytes())
}

/// Returns the 24-byte `fdstat` of a descriptor.
fn fdstat(state: &HostState, descriptor: i32) -> Checked<[u8; 24]> {
    let access = state.files.access(descriptor)?;
    let mut rights = ALL_RIGHTS;
    if !access.readable {
        rights &= !RIGHT_READ;
    }
    if !access.writable {
        rights &= !RIGHT_WRITE;
    }
    let mut stat = [0u8; 24];
    stat[0] = state.files.stat(descriptor)?.file_type as u8;
    stat[2] = if access.append { FLAG_APPEND as u8 } else { 0 };
    stat[8..16].copy_from_slice(&rights.to_le_bytes());
    stat[16..24].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
    Ok(stat)
}

/// Returns the 64-byte `filestat`.
pub fn filestat(stat: &Stat) -> [u8; 64] {
    let mut bytes = [0u8; 64];
    bytes[8..16].copy_from_slice(&stat.inode.to_le_bytes());
    bytes[16] = stat.file_type as u8;
    let numbers = [
        stat.links,
        stat.size,
        stat.accessed,
        stat.modified,
        stat.changed,
    ];
    for (target, number) in bytes[24..].chunks_exact_mut(8).zip(numbers) {
        target.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Returns the times of last access and last modification that a call sets.
pub fn times(accessed: i64, modified: i64, flags: i32, now: u64) -> Checked<[Option<u64>; 2]> {
    let choose = |given: i64, flags: i32| match flags & 3 {
        0 => Ok(None),
        1 => Ok(Some(given as u64)),
        2 => Ok(Some(now)),
        _ => Err(errno::INVAL),
    };
    Ok([choose(accessed, flags)?, choose(modified, flags >> 2)?])
}
