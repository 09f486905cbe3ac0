//! The file system as bytes and back. Decoding validates its input, because the sender may have run untrusted code.

use std::io;

use crate::files::FileSystem;
use crate::files::archive::Archive;
use crate::files::contents::Contents;
use crate::files::descriptors::{Descriptor, Descriptors, Target};
use crate::files::tree::{Directory, Inode, Kind, Node, PendingNode, Tree};
use crate::wire::{Reader, Writer, malformed};

/// Numbers that only grow by one stay far below this.
const COUNTER_LIMIT: u64 = 1 << 62;

impl FileSystem {
    pub fn encode(&self, writer: &mut Writer) {
        writer.number(self.tree.next_inode());
        writer.number(self.tree.nodes().len() as u64);
        for (&inode, node) in self.tree.nodes() {
            let parent = node
                .parent
                .and_then(|parent| self.tree.node(parent).directory().ok());
            let place = parent.and_then(|parent| parent.place_of(&node.name));
            encode_node(inode, node, place.unwrap_or(0), writer);
        }
        let slots = self.descriptors.slots();
        writer.number(slots.len() as u64);
        for slot in slots {
            encode_slot(slot.as_ref(), writer);
        }
    }

    /// # Errors
    /// The bytes do not encode a file system, or its files exceed `limit` bytes.
    pub fn decode(reader: &mut Reader<'_>, archive: Archive, limit: u64) -> io::Result<Self> {
        let next_inode = counter(reader)?;
        let mut nodes = Vec::new();
        for _ in 0..reader.number()? {
            nodes.push(decode_node(reader, limit)?);
        }
        let mut slots = Vec::new();
        for _ in 0..reader.number()? {
            slots.push(decode_slot(reader)?);
        }
        let descriptors = Descriptors::from_slots(slots).ok_or_else(malformed)?;
        let opened = descriptors.opened();
        let tree = Tree::assemble(next_inode, limit, nodes, opened).ok_or_else(malformed)?;
        Ok(Self {
            archive,
            tree,
            descriptors,
        })
    }
}

fn counter(reader: &mut Reader<'_>) -> io::Result<u64> {
    reader.number().and_then(|number| {
        if number < COUNTER_LIMIT {
            Ok(number)
        } else {
            Err(malformed())
        }
    })
}

/// Reads a position of a descriptor: any that `FileSystem::seek` accepts.
fn position(reader: &mut Reader<'_>) -> io::Result<u64> {
    let position = reader.number()?;
    match i64::try_from(position) {
        Ok(_) => Ok(position),
        Err(_) => Err(malformed()),
    }
}

fn encode_node(inode: Inode, node: &Node, place: u64, writer: &mut Writer) {
    writer
        .number(inode)
        .number(node.parent.unwrap_or(0))
        .number(place)
        .bytes(&node.name)
        .flag(node.fixed)
        .number(node.accessed)
        .number(node.modified)
        .number(node.changed);
    match &node.kind {
        Kind::Directory(directory) => {
            writer.byte(0).number(directory.next_place());
        }
        Kind::File(contents) => contents.encode(writer.byte(1)),
        Kind::Archive => {
            writer.byte(2);
        }
        Kind::Null => {
            writer.byte(3);
        }
    }
}

fn decode_node(reader: &mut Reader<'_>, limit: u64) -> io::Result<PendingNode> {
    Ok(PendingNode {
        inode: reader.number()?,
        parent: Some(reader.number()?).filter(|&parent| parent != 0),
        place: reader.number()?,
        node: Node {
            parent: None,
            name: reader.bytes()?.into(),
            fixed: reader.flag()?,
            opens: 0,
            accessed: reader.number()?,
            modified: reader.number()?,
            changed: reader.number()?,
            kind: match reader.byte()? {
                0 => Kind::Directory(Directory::starting_at(counter(reader)?)),
                1 => Kind::File(Contents::decode(reader, limit)?),
                2 => Kind::Archive,
                3 => Kind::Null,
                _ => return Err(malformed()),
            },
        },
    })
}

fn encode_slot(slot: Option<&Descriptor>, writer: &mut Writer) {
    let Some(descriptor) = slot else {
        writer.byte(0);
        return;
    };
    match descriptor.target {
        Target::Stdin => writer.byte(1),
        Target::Stdout => writer.byte(2),
        Target::Stderr => writer.byte(3),
        Target::Node(inode) => writer.byte(4).number(inode),
    };
    writer
        .number(descriptor.position)
        .flag(descriptor.readable)
        .flag(descriptor.writable)
        .flag(descriptor.append)
        .number(descriptor.listing_end);
}

fn decode_slot(reader: &mut Reader<'_>) -> io::Result<Option<Descriptor>> {
    let target = match reader.byte()? {
        0 => return Ok(None),
        1 => Target::Stdin,
        2 => Target::Stdout,
        3 => Target::Stderr,
        4 => Target::Node(reader.number()?),
        _ => return Err(malformed()),
    };
    Ok(Some(Descriptor {
        target,
        position: position(reader)?,
        readable: reader.flag()?,
        writable: reader.flag()?,
        append: reader.flag()?,
        listing_end: reader.number()?,
    }))
}
