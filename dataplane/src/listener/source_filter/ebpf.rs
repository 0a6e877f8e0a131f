//! Extended BPF programs that pass packets of some source addresses: one program and one map of prefixes for all sockets with
//! the same allowed sources, for any number of addresses.

use std::io;
use std::os::fd::AsFd;

use ipnet::IpNet;

use crate::listener::allowed_sources::{AllowedSources, Family, Listed};
use crate::sys::bpf::SocketFilter;
use crate::sys::bpf::instruction::{
    FROM_NETWORK_HEADER, Instruction, LOAD_DOUBLE, LOAD_PACKET, LOAD_WORD, LOOK_UP, Register,
};
use crate::sys::bpf::map::{Map, MapKind};

/// Name that `bpftool prog` shows.
const NAME: &str = "sheave_sources";
/// Return values of the program: the length of the packet to keep, which is all or nothing.
const ADMIT: i32 = -1;
const REFUSE: i32 = 0;

impl AllowedSources {
    /// Loads the program.
    ///
    /// # Errors
    /// Returns an error if bpf(2) fails: `EPERM` without the privilege.
    pub(super) fn load(&self) -> io::Result<SocketFilter> {
        let (listed, verdict) = self.listed();
        let verdict = verdict.into();
        // Once loaded, the program keeps the map.
        match self.family {
            Family::V4 => {
                let keys: Vec<_> = listed.iter().filter_map(key_v4).collect();
                SocketFilter::load(&self.program(&prefixes(&keys)?, verdict), NAME)
            }
            Family::V6 => {
                let keys: Vec<_> = listed.iter().filter_map(key_v6).collect();
                SocketFilter::load(&self.program(&prefixes(&keys)?, verdict), NAME)
            }
        }
    }

    /// The instructions. The stack ends with the key to look up (prefix length, source address) and the destination address,
    /// which follows the source in the packet.
    fn program(&self, map: &impl AsFd, verdict: ListVerdict) -> Vec<Instruction> {
        let length = i16::from(self.family.address_length());
        let [key, addresses] = [-4 - 2 * length, -2 * length];
        let mut program = vec![Instruction::set(Register::Second, self.family.source_offset().into())];
        program.extend(Instruction::set_to_stack(Register::Third, addresses.into()));
        program.extend([
            Instruction::set(Register::Fourth, (2 * length).into()),
            Instruction::set(Register::Fifth, FROM_NETWORK_HEADER),
            Instruction::call(LOAD_PACKET),
            Instruction::skip_if_equal(Register::Answer, 0, 2),
        ]);
        program.extend(answer(REFUSE));
        if self.itself {
            program.extend(self.admit_itself(addresses));
        }
        program.push(Instruction::store_word(key, (8 * length).into()));
        program.extend(Instruction::set_to_map(Register::First, map));
        program.extend(Instruction::set_to_stack(Register::Second, key.into()));
        program.extend([Instruction::call(LOOK_UP), Instruction::skip_if_equal(Register::Answer, 0, 2)]);
        program.extend(answer(verdict.listed));
        program.extend(answer(verdict.others));
        program
    }

    /// Instructions that admit packets whose source is their destination.
    fn admit_itself(&self, addresses: i16) -> Vec<Instruction> {
        const STEP: i16 = 3;
        let length = i16::from(self.family.address_length());
        let (size, width) = match self.family {
            Family::V4 => (LOAD_WORD, 4),
            Family::V6 => (LOAD_DOUBLE, 8),
        };
        let parts = length / width;
        let compare = (0..parts).flat_map(|part| {
            let source = addresses + part * width;
            let beyond_the_verdict = (parts - 1 - part) * STEP + 2;
            [
                Instruction::load(size, Register::First, source),
                Instruction::load(size, Register::Second, source + length),
                Instruction::skip_if_different(Register::First, Register::Second, beyond_the_verdict),
            ]
        });
        compare.chain(answer(ADMIT)).collect()
    }
}

/// Return values of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListVerdict {
    /// For sources in the map.
    listed: i32,
    /// For all others.
    others: i32,
}

impl From<Listed> for ListVerdict {
    fn from(listed: Listed) -> Self {
        match listed {
            Listed::Allowed => Self { listed: ADMIT, others: REFUSE },
            Listed::Denied => Self { listed: REFUSE, others: ADMIT },
        }
    }
}

/// Creates a map with these keys.
fn prefixes<const KEY: usize>(keys: &[[u8; KEY]]) -> io::Result<Map<KEY, 1>> {
    let map = Map::new(MapKind::Trie, keys.len())?;
    map.put_all(keys, &vec![[0]; keys.len()])?;
    Ok(map)
}

fn answer(length: i32) -> [Instruction; 2] {
    [Instruction::set(Register::Answer, length), Instruction::exit()]
}

/// Builds a `struct bpf_lpm_trie_key`.
fn key_v4(cidr: &IpNet) -> Option<[u8; 8]> {
    let IpNet::V4(net) = cidr else { return None };
    let mut key = [0; 8];
    key[..4].copy_from_slice(&u32::from(net.prefix_len()).to_ne_bytes());
    key[4..].copy_from_slice(&net.network().octets());
    Some(key)
}

/// Builds a `struct bpf_lpm_trie_key`.
fn key_v6(cidr: &IpNet) -> Option<[u8; 20]> {
    let IpNet::V6(net) = cidr else { return None };
    let mut key = [0; 20];
    key[..4].copy_from_slice(&u32::from(net.prefix_len()).to_ne_bytes());
    key[4..].copy_from_slice(&net.network().octets());
    Some(key)
}

#[cfg(test)]
mod tests;
