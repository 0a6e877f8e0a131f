//! Source sets of steered frontends: one map of prefixes for all sets, in which each set has a number. Equal sets share a number,
//! and a set stays while a frontend uses it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use ipnet::IpNet;

use super::verdicts::address;
use crate::listener::allowed_sources::{AllowedSources, Listed};
use crate::sys::Errno;
use crate::sys::bpf::map::{Map, MapKind};
use crate::weak_map::WeakMap;

/// Maximum number of prefixes of all sets together.
const MOST: usize = 1 << 20;
/// Length of a set's number, which begins each key, in bits.
const NUMBER: u32 = 32;
/// Length of the prefix of IPv4-mapped IPv6 addresses in bits.
const MAPPED: u32 = 96;

/// Key of the map: prefix length, set number, address.
type PrefixKey = [u8; 4 + 4 + 16];
type Prefixes = Map<24, 1>;

/// All source sets.
#[derive(Debug)]
pub(super) struct SourceSets {
    map: Arc<Prefixes>,
    numbers: u32,
    known: WeakMap<AllowedSources, SourceSet>,
}

/// One set of sources. Its prefixes are removed when it is dropped.
#[derive(Debug)]
pub(super) struct SourceSet {
    number: u32,
    keys: Vec<PrefixKey>,
    map: Arc<Prefixes>,
}

impl SourceSets {
    /// Creates the map without sets.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails.
    pub(super) fn new() -> io::Result<Self> {
        let map = Arc::new(Map::new(MapKind::Trie, MOST)?);
        Ok(Self { map, numbers: 0, known: WeakMap::default() })
    }

    pub(super) fn map(&self) -> &impl AsFd {
        &*self.map
    }

    /// The set of these sources, added to the map if it is new.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `ENOSPC` if there are too many prefixes.
    pub(super) fn get(&mut self, admitted: AllowedSources) -> io::Result<Arc<SourceSet>> {
        if let Some(known) = self.known.get(&admitted) {
            return Ok(known);
        }
        let number = self.numbers.checked_add(1).ok_or(Errno::ENOSPC)?;
        let (keys, values) = prefixes(&admitted, number);
        // From here on the drop removes the entries again, even if not all of them can be added.
        let source_set = Arc::new(SourceSet { number, keys, map: Arc::clone(&self.map) });
        self.map.put_all(&source_set.keys, &values)?;
        self.numbers = number;
        self.known.insert(admitted, &source_set);
        Ok(source_set)
    }
}

impl SourceSet {
    /// Number with which the set's keys begin.
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for SourceSet {
    fn drop(&mut self) {
        // Entries that were never added fail to be removed, which is fine.
        self.keys.iter().for_each(|key| drop(self.map.remove(key)));
    }
}

/// The prefixes of a set, each with 1 if its clients are admitted and 0 otherwise. The longest prefix that contains a client
/// counts.
fn prefixes(admitted: &AllowedSources, number: u32) -> (Vec<PrefixKey>, Vec<[u8; 1]>) {
    let (nets, listed) = admitted.listed();
    let mut keys: Vec<PrefixKey> = nets.iter().map(|net| key(number, net)).collect();
    let mut values = vec![[u8::from(listed == Listed::Allowed)]; keys.len()];
    if listed == Listed::Denied {
        // All other sources.
        let everyone = IpNet::new(admitted.family.any(), 0).ok();
        keys.extend(everyone.iter().map(|net| key(number, net)));
        values.resize(keys.len(), [1]);
    }
    (keys, values)
}

fn key(number: u32, net: &IpNet) -> PrefixKey {
    let before = if net.addr().is_ipv4() { NUMBER + MAPPED } else { NUMBER };
    let length = before + u32::from(net.prefix_len());
    let mut key = [0; 24];
    key[..4].copy_from_slice(&length.to_ne_bytes());
    key[4..8].copy_from_slice(&number.to_ne_bytes());
    key[8..].copy_from_slice(&address(net.network()));
    key
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;
    use sheave_model::AddressSet;

    use super::*;

    /// The entry for a client of a set as the kernel's trie finds it: the one with the longest prefix.
    fn found(keys: &[PrefixKey], values: &[[u8; 1]], number: u32, client: IpAddr) -> Option<u8> {
        let mut sought = number.to_ne_bytes().to_vec();
        sought.extend(address(client));
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let length = |key: &PrefixKey| u32::from_ne_bytes(key[..4].try_into().unwrap()) as usize;
        let holds = |key: &PrefixKey| (0..length(key)).all(|at| bit(&key[4..], at) == bit(&sought, at));
        let all = keys.iter().zip(values).filter(|(key, _)| holds(key));
        all.max_by_key(|(key, _)| length(key)).map(|(_, value)| value[0])
    }

    proptest! {
        #[test]
        fn the_longest_prefix_says_who_is_in_the_set(
            v4: bool,
            numbers in prop::collection::vec((any::<u32>(), 0u8..=32), 0..20),
            all_but: bool,
            number in 1_u32..,
        ) {
            let host = |number: u32| match v4 {
                true => IpAddr::V4(number.into()),
                false => IpAddr::V6((u128::from(number) << 96 | 7).into()),
            };
            let cidrs: Vec<IpNet> =
                numbers.iter().map(|&(number, length)| IpNet::new(host(number), length).unwrap()).collect();
            let set = AddressSet::from_cidrs(&cidrs);
            let set = if all_but { set.complement() } else { set };
            // The frontend's own address is not looked up.
            let own = host(0x0102_0304);
            let admitted = AllowedSources::new(&set.without(own), own);
            let (keys, values) = prefixes(&admitted, number);
            let edges = cidrs.iter().flat_map(|cidr| [cidr.network(), cidr.broadcast()]);
            for client in edges.chain([host(1), host(u32::MAX)]).filter(|client| *client != own) {
                let admitted = found(&keys, &values, number, client) == Some(1);
                prop_assert_eq!(admitted, set.contains(client), "{}", client);
                prop_assert_eq!(found(&keys, &values, number ^ 1, client), None, "another set's number");
            }
        }
    }
}
