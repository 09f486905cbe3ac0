//! The only file of the host that a guest may read: the archive with Python's standard library.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::error::{Result, SandboxError};
use crate::pinned::PinnedFile;

/// The archive, mapped read-only and shared by every run of a process.
#[derive(Clone)]
pub struct Archive {
    mapping: Arc<Mapping>,
}

struct Mapping {
    address: *const u8,
    length: usize,
}

// SAFETY: the mapping is private and read-only, and lives as long as the value.
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
    pub fn of(pinned: &PinnedFile) -> Result<Self> {
        let PinnedFile { path, file, .. } = pinned;
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

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self`, and the cache never writes to a file in place.
        unsafe { std::slice::from_raw_parts(self.mapping.address, self.mapping.length) }
    }

    /// A small archive.
    #[cfg(test)]
    pub fn for_tests() -> Self {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("torl-archive-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, b"the standard library").unwrap();
        let archive = Self::of(&PinnedFile::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        archive
    }
}
