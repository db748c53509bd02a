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
