//! Assembly of a tree from nodes of an untrusted sender.

use std::collections::BTreeMap;

use super::{
    Extent, Inode, Kind, LIBRARY, MAXIMUM_DEPTH, MAXIMUM_NAME, MAXIMUM_NODES, Node, ROOT, Tree,
    size_of_file,
};

/// A decoded node and its intended position.
pub struct PendingNode {
    pub inode: Inode,
    pub parent: Option<Inode>,
    /// The position of its entry in the parent.
    pub place: u64,
    /// The node, without parent, and without entries if it is a directory.
    pub node: Node,
}

impl Tree {
    /// Returns the tree of these nodes; `opened` contains one node for each descriptor. `None` if the operations could
    /// not have produced such a tree.
    pub fn assemble(
        next_inode: Inode,
        limit: u64,
        pending: Vec<PendingNode>,
        opened: impl Iterator<Item = Inode>,
    ) -> Option<Self> {
        let mut places = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for PendingNode {
            inode,
            parent,
            place,
            mut node,
        } in pending
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

    /// Whether a node is part of the tree, or is open and was removed.
    fn is_placed(&self, inode: Inode, node: &Node) -> bool {
        let Some(parent) = node.parent else {
            let empty = node.directory().is_ok_and(super::Directory::is_empty);
            return inode == ROOT || node.opens > 0 && (empty || !node.is_directory());
        };
        // If two nodes claim one position, only one of them gets it.
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
