//! Open descriptors: what each names, where it stands in it, and what it may do.

use crate::errno::{self, Checked};
use crate::files::tree::{Inode, LIBRARY, LIBRARY_PATH, ROOT};

/// Descriptors at most, the standard streams and the directories the guest is born with included.
const MAXIMUM_OPEN: usize = 512;

/// The directories a guest is born with: descriptor, path, node. They cannot be closed.
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
    /// A listing of the directory ends before this place: what is added meanwhile is not in it.
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

    /// The path under which the guest is given a directory, if `descriptor` is one of those.
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

    /// The number that the next descriptor gets: the lowest that is free.
    pub fn next(&self) -> Checked<i32> {
        let free = self.slots.iter().position(Option::is_none);
        match free.unwrap_or(self.slots.len()) {
            index if index < MAXIMUM_OPEN => Ok(index as i32),
            _ => Err(errno::MFILE),
        }
    }

    /// Puts a descriptor at the number that `next` named.
    pub fn insert(&mut self, number: i32, descriptor: Descriptor) {
        let index = number as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        self.slots[index] = Some(descriptor);
    }

    /// Closes a descriptor and returns what it was.
    pub fn remove(&mut self, descriptor: i32) -> Checked<Descriptor> {
        if Self::preopened_path(descriptor).is_ok() {
            return Err(errno::BADF);
        }
        let closed = *self.get(descriptor)?;
        self.slots[descriptor as usize] = None;
        Ok(closed)
    }

    /// The node of every descriptor that counts as one that holds it open.
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

    /// Descriptors read from bytes, if a guest can live with them: not too many, and what it was born with in its place.
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
