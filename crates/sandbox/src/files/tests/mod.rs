//! Shared helpers of the file system's tests: a fresh one, and short names for its calls.

mod limits;
mod posix;
mod states;

use super::*;

const LIMIT: u64 = 1 << 20;
const ROOT_DIRECTORY: i32 = 4;
const LIBRARY_DIRECTORY: i32 = 3;

const READ: OpenOptions = OpenOptions {
    read: true,
    write: false,
    append: false,
    create: false,
    exclusive: false,
    truncate: false,
    directory: false,
};
const WRITE: OpenOptions = OpenOptions {
    read: false,
    write: true,
    create: true,
    ..READ
};
const UPDATE: OpenOptions = OpenOptions {
    write: true,
    ..READ
};

fn fresh() -> FileSystem {
    FileSystem::new(Archive::for_tests(), LIMIT, 0)
}

/// Calls with paths from the root, at one time.
trait Short {
    fn at(&mut self, path: &str, options: OpenOptions) -> Checked<i32>;
    fn make(&mut self, path: &str) -> Checked<()>;
    fn file(&mut self, path: &str, bytes: &[u8]);
    fn unlink(&mut self, path: &str) -> Checked<()>;
    fn rmdir(&mut self, path: &str) -> Checked<()>;
    fn mv(&mut self, old: &str, new: &str) -> Checked<()>;
    fn size(&self, path: &str) -> Checked<u64>;
    fn names(&mut self, path: &str) -> Vec<String>;
    fn content(&mut self, path: &str) -> Vec<u8>;
}

impl Short for FileSystem {
    fn at(&mut self, path: &str, options: OpenOptions) -> Checked<i32> {
        self.open(ROOT_DIRECTORY, path.as_bytes(), options, 1)
    }

    fn make(&mut self, path: &str) -> Checked<()> {
        self.make_directory(ROOT_DIRECTORY, path.as_bytes(), 1)
    }

    fn file(&mut self, path: &str, bytes: &[u8]) {
        let fd = self.at(path, WRITE).unwrap();
        assert_eq!(self.write(fd, None, bytes, 1), Ok(bytes.len()));
        self.close(fd).unwrap();
    }

    fn unlink(&mut self, path: &str) -> Checked<()> {
        self.remove_file(ROOT_DIRECTORY, path.as_bytes(), 1)
    }

    fn rmdir(&mut self, path: &str) -> Checked<()> {
        self.remove_directory(ROOT_DIRECTORY, path.as_bytes(), 1)
    }

    fn mv(&mut self, old: &str, new: &str) -> Checked<()> {
        let old = (ROOT_DIRECTORY, old.as_bytes());
        self.rename(old, (ROOT_DIRECTORY, new.as_bytes()), 1)
    }

    fn size(&self, path: &str) -> Checked<u64> {
        self.stat_path(ROOT_DIRECTORY, path.as_bytes())
            .map(|stat| stat.size)
    }

    fn names(&mut self, path: &str) -> Vec<String> {
        let fd = self.at(path, READ).unwrap();
        let mut names = Vec::new();
        let mut take = |_, _, node: &Node| {
            names.push(String::from_utf8_lossy(&node.name).into_owned());
            true
        };
        self.list(fd, 0, &mut take).unwrap();
        self.close(fd).unwrap();
        names
    }

    fn content(&mut self, path: &str) -> Vec<u8> {
        let fd = self.at(path, READ).unwrap();
        let mut bytes = vec![0; self.stat(fd).unwrap().size as usize];
        assert_eq!(self.read(fd, None, &mut bytes), Ok(bytes.len()));
        self.close(fd).unwrap();
        bytes
    }
}
