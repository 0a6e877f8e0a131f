//! The kernel's hash of a client's address, by which chains with [`Method::Hash`](crate::Method::Hash) choose a slot.

use std::net::IpAddr;

/// Seed of the rules' `jhash` expression. All gateways must have the same, and a change moves every client.
pub const SEED: u32 = 0x5348_4541;

/// The slot that the kernel chooses for a client, out of `slots` from number `offset` on.
pub fn chosen_slot(client: IpAddr, slots: u32, offset: u32) -> u32 {
    let hash = match client {
        IpAddr::V4(ip) => jhash(&ip.octets(), SEED),
        IpAddr::V6(ip) => jhash(&ip.octets(), SEED),
    };
    scale(hash, slots) + offset
}

/// A 32-bit number spread over `0..below` as the kernel does it (`reciprocal_scale`).
pub(crate) fn scale(number: u32, below: u32) -> u32 {
    ((u64::from(number) * u64::from(below)) >> 32) as u32
}

/// `jhash` of linux/jhash.h on a little-endian machine: Bob Jenkins' lookup3.
fn jhash(mut key: &[u8], seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(seed);
    let mut state = [start; 3];
    while let Some((block, rest)) = key.split_at_checked(12).filter(|(_, rest)| !rest.is_empty()) {
        add(&mut state, block);
        mix(&mut state);
        key = rest;
    }
    if !key.is_empty() {
        add(&mut state, key);
        finish(&mut state);
    }
    state[2]
}

/// Adds up to twelve bytes to the state's words.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    for (word, bytes) in state.iter_mut().zip(bytes.chunks(4)) {
        let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
        *word = word.wrapping_add(value);
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    *a = a.wrapping_sub(*c) ^ c.rotate_left(4);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(6);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(8);
    *b = b.wrapping_add(*a);
    *a = a.wrapping_sub(*c) ^ c.rotate_left(16);
    *c = c.wrapping_add(*b);
    *b = b.wrapping_sub(*a) ^ a.rotate_left(19);
    *a = a.wrapping_add(*c);
    *c = c.wrapping_sub(*b) ^ b.rotate_left(4);
    *b = b.wrapping_add(*a);
}

fn finish([a, b, c]: &mut [u32; 3]) {
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(14));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(11));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(25));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(16));
    *a = (*a ^ *c).wrapping_sub(c.rotate_left(4));
    *b = (*b ^ *a).wrapping_sub(a.rotate_left(14));
    *c = (*c ^ *b).wrapping_sub(b.rotate_left(24));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those in `driver5` of lookup3.c (burtleburtle.net/bob/c/lookup3.c), of which linux/jhash.h is a copy.
    #[test]
    fn agrees_with_the_published_values() {
        assert_eq!(jhash(b"", 0), 0xdead_beef);
        assert_eq!(jhash(b"", 0xdead_beef), 0xbd5b_7dde);
        assert_eq!(jhash(b"Four score and seven years ago", 0), 0x1777_0551);
        assert_eq!(jhash(b"Four score and seven years ago", 1), 0xcd62_8161);
    }

    /// The whole range of slots is used, and nothing beyond it.
    #[test]
    fn slots_begin_at_the_offset_and_have_equal_parts() {
        let mut clients = [0; 10];
        for client in 0..100_000_u32 {
            let slot = chosen_slot(IpAddr::from((0x0a00_0000 + client).to_be_bytes()), 10, 7);
            clients[slot as usize - 7] += 1;
        }
        assert!(clients.iter().all(|count| (9_500..10_500).contains(count)), "{clients:?}");
        assert_eq!(chosen_slot("2001:db8::1".parse().unwrap(), 1, 3), 3);
    }
}
