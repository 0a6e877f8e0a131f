//! Pattern of the bytes that are sent, so that every receiver knows what it must get.
//!
//! A pseudo-random block of a prime length, repeated. No page, pipe or buffer size divides the length, so bytes
//! that are missing, duplicated or from another position do not match.

use std::sync::LazyLock;

/// Length of the block; prime, and small enough to stay in the second-level cache.
pub(crate) const PERIOD: usize = 65_521;

/// Maximum length of a slice.
pub(crate) const LONGEST: usize = 4 * PERIOD;

static BYTES: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let block: Vec<u8> = SplitMix(0x5EA7E).flat_map(u64::to_le_bytes).take(PERIOD).collect();
    block.iter().copied().cycle().take(PERIOD + LONGEST).collect()
});

static COMPLEMENT: LazyLock<Box<[u8]>> = LazyLock::new(|| BYTES.iter().map(|byte| !byte).collect());

/// `len` bytes of the stream at `position`.
pub(crate) fn at(position: u64, len: usize) -> &'static [u8] {
    slice(&BYTES, position, len)
}

/// Complement of [`at`]: the server's answer, which cannot come from elsewhere.
pub(crate) fn complement_at(position: u64, len: usize) -> &'static [u8] {
    slice(&COMPLEMENT, position, len)
}

/// Turns a request into its answer.
pub(crate) fn complement(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// Position of message `sequence` in a `conversation`, far from those of its neighbors.
pub(crate) fn position(conversation: usize, sequence: u64) -> u64 {
    (conversation as u64).wrapping_mul(7_919).wrapping_add(sequence.wrapping_mul(15_485_863))
}

fn slice(bytes: &[u8], position: u64, len: usize) -> &[u8] {
    let start = (position % PERIOD as u64) as usize;
    &bytes[start..start + len]
}

/// `SplitMix64`, a generator for seeding: short, without dependencies, and deterministic.
struct SplitMix(u64);

impl Iterator for SplitMix {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Some(mixed ^ (mixed >> 31))
    }
}
