//! HMAC-SHA-256 (RFC 2104) and a comparison that takes as long for every wrong value.

use sha2::{Digest as _, Sha256};

const BLOCK_BYTES: usize = 64;

/// HMAC-SHA-256 over the concatenation of `parts`.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0_u8; BLOCK_BYTES];
    let hashed: [u8; 32];
    let short = if key.len() > BLOCK_BYTES {
        hashed = Sha256::digest(key).into();
        &hashed[..]
    } else {
        key
    };
    for (place, byte) in block.iter_mut().zip(short) {
        *place = *byte;
    }
    let mut inner = Sha256::new();
    inner.update(block.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new();
    outer.update(block.map(|byte| byte ^ 0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// Whether two values are equal, without saying where they differ by the time it takes.
pub(crate) fn equal(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let different = left.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 4231, test cases 1, 2 and 6.
    #[test]
    fn the_vectors_of_rfc_4231_come_out() {
        assert_eq!(
            hex(&hmac_sha256(&[0x0b; 20], &[b"Hi There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(&hmac_sha256(
                b"Jefe",
                &[b"what do ya want ", b"for nothing?"]
            )),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(&hmac_sha256(
                &[0xaa; 131],
                &[b"Test Using Larger Than Block-Size Key - Hash Key First"]
            )),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn equality_needs_every_bit() {
        let value = [7; 32];
        assert!(equal(&value, &value));
        for place in 0..32 {
            let mut other = value;
            other[place] ^= 1;
            assert!(!equal(&value, &other));
        }
    }
}
