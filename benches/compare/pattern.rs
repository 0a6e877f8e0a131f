//! The bytes that are sent, so that every receiver knows what it must get.
//!
//! One pseudo-random block of a prime length, repeated: no page, pipe or buffer size divides it, so bytes that went
//! missing, came twice or came from another place in the stream do not fit.

use std::sync::LazyLock;

/// Length of the block after which the stream repeats; prime, and small enough to stay in the second-level cache.
pub(crate) const PERIOD: usize = 65_521;

/// The longest slice that can be asked for.
pub(crate) const LONGEST: usize = 4 * PERIOD;

static BYTES: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let block: Vec<u8> = SplitMix(0x5EA7E).flat_map(u64::to_le_bytes).take(PERIOD).collect();
    block.iter().copied().cycle().take(PERIOD + LONGEST).collect()
});

static COMPLEMENT: LazyLock<Box<[u8]>> = LazyLock::new(|| BYTES.iter().map(|byte| !byte).collect());

/// `len` bytes of the stream from `position` on.
pub(crate) fn at(position: u64, len: usize) -> &'static [u8] {
    slice(&BYTES, position, len)
}

/// The complement of [`at`]: what the server answers, so that an answer cannot be made without the server.
pub(crate) fn complement_at(position: u64, len: usize) -> &'static [u8] {
    slice(&COMPLEMENT, position, len)
}

/// Turns a request into its answer.
pub(crate) fn complement(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// Where message number `sequence` of conversation `conversation` starts: far from those of its neighbours.
pub(crate) fn position(conversation: usize, sequence: u64) -> u64 {
    (conversation as u64).wrapping_mul(7_919).wrapping_add(sequence.wrapping_mul(15_485_863))
}

fn slice(bytes: &[u8], position: u64, len: usize) -> &[u8] {
    let start = (position % PERIOD as u64) as usize;
    &bytes[start..start + len]
}

/// `SplitMix64`, the generator that seeds others: a few lines, no dependency, the same bytes in every run.
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
