//! What a pool is asked to run.

use std::sync::Arc;

use crate::errno;
use crate::files::Tree;
use crate::limits::Limits;
use crate::session::SessionState;

/// Most bytes of code: more than anybody writes, and what the guest can still parse.
pub const CODE_LIMIT: usize = 16 << 20;

/// Most bytes of a request in all. A frame takes this and the rest of what an order says.
pub const SIZE_LIMIT: usize = (1 << 30) - (4 << 20);

/// Most bytes that a session may keep: any code can still continue from them.
pub const STATE_LIMIT: usize = SIZE_LIMIT - CODE_LIMIT;

/// Names who asks: the runs of each take turns with those of the others.
pub type Caller = u64;

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
    /// The pool's business alone: a worker is not told.
    pub caller: Caller,
}

impl Request {
    /// About how many bytes the order takes that asks for this run.
    pub fn size(&self) -> usize {
        let files: usize = self
            .files
            .iter()
            .map(|(path, bytes)| path.len() + bytes.len())
            .sum();
        let state = self.session.as_ref().map_or(0, |state| state.size());
        self.code.len() + self.stdin.len() + files + state
    }

    /// Checks what the one who asks can get wrong.
    ///
    /// # Errors
    /// When it is too large, and which part of it; when the files cannot be put where they belong: which, and why.
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
             what the session has kept {state}",
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

    #[test]
    fn what_is_too_large_is_refused_and_its_parts_are_named() {
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
            "code 3, standard input {half}, files 0, what the session has kept {half}",
            half = SIZE_LIMIT / 2
        );
        assert!(message.ends_with(&parts), "{message}");
    }
}
