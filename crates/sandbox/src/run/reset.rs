//! Restores a kept guest to the memory image, by the pages that the run wrote to.
//!
//! The image is mapped copy-on-write over the guest's memory and registered with `userfaultfd` for asynchronous
//! write-protection: the first write to a protected page costs a short fault, marks the page and continues. After the
//! run one `PAGEMAP_SCAN` returns every page that is not protected. Each of those is compared with the image and copied
//! back if it differs. So **every page is either protected since it was last equal to the image, or compared now**:
//! this proves that no change remains. A scan that fails or ends early ends the worker.
//!
//! The choice of unprotected pages only affects speed. A written page stays unprotected, because the next run will
//! likely write to it again and a comparison costs a tenth of a fault. Once it was found clean so often that the
//! comparisons have cost as much as the saved fault, it is protected again. (This is the ski-rental rule: never more
//! than twice the cost of knowing the future.)

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::{Result, SandboxError};

const PAGE: usize = 4096;

/// The number of times that a page may be found unchanged before it is protected again: the cost of a fault and of
/// protecting the page, about 0.9 µs, divided by the cost of comparing one, about 0.07 µs.
const PATIENCE: u8 = 12;

/// Maximum number of regions that the kernel reports in one call; a scan with more is continued.
const REGIONS: usize = 4096;

// From linux/userfaultfd.h and linux/fs.h, which the `libc` crate does not cover.
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1 << 0;
const PM_SCAN_CHECK_WPASYNC: u64 = 1 << 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;

/// The ioctl requests of this file: the only ones that a serving worker needs.
pub const UFFDIO_API: libc::c_ulong = read_write(0xaa, 0x3f, size_of::<UffdioApi>());
pub const UFFDIO_REGISTER: libc::c_ulong = read_write(0xaa, 0x00, size_of::<UffdioRegister>());
pub const UFFDIO_WRITEPROTECT: libc::c_ulong =
    read_write(0xaa, 0x06, size_of::<UffdioWriteprotect>());
pub const PAGEMAP_SCAN: libc::c_ulong = read_write(b'f', 16, size_of::<PmScanArg>());

/// `_IOWR` of linux/ioctl.h.
const fn read_write(kind: u8, number: u8, size: usize) -> libc::c_ulong {
    (3 << 30)
        | ((size as libc::c_ulong) << 16)
        | ((kind as libc::c_ulong) << 8)
        | number as libc::c_ulong
}

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRegister {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioWriteprotect {
    start: u64,
    length: u64,
    mode: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

fn ioctl<T>(
    descriptor: &impl AsRawFd,
    request: libc::c_ulong,
    argument: &mut T,
) -> io::Result<i32> {
    // SAFETY: every request of this file reads and writes only the structure that it is called with.
    let answer = unsafe { libc::ioctl(descriptor.as_raw_fd(), request as _, &raw mut *argument) };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

/// The two kernel services, opened once for a process.
pub struct Tracker {
    faults: OwnedFd,
    pages: File,
}

impl Tracker {
    /// # Errors
    /// The kernel is older than 6.7, was built without them, or does not let this process use them.
    pub fn open() -> io::Result<Self> {
        // SAFETY: a plain system call; the descriptor it returns is owned by nothing else.
        let faults = unsafe {
            let descriptor =
                libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | UFFD_USER_MODE_ONLY);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(descriptor as libc::c_int)
        };
        let mut api = UffdioApi {
            api: UFFD_API,
            features: UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC,
            ioctls: 0,
        };
        ioctl(&faults, UFFDIO_API, &mut api)?;
        let tracker = Self {
            faults,
            pages: File::open("/proc/self/pagemap")?,
        };
        // An empty scan: tests whether scans are available.
        tracker.scan(0, 0, &mut [PageRegion::default(); 1])?;
        Ok(tracker)
    }

    fn protect(&self, start: usize, length: usize) -> io::Result<()> {
        let mut argument = UffdioWriteprotect {
            start: start as u64,
            length: length as u64,
            mode: UFFDIO_WRITEPROTECT_MODE_WP,
        };
        ioctl(&self.faults, UFFDIO_WRITEPROTECT, &mut argument).map(drop)
    }

    /// Fills `regions` with the unprotected pages between two addresses; returns their number and the end of the
    /// scanned range.
    fn scan(
        &self,
        start: usize,
        end: usize,
        regions: &mut [PageRegion],
    ) -> io::Result<(usize, usize)> {
        let mut argument = PmScanArg {
            size: size_of::<PmScanArg>() as u64,
            flags: PM_SCAN_CHECK_WPASYNC,
            start: start as u64,
            end: end as u64,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: PAGE_IS_WRITTEN,
            category_anyof_mask: 0,
            return_mask: PAGE_IS_WRITTEN,
        };
        let count = ioctl(&self.pages, PAGEMAP_SCAN, &mut argument)?;
        Ok((count as usize, argument.walk_end as usize))
    }
}

fn reset_error(action: &str, error: impl std::fmt::Display) -> SandboxError {
    SandboxError::new(format!(
        "the sandbox cannot {action} the guest's memory: {error}"
    ))
}

/// The image, readable for comparison. Its memory is shared with every mapping of it.
pub struct Image {
    address: *const u8,
    length: usize,
}

impl Image {
    pub fn map(file: &File, length: usize) -> Result<Self> {
        // SAFETY: a new read-only mapping of an open file, whose bytes nothing changes; checked below.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(reset_error("map the image of", io::Error::last_os_error()));
        }
        Ok(Self {
            address: address.cast(),
            length,
        })
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping lives as long as `self`, and the cache never writes to a file in place.
        unsafe { std::slice::from_raw_parts(self.address, self.length) }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.length) };
    }
}

/// The state of one guest's memory: the unprotected pages, and how often each was found clean since.
pub struct Tracked {
    base: usize,
    clean: Vec<u8>,
    regions: Vec<PageRegion>,
}

impl Tracked {
    /// Starts tracking the memory at `base`, over which the image was just mapped.
    pub fn start(tracker: &Tracker, base: *mut u8, image: &Image) -> Result<Self> {
        let base = base as usize;
        let mut argument = UffdioRegister {
            start: base as u64,
            length: image.length as u64,
            mode: UFFDIO_REGISTER_MODE_WP,
            ioctls: 0,
        };
        ioctl(&tracker.faults, UFFDIO_REGISTER, &mut argument)
            .and_then(|_| tracker.protect(base, image.length))
            .map_err(|error| reset_error("track", error))?;
        Ok(Self {
            base,
            clean: vec![0; image.length / PAGE],
            regions: vec![PageRegion::default(); REGIONS],
        })
    }

    /// Makes `memory`, which starts at the address passed to `start`, equal to the image again. Returns the number of
    /// pages that differed.
    ///
    /// # Errors
    /// The memory is in an unknown state and must not be used again.
    pub fn restore(&mut self, tracker: &Tracker, memory: &mut [u8], image: &[u8]) -> Result<usize> {
        assert_eq!(
            memory.as_ptr() as usize,
            self.base,
            "not the memory that is tracked"
        );
        let mut restored = 0;
        for range in self.written(tracker, image.len())? {
            let pages = range.start / PAGE..range.end / PAGE;
            restored += self.restore_pages(tracker, memory, image, pages)?;
        }
        Ok(restored)
    }

    /// Returns the unprotected bytes, in ascending order: the only ones that can differ from the image.
    ///
    /// # Errors
    /// The unprotected bytes could not be determined.
    pub fn written(
        &mut self,
        tracker: &Tracker,
        length: usize,
    ) -> Result<Vec<std::ops::Range<usize>>> {
        let end = self.base + length;
        let mut start = self.base;
        let mut written = Vec::new();
        let mut covered = 0;
        while start < end {
            let (count, reached) = tracker
                .scan(start, end, &mut self.regions)
                .map_err(|error| reset_error("scan", error))?;
            if reached <= start || reached > end {
                return Err(reset_error("scan", "the kernel's walk ended early"));
            }
            start = reached;
            for region in &self.regions[..count] {
                // With more than 512 regions the kernel (6.18) returns some beyond the end of its walk, and again in
                // the next.
                let first = (region.start as usize - self.base).max(covered);
                let last = region.end as usize - self.base;
                if first < last {
                    written.push(first..last);
                    covered = last;
                }
            }
        }
        Ok(written)
    }

    fn restore_pages(
        &mut self,
        tracker: &Tracker,
        memory: &mut [u8],
        image: &[u8],
        pages: std::ops::Range<usize>,
    ) -> Result<usize> {
        let mut restored = 0;
        // Pages before this one, back to the start of a run of them, will be protected.
        let mut idle = pages.start;
        for page in pages.clone() {
            let range = page * PAGE..(page + 1) * PAGE;
            let (now, then) = (&mut memory[range.clone()], &image[range]);
            if now != then {
                now.copy_from_slice(then);
                restored += 1;
                self.clean[page] = 0;
            } else {
                self.clean[page] += 1;
            }
            if self.clean[page] < PATIENCE {
                self.protect(tracker, idle..page)?;
                idle = page + 1;
            } else {
                self.clean[page] = 0;
            }
        }
        self.protect(tracker, idle..pages.end)?;
        Ok(restored)
    }

    /// Protects pages that are equal to the image. (If they were protected first and copied then, they would count as
    /// written.)
    fn protect(&self, tracker: &Tracker, pages: std::ops::Range<usize>) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        tracker
            .protect(self.base + pages.start * PAGE, pages.len() * PAGE)
            .map_err(|error| reset_error("protect", error))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A memory over which an image is mapped, like a guest's.
    struct Mapped {
        image: Image,
        memory: &'static mut [u8],
        tracker: Tracker,
        tracked: Tracked,
    }

    impl Mapped {
        /// Returns `None` if the kernel does not support keeping a guest; then none is kept.
        fn of_pages(count: usize) -> Option<Self> {
            let tracker = Tracker::open().ok()?;
            let length = count * PAGE;
            let bytes: Vec<u8> = (0..length).map(|index| (index / 5) as u8).collect();
            // SAFETY: a new descriptor that nothing else owns, and a new mapping of `length` bytes that stays.
            let (file, memory) = unsafe {
                let descriptor = libc::memfd_create(c"image".as_ptr(), 0);
                let mut file = File::from_raw_fd(descriptor);
                file.write_all(&bytes).unwrap();
                let address = libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE,
                    descriptor,
                    0,
                );
                assert_ne!(address, libc::MAP_FAILED);
                (
                    file,
                    std::slice::from_raw_parts_mut(address.cast::<u8>(), length),
                )
            };
            let image = Image::map(&file, length).unwrap();
            let tracked = Tracked::start(&tracker, memory.as_mut_ptr(), &image).unwrap();
            Some(Self {
                image,
                memory,
                tracker,
                tracked,
            })
        }

        fn change(&mut self, pages: impl IntoIterator<Item = usize>) {
            for page in pages {
                self.memory[page * PAGE + page % PAGE] ^= 0xff;
            }
        }

        fn written(&mut self) -> Vec<usize> {
            let length = self.memory.len();
            let ranges = self.tracked.written(&self.tracker, length).unwrap();
            ranges
                .into_iter()
                .flat_map(|range| range.start / PAGE..range.end / PAGE)
                .collect()
        }

        fn restore(&mut self) -> usize {
            let restored = self
                .tracked
                .restore(&self.tracker, self.memory, self.image.bytes())
                .unwrap();
            assert!(self.memory == self.image.bytes());
            restored
        }
    }

    #[test]
    fn written_pages_are_listed_and_restored() {
        let Some(mut mapped) = Mapped::of_pages(64) else {
            return;
        };
        assert!(mapped.written().is_empty());
        assert_eq!(mapped.restore(), 0);
        mapped.change([0, 1, 2, 40, 63]);
        let same = mapped.memory[7 * PAGE];
        // SAFETY: a byte of the slice; volatile, so that the write takes place.
        unsafe { std::ptr::write_volatile(&raw mut mapped.memory[7 * PAGE], same) };
        assert_eq!(mapped.written(), [0, 1, 2, 7, 40, 63]);
        assert_eq!(mapped.restore(), 5);
        // Unprotected pages are compared every time, so a second change is restored as well.
        mapped.change([1, 50]);
        assert_eq!(mapped.restore(), 2);
    }

    #[test]
    fn more_regions_than_one_scan_holds_are_all_put_back() {
        let Some(mut mapped) = Mapped::of_pages(4 * REGIONS + 3) else {
            return;
        };
        let odd: Vec<usize> = (0..4 * REGIONS + 3).filter(|page| page % 2 == 1).collect();
        assert!(odd.len() > 2 * REGIONS);
        mapped.change(odd.iter().copied());
        assert_eq!(mapped.written(), odd);
        assert_eq!(mapped.restore(), odd.len());
    }

    #[test]
    fn an_unchanged_page_is_protected_again() {
        let Some(mut mapped) = Mapped::of_pages(16) else {
            return;
        };
        mapped.change([3, 4, 9]);
        assert_eq!(mapped.restore(), 3);
        for found_clean in 1..=PATIENCE {
            assert_eq!(
                mapped.written(),
                [3, 4, 9],
                "found clean {found_clean} times"
            );
            if found_clean == PATIENCE {
                // A change restarts the count of its page.
                mapped.change([4]);
            }
            mapped.restore();
        }
        assert_eq!(mapped.written(), [4]);
        for _ in 0..PATIENCE {
            mapped.restore();
        }
        assert!(mapped.written().is_empty());
        mapped.change([3]);
        assert_eq!((mapped.written(), mapped.restore()), (vec![3], 1));
    }
}
