//! The source of workers: a command and the prepared guest, whose files the pool keeps open. An upgrade, a cleaned
//! cache or another build does not affect an open pool: all of its workers are identical.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Result, SandboxError};
use crate::guest::Prepared;
use crate::pinned::PinnedFile;

/// The path by which a worker's process finds its own code: standard output, which a worker does not use.
const OWN_CODE: &str = "/proc/self/fd/1";

/// The variables of the environment that a worker gets: those that start its program. It runs untrusted code, and the
/// others may be secrets.
const VARIABLES: [&str; 10] = [
    "GLIBC_TUNABLES",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NIX_LD",
    "NIX_LD_LIBRARY_PATH",
    "PATH",
    "RAYON_NUM_THREADS",
];

/// The command and the guest that workers are started from.
pub struct Source {
    pub program: Program,
    pub guest: PinnedGuest,
}

/// The command of a worker. Its last argument is the path of the worker's code: the program itself, or the file that an
/// interpreter loads.
pub struct Program {
    words: Vec<OsString>,
    code: PinnedFile,
}

impl Program {
    pub fn hold(words: &[OsString]) -> Result<Self> {
        let code = words.last().ok_or_else(|| {
            SandboxError::new("the command that starts a sandbox worker is empty")
        })?;
        Ok(Self {
            words: words.to_vec(),
            code: PinnedFile::open(Path::new(code))?,
        })
    }

    pub fn name(&self) -> &OsStr {
        &self.words[0]
    }

    /// Returns a command that starts the code as it was when it was opened, without this process's environment.
    pub fn command(&self) -> io::Result<Command> {
        let (name, arguments) = (self.name(), &self.words[1..]);
        // Without the process file system, use the path.
        let code = if Path::new(OWN_CODE).exists() {
            OsStr::new(OWN_CODE)
        } else {
            self.code.path.as_os_str()
        };
        let mut command = match arguments.split_last() {
            None => Command::new(code),
            Some((_, before)) => {
                let mut command = Command::new(name);
                command.args(before).arg(code);
                command
            }
        };
        command
            .arg0(name)
            .env_clear()
            .envs(
                VARIABLES
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .stdout(Stdio::from(self.code.file.try_clone()?));
        Ok(command)
    }
}

/// The files of a prepared guest.
pub struct PinnedGuest {
    prepared: Prepared,
    files: [PinnedFile; 3],
}

impl PinnedGuest {
    pub fn open(prepared: Prepared) -> Result<Self> {
        let files = [&prepared.module, &prepared.image, &prepared.archive]
            .map(|path| PinnedFile::open(path));
        let [module, image, archive] = files;
        Ok(Self {
            files: [module?, image?, archive?],
            prepared,
        })
    }

    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// # Errors
    /// One of them was modified: the memory that a worker has mapped from it has changed or is invalid.
    pub fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(PinnedFile::check)
    }

    /// The descriptors, in the order that a worker expects.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.files.each_ref().map(|pinned| pinned.file.as_fd())
    }
}
