//! The request for one run.

use std::sync::Arc;

use crate::errno;
use crate::files::Tree;
use crate::limits::Limits;
use crate::outcome::Outcome;
use crate::session::SessionState;

/// Maximum size of the code in bytes: more than practical programs need, and small enough for the guest to parse.
pub const CODE_LIMIT: usize = 16 << 20;

/// Maximum size of a request in bytes. A frame holds this and the rest of a command.
pub const SIZE_LIMIT: usize = (1 << 30) - (4 << 20);

/// Maximum size of a session's state in bytes: any code can still continue from it.
pub const STATE_LIMIT: usize = SIZE_LIMIT - CODE_LIMIT;

/// Id of a caller: the runs of different callers take turns.
pub type Caller = u64;

/// The request for one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    pub code: Vec<u8>,
    pub seed: u64,
    pub limits: Limits,
    /// The contents of standard input.
    pub stdin: Vec<u8>,
    /// Paths below the start directory of the run, and contents of the files.
    pub files: Vec<(String, Vec<u8>)>,
    /// Whether the outcome includes the files that the run created or changed.
    pub return_files: bool,
    /// Whether the outcome includes the value of the last statement.
    pub value: bool,
    /// The session that the run continues; `None` for a run without a session.
    pub session: Option<Arc<SessionState>>,
    /// For scheduling in the pool only: not sent to a worker.
    pub caller: Caller,
}

impl Request {
    /// The approximate size of the command for this run in bytes.
    pub fn size(&self) -> usize {
        let files: usize = self
            .files
            .iter()
            .map(|(path, bytes)| path.len() + bytes.len())
            .sum();
        let state = self.session.as_ref().map_or(0, |state| state.size());
        self.code.len() + self.stdin.len() + files + state
    }

    /// Returns the request that repeats the complete statements of a session's run, the first bytes of its code, if its
    /// outcome has no state for the next run. Its CPU time is doubled: what did not exceed it once must not do so now.
    pub fn repetition(&self, progress: u32, outcome: &Outcome) -> Option<Self> {
        if self.session.is_none() || outcome.session.is_some() || progress == 0 {
            return None;
        }
        let mut again = self.clone();
        again.code.truncate(progress as usize);
        again.value = false;
        again.limits.cpu_time *= 2;
        again.limits.wall_time = again.limits.wall_time.saturating_sub(outcome.wall_time);
        Some(again)
    }

    /// Checks the parts of a request that a caller can get wrong.
    ///
    /// # Errors
    /// The request is too large (with its largest part), or a file cannot be created (with its path and the reason).
    pub fn check(&self) -> Result<(), String> {
        if self.code.len() > CODE_LIMIT {
            return Err(format!(
                "the code has {} bytes, more than the limit of {CODE_LIMIT}; give data as files or standard input",
                self.code.len()
            ));
        }
        self.check_files()?;
        let size = self.size();
        if size <= SIZE_LIMIT {
            return Ok(());
        }
        let state = self.session.as_ref().map_or(0, |state| state.size());
        let (code, stdin) = (self.code.len(), self.stdin.len());
        Err(format!(
            "the request takes {size} bytes, more than the limit of {SIZE_LIMIT}: code {code}, standard input {stdin}, files {}, \
             session state {state}",
            size - code - stdin - state
        ))
    }

    fn check_files(&self) -> Result<(), String> {
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
                format!("cannot create the file {path:?}: {reason}")
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
    fn impossible_files_are_named_in_the_error() {
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

    #[test]
    fn large_requests_are_rejected_with_their_parts() {
        let code = |length| Request {
            code: vec![b'#'; length],
            ..Request::default()
        };
        assert_eq!(code(CODE_LIMIT).check(), Ok(()));
        let message = code(CODE_LIMIT + 1).check().unwrap_err();
        assert!(message.contains("16777217 bytes"), "{message}");
        let large = |stdin| Request {
            stdin: vec![0; stdin],
            session: Some(Arc::new(SessionState {
                memory: vec![0; SIZE_LIMIT / 2],
                ..SessionState::default()
            })),
            ..code(3)
        };
        assert_eq!(large(SIZE_LIMIT / 2 - 3).check(), Ok(()));
        let message = large(SIZE_LIMIT / 2).check().unwrap_err();
        let parts = format!(
            "code 3, standard input {half}, files 0, session state {half}",
            half = SIZE_LIMIT / 2
        );
        assert!(message.ends_with(&parts), "{message}");
    }
}
