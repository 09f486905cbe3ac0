//! The one file a guest may read: the archive with Python's standard library.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Result, SandboxError};
use crate::host::errno;

/// Where the guest finds its standard library.
pub const ARCHIVE_DIRECTORY: &str = "/usr/local/lib";
const ARCHIVE_NAME: &str = "python315.zip";

/// The descriptor of the directory, which the guest is born with.
const DIRECTORY_DESCRIPTOR: i32 = 3;
const FIRST_DESCRIPTOR: i32 = 4;
const MAXIMUM_OPEN: usize = 64;

const EMFILE: i32 = 33;
const OPEN_CREATE: i32 = 1;
const OPEN_DIRECTORY: i32 = 2;
const OPEN_TRUNCATE: i32 = 8;
const RIGHT_WRITE: i64 = 1 << 6;

/// The archive, mapped read-only and shared by every run of a process.
#[derive(Clone)]
pub struct Archive {
    mapping: Arc<Mapping>,
}

struct Mapping {
    address: *const u8,
    length: usize,
}

// SAFETY: the mapping is private, read-only, and lives as long as the value.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.length) };
    }
}

impl Archive {
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| SandboxError::file("open", path, &error))?;
        let length = file
            .metadata()
            .map_err(|error| SandboxError::file("read", path, &error))?
            .len() as usize;
        // SAFETY: a new private mapping of an open file; checked below.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(SandboxError::file("map", path, &error));
        }
        Ok(Self {
            mapping: Arc::new(Mapping {
                address: address.cast(),
                length,
            }),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self`, and the cache never writes to a file in place.
        unsafe { std::slice::from_raw_parts(self.mapping.address, self.mapping.length) }
    }
}

/// The open files of one run: positions in the archive.
pub struct Files {
    archive: Archive,
    positions: Vec<Option<u64>>,
}

impl Files {
    pub fn new(archive: Archive) -> Self {
        Self {
            archive,
            positions: Vec::new(),
        }
    }

    pub fn is_directory(descriptor: i32) -> bool {
        descriptor == DIRECTORY_DESCRIPTOR
    }

    fn size_of_archive(&self) -> u64 {
        self.archive.bytes().len() as u64
    }

    fn position(&mut self, descriptor: i32) -> std::result::Result<&mut u64, i32> {
        usize::try_from(descriptor.wrapping_sub(FIRST_DESCRIPTOR))
            .ok()
            .and_then(|index| self.positions.get_mut(index))
            .and_then(Option::as_mut)
            .ok_or(errno::BADF)
    }

    /// The size of the file named by `path` under a directory, or `None` for the directory itself.
    pub fn look_up(&self, descriptor: i32, path: &[u8]) -> std::result::Result<Option<u64>, i32> {
        if !Self::is_directory(descriptor) {
            return Err(errno::BADF);
        }
        match path {
            b"" | b"." | b"./" => Ok(None),
            _ if path == ARCHIVE_NAME.as_bytes() => Ok(Some(self.size_of_archive())),
            _ => Err(errno::NOENT),
        }
    }

    /// Opens the archive for reading. Everything else is missing, or on a read-only file system.
    pub fn open(
        &mut self,
        directory: i32,
        path: &[u8],
        flags: i32,
        rights: i64,
    ) -> std::result::Result<i32, i32> {
        if flags & (OPEN_CREATE | OPEN_TRUNCATE) != 0 {
            return Err(errno::ROFS);
        }
        match self.look_up(directory, path)? {
            None if flags & OPEN_DIRECTORY != 0 => Err(errno::NOSYS),
            None => Err(errno::ISDIR),
            Some(_) if rights & RIGHT_WRITE != 0 => Err(errno::ROFS),
            Some(_) => {
                let index = match self.positions.iter().position(Option::is_none) {
                    Some(index) => index,
                    None if self.positions.len() < MAXIMUM_OPEN => {
                        self.positions.push(None);
                        self.positions.len() - 1
                    }
                    None => return Err(EMFILE),
                };
                self.positions[index] = Some(0);
                Ok(FIRST_DESCRIPTOR + index as i32)
            }
        }
    }

    pub fn close(&mut self, descriptor: i32) -> std::result::Result<(), i32> {
        self.position(descriptor)?;
        self.positions[(descriptor - FIRST_DESCRIPTOR) as usize] = None;
        Ok(())
    }

    pub fn size(&self, descriptor: i32) -> std::result::Result<u64, i32> {
        usize::try_from(descriptor.wrapping_sub(FIRST_DESCRIPTOR))
            .ok()
            .and_then(|index| self.positions.get(index).copied().flatten())
            .map(|_| self.size_of_archive())
            .ok_or(errno::BADF)
    }

    /// Bytes from the current position, which moves past them; empty at the end of the file.
    pub fn read(&mut self, descriptor: i32, length: usize) -> std::result::Result<&[u8], i32> {
        let size = self.size_of_archive();
        let position = self.position(descriptor)?;
        let start = (*position).min(size);
        let end = start.saturating_add(length as u64).min(size);
        *position = end.max(*position);
        Ok(&self.archive.bytes()[start as usize..end as usize])
    }

    /// Moves the position by `offset` from the start (0), the position (1) or the end (2).
    pub fn seek(
        &mut self,
        descriptor: i32,
        offset: i64,
        whence: i32,
    ) -> std::result::Result<u64, i32> {
        if (0..FIRST_DESCRIPTOR).contains(&descriptor) {
            return Err(errno::SPIPE);
        }
        let size = self.size_of_archive();
        let position = self.position(descriptor)?;
        let base = match whence {
            0 => 0,
            1 => *position,
            2 => size,
            _ => return Err(errno::INVAL),
        };
        *position = base.checked_add_signed(offset).ok_or(errno::INVAL)?;
        Ok(*position)
    }
}
