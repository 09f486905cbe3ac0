//! The calls on paths, which start from an open directory.

use wasmtime::Linker;

use super::descriptors::{RIGHT_READ, RIGHT_WRITE, filestat, times};
use super::{Call, WASI};
use crate::errno::{self, Checked};
use crate::files::OpenOptions;
use crate::run::host::{GuestMemory, HostState, host_call};

const OPEN_CREATE: i32 = 1 << 0;
const OPEN_DIRECTORY: i32 = 1 << 1;
const OPEN_EXCLUSIVE: i32 = 1 << 2;
const OPEN_TRUNCATE: i32 = 1 << 3;
const FLAG_APPEND: i32 = 1 << 0;

pub fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    link_files(linker)?;
    link_changes(linker)?;
    link_links(linker)
}

/// Opening and stat calls.
fn link_files(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
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
         flags: i32,
         out: i32| {
            host_call(&mut c, |memory, state| {
                let now = state.next_time();
                let options = open_options(open_flags, rights as u64, flags);
                let opened = slice(memory, path, length)
                    .and_then(|path| state.files.open(fd, path, options, now));
                Ok(opened.and_then(|fd| memory.write(out, &fd.to_le_bytes())))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_filestat_get",
        |mut c: Call, fd: i32, _: i32, path: i32, length: i32, out: i32| {
            host_call(&mut c, |memory, state| {
                let found =
                    slice(memory, path, length).and_then(|path| state.files.stat_path(fd, path));
                Ok(found.and_then(|stat| memory.write(out, &filestat(&stat))))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_filestat_set_times",
        |mut c: Call,
         fd: i32,
         _: i32,
         path: i32,
         length: i32,
         accessed: i64,
         modified: i64,
         flags: i32| {
            host_call(&mut c, |memory, state| {
                let now = state.next_time();
                Ok(slice(memory, path, length).and_then(|path| {
                    let times = times(accessed, modified, flags, now)?;
                    state.files.set_times_of_path(fd, path, times, now)
                }))
            })
        },
    )?;
    Ok(())
}

/// Creating, removing, renaming.
fn link_changes(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        WASI,
        "path_create_directory",
        |mut c: Call, fd: i32, path: i32, length: i32| {
            host_call(&mut c, |memory, state| {
                let now = state.next_time();
                Ok(slice(memory, path, length)
                    .and_then(|path| state.files.make_directory(fd, path, now)))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_remove_directory",
        |mut c: Call, fd: i32, path: i32, length: i32| {
            host_call(&mut c, |memory, state| {
                let now = state.next_time();
                Ok(slice(memory, path, length)
                    .and_then(|path| state.files.remove_directory(fd, path, now)))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_unlink_file",
        |mut c: Call, fd: i32, path: i32, length: i32| {
            host_call(&mut c, |memory, state| {
                let now = state.next_time();
                Ok(slice(memory, path, length)
                    .and_then(|path| state.files.remove_file(fd, path, now)))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_rename",
        |mut c: Call,
         old_fd: i32,
         old: i32,
         old_length: i32,
         new_fd: i32,
         new: i32,
         new_length: i32| {
            host_call(&mut c, |memory, state| {
                let now = state.next_time();
                Ok(slice(memory, old, old_length).and_then(|old| {
                    let new = slice(memory, new, new_length)?;
                    state.files.rename((old_fd, old), (new_fd, new), now)
                }))
            })
        },
    )?;
    Ok(())
}

/// Hard and symbolic links, which this file system does not support.
fn link_links(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        WASI,
        "path_symlink",
        |mut c: Call, _: i32, _: i32, fd: i32, path: i32, length: i32| {
            host_call(&mut c, |memory, state| {
                Ok(slice(memory, path, length)
                    .and_then(|path| state.files.refuse_link_at(fd, path)))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_link",
        |mut c: Call,
         old_fd: i32,
         _: i32,
         old: i32,
         old_length: i32,
         new_fd: i32,
         new: i32,
         new_length: i32| {
            host_call(&mut c, |memory, state| {
                Ok(slice(memory, old, old_length).and_then(|old| {
                    state.files.stat_path(old_fd, old)?;
                    let new = slice(memory, new, new_length)?;
                    state.files.refuse_link_at(new_fd, new)
                }))
            })
        },
    )?;
    linker.func_wrap(
        WASI,
        "path_readlink",
        |mut c: Call, fd: i32, path: i32, length: i32, _: i32, _: i32, _: i32| {
            host_call(&mut c, |memory, state| {
                let found =
                    slice(memory, path, length).and_then(|path| state.files.stat_path(fd, path));
                Ok(found.and(Err(errno::INVAL)))
            })
        },
    )?;
    Ok(())
}

fn slice<'a>(memory: &'a GuestMemory<'_>, address: i32, length: i32) -> Checked<&'a [u8]> {
    memory.slice(address, length as u32 as usize)
}

fn open_options(open_flags: i32, rights: u64, flags: i32) -> OpenOptions {
    OpenOptions {
        read: rights & RIGHT_READ != 0,
        write: rights & RIGHT_WRITE != 0,
        append: flags & FLAG_APPEND != 0,
        create: open_flags & OPEN_CREATE != 0,
        exclusive: open_flags & OPEN_EXCLUSIVE != 0,
        truncate: open_flags & OPEN_TRUNCATE != 0,
        directory: open_flags & OPEN_DIRECTORY != 0,
    }
}
