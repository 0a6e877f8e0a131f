//! Classic BPF programs that let a listening or UDP socket see packets of some source addresses only. What the program
//! refuses vanishes before the handshake, without a capability: the sender sees silence, as with a firewall's DROP.
//!
//! It must not know why addresses are admitted.

use socket2::SockFilter;

use crate::address_set::AddressSet;
use crate::sys::bpf::{
    Instruction, JUMP, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, JUMP_IF_GREATER, LOAD_WORD, LONGEST, NETWORK_HEADER,
    RETURN,
};

/// Intervals that surely fit, per family: an IPv4 interval costs at most 9 instructions, an IPv6 one 39.
const MOST_V4: usize = LONGEST / 9;
const MOST_V6: usize = LONGEST / 39;
/// Offset of the source address in an IPv4 header (RFC 791).
const V4_SOURCE: u32 = NETWORK_HEADER + 12;
/// Offset of the source address in an IPv6 header (RFC 8200).
const V6_SOURCE: u32 = NETWORK_HEADER + 8;

/// The family of the socket that a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// A program that admits the set's addresses of one family. `None` if it would admit everyone: then no filter.
///
/// A set with too many intervals is widened by closing its smallest gaps until the program has at most `1 / share` of
/// the kernel's greatest length. The pick checks the address again, so the widening costs silence for a few refused
/// clients, never admission.
pub(super) fn admitting(set: &AddressSet, family: Family, share: usize) -> Option<Vec<SockFilter>> {
    let program = program(set, family, share)?;
    Some(program.into_iter().map(|i| SockFilter::new(i.code, i.jt, i.jf, i.k)).collect())
}

fn program(set: &AddressSet, family: Family, share: usize) -> Option<Vec<Instruction>> {
    match family {
        Family::V4 if set.v4() == [(0, u32::MAX)] => None,
        Family::V4 => {
            let mut program = vec![instruction(LOAD_WORD, 0, 0, V4_SOURCE)];
            program.extend(search(&widened(set.v4(), MOST_V4 / share, |a, b| b - a), &at_least_v4));
            Some(program)
        }
        Family::V6 if set.v6() == [(0, u128::MAX)] => None,
        Family::V6 => Some(search(&widened(set.v6(), MOST_V6 / share, |a, b| b - a), &at_least_v6)),
    }
}

/// An address as an unsigned number.
trait Number: Copy + Ord {
    fn successor(self) -> Option<Self>;
}

impl Number for u32 {
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Number for u128 {
    fn successor(self) -> Option<Self> {
        self.checked_add(1)
    }
}

fn widened<N: Number>(intervals: &[(N, N)], most: usize, gap: impl Fn(N, N) -> N) -> Vec<(N, N)> {
    let Some(excess) = intervals.len().checked_sub(most).filter(|excess| *excess > 0) else {
        return intervals.to_vec();
    };
    let mut gaps: Vec<usize> = (1..intervals.len()).collect();
    gaps.sort_by_key(|&at| gap(intervals[at - 1].1, intervals[at].0));
    gaps.truncate(excess);
    gaps.sort_unstable();
    let mut closed = gaps.into_iter().peekable();
    let mut wide: Vec<(N, N)> = Vec::with_capacity(most);
    for (at, &interval) in intervals.iter().enumerate() {
        match wide.last_mut() {
            Some(last) if closed.next_if_eq(&at).is_some() => last.1 = interval.1,
            _ => wide.push(interval),
        }
    }
    wide
}

/// Binary search over the intervals; every path ends in a return.
fn search<N: Number>(intervals: &[(N, N)], at_least: &impl Fn(N) -> Vec<Instruction>) -> Vec<Instruction> {
    match intervals {
        [] => vec![verdict(false)],
        [(first, last)] => {
            let inside = match last.successor() {
                Some(beyond) => branch(at_least(beyond), vec![verdict(false)], vec![verdict(true)]),
                None => vec![verdict(true)],
            };
            branch(at_least(*first), inside, vec![verdict(false)])
        }
        _ => {
            let (low, high) = intervals.split_at(intervals.len() / 2);
            branch(at_least(high[0].0), search(high, at_least), search(low, at_least))
        }
    }
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

fn verdict(admit: bool) -> Instruction {
    instruction(RETURN, 0, 0, if admit { u32::MAX } else { 0 })
}

/// `test` skips one instruction when true. The jump that it skips is an unconditional one, because only those reach
/// further than 255 instructions.
fn branch(test: Vec<Instruction>, yes: Vec<Instruction>, no: Vec<Instruction>) -> Vec<Instruction> {
    let mut code = test;
    code.push(instruction(JUMP, 0, 0, yes.len() as u32));
    code.extend(yes);
    code.extend(no);
    code
}

fn at_least_v4(bound: u32) -> Vec<Instruction> {
    vec![instruction(JUMP_IF_AT_LEAST, 1, 0, bound)]
}

/// Compares word by word: greater decides yes, less decides no, equal asks the next word.
fn at_least_v6(bound: u128) -> Vec<Instruction> {
    const WORDS: u32 = 4;
    let mut code = Vec::new();
    for word in 0..WORDS {
        let value = (bound >> (96 - 32 * word)) as u32;
        code.push(instruction(LOAD_WORD, 0, 0, V6_SOURCE + 4 * word));
        // Instructions of the words that follow: three each, two for the last one.
        let after = (3 * (WORDS - 1 - word)).saturating_sub(1) as u8;
        if word + 1 == WORDS {
            code.push(instruction(JUMP_IF_AT_LEAST, 1, 0, value));
        } else {
            code.push(instruction(JUMP_IF_GREATER, after + 2, 0, value));
            code.push(instruction(JUMP_IF_EQUAL, 0, after, value));
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::*;

    /// What the kernel would do with a packet from `source`.
    fn admits(program: Option<&[Instruction]>, source: IpAddr) -> bool {
        let Some(program) = program else { return true };
        assert!(program.len() <= LONGEST, "{} instructions", program.len());
        let (base, bytes) = match source {
            IpAddr::V4(ip) => (V4_SOURCE, ip.octets().to_vec()),
            IpAddr::V6(ip) => (V6_SOURCE, ip.octets().to_vec()),
        };
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let filter = program[at];
            at += 1;
            let skip = |yes: bool| usize::from(if yes { filter.jt } else { filter.jf });
            match filter.code {
                LOAD_WORD => {
                    let from = (filter.k - base) as usize;
                    accumulator = u32::from_be_bytes(bytes[from..from + 4].try_into().unwrap());
                }
                JUMP => at += filter.k as usize,
                JUMP_IF_EQUAL => at += skip(accumulator == filter.k),
                JUMP_IF_GREATER => at += skip(accumulator > filter.k),
                JUMP_IF_AT_LEAST => at += skip(accumulator >= filter.k),
                RETURN => return filter.k != 0,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn intervals_of(cidrs: &[IpNet]) -> AddressSet {
        AddressSet::from_cidrs(cidrs)
    }

    #[test]
    fn everyone_needs_no_program_and_nobody_gets_in_through_an_empty_set() {
        assert!(program(&AddressSet::all(), Family::V4, 1).is_none());
        let nobody = program(&AddressSet::default(), Family::V6, 1).unwrap();
        assert!(!admits(Some(&nobody), "2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn a_set_too_large_for_the_kernel_is_widened_and_still_admits_its_members() {
        let v4: Vec<IpNet> =
            (0..4000_u32).map(|n| format!("10.{}.{}.0/25", n / 256, n % 256).parse().unwrap()).collect();
        let v6: Vec<IpNet> = (0..1000_u32).map(|n| format!("2001:db8:{n:x}::/64").parse().unwrap()).collect();
        for (cidrs, family) in [(v4, Family::V4), (v6, Family::V6)] {
            for (cidr, share) in cidrs.iter().flat_map(|cidr| [(cidr, 1), (cidr, 16)]) {
                let program = program(&intervals_of(&cidrs), family, share).unwrap();
                assert!(program.len() <= LONGEST / share);
                assert!(admits(Some(&program), cidr.network()) && admits(Some(&program), cidr.broadcast()));
            }
        }
    }

    fn v4_cidrs() -> impl Strategy<Value = Vec<IpNet>> {
        prop::collection::vec((any::<u32>(), 0u8..=32), 0..40).prop_map(|nets| {
            nets.into_iter().map(|(ip, len)| IpNet::new(IpAddr::V4(ip.into()), len).unwrap()).collect()
        })
    }

    fn v6_cidrs() -> impl Strategy<Value = Vec<IpNet>> {
        prop::collection::vec((any::<u128>(), 0u8..=128), 0..40).prop_map(|nets| {
            nets.into_iter().map(|(ip, len)| IpNet::new(IpAddr::V6(ip.into()), len).unwrap()).collect()
        })
    }

    proptest! {
        #[test]
        fn the_program_admits_exactly_the_set_v4(cidrs in v4_cidrs(), others in prop::collection::vec(any::<u32>(), 20)) {
            let set = intervals_of(&cidrs);
            let program = program(&set, Family::V4, 1);
            let edges = set.v4().iter().flat_map(|&(a, b)| [a, b, a.wrapping_sub(1), b.wrapping_add(1)]);
            for ip in edges.chain(others).map(|ip| IpAddr::V4(ip.into())) {
                prop_assert_eq!(admits(program.as_deref(), ip), set.contains(ip), "{}", ip);
            }
        }

        #[test]
        fn the_program_admits_exactly_the_set_v6(cidrs in v6_cidrs(), others in prop::collection::vec(any::<u128>(), 20)) {
            let set = intervals_of(&cidrs);
            let program = program(&set, Family::V6, 1);
            let edges = set.v6().iter().flat_map(|&(a, b)| [a, b, a.wrapping_sub(1), b.wrapping_add(1)]);
            for ip in edges.chain(others).map(std::net::Ipv6Addr::from) {
                if ip.to_ipv4_mapped().is_none() {
                    prop_assert_eq!(admits(program.as_deref(), ip.into()), set.contains(ip.into()), "{}", ip);
                }
            }
        }
    }
}
