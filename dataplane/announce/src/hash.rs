//! Hashes that every gateway and version computes alike.

use sha2::{Digest, Sha256};

/// The hash of a name.
pub(crate) fn name_hash(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The finalizer of SplitMix64: a bijection in which every bit of the input changes half of the output.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gateways of different versions must agree: these numbers never change.
    #[test]
    fn stay_as_they_are() {
        assert_eq!(name_hash("node-1"), 0x35971be6e9bb024a);
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }
}
