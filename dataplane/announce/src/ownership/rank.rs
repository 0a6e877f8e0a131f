//! The scores of addresses with candidates.

use std::net::IpAddr;

use crate::hash::{mix, name_hash};
use crate::membership::Candidate;

/// The score of each address with each candidate. No two scores of an address are equal.
pub(super) struct Ranks {
    scores: Vec<u64>,
    candidates: usize,
}

impl Ranks {
    /// A candidate has as many ranks as its weight, and the best of them counts: so it comes first for as many addresses.
    pub(super) fn new<'a>(candidates: &[&Candidate], addresses: impl Iterator<Item = &'a IpAddr>) -> Self {
        let hashes: Vec<u64> = addresses.map(|address| address_hash(*address)).collect();
        let mut scores = vec![0; hashes.len() * candidates.len()];
        // Fewer ranks serve as well where all weights have a divisor.
        let weights = candidates.iter().map(|candidate| candidate.ability.weight);
        let divisor = weights.reduce(greatest_common_divisor).unwrap_or(1).max(1);
        let numbered = |(index, candidate): (usize, &&Candidate)| {
            let name = name_hash(&candidate.node);
            (0..u64::from(candidate.ability.weight / divisor))
                .map(move |number| (index, name.wrapping_add(number)))
        };
        for (node, name) in candidates.iter().enumerate().flat_map(numbered) {
            let mut order: Vec<(u64, usize)> = hashes.iter().map(|hash| mix(hash ^ name)).zip(0..).collect();
            order.sort_unstable();
            for (rank, (hash, address)) in order.into_iter().enumerate() {
                // Equal ranks are told apart by the hash; the lowest bits make sure of it.
                let score = (rank as u64) << 32 | (hash >> 32) & !0xffff | (node as u64 & 0xffff);
                if let Some(place) = scores.get_mut(address * candidates.len() + node) {
                    *place = score.max(*place);
                }
            }
        }
        Self { scores, candidates: candidates.len() }
    }

    /// The scores of an address, by candidate.
    pub(super) fn scores(&self, address: usize) -> &[u64] {
        self.scores.get(address * self.candidates..(address + 1) * self.candidates).unwrap_or_default()
    }
}

fn greatest_common_divisor(one: u8, other: u8) -> u8 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

pub(super) fn address_hash(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => mix(address.to_bits().into()),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            mix(mix((bits >> 64) as u64) ^ bits as u64)
        }
    }
}
