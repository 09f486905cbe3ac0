//! Operations that change the tree: create, write, remove, rename.

use std::sync::Arc;

use super::{
    Directory, Extent, Inode, Kind, LastComponent, Location, MAXIMUM_NODES, Name, Node, ROOT, Tree,
    WORK, size_of_file,
};
use crate::errno::{self, Checked};
use crate::files::contents::Contents;

impl Tree {
    /// Creates a node at a free location.
    pub fn create(&mut self, location: &Location<'_>, kind: Kind, now: u64) -> Checked<Inode> {
        let LastComponent::Name(name) = location.last else {
            return Err(errno::EXIST);
        };
        if location.inode.is_some() {
            return Err(errno::EXIST);
        }
        self.check_writable(location.directory)?;
        if self.nodes.len() >= MAXIMUM_NODES {
            return Err(errno::NOSPC);
        }
        let extent = Extent {
            depth: 1,
            length: 1 + name.len(),
        };
        self.check_extent(location.directory, extent)?;
        Ok(self.add(Some(location.directory), name, false, kind, now))
    }

    /// Adds a node without any check.
    pub(super) fn add(
        &mut self,
        directory: Option<Inode>,
        name: &[u8],
        fixed: bool,
        kind: Kind,
        now: u64,
    ) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        let name: Name = name.into();
        let node = Node {
            parent: None,
            name: Arc::clone(&name),
            fixed,
            opens: 0,
            accessed: now,
            modified: now,
            changed: now,
            kind,
        };
        self.nodes.insert(inode, node);
        if let Some(directory) = directory {
            self.attach(directory, name, inode, now);
        }
        inode
    }

    pub fn make_directory(&mut self, location: &Location<'_>, now: u64) -> Checked<Inode> {
        self.create(location, Kind::Directory(Directory::default()), now)
    }

    pub fn remove_file(&mut self, location: &Location<'_>, now: u64) -> Checked<()> {
        let LastComponent::Name(name) = location.last else {
            return Err(errno::ISDIR);
        };
        let inode = location.inode.ok_or(errno::NOENT)?;
        if self.node(inode).is_directory() {
            return Err(errno::ISDIR);
        }
        self.check_writable(inode)?;
        self.detach(location.directory, name, inode, now);
        Ok(())
    }

    pub fn remove_directory(&mut self, location: &Location<'_>, now: u64) -> Checked<()> {
        let name = match location.last {
            LastComponent::Name(name) => name,
            LastComponent::Dot if location.inode == Some(ROOT) => return Err(errno::BUSY),
            LastComponent::Dot => return Err(errno::INVAL),
            LastComponent::DotDot => return Err(errno::NOTEMPTY),
        };
        let inode = location.inode.ok_or(errno::NOENT)?;
        let empty = self.node(inode).directory()?.is_empty();
        self.check_writable(inode)?;
        if !empty {
            return Err(errno::NOTEMPTY);
        }
        self.detach(location.directory, name, inode, now);
        Ok(())
    }

    /// Moves the node at `from` to `to`, replacing an existing node.
    pub fn rename(&mut self, from: &Location<'_>, to: &Location<'_>, now: u64) -> Checked<()> {
        let (LastComponent::Name(old), LastComponent::Name(new)) = (from.last, to.last) else {
            return Err(errno::BUSY);
        };
        let source = from.inode.ok_or(errno::NOENT)?;
        let moves_directory = self.node(source).is_directory();
        if (from.slash || to.slash) && !moves_directory {
            return Err(errno::NOTDIR);
        }
        if self.holds(source, to.directory) {
            return Err(errno::INVAL);
        }
        if to
            .inode
            .is_some_and(|target| self.holds(target, from.directory))
        {
            return Err(errno::NOTEMPTY);
        }
        if to.inode == Some(source) {
            return Ok(());
        }
        self.check_writable(source)?;
        self.check_writable(to.directory)?;
        if let Some(target) = to.inode {
            self.check_writable(target)?;
            match (moves_directory, &self.node(target).kind) {
                (true, Kind::Directory(entries)) if !entries.is_empty() => {
                    return Err(errno::NOTEMPTY);
                }
                (false, Kind::Directory(_)) => return Err(errno::ISDIR),
                (true, Kind::File(_) | Kind::Archive | Kind::Null) => return Err(errno::NOTDIR),
                _ => {}
            }
        }
        let below = self.extent_below(source);
        let extent = Extent {
            depth: 1 + below.depth,
            length: 1 + new.len() + below.length,
        };
        self.check_extent(to.directory, extent)?;
        if let Some(target) = to.inode {
            self.detach(to.directory, new, target, now);
        }
        self.unlink(from.directory, old, now);
        self.attach(to.directory, new.into(), source, now);
        Ok(())
    }

    /// Counts a new descriptor of a node.
    pub fn open(&mut self, inode: Inode) {
        self.node_mut(inode).opens += 1;
    }

    /// Drops a descriptor of a node, and the node if it has no other reference.
    pub fn release(&mut self, inode: Inode) {
        self.node_mut(inode).opens -= 1;
        self.forget_if_unused(inode);
    }

    /// Writes as many of `bytes` at `position` as fit.
    pub fn write(&mut self, inode: Inode, position: u64, bytes: &[u8], now: u64) -> Checked<usize> {
        let room = self.limit.saturating_sub(self.bytes);
        let Kind::File(contents) = &mut self.node_mut(inode).kind else {
            return Err(errno::INVAL);
        };
        let before = contents.len();
        let possible = (before + room).saturating_sub(position);
        let count = bytes
            .len()
            .min(usize::try_from(possible).unwrap_or(usize::MAX));
        if count == 0 && !bytes.is_empty() {
            return Err(errno::NOSPC);
        }
        contents.write(position, &bytes[..count]);
        let grown = contents.len() - before;
        self.bytes += grown;
        self.touch(inode, now);
        Ok(count)
    }

    pub fn resize(&mut self, inode: Inode, length: u64, now: u64) -> Checked<()> {
        let room = self.limit.saturating_sub(self.bytes);
        let contents = match &mut self.node_mut(inode).kind {
            Kind::File(contents) => contents,
            Kind::Directory(_) => return Err(errno::ISDIR),
            Kind::Archive | Kind::Null => return Err(errno::INVAL),
        };
        let before = contents.len();
        if length > before && length - before > room {
            return Err(errno::NOSPC);
        }
        contents.resize(length);
        self.bytes = self.bytes - before + length;
        self.touch(inode, now);
        Ok(())
    }

    /// Sets the times of the last access and the last modification, if present.
    pub fn set_times(
        &mut self,
        inode: Inode,
        [accessed, modified]: [Option<u64>; 2],
        now: u64,
    ) -> Checked<()> {
        self.check_writable(inode)?;
        let node = self.node_mut(inode);
        node.accessed = accessed.unwrap_or(node.accessed);
        node.modified = modified.unwrap_or(node.modified);
        node.changed = now;
        Ok(())
    }

    pub fn check_writable(&self, inode: Inode) -> Checked<()> {
        if self.node(inode).fixed {
            return Err(errno::ROFS);
        }
        Ok(())
    }

    fn touch(&mut self, inode: Inode, now: u64) {
        let node = self.node_mut(inode);
        node.modified = now;
        node.changed = now;
    }

    fn attach(&mut self, parent: Inode, name: Name, inode: Inode, now: u64) {
        let node = self.node_mut(inode);
        node.parent = Some(parent);
        node.name = Arc::clone(&name);
        node.changed = now;
        if let Some(directory) = self.directory_mut(parent) {
            directory.add(name, inode);
        }
        self.touch(parent, now);
    }

    /// Removes an entry from its directory; the node stays.
    fn unlink(&mut self, parent: Inode, name: &[u8], now: u64) {
        if let Some(directory) = self.directory_mut(parent) {
            directory.remove(name);
        }
        self.touch(parent, now);
    }

    fn detach(&mut self, parent: Inode, name: &[u8], inode: Inode, now: u64) {
        self.unlink(parent, name, now);
        let node = self.node_mut(inode);
        node.parent = None;
        node.changed = now;
        self.forget_if_unused(inode);
    }

    fn forget_if_unused(&mut self, inode: Inode) {
        if self.is_removed(inode)
            && self.node(inode).opens == 0
            && let Some(node) = self.nodes.remove(&inode)
        {
            self.bytes -= size_of_file(&node);
        }
    }

    /// Writes a file with these bytes at `path` below the start directory of a run, and creates the directories on the
    /// way.
    pub fn put(&mut self, path: &str, bytes: &[u8], now: u64) -> Checked<()> {
        let work = self.find(ROOT, WORK.as_bytes())?;
        for (end, _) in path.match_indices('/') {
            let location = self.resolve(work, &path.as_bytes()[..end])?;
            if location.inode.is_none() {
                self.make_directory(&location, now)?;
            }
        }
        let location = self.resolve(work, path.as_bytes())?;
        let inode = match location.inode {
            Some(inode) => {
                self.resize(inode, 0, now)?;
                inode
            }
            None => self.create(&location, Kind::File(Contents::default()), now)?,
        };
        match self.write(inode, 0, bytes, now)? {
            count if count == bytes.len() => Ok(()),
            _ => Err(errno::NOSPC),
        }
    }
}
