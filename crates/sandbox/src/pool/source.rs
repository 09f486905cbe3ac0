//! What workers are started from: a command, and the prepared guest, each held open by the pool. An upgrade, a cleaned cache or
//! another build in the place of this one changes nothing for a pool that runs: all of its workers are alike.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Result, SandboxError};
use crate::guest::Prepared;
use crate::held::Held;

/// The descriptor by which a worker's process finds its own code: standard output, to which a worker has nothing to say.
const OWN_CODE: &str = "/proc/self/fd/1";

/// All that a worker is started from.
pub struct Source {
    pub program: Program,
    pub guest: HeldGuest,
}

/// The command of a worker. Its last word names the file with the worker's code: the program itself, or what an interpreter
/// is to load.
pub struct Program {
    words: Vec<OsString>,
    code: Held,
}

impl Program {
    pub fn hold(words: &[OsString]) -> Result<Self> {
        let code = words.last().ok_or_else(|| {
            SandboxError::new("the command that starts a sandbox worker is empty")
        })?;
        Ok(Self {
            words: words.to_vec(),
            code: Held::open(Path::new(code))?,
        })
    }

    pub fn name(&self) -> &OsStr {
        &self.words[0]
    }

    /// A command that starts the code as it was when it was first held.
    pub fn command(&self) -> io::Result<Command> {
        let (name, arguments) = (self.name(), &self.words[1..]);
        // Without the process file system there is the path only.
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
            .stdout(Stdio::from(self.code.file.try_clone()?));
        Ok(command)
    }
}

/// The files of a prepared guest.
pub struct HeldGuest {
    prepared: Prepared,
    files: [Held; 3],
}

impl HeldGuest {
    pub fn hold(prepared: Prepared) -> Result<Self> {
        let files =
            [&prepared.module, &prepared.image, &prepared.archive].map(|path| Held::open(path));
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
    /// When one of them was written to: what a worker has mapped of it has changed, or is no longer there.
    pub fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(Held::check)
    }

    /// In the order in which a worker expects them.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        self.files.each_ref().map(|held| held.file.as_fd())
    }
}
