//! Files that are kept open, so that everything started from them later uses the same contents.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Result, SandboxError};

/// An open file, and its path for error messages.
#[derive(Debug)]
pub struct PinnedFile {
    pub path: PathBuf,
    pub file: File,
    length: u64,
    modified: SystemTime,
}

impl PinnedFile {
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| SandboxError::file("open", path, &error))?;
        Self::of(path.into(), file)
    }

    pub fn of(path: PathBuf, file: File) -> Result<Self> {
        let (length, modified) = state(&path, &file)?;
        Ok(Self {
            path,
            file,
            length,
            modified,
        })
    }

    /// # Errors
    /// The file was modified since it was opened. (A file that was replaced or removed stays available.)
    pub fn check(&self) -> Result<()> {
        if state(&self.path, &self.file)? == (self.length, self.modified) {
            return Ok(());
        }
        Err(SandboxError::new(format!(
            "{} was written to while a sandbox pool used it; run `python -m torl_sandbox check` and start again",
            self.path.display()
        )))
    }
}

fn state(path: &Path, file: &File) -> Result<(u64, SystemTime)> {
    file.metadata()
        .and_then(|found| Ok((found.len(), found.modified()?)))
        .map_err(|error| SandboxError::file("read", path, &error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_pinned_file_outlives_its_name_and_detects_modification() {
        let path = std::env::temp_dir().join(format!("torl-pinned-{}", std::process::id()));
        fs::write(&path, b"content").unwrap();
        let pinned = PinnedFile::open(&path).unwrap();
        pinned.check().unwrap();
        let other = PinnedFile::open(&path).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(3)
            .unwrap();
        let message = other.check().unwrap_err().to_string();
        assert!(
            message.starts_with(&path.display().to_string()),
            "{message}"
        );
        fs::remove_file(&path).unwrap();
        let mut text = String::new();
        (&pinned.file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "con");
        assert!(
            PinnedFile::open(&path)
                .unwrap_err()
                .to_string()
                .contains("cannot open")
        );
    }
}
