//! What a pool is asked to run.

use std::sync::Arc;

use crate::errno;
use crate::files::Tree;
use crate::limits::Limits;
use crate::session::SessionState;

/// One run to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    pub code: Vec<u8>,
    pub seed: u64,
    pub limits: Limits,
    /// All that standard input holds.
    pub stdin: Vec<u8>,
    /// Paths below the directory the run starts in, and what the files hold.
    pub files: Vec<(String, Vec<u8>)>,
    /// Whether the outcome holds the files that the run made or changed.
    pub return_files: bool,
    /// Whether the outcome holds the value of the last statement.
    pub value: bool,
    /// The session that the run continues; `None`: the run is for itself.
    pub session: Option<Arc<SessionState>>,
}

impl Request {
    /// About how many bytes the order takes that asks for this run.
    pub fn size(&self) -> usize {
        let files: usize = self
            .files
            .iter()
            .map(|(path, bytes)| path.len() + bytes.len())
            .sum();
        let state = self
            .session
            .as_ref()
            .map_or(0, |state| state.memory.len() + state.host.len());
        self.code.len() + self.stdin.len() + files + state
    }

    /// Checks what the one who asks can get wrong.
    ///
    /// # Errors
    /// When the files cannot be put where they belong: which, and why.
    pub fn check(&self) -> Result<(), String> {
        if self.files.is_empty() {
            return Ok(());
        }
        let limit = self.limits.files_bytes;
        let mut tree = Tree::new(limit, 0);
        let mut total = 0u64;
        for (path, bytes) in &self.files {
            let odd = |part: &str| matches!(part, "" | "." | "..");
            if path.split('/').any(odd) {
                return Err(format!(
                    "{path:?} is not a path below the run's directory: it must be relative, without \"..\""
                ));
            }
            tree.put(path, b"", 0).map_err(|code| {
                let reason = match code {
                    errno::NOTDIR => "one of its directories is another file",
                    errno::ISDIR => "it is also the directory of another file",
                    errno::NAMETOOLONG => "it is too long or too deep",
                    errno::INVAL => "it has a NUL in it",
                    _ => "there are too many files",
                };
                format!("the file {path:?} cannot be: {reason}")
            })?;
            total += bytes.len() as u64;
        }
        if total > limit {
            return Err(format!(
                "the files hold {total} bytes, more than the limit of {limit}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_are_named() {
        let check = |paths: &[&str], bytes: usize| {
            let files = paths
                .iter()
                .map(|path| ((*path).to_owned(), vec![0; bytes]));
            let limits = Limits {
                files_bytes: 10,
                ..Limits::default()
            };
            Request {
                files: files.collect(),
                limits,
                ..Request::default()
            }
            .check()
        };
        assert_eq!(check(&[], 0), Ok(()));
        assert_eq!(
            check(&["a", "b/c", "b/d/e.txt", "b/...", "b/.f"], 2),
            Ok(())
        );
        for path in [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "./a",
            "..",
            "../a",
            "a/../../b",
            "a/..",
        ] {
            let message = check(&[path], 0).unwrap_err();
            assert!(message.contains("is not a path below"), "{path}: {message}");
        }
        assert!(
            check(&["a", "a/b"], 0)
                .unwrap_err()
                .contains("another file")
        );
        assert!(
            check(&["a/b", "a"], 0)
                .unwrap_err()
                .contains("the directory of another")
        );
        assert!(check(&["a\0b"], 0).unwrap_err().contains("NUL"));
        assert!(
            check(&[&"x".repeat(256)], 0)
                .unwrap_err()
                .contains("too long")
        );
        assert!(
            check(&[&["d"; 200].join("/")], 0)
                .unwrap_err()
                .contains("too deep")
        );
        let many: Vec<String> = (0..9000).map(|index| index.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(check(&many, 0).unwrap_err().contains("too many"));
        assert!(check(&["a", "b"], 5).is_ok());
        assert!(check(&["a", "b"], 6).unwrap_err().contains("12 bytes"));
    }
}
