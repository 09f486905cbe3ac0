//! The file system of a run: a private tree in memory, its open descriptors, and the only real file, the archive with
//! Python's standard library, which is read-only.
//!
//! It is a plain value: it can be cloned, and encoded to bytes and back.

mod archive;
mod contents;
mod descriptors;
mod encoding;
#[cfg(test)]
mod tests;
mod tree;

pub use archive::Archive;
pub use descriptors::{Descriptor, Descriptors, Target};
pub use tree::{Inode, Kind, Node, Tree};

use crate::errno::{self, Checked};
use tree::{LastComponent, ROOT};

/// Options to open a file.
#[derive(Clone, Copy, Default, Debug)]
pub struct OpenOptions {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub directory: bool,
}

/// The status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub inode: Inode,
    pub file_type: FileType,
    pub links: u64,
    pub size: u64,
    pub accessed: u64,
    pub modified: u64,
    pub changed: u64,
}

/// File types by their number in WASI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileType {
    CharacterDevice = 2,
    Directory = 3,
    RegularFile = 4,
}

impl FileType {
    pub fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Directory(_) => Self::Directory,
            Kind::File(_) | Kind::Archive => Self::RegularFile,
            Kind::Null => Self::CharacterDevice,
        }
    }
}

/// The reported size of a directory.
const DIRECTORY_SIZE: u64 = 4096;

#[derive(Clone)]
pub struct FileSystem {
    archive: Archive,
    tree: Tree,
    descriptors: Descriptors,
}

impl FileSystem {
    /// Returns the initial file system of a run; its files may take `limit` bytes together.
    pub fn new(archive: Archive, limit: u64, now: u64) -> Self {
        Self {
            archive,
            tree: Tree::new(limit, now),
            descriptors: Descriptors::new(),
        }
    }

    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Writes a file with these bytes at `path` below the start directory of a run, and creates the directories on the
    /// way.
    pub fn put(&mut self, path: &str, bytes: &[u8], now: u64) -> Checked<()> {
        self.tree.put(path, bytes, now)
    }

    /// Returns the target of a descriptor.
    pub fn target(&self, descriptor: i32) -> Checked<Target> {
        Ok(self.descriptors.get(descriptor)?.target)
    }

    /// Returns the directory of a descriptor, from which a path starts.
    fn directory(&self, descriptor: i32) -> Checked<Inode> {
        match self.target(descriptor)? {
            Target::Node(inode) => Ok(inode),
            Target::Stdin | Target::Stdout | Target::Stderr => Err(errno::NOTDIR),
        }
    }

    /// Returns the descriptor of a node of the tree. A stream has neither position nor size.
    fn node(&self, descriptor: i32) -> Checked<(&Descriptor, Inode)> {
        let found = self.descriptors.get(descriptor)?;
        match found.target {
            Target::Node(inode) => Ok((found, inode)),
            Target::Stdin | Target::Stdout | Target::Stderr => Err(errno::SPIPE),
        }
    }

    pub fn open(
        &mut self,
        descriptor: i32,
        path: &[u8],
        options: OpenOptions,
        now: u64,
    ) -> Checked<i32> {
        if options.create && options.directory {
            return Err(errno::INVAL);
        }
        let start = self.directory(descriptor)?;
        let location = if options.create {
            self.tree.resolve_new(start, path)?
        } else {
            self.tree.resolve(start, path)?
        };
        // Regardless of the node there: a name with a trailing slash cannot be created as a file.
        if options.create && location.slash && matches!(location.last, LastComponent::Name(_)) {
            return Err(errno::ISDIR);
        }
        let number = self.descriptors.next()?;
        let inode = match location.inode {
            Some(_) if options.create && options.exclusive => return Err(errno::EXIST),
            Some(inode) => {
                self.check_open(inode, options)?;
                inode
            }
            None if !options.create => return Err(errno::NOENT),
            None => self
                .tree
                .create(&location, Kind::File(Default::default()), now)?,
        };
        if options.truncate && self.file_size(inode).is_some_and(|size| size > 0) {
            self.tree.resize(inode, 0, now)?;
        }
        self.tree.open(inode);
        let mut opened = Descriptor::new(Target::Node(inode), options.read, options.write);
        opened.append = options.append;
        self.descriptors.insert(number, opened);
        Ok(number)
    }

    /// Checks that an existing node may be opened with these options.
    fn check_open(&self, inode: Inode, options: OpenOptions) -> Checked<()> {
        match self.tree.node(inode).kind {
            Kind::Directory(_) if options.create || options.write || options.truncate => {
                Err(errno::ISDIR)
            }
            Kind::Directory(_) => Ok(()),
            _ if options.directory => Err(errno::NOTDIR),
            Kind::Archive if options.write || options.truncate => Err(errno::ROFS),
            Kind::Archive | Kind::File(_) | Kind::Null => Ok(()),
        }
    }

    pub fn close(&mut self, descriptor: i32) -> Checked<()> {
        if let Target::Node(inode) = self.descriptors.remove(descriptor)?.target {
            self.tree.release(inode);
        }
        Ok(())
    }

    /// Checks that a descriptor is open for reading, at an explicit position if `positioned`.
    pub fn check_readable(&self, descriptor: i32, positioned: bool) -> Checked<()> {
        let found = self.descriptors.get(descriptor)?;
        match found.target {
            _ if !found.readable => Err(errno::BADF),
            Target::Node(inode) if self.tree.node(inode).is_directory() => Err(errno::ISDIR),
            Target::Stdin if positioned => Err(errno::SPIPE),
            _ => Ok(()),
        }
    }

    pub fn check_writable(&self, descriptor: i32, positioned: bool) -> Checked<()> {
        let found = self.descriptors.get(descriptor)?;
        match found.target {
            _ if !found.writable => Err(errno::BADF),
            Target::Stdout | Target::Stderr if positioned => Err(errno::SPIPE),
            _ => Ok(()),
        }
    }

    /// Reads into `target` at `position`, or at the descriptor's position, which then advances.
    pub fn read(
        &mut self,
        descriptor: i32,
        position: Option<u64>,
        target: &mut [u8],
    ) -> Checked<usize> {
        self.check_readable(descriptor, position.is_some())?;
        let (found, inode) = self.node(descriptor)?;
        let start = position.unwrap_or(found.position);
        let count = match &self.tree.node(inode).kind {
            Kind::File(contents) => contents.read(start, target),
            Kind::Archive => {
                let bytes = self.archive.bytes();
                let rest = &bytes[bytes
                    .len()
                    .min(usize::try_from(start).unwrap_or(usize::MAX))..];
                let count = rest.len().min(target.len());
                target[..count].copy_from_slice(&rest[..count]);
                count
            }
            Kind::Null => 0,
            Kind::Directory(_) => return Err(errno::ISDIR),
        };
        if position.is_none() {
            self.descriptors.get_mut(descriptor)?.position = start + count as u64;
        }
        Ok(count)
    }

    /// Writes at `position`, or at the descriptor's position, which then advances; at the end of the file if it
    /// appends.
    pub fn write(
        &mut self,
        descriptor: i32,
        position: Option<u64>,
        bytes: &[u8],
        now: u64,
    ) -> Checked<usize> {
        self.check_writable(descriptor, position.is_some())?;
        let (found, inode) = self.node(descriptor)?;
        let start = match self.file_size(inode) {
            None => return Ok(bytes.len()),
            Some(size) if found.append => size,
            Some(_) => position.unwrap_or(found.position),
        };
        let count = self.tree.write(inode, start, bytes, now)?;
        if position.is_none() {
            self.descriptors.get_mut(descriptor)?.position = start + count as u64;
        }
        Ok(count)
    }

    /// Moves the position by `offset` from the start (0), the position (1) or the end (2).
    pub fn seek(&mut self, descriptor: i32, offset: i64, whence: i32) -> Checked<u64> {
        let (found, inode) = self.node(descriptor)?;
        let base = match whence {
            0 => 0,
            1 => found.position,
            2 => self.stat_node(inode).size,
            _ => return Err(errno::INVAL),
        };
        let position = base
            .checked_add_signed(offset)
            .filter(|&position| i64::try_from(position).is_ok())
            .ok_or(errno::INVAL)?;
        self.descriptors.get_mut(descriptor)?.position = position;
        Ok(position)
    }

    /// Truncates a file that is open for writing, or extends it with zeros.
    pub fn resize(&mut self, descriptor: i32, length: i64, now: u64) -> Checked<()> {
        let (found, inode) = match self.node(descriptor) {
            Err(errno::SPIPE) => return Err(errno::INVAL),
            other => other?,
        };
        let length = u64::try_from(length).map_err(|_| errno::INVAL)?;
        if !found.writable {
            return Err(errno::INVAL);
        }
        self.tree.resize(inode, length, now)
    }

    /// Returns the size of a regular file; `None` for any other node.
    fn file_size(&self, inode: Inode) -> Option<u64> {
        match &self.tree.node(inode).kind {
            Kind::File(contents) => Some(contents.len()),
            _ => None,
        }
    }

    pub fn stat(&self, descriptor: i32) -> Checked<Stat> {
        match self.target(descriptor)? {
            Target::Node(inode) => Ok(self.stat_node(inode)),
            Target::Stdin | Target::Stdout | Target::Stderr => {
                let root = self.tree.node(ROOT);
                Ok(Stat {
                    inode: 0,
                    file_type: FileType::CharacterDevice,
                    links: 1,
                    size: 0,
                    accessed: root.accessed,
                    modified: root.accessed,
                    changed: root.accessed,
                })
            }
        }
    }

    pub fn stat_path(&self, descriptor: i32, path: &[u8]) -> Checked<Stat> {
        let inode = self.tree.find(self.directory(descriptor)?, path)?;
        Ok(self.stat_node(inode))
    }

    fn stat_node(&self, inode: Inode) -> Stat {
        let node = self.tree.node(inode);
        let size = match &node.kind {
            Kind::Directory(_) => DIRECTORY_SIZE,
            Kind::File(contents) => contents.len(),
            Kind::Archive => self.archive.bytes().len() as u64,
            Kind::Null => 0,
        };
        Stat {
            inode,
            file_type: FileType::of(&node.kind),
            links: u64::from(node.parent.is_some() || inode == ROOT),
            size,
            accessed: node.accessed,
            modified: node.modified,
            changed: node.changed,
        }
    }

    /// Returns an open descriptor with its rights.
    pub fn access(&self, descriptor: i32) -> Checked<&Descriptor> {
        self.descriptors.get(descriptor)
    }

    pub fn set_append(&mut self, descriptor: i32, append: bool) -> Checked<()> {
        self.descriptors.get_mut(descriptor)?.append = append;
        Ok(())
    }

    pub fn set_times(&mut self, descriptor: i32, times: [Option<u64>; 2], now: u64) -> Checked<()> {
        let (_, inode) = self.node(descriptor)?;
        self.tree.set_times(inode, times, now)
    }

    pub fn set_times_of_path(
        &mut self,
        descriptor: i32,
        path: &[u8],
        times: [Option<u64>; 2],
        now: u64,
    ) -> Checked<()> {
        let inode = self.tree.find(self.directory(descriptor)?, path)?;
        self.tree.set_times(inode, times, now)
    }

    /// Calls `take` with each entry of a directory from `cookie` on, with the cookie after it, until it returns `false`.
    pub fn list(
        &mut self,
        descriptor: i32,
        cookie: u64,
        mut take: impl FnMut(u64, Inode, &Node) -> bool,
    ) -> Checked<()> {
        let (found, inode) = self.node(descriptor)?;
        let directory = self.tree.node(inode).directory()?;
        let end = if cookie == 0 {
            directory.next_place()
        } else {
            found.listing_end
        };
        for (place, inode) in directory.entries_from(cookie) {
            if place >= end || !take(place + 1, inode, self.tree.node(inode)) {
                break;
            }
        }
        self.descriptors.get_mut(descriptor)?.listing_end = end;
        Ok(())
    }

    pub fn make_directory(&mut self, descriptor: i32, path: &[u8], now: u64) -> Checked<()> {
        let location = self.tree.resolve_new(self.directory(descriptor)?, path)?;
        self.tree.make_directory(&location, now).map(drop)
    }

    pub fn remove_file(&mut self, descriptor: i32, path: &[u8], now: u64) -> Checked<()> {
        let location = self.tree.resolve(self.directory(descriptor)?, path)?;
        self.tree.remove_file(&location, now)
    }

    pub fn remove_directory(&mut self, descriptor: i32, path: &[u8], now: u64) -> Checked<()> {
        let location = self.tree.resolve(self.directory(descriptor)?, path)?;
        self.tree.remove_directory(&location, now)
    }

    /// Renames the first descriptor and path to the second.
    pub fn rename(&mut self, old: (i32, &[u8]), new: (i32, &[u8]), now: u64) -> Checked<()> {
        // A missing old path takes precedence over a trailing slash after a file.
        let from = self.tree.resolve_new(self.directory(old.0)?, old.1)?;
        let to = self.tree.resolve_new(self.directory(new.0)?, new.1)?;
        self.tree.rename(&from, &to, now)
    }

    /// Refuses a link: links do not exist, and none may be created over an existing node.
    pub fn refuse_link_at(&self, descriptor: i32, path: &[u8]) -> Checked<()> {
        let location = self.tree.resolve_new(self.directory(descriptor)?, path)?;
        Err(if location.inode.is_some() {
            errno::EXIST
        } else {
            errno::PERM
        })
    }
}
