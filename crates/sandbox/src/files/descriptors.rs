//! Open descriptors: the node, position and rights of each.

use crate::errno::{self, Checked};
use crate::files::tree::{Inode, LIBRARY, LIBRARY_PATH, ROOT};

/// Maximum number of descriptors, including the standard streams and the preopened directories.
const MAXIMUM_OPEN: usize = 512;

/// The preopened directories: descriptor, path, node. They cannot be closed.
const PREOPENED: [(i32, &str, Inode); 2] = [(3, LIBRARY_PATH, LIBRARY), (4, "/", ROOT)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Stdin,
    Stdout,
    Stderr,
    Node(Inode),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub target: Target,
    pub position: u64,
    pub readable: bool,
    pub writable: bool,
    pub append: bool,
    /// A listing of the directory ends before this position: entries added during the listing are not in it.
    pub listing_end: u64,
}

impl Descriptor {
    pub fn new(target: Target, readable: bool, writable: bool) -> Self {
        Self {
            target,
            position: 0,
            readable,
            writable,
            append: false,
            listing_end: 0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptors {
    slots: Vec<Option<Descriptor>>,
}

impl Descriptors {
    pub fn new() -> Self {
        let streams = [
            Descriptor::new(Target::Stdin, true, false),
            Descriptor::new(Target::Stdout, false, true),
            Descriptor::new(Target::Stderr, false, true),
        ];
        let preopened =
            PREOPENED.map(|(_, _, inode)| Descriptor::new(Target::Node(inode), true, false));
        Self {
            slots: streams.into_iter().chain(preopened).map(Some).collect(),
        }
    }

    /// Returns the path of a preopened directory, if `descriptor` is one.
    pub fn preopened_path(descriptor: i32) -> Checked<&'static str> {
        PREOPENED
            .iter()
            .find(|(preopened, _, _)| *preopened == descriptor)
            .map(|(_, path, _)| *path)
            .ok_or(errno::BADF)
    }

    pub fn get(&self, descriptor: i32) -> Checked<&Descriptor> {
        usize::try_from(descriptor)
            .ok()
            .and_then(|index| self.slots.get(index)?.as_ref())
            .ok_or(errno::BADF)
    }

    pub fn get_mut(&mut self, descriptor: i32) -> Checked<&mut Descriptor> {
        usize::try_from(descriptor)
            .ok()
            .and_then(|index| self.slots.get_mut(index)?.as_mut())
            .ok_or(errno::BADF)
    }

    /// Returns the number of the next descriptor: the lowest free one.
    pub fn next(&self) -> Checked<i32> {
        let free = self.slots.iter().position(Option::is_none);
        match free.unwrap_or(self.slots.len()) {
            index if index < MAXIMUM_OPEN => Ok(index as i32),
            _ => Err(errno::MFILE),
        }
    }

    /// Inserts a descriptor at the number that `next` returned.
    pub fn insert(&mut self, number: i32, descriptor: Descriptor) {
        let index = number as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = Some(descriptor);
    }

    /// Closes a descriptor and returns it.
    pub fn remove(&mut self, descriptor: i32) -> Checked<Descriptor> {
        if Self::preopened_path(descriptor).is_ok() {
            return Err(errno::BADF);
        }
        let closed = *self.get(descriptor)?;
        self.slots[descriptor as usize] = None;
        Ok(closed)
    }

    /// The node of every descriptor that keeps it open.
    pub fn opened(&self) -> impl Iterator<Item = Inode> + '_ {
        self.slots
            .iter()
            .zip(0..)
            .filter_map(|(slot, number)| match slot.as_ref()?.target {
                Target::Node(inode) if Self::preopened_path(number).is_err() => Some(inode),
                _ => None,
            })
    }

    pub(super) fn slots(&self) -> &[Option<Descriptor>] {
        &self.slots
    }

    /// Returns descriptors read from bytes, if they are valid: not too many, and with the preopened ones in place.
    pub(super) fn from_slots(slots: Vec<Option<Descriptor>>) -> Option<Self> {
        let descriptors = Self { slots };
        let born = PREOPENED.iter().all(|&(number, _, inode)| {
            descriptors
                .get(number)
                .is_ok_and(|found| found.target == Target::Node(inode))
        });
        (born && descriptors.slots.len() <= MAXIMUM_OPEN).then_some(descriptors)
    }
}
