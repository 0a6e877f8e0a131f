//! Slots: a frontend's endpoints, repeated by their shares so that a number chosen with equal chances chooses an endpoint by its share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

use crate::forwarding::{Decision, Forwarding, Method};
use crate::jhash::chosen_slot;

/// Most slots of a random choice; with many endpoints of different shares [`SLOTS_PER_ENDPOINT`] for each.
const RANDOM_SLOTS: usize = 1_024;
const SLOTS_PER_ENDPOINT: usize = 4;

/// Sizes of Maglev tables (primes), each with the most endpoints that it is for. A change of size moves nearly every client, and the more
/// slots an endpoint has, the fewer clients move when another one leaves.
const MAGLEV_SLOTS: [(usize, usize); 4] = [(1, 1), (10, 251), (250, 1_021), (usize::MAX, 16_381)];

/// The endpoint of each slot. Depends on the endpoints and their shares alone, not on their order: all gateways have the same slots.
///
/// At random, the numbers of slots have exactly the ratio of the shares if that takes no more than 1,024 slots, or four for each
/// endpoint. Otherwise they are the nearest whole numbers with that sum, but none is 0. So a share below one slot is served more than asked
/// for: one endpoint of a million beside 999 of one has 3,001 slots of 4,000.
///
/// By hash, each endpoint has one slot at least up to 16,381 endpoints; of more, the others are never chosen.
pub(crate) fn slots(endpoints: &[(SocketAddr, u32)], method: Method) -> Vec<SocketAddr> {
    // Endpoints are unique and shares positive by contract; here this makes sure that the kernel never gets a chain without a slot.
    let mut shares: Vec<(SocketAddr, u32)> =
        endpoints.iter().filter(|(_, share)| *share > 0).copied().collect();
    shares.sort_unstable();
    shares.dedup_by(|again, kept| {
        let same = again.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(again.1);
        }
        same
    });
    let divisor = shares.iter().map(|&(_, share)| share).fold(0, greatest_common_divisor);
    for (_, share) in &mut shares {
        *share /= divisor;
    }
    match method {
        Method::Random => repeated(&shares),
        Method::Hash => maglev(&shares),
    }
}

/// The endpoint that the kernel chooses for a client without an affinity record; `None` if it chooses at random, or forwards to none.
pub fn hashed(forwarding: &Forwarding, internal: bool, client: IpAddr) -> Option<SocketAddr> {
    let decision = if internal { &forwarding.internal } else { &forwarding.external };
    match (forwarding.method, decision) {
        (Method::Hash, Decision::Forward(endpoints)) => {
            let slots = slots(endpoints, Method::Hash);
            slots.get(chosen_slot(client, slots.len() as u32, 0) as usize).copied()
        }
        _ => None,
    }
}

fn greatest_common_divisor(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn repeated(shares: &[(SocketAddr, u32)]) -> Vec<SocketAddr> {
    let sum: u64 = shares.iter().map(|&(_, share)| u64::from(share)).sum();
    let most = RANDOM_SLOTS.max(shares.len() * SLOTS_PER_ENDPOINT);
    let counts = if sum <= most as u64 {
        shares.iter().map(|&(_, share)| share).collect()
    } else {
        apportion(shares, most)
    };
    let runs = shares.iter().zip(counts);
    runs.flat_map(|(&(endpoint, _), count)| std::iter::repeat_n(endpoint, count as usize)).collect()
}

/// Numbers of slots with this sum: after one for each, every slot goes to the endpoint that is furthest below its share (Sainte-Laguë's
/// method).
fn apportion(shares: &[(SocketAddr, u32)], sum: usize) -> Vec<u32> {
    let claim = |index: usize, count: u32| {
        let share = shares.get(index).map_or(0, |&(_, share)| u64::from(share));
        ((share << 32) / (2 * u64::from(count) + 1), Reverse(index))
    };
    let mut counts = vec![1_u32; shares.len()];
    let mut claims: BinaryHeap<_> = (0..shares.len()).map(|index| claim(index, 1)).collect();
    for _ in shares.len()..sum {
        let Some(mut highest) = claims.peek_mut() else { break };
        let Reverse(index) = highest.1;
        counts[index] += 1;
        *highest = claim(index, counts[index]);
    }
    counts
}

/// Maglev table (Eisenbud et al., NSDI 2016, section 3.4): endpoints take slots in turns, each in an order of its own, so that nearly all
/// slots stay with the others when one leaves.
fn maglev(shares: &[(SocketAddr, u32)]) -> Vec<SocketAddr> {
    let size = MAGLEV_SLOTS.iter().find(|(most, _)| shares.len() <= *most).map_or(1, |&(_, size)| size);
    let heaviest = shares.iter().map(|&(_, share)| u64::from(share)).max().unwrap_or(1);
    // When it is whose turn: at intervals inverse to the shares, and everybody's at the start. Ties are broken by the identity.
    let mut turns: BinaryHeap<_> = shares
        .iter()
        .map(|&(endpoint, share)| {
            let interval = (heaviest << 20) / u64::from(share);
            Reverse((0, identity(endpoint), endpoint, interval, Preference::new(identity(endpoint), size)))
        })
        .collect();
    let mut owners: Vec<Option<SocketAddr>> = vec![None; size];
    for _ in 0..size {
        let Some(mut turn) = turns.peek_mut() else { break };
        let Reverse((due, _, endpoint, interval, preference)) = &mut *turn;
        *due += *interval;
        if let Some(slot) = preference.find(|&slot| owners[slot].is_none()) {
            owners[slot] = Some(*endpoint);
        }
    }
    owners.into_iter().flatten().collect()
}

/// An endpoint's order of all slots: any start and any stride, because the size is prime.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    next: usize,
    stride: usize,
    size: usize,
}

impl Preference {
    fn new(identity: u64, size: usize) -> Self {
        let start = mix(identity) % size as u64;
        let stride = if size > 1 { mix(!identity) % (size as u64 - 1) + 1 } else { 1 };
        Self { next: start as usize, stride: stride as usize, size }
    }
}

impl Iterator for Preference {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let slot = self.next;
        self.next = (slot + self.stride) % self.size;
        Some(slot)
    }
}

/// Hash of an endpoint, the same on every gateway and in every version.
fn identity(endpoint: SocketAddr) -> u64 {
    let port = mix(u64::from(endpoint.port()));
    match endpoint.ip() {
        IpAddr::V4(ip) => mix(port ^ u64::from(u32::from(ip))),
        IpAddr::V6(ip) => mix(mix(port ^ (u128::from(ip) >> 64) as u64) ^ u128::from(ip) as u64),
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014): every input bit reaches every output bit.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;
