//! The Merkle tree of RFC 6962 section 2.1, grown one leaf at a time.

use model::{Digest, Hasher};

/// SHA-256(0x00 ‖ bytes).
pub(crate) fn leaf(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(&[0]);
    hasher.update(bytes);
    hasher.finish()
}

/// SHA-256(0x01 ‖ left ‖ right).
fn node(left: &Digest, right: &Digest) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(&[1]);
    hasher.update(left.as_bytes());
    hasher.update(right.as_bytes());
    hasher.finish()
}

/// The roots of the full subtrees of a tree, largest first: enough to append to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CompactRange {
    size: u64,
    roots: Vec<Digest>,
}

impl CompactRange {
    /// A range that somebody wrote down; `None` where the count does not fit the size.
    pub(crate) fn from_parts(size: u64, roots: Vec<Digest>) -> Option<Self> {
        (u32::try_from(roots.len()) == Ok(size.count_ones())).then_some(Self { size, roots })
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn roots(&self) -> &[Digest] {
        &self.roots
    }

    pub(crate) fn push(&mut self, leaf: Digest) {
        let mut right = leaf;
        let mut rest = self.size;
        while rest & 1 == 1 {
            if let Some(left) = self.roots.pop() {
                right = node(&left, &right);
            }
            rest >>= 1;
        }
        self.roots.push(right);
        self.size = self.size.saturating_add(1);
    }

    /// The tree head; of no leaves it is SHA-256 of nothing.
    pub(crate) fn root(&self) -> Digest {
        let mut smallest_first = self.roots.iter().rev();
        match smallest_first.next() {
            None => Digest::of(b""),
            Some(last) => smallest_first.fold(*last, |right, left| node(left, &right)),
        }
    }
}

/// The head of a tree of these leaves (MTH).
fn head(leaves: &[Digest]) -> Digest {
    let mut range = CompactRange::default();
    leaves.iter().for_each(|leaf| range.push(*leaf));
    range.root()
}

/// The audit path of leaf `index` (section 2.1.1), from its sibling up; `None` where there is no
/// such leaf.
pub(crate) fn audit_path(leaves: &[Digest], index: usize) -> Option<Vec<Digest>> {
    if index >= leaves.len() {
        return None;
    }
    let (mut part, mut index) = (leaves, index);
    let mut path = Vec::new();
    while part.len() > 1 {
        // The largest power of two below the length.
        let split = 1 << (part.len() - 1).ilog2();
        let (left, right) = part.split_at_checked(split)?;
        (part, index) = if index < split {
            path.push(head(right));
            (left, index)
        } else {
            path.push(head(left));
            (right, index - split)
        };
    }
    path.reverse();
    Some(path)
}

/// The head that an audit path leads to (RFC 9162 section 2.1.3.2); `None` where the path has not
/// the length of this leaf in a tree of `size`.
pub(crate) fn head_of_path(leaf: Digest, index: u64, size: u64, path: &[Digest]) -> Option<Digest> {
    let mut last = size.checked_sub(1).filter(|last| index <= *last)?;
    let (mut at, mut head) = (index, leaf);
    for sibling in path {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            head = node(sibling, &head);
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            head = node(&head, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 6962 section 2.1 as its text says it: MTH over a split at the largest power of two.
    fn tree_head(leaves: &[Vec<u8>]) -> Digest {
        match leaves {
            [] => Digest::of(b""),
            [one] => leaf(one),
            many => {
                let mut split = 1;
                while split * 2 < many.len() {
                    split *= 2;
                }
                node(&tree_head(&many[..split]), &tree_head(&many[split..]))
            }
        }
    }

    #[test]
    fn tree_heads_match_vectors_derived_by_hand_from_rfc_6962() {
        // Computed from the definition with a SHA-256 tool outside this workspace.
        let expected = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        // The eight inputs of the Certificate Transparency reference tests.
        let inputs = [
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        ];
        let mut range = CompactRange::default();
        assert_eq!(range.root().to_hex(), expected[0]);
        for (input, want) in inputs.iter().zip(&expected[1..]) {
            let bytes: Vec<u8> = (0..input.len() / 2)
                .map(|at| u8::from_str_radix(&input[2 * at..2 * at + 2], 16).unwrap())
                .collect();
            range.push(leaf(&bytes));
            assert_eq!(&range.root().to_hex(), want);
        }
    }

    #[test]
    fn a_range_with_the_wrong_count_of_roots_is_refused() {
        assert!(CompactRange::from_parts(3, vec![Digest::of(b"")]).is_none());
        assert!(CompactRange::from_parts(0, Vec::new()).is_some());
        assert!(CompactRange::from_parts(4, vec![Digest::of(b"")]).is_some());
    }

    #[test]
    fn audit_paths_match_the_example_of_rfc_6962() {
        // Section 2.1.3: seven leaves; the path of d0 is [b, h, l], of d3 [c, g, l], of d4
        // [f, j, k], of d6 [i, k].
        let d: Vec<Digest> = (0..7_u8).map(|n| leaf(&[n])).collect();
        let (g, h, i) = (node(&d[0], &d[1]), node(&d[2], &d[3]), node(&d[4], &d[5]));
        let (j, k) = (d[6], node(&g, &h));
        let l = node(&i, &j);
        assert_eq!(audit_path(&d, 0), Some(vec![d[1], h, l]));
        assert_eq!(audit_path(&d, 3), Some(vec![d[2], g, l]));
        assert_eq!(audit_path(&d, 4), Some(vec![d[5], j, k]));
        assert_eq!(audit_path(&d, 6), Some(vec![i, k]));
        assert_eq!(audit_path(&d, 7), None);
    }

    #[test]
    fn every_path_of_every_small_tree_leads_to_its_head_and_no_other_does() {
        let leaves: Vec<Digest> = (0..33_u8).map(|n| leaf(&[n])).collect();
        for size in 1..=leaves.len() {
            let root = head(&leaves[..size]);
            for index in 0..size {
                let path = audit_path(&leaves[..size], index).unwrap();
                let (at, of) = (index as u64, size as u64);
                assert_eq!(head_of_path(leaves[index], at, of, &path), Some(root));
                assert_ne!(head_of_path(leaf(b"x"), at, of, &path), Some(root));
                assert_eq!(head_of_path(leaves[index], of, of, &path), None);
                for other in (0..of).filter(|other| *other != at) {
                    assert_ne!(head_of_path(leaves[index], other, of, &path), Some(root));
                }
                if let Some((_, shorter)) = path.split_last() {
                    assert_eq!(head_of_path(leaves[index], at, of, shorter), None);
                }
                let longer = [path.as_slice(), &[root]].concat();
                assert_eq!(head_of_path(leaves[index], at, of, &longer), None);
            }
        }
        assert_eq!(head_of_path(leaves[0], 0, 0, &[]), None);
    }

    proptest! {
        #[test]
        fn a_grown_tree_has_the_head_of_the_recursive_definition(
            leaves in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4), 0..70)
        ) {
            let mut range = CompactRange::default();
            for bytes in &leaves {
                range.push(leaf(bytes));
                let copy = CompactRange::from_parts(range.size(), range.roots().to_vec());
                prop_assert_eq!(copy.as_ref(), Some(&range));
            }
            prop_assert_eq!(range.root(), tree_head(&leaves));
        }
    }
}
