//! The tree of directories and files that a run sees: a plain value in the host's memory.
//!
//! Paths are resolved as in POSIX, from any directory, and cannot leave the tree. Every operation takes time at most
//! proportional to the bytes it is passed and the number of entries, which is limited.

mod assembly;
mod edits;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use assembly::PendingNode;

use crate::errno::{self, Checked};
use crate::files::contents::Contents;

pub type Inode = u64;
pub type Name = Arc<[u8]>;

pub const ROOT: Inode = 1;
/// The directory with the archive of the standard library.
pub const LIBRARY: Inode = 4;

/// The start directory of a run. It contains the input files and the returned files.
pub const WORK: &str = "/work";

/// The guest's path of its standard library.
pub const LIBRARY_PATH: &str = "/usr/local/lib";
const ARCHIVE_NAME: &[u8] = b"python315.zip";

/// Maximum number of files and directories, including removed ones that are open.
const MAXIMUM_NODES: usize = 8192;
const MAXIMUM_NAME: usize = 255;
/// Maximum length of a path argument, and of a file's path from the root.
const MAXIMUM_PATH: usize = 4096;
/// Maximum number of components of a file's path from the root.
const MAXIMUM_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory(Directory),
    File(Contents),
    /// The archive of the standard library, whose bytes are not part of the tree.
    Archive,
    /// `/dev/null`
    Null,
}

/// The entries of a directory, by name and in the order of creation, which is the order of listings.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Directory {
    by_name: BTreeMap<Name, (u64, Inode)>,
    by_place: BTreeMap<u64, Inode>,
    next_place: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `None` at the root, and for a node that was removed while it was open.
    pub parent: Option<Inode>,
    pub name: Name,
    /// Part of the guest's installation: the node and its contents cannot be changed.
    pub fixed: bool,
    /// The number of its descriptors.
    pub opens: u32,
    /// Times in nanoseconds since 1970: when `accessed` was last set, the contents changed, the node changed.
    pub accessed: u64,
    pub modified: u64,
    pub changed: u64,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<Inode, Node>,
    next_inode: Inode,
    /// Bytes of all files together, including removed ones that are open.
    bytes: u64,
    limit: u64,
}

/// The result of resolving a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The directory in which the last component was looked up.
    pub directory: Inode,
    pub last: LastComponent<'a>,
    /// The node there, if any.
    pub inode: Option<Inode>,
    /// Whether the path ends with a slash: it must name a directory.
    pub slash: bool,
}

/// The last component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastComponent<'a> {
    Name(&'a [u8]),
    /// `.`, or an empty name after a leading slash.
    Dot,
    DotDot,
}

/// Length and depth of the longest path in a directory, relative to the directory.
#[derive(Clone, Copy, Default)]
struct Extent {
    depth: usize,
    length: usize,
}

impl Directory {
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The entries from `place` on, each with its position.
    pub fn entries_from(&self, place: u64) -> impl Iterator<Item = (u64, Inode)> + '_ {
        self.by_place
            .range(place..)
            .map(|(&place, &inode)| (place, inode))
    }

    /// The position of the next entry.
    pub fn next_place(&self) -> u64 {
        self.next_place
    }

    /// Returns an empty directory whose next entry gets this position.
    pub fn starting_at(next_place: u64) -> Self {
        Self {
            next_place,
            ..Self::default()
        }
    }

    /// Returns the position of an entry.
    pub fn place_of(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|&(place, _)| place)
    }

    fn add(&mut self, name: Name, inode: Inode) {
        self.by_place.insert(self.next_place, inode);
        self.by_name.insert(name, (self.next_place, inode));
        self.next_place += 1;
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some((place, _)) = self.by_name.remove(name) {
            self.by_place.remove(&place);
        }
    }
}

impl Node {
    pub fn directory(&self) -> Checked<&Directory> {
        match &self.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(errno::NOTDIR),
        }
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }
}

impl Tree {
    /// Returns the initial tree of a run, whose files may take `limit` bytes together.
    pub fn new(limit: u64, now: u64) -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            next_inode: ROOT,
            bytes: 0,
            limit,
        };
        let directory = || Kind::Directory(Directory::default());
        tree.add(None, b"", false, directory(), now);
        let usr = tree.add(Some(ROOT), b"usr", true, directory(), now);
        let local = tree.add(Some(usr), b"local", true, directory(), now);
        let library = tree.add(Some(local), b"lib", true, directory(), now);
        debug_assert_eq!(library, LIBRARY);
        tree.add(Some(library), ARCHIVE_NAME, true, Kind::Archive, now);
        let devices = tree.add(Some(ROOT), b"dev", true, directory(), now);
        tree.add(Some(devices), b"null", true, Kind::Null, now);
        tree.add(Some(ROOT), b"tmp", false, directory(), now);
        tree.add(Some(ROOT), b"work", false, directory(), now);
        tree
    }

    pub fn nodes(&self) -> &BTreeMap<Inode, Node> {
        &self.nodes
    }

    pub fn next_inode(&self) -> Inode {
        self.next_inode
    }

    /// # Panics
    /// If the node does not exist. A live inode, entry or descriptor keeps its node.
    pub fn node(&self, inode: Inode) -> &Node {
        self.nodes.get(&inode).expect("an inode in use has a node")
    }

    fn node_mut(&mut self, inode: Inode) -> &mut Node {
        self.nodes
            .get_mut(&inode)
            .expect("an inode in use has a node")
    }

    fn directory_mut(&mut self, inode: Inode) -> Option<&mut Directory> {
        match &mut self.node_mut(inode).kind {
            Kind::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    fn is_removed(&self, inode: Inode) -> bool {
        inode != ROOT && self.node(inode).parent.is_none()
    }

    /// Resolves `path` from the directory `start`, or from the root if it begins with a slash. The last component may
    /// be missing.
    pub fn resolve<'a>(&self, start: Inode, path: &'a [u8]) -> Checked<Location<'a>> {
        if path.is_empty() {
            return Err(errno::NOENT);
        }
        if path.len() > MAXIMUM_PATH {
            return Err(errno::NAMETOOLONG);
        }
        if path.contains(&0) {
            return Err(errno::INVAL);
        }
        let start = if path[0] == b'/' { ROOT } else { start };
        self.node(start).directory()?;
        let mut location = Location {
            directory: start,
            last: LastComponent::Dot,
            inode: Some(start),
            slash: path.ends_with(b"/"),
        };
        for component in path
            .split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty())
        {
            let directory = location.inode.ok_or(errno::NOENT)?;
            let entries = self.node(directory).directory()?;
            (location.last, location.inode) = match component {
                b"." => (LastComponent::Dot, Some(directory)),
                _ if self.is_removed(directory) => return Err(errno::NOENT),
                b".." => {
                    let parent = self.node(directory).parent;
                    (LastComponent::DotDot, Some(parent.unwrap_or(ROOT)))
                }
                name if name.len() > MAXIMUM_NAME => return Err(errno::NAMETOOLONG),
                name => {
                    let found = entries.by_name.get(name).map(|&(_, inode)| inode);
                    (LastComponent::Name(name), found)
                }
            };
            location.directory = directory;
        }
        match location.inode {
            Some(inode) if location.slash && !self.node(inode).is_directory() => Err(errno::NOTDIR),
            _ => Ok(location),
        }
    }

    /// `resolve` for a path to create: an existing file is in the way, with or without a slash.
    pub fn resolve_new<'a>(&self, start: Inode, path: &'a [u8]) -> Checked<Location<'a>> {
        let last = path.iter().rposition(|&byte| byte != b'/');
        let end = last.map_or(path.len(), |last| last + 1);
        let location = self.resolve(start, &path[..end])?;
        Ok(Location {
            slash: end < path.len(),
            ..location
        })
    }

    /// Returns the node at `path`.
    pub fn find(&self, start: Inode, path: &[u8]) -> Checked<Inode> {
        self.resolve(start, path)?.inode.ok_or(errno::NOENT)
    }

    /// Whether `inner` is `outer` or a descendant.
    fn holds(&self, outer: Inode, mut inner: Inode) -> bool {
        while inner != outer {
            match self.node(inner).parent {
                Some(parent) => inner = parent,
                None => return false,
            }
        }
        true
    }

    /// Refuses an entry of `directory` if its path, or its longest path below, would be too long.
    fn check_extent(&self, directory: Inode, below: Extent) -> Checked<()> {
        let Extent {
            mut depth,
            mut length,
        } = below;
        let mut inode = directory;
        while let Some(parent) = self.node(inode).parent {
            depth += 1;
            length += 1 + self.node(inode).name.len();
            inode = parent;
        }
        if depth > MAXIMUM_DEPTH || length > MAXIMUM_PATH {
            return Err(errno::NAMETOOLONG);
        }
        Ok(())
    }

    fn extent_below(&self, inode: Inode) -> Extent {
        let mut longest = Extent::default();
        let mut waiting = vec![(inode, longest)];
        while let Some((inode, extent)) = waiting.pop() {
            longest.depth = longest.depth.max(extent.depth);
            longest.length = longest.length.max(extent.length);
            if let Kind::Directory(directory) = &self.node(inode).kind {
                waiting.extend(directory.by_name.iter().map(|(name, &(_, inode))| {
                    let depth = extent.depth + 1;
                    (
                        inode,
                        Extent {
                            depth,
                            length: extent.length + 1 + name.len(),
                        },
                    )
                }));
            }
        }
        longest
    }

    /// Returns the files below the start directory of a run that are new or differ from `before`, by path.
    pub fn files_changed_since(&self, before: &Self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut changed = BTreeMap::new();
        let mut waiting = Vec::new();
        match self.find(ROOT, WORK.as_bytes()) {
            Ok(start) if self.node(start).is_directory() => {
                waiting.push((start, before.find(ROOT, WORK.as_bytes()).ok(), Vec::new()));
            }
            _ => {}
        }
        while let Some((inode, old, path)) = waiting.pop() {
            let old = old.map(|old| &before.node(old).kind);
            match (&self.node(inode).kind, old) {
                (Kind::Directory(entries), old) => {
                    for (name, &(_, inode)) in &entries.by_name {
                        let old = match old {
                            Some(Kind::Directory(old)) => {
                                old.by_name.get(name).map(|&(_, inode)| inode)
                            }
                            _ => None,
                        };
                        let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                        waiting.push((inode, old, [&path, separator, name].concat()));
                    }
                }
                (Kind::File(new), Some(Kind::File(old))) if new == old => {}
                (Kind::File(new), _) => drop(changed.insert(path, new.to_vec())),
                (Kind::Archive | Kind::Null, _) => {}
            }
        }
        changed.into_iter().collect()
    }
}

fn size_of_file(node: &Node) -> u64 {
    match &node.kind {
        Kind::File(contents) => contents.len(),
        _ => 0,
    }
}
