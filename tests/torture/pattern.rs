//! Verifiable bytes: any part of a stream shows whether it is correct and at its position.

use std::sync::LazyLock;

/// Period of the pattern; prime, so that no size of chunk or buffer repeats it.
const PERIOD: usize = 65_521;

/// Value of urgent bytes, which no other byte of a pattern has.
pub(crate) const URGENT: u8 = 0xff;

static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = fastrand::Rng::with_seed(1);
    (0..2 * PERIOD).map(|_| random.u8(..URGENT)).collect::<Vec<u8>>()[..PERIOD].repeat(2)
});

/// Stream of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    start: usize,
}

impl Pattern {
    /// Stream of a seed. Streams of different seeds differ nearly everywhere.
    pub(crate) fn new(seed: u64) -> Self {
        let start = usize::try_from(seed % PERIOD as u64).expect("a period fits");
        Self { start }
    }

    /// Bytes at `offset`: at least one, at most `most`.
    pub(crate) fn at(self, offset: u64, most: usize) -> &'static [u8] {
        let offset = usize::try_from(offset % PERIOD as u64).expect("a period fits");
        let from = (self.start + offset) % PERIOD;
        &BYTES[from..(from + most.clamp(1, PERIOD)).min(2 * PERIOD)]
    }

    /// Number of `bytes` that match the stream at `offset`.
    pub(crate) fn matching(self, offset: u64, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let right = self.at(offset + done as u64, bytes.len() - done);
            let wrong = right.iter().zip(&bytes[done..]).position(|(right, byte)| right != byte);
            if let Some(wrong) = wrong {
                return done + wrong;
            }
            done += right.len();
        }
        done
    }
}
