//! A tree put together from nodes that somebody sent, who may have sent anything.

use std::collections::BTreeMap;

use super::{
    Extent, Inode, Kind, LIBRARY, MAXIMUM_DEPTH, MAXIMUM_NAME, MAXIMUM_NODES, Node, ROOT, Tree,
    size_of_file,
};

/// A node and where it belongs.
pub struct Loose {
    pub inode: Inode,
    pub parent: Option<Inode>,
    /// The place of its entry in the parent.
    pub place: u64,
    /// Without parent, and a directory without entries.
    pub node: Node,
}

impl Tree {
    /// The tree of these nodes, of which `opened` names one for each descriptor. `None` if they are no tree that the
    /// operations could have made.
    pub fn assemble(
        next_inode: Inode,
        limit: u64,
        loose: Vec<Loose>,
        opened: impl Iterator<Item = Inode>,
    ) -> Option<Self> {
        let mut places = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for Loose {
            inode,
            parent,
            place,
            mut node,
        } in loose
        {
            node.parent = parent;
            if let Some(parent) = parent {
                places.insert((parent, place), inode);
            }
            if inode >= next_inode || nodes.insert(inode, node).is_some() {
                return None;
            }
        }
        for ((parent, place), inode) in places {
            let name = nodes.get(&inode)?.name.clone();
            let Kind::Directory(directory) = &mut nodes.get_mut(&parent)?.kind else {
                return None;
            };
            let valid = is_name(&name) && place < directory.next_place;
            if !valid || directory.by_name.insert(name, (place, inode)).is_some() {
                return None;
            }
            directory.by_place.insert(place, inode);
        }
        for inode in opened {
            nodes.get_mut(&inode)?.opens += 1;
        }
        let mut tree = Self {
            nodes,
            next_inode,
            bytes: 0,
            limit,
        };
        tree.bytes = tree.nodes.values().map(size_of_file).sum();
        tree.is_sound().then_some(tree)
    }

    fn is_sound(&self) -> bool {
        let is_directory = |inode| self.nodes.get(&inode).is_some_and(Node::is_directory);
        self.nodes.len() <= MAXIMUM_NODES
            && self.bytes <= self.limit
            && is_directory(LIBRARY)
            && is_directory(ROOT)
            && self.node(ROOT).parent.is_none()
            && self
                .nodes
                .iter()
                .all(|(&inode, node)| self.is_placed(inode, node))
    }

    /// Whether a node hangs in the tree, or is an open one that was removed.
    fn is_placed(&self, inode: Inode, node: &Node) -> bool {
        let Some(parent) = node.parent else {
            let empty = node.directory().is_ok_and(super::Directory::is_empty);
            return inode == ROOT || node.opens > 0 && (empty || !node.is_directory());
        };
        // Two nodes that claim one place: only one of them has got it.
        let entry = self
            .node(parent)
            .directory()
            .map(|entries| entries.by_name.get(&node.name));
        if !entry.is_ok_and(|entry| entry.is_some_and(|&(_, named)| named == inode)) {
            return false;
        }
        let mut ancestors = std::iter::successors(Some(parent), |&inode| self.node(inode).parent);
        ancestors
            .by_ref()
            .take(MAXIMUM_DEPTH)
            .any(|ancestor| ancestor == ROOT)
            && self
                .check_extent(
                    parent,
                    Extent {
                        depth: 1,
                        length: 1 + node.name.len(),
                    },
                )
                .is_ok()
    }
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= MAXIMUM_NAME
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}
