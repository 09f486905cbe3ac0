//! The cache of prepared guests on disk: built once per user, checked before every use, rebuilt when damaged.
//!
//! Every file is written under another name, synced and renamed. A `.check` file next to it contains its length and
//! CRC-32, and is written last. A file without a matching check counts as missing. Builders hold a lock.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Result, SandboxError};
use crate::guest::artifacts::{self, Artifacts, Prepared};
use crate::guest::{module, preparation};
use crate::run::engine;
use crate::run::instance::ImageLayout;

/// Progress callback: receives the name of a stage and the completed fraction of the whole preparation; `false` cancels
/// it.
pub type Progress<'a> = dyn FnMut(&str, f64) -> bool + 'a;

/// A directory of prepared guests.
pub struct Cache {
    root: PathBuf,
}

/// A cached file and the parts of its check.
struct Entry {
    path: PathBuf,
}

impl Cache {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn entry(&self, kind: &str, key: &str) -> Entry {
        Entry {
            path: self.root.join(format!("{key}.{kind}")),
        }
    }

    fn module(&self) -> Entry {
        self.entry("module", &artifacts::module_key())
    }

    fn archive(&self) -> Entry {
        self.entry("zip", &artifacts::archive_key())
    }

    fn image(&self) -> Entry {
        self.entry("image", &artifacts::image_key())
    }

    /// Returns the paths of this build's guest, prepared or not: module, memory image, standard library.
    pub fn files(&self) -> [PathBuf; 3] {
        [self.module().path, self.image().path, self.archive().path]
    }

    /// Returns the prepared guest, if it is complete and undamaged. Reads every byte (about 0.1 s).
    pub fn open(&self) -> Option<Prepared> {
        let numbers = self.image().verify()?;
        self.module().verify()?;
        self.archive().verify()?;
        for entry in [self.image(), self.module(), self.archive()] {
            entry.note_use();
        }
        let image = self.image().path;
        let layout = ImageLayout::of_numbers(fs::metadata(&image).ok()?.len(), numbers)?;
        Some(Prepared {
            module: self.module().path,
            image,
            archive: self.archive().path,
            layout,
        })
    }

    /// Builds missing or damaged files. Concurrent processes build them once.
    ///
    /// Must run in a separate process: it compiles with every core, and runs the guest on a large stack.
    pub fn prepare(&self, artifacts: &Path, progress: &mut Progress<'_>) -> Result<Prepared> {
        fs::create_dir_all(&self.root)
            .map_err(|error| SandboxError::file("make the cache directory", &self.root, &error))?;
        progress("waiting for another process", 0.0);
        let _lock = Lock::take(&self.root.join("lock"))?;
        if let Some(prepared) = self.open() {
            return Ok(prepared);
        }
        self.remove_leftovers();
        progress("checking the guest", 0.0);
        let artifacts = Artifacts::read(artifacts)?;
        let module = artifacts.module()?;
        let split = module::split(&module)?;
        let archive = self.archive();
        if archive.verify().is_none() {
            archive.write(&artifacts.archive, NO_NUMBERS)?;
        }
        let module = self.module();
        if module.verify().is_none() {
            module.write(&compile(&split.code, progress)?, NO_NUMBERS)?;
        }
        progress("warming up the interpreter", 0.92);
        let (memory, layout) = preparation::warm_up(&module.path, &archive.path, &split)?;
        progress("writing the snapshot", 0.97);
        self.image().write(&memory, layout.numbers())?;
        progress("ready", 1.0);
        self.open().ok_or_else(|| {
            SandboxError::new(format!(
                "{} reads back differently than it was written; check the disk",
                self.root.display()
            ))
        })
    }

    /// Removes files that a killed builder left incomplete, and unused guests of other versions. A file that cannot be
    /// removed only wastes space.
    fn remove_leftovers(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.to_string_lossy();
            if name.contains(PARTIAL) {
                let _ = fs::remove_file(&path);
            } else if let Some(kept) = name.strip_suffix(CHECK)
                && is_older(&path, UNUSED)
            {
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(kept);
            }
        }
    }
}

/// The age of the last use after which a guest counts as unused, because its version has been uninstalled.
const UNUSED: Duration = Duration::from_secs(60 * 24 * 3600);

fn is_older(path: &Path, age: Duration) -> bool {
    fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|time| time.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// Part of the name of files that are being written.
const PARTIAL: &str = ".partial-";
/// Suffix of the name of a check.
const CHECK: &str = ".check";

/// Numbers in a check in addition to the length and the checksum: the layout, for an image.
type Numbers = [u32; ImageLayout::NUMBERS];
const NO_NUMBERS: Numbers = [0; ImageLayout::NUMBERS];

impl Entry {
    fn check_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(CHECK);
        name.into()
    }

    /// Sets the modification time of the check to now, if the cache is writable.
    fn note_use(&self) {
        if let Ok(check) = OpenOptions::new().append(true).open(self.check_path()) {
            let _ = check.set_modified(SystemTime::now());
        }
    }

    /// Returns the numbers stored with the file, if the file is complete.
    fn verify(&self) -> Option<Numbers> {
        let check = fs::read_to_string(self.check_path()).ok()?;
        let mut fields = check.strip_suffix('\n')?.split(' ');
        let length: u64 = fields.next()?.parse().ok()?;
        let checksum: u32 = fields.next()?.parse().ok()?;
        let mut numbers = NO_NUMBERS;
        for number in &mut numbers {
            *number = fields.next()?.parse().ok()?;
        }
        let file = File::open(&self.path).ok()?;
        if file.metadata().ok()?.len() != length {
            return None;
        }
        let mut hasher = crc32fast::Hasher::new();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut buffer = vec![0u8; 1 << 20];
        loop {
            match reader.read(&mut buffer).ok()? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        (hasher.finalize() == checksum).then_some(numbers)
    }

    /// Replaces the file, and stores numbers with it.
    fn write(&self, bytes: &[u8], numbers: Numbers) -> Result<()> {
        let mut check = format!("{} {}", bytes.len(), crc32fast::hash(bytes));
        for number in numbers {
            check.push_str(&format!(" {number}"));
        }
        check.push('\n');
        let _ = fs::remove_file(self.check_path());
        write_atomically(&self.path, bytes)?;
        write_atomically(&self.check_path(), check.as_bytes())
    }
}

fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.to_path_buf().into_os_string();
    name.push(format!("{PARTIAL}{}", std::process::id()));
    let partial = PathBuf::from(name);
    let written = (|| {
        let mut file = File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        if let Some(directory) = path.parent() {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    })();
    written.map_err(|error: std::io::Error| {
        let _ = fs::remove_file(&partial);
        SandboxError::file("write", path, &error)
    })
}

/// An exclusive lock on a file, released when dropped, or by the system if the process dies.
struct Lock {
    _file: File,
}

impl Lock {
    fn take(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|error| SandboxError::file("open", path, &error))?;
        // SAFETY: a system call on an open descriptor.
        while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(SandboxError::file("lock", path, &error));
            }
        }
        Ok(Self { _file: file })
    }
}

/// Compiles the guest ahead of time. The compiler does not report its progress, so the fraction is an estimate from the
/// elapsed time.
fn compile(code: &[u8], progress: &mut Progress<'_>) -> Result<Vec<u8>> {
    /// CPU seconds of the compilation on an ordinary core.
    const EXPECTED_CPU_SECONDS: f64 = 90.0;
    const STAGE: &str = "compiling the interpreter";
    const THREAD_NAME: &str = "torl-compiler";
    let engine = engine::new_engine()?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let expected = EXPECTED_CPU_SECONDS / cores as f64;
    let started = Instant::now();
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let compilation = std::thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn_scoped(scope, || {
                let compiled = engine.precompile_module(code);
                finished.store(true, Ordering::Release);
                compiled
            })
            .map_err(|error| SandboxError::thread(THREAD_NAME, &error))?;
        while !finished.load(Ordering::Acquire) {
            let spent = started.elapsed().as_secs_f64() / expected;
            progress(STAGE, 0.02 + 0.9 * (1.0 - (-1.5 * spent).exp()));
            std::thread::sleep(Duration::from_millis(100));
        }
        compilation
            .join()
            .map_err(|_| SandboxError::new("the compiler panicked on the guest"))?
            .map_err(|error| SandboxError::new(format!("the guest does not compile: {error:#}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Numbers = [7, 1, 22, 333, 0, 5, u32::MAX];

    fn entry(name: &str) -> Entry {
        let directory =
            std::env::temp_dir().join(format!("torl-cache-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Entry {
            path: directory.join("file"),
        }
    }

    #[test]
    fn a_whole_file_gives_its_number_back() {
        let entry = entry("whole");
        assert_eq!(entry.verify(), None);
        entry.write(b"content", SOME).unwrap();
        assert_eq!(entry.verify(), Some(SOME));
        entry.write(b"", NO_NUMBERS).unwrap();
        assert_eq!(entry.verify(), Some(NO_NUMBERS));
        fs::remove_dir_all(entry.path.parent().unwrap()).unwrap();
    }

    #[test]
    fn only_unused_guests_are_removed() {
        let used = entry("unused");
        let root = used.path.parent().unwrap();
        let [old, half] = ["old", "half.partial-1"].map(|name| Entry {
            path: root.join(name),
        });
        for entry in [&used, &old] {
            entry.write(b"content", SOME).unwrap();
            let check = OpenOptions::new()
                .append(true)
                .open(entry.check_path())
                .unwrap();
            check.set_modified(SystemTime::now() - 2 * UNUSED).unwrap();
        }
        fs::write(&half.path, b"x").unwrap();
        fs::write(root.join("lock"), b"").unwrap();
        used.note_use();
        Cache::new(root).remove_leftovers();
        assert_eq!((used.verify(), old.verify()), (Some(SOME), None));
        let mut left: Vec<_> = fs::read_dir(root)
            .unwrap()
            .map(|file| file.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["file", "file.check", "lock"]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn every_single_change_of_file_or_check_is_noticed() {
        let entry = entry("changed");
        entry.write(b"content", SOME).unwrap();
        for path in [entry.path.clone(), entry.check_path()] {
            let whole = fs::read(&path).unwrap();
            for index in 0..whole.len() {
                let mut changed = whole.clone();
                changed[index] ^= 1;
                fs::write(&path, &changed).unwrap();
                assert_ne!(entry.verify(), Some(SOME), "{} {index}", path.display());
                fs::write(&path, &whole[..index]).unwrap();
                assert_ne!(entry.verify(), Some(SOME), "{} {index}", path.display());
            }
            fs::write(&path, &whole).unwrap();
            assert_eq!(entry.verify(), Some(SOME));
        }
        fs::remove_dir_all(entry.path.parent().unwrap()).unwrap();
    }
}
