//! Tests that run every program like the kernel.

use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;

use super::*;
use crate::sys::bpf::classic::LONGEST;

/// Whether the kernel would admit a packet from `source`.
fn admits(program: &[Instruction], source: IpAddr) -> bool {
    assert!(program.len() <= LONGEST, "{} instructions", program.len());
    let (base, bytes) = match source {
        IpAddr::V4(ip) => (NETWORK_HEADER + 12, ip.octets().to_vec()),
        IpAddr::V6(ip) => (NETWORK_HEADER + 8, ip.octets().to_vec()),
    };
    let (mut at, mut accumulator) = (0, None);
    loop {
        let filter = program[at];
        at += 1;
        match filter.code {
            LOAD_WORD => {
                let from = (filter.k - base) as usize;
                accumulator = Some(u32::from_be_bytes(bytes[from..from + 4].try_into().unwrap()));
            }
            JUMP => at += filter.k as usize,
            JUMP_IF_AT_LEAST => {
                let yes = accumulator.expect("a word is loaded before it is compared") >= filter.k;
                at += usize::from(if yes { filter.jt } else { filter.jf });
            }
            RETURN => return filter.k != 0,
            other => panic!("instruction {other:#x}"),
        }
    }
}

/// `count` networks of length `length`, each followed by an equal gap.
fn networks(family: Family, count: u32, length: u8) -> Vec<IpNet> {
    let address = |n: u32| match family {
        Family::V4 => IpAddr::V4((0x0a00_0000 + (n << (33 - length))).into()),
        Family::V6 => IpAddr::V6(((0x2001_0db8 << 96) + (u128::from(n) << (129 - length))).into()),
    };
    (0..count).map(|n| IpNet::new(address(n), length).unwrap()).collect()
}

fn next(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).wrapping_add(1).into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).wrapping_add(1).into()),
    }
}

#[test]
fn nobody_gets_in_through_an_empty_set_and_everybody_through_a_full_one() {
    for (family, ip) in [(Family::V4, "192.0.2.1"), (Family::V6, "2001:db8::1")] {
        let ip = ip.parse().unwrap();
        assert!(!admits(&program(&AddressSet::default(), family, LONGEST), ip));
        assert!(admits(&program(&AddressSet::all(), family, LONGEST), ip));
    }
}

#[test]
fn two_thousand_ipv4_networks_fit_exactly_and_as_many_ipv6_ones_of_one_provider() {
    for (family, length) in [(Family::V4, 24), (Family::V6, 48), (Family::V6, 64)] {
        let cidrs = networks(family, 2000, length);
        let program = program(&AddressSet::from_cidrs(&cidrs), family, LONGEST);
        for cidr in &cidrs {
            assert!(admits(&program, cidr.network()) && admits(&program, cidr.broadcast()));
            assert!(!admits(&program, next(cidr.broadcast())), "{cidr} is widened");
        }
    }
}

#[test]
fn three_hundred_ipv6_hosts_that_have_nothing_in_common_fit_exactly() {
    let host = |n: u128| IpAddr::V6(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).into());
    let cidrs: Vec<IpNet> = (1..=300).map(|n| host(n).into()).collect();
    let program = program(&AddressSet::from_cidrs(&cidrs), Family::V6, LONGEST);
    for cidr in &cidrs {
        assert!(admits(&program, cidr.network()) && !admits(&program, next(cidr.network())));
    }
}

#[test]
fn a_set_too_large_for_the_kernel_is_widened_and_still_admits_its_members() {
    for (family, length) in [(Family::V4, 25), (Family::V6, 60)] {
        let cidrs = networks(family, 10_000, length);
        let set = AddressSet::from_cidrs(&cidrs);
        for longest in [LONGEST, LONGEST / 16, LONGEST / 64] {
            let program = program(&set, family, longest);
            assert!(program.len() <= longest && program.len() > longest / 2, "{}", program.len());
            for cidr in &cidrs {
                assert!(admits(&program, cidr.network()) && admits(&program, cidr.broadcast()));
            }
        }
    }
}

#[test]
fn the_smallest_gaps_are_closed_first() {
    assert_eq!(widened(&[10, 20, 30, 40, 45, 50, 60], 2), [10, 50, 60]);
    assert_eq!(widened(&[10, 20, 30, 40, 45, 50], 2), [10, 20, 30, 50]);
    assert_eq!(widened(&[10, 20, 30, 40], 2), [10, 20, 30, 40]);
    assert_eq!(widened(&[], 1), []);
}

fn v4_cidrs() -> impl Strategy<Value = Vec<IpNet>> {
    prop::collection::vec((any::<u32>(), 0u8..=32), 0..400).prop_map(|nets| {
        nets.into_iter().map(|(ip, len)| IpNet::new(IpAddr::V4(ip.into()), len).unwrap()).collect()
    })
}

/// Some share their first words, as addresses of one provider do, and words are at their limits more often than by
/// chance.
fn v6_cidrs() -> impl Strategy<Value = Vec<IpNet>> {
    let word = || prop_oneof![Just(0), Just(u32::MAX), 0..3u32, any::<u32>()];
    let cidr = ([word(), word(), word(), word()], 0u8..=128).prop_map(|(words, len)| {
        let ip = words.into_iter().fold(0u128, |ip, word| ip << 32 | u128::from(word));
        IpNet::new(IpAddr::V6(ip.into()), len).unwrap()
    });
    prop::collection::vec(cidr, 0..100)
}

proptest! {
    #[test]
    fn the_program_admits_exactly_the_set_v4(cidrs in v4_cidrs(), others in prop::collection::vec(any::<u32>(), 20)) {
        let set = AddressSet::from_cidrs(&cidrs);
        let program = program(&set, Family::V4, LONGEST);
        let edges = set.v4().iter().flat_map(|&(a, b)| [a, b, a.wrapping_sub(1), b.wrapping_add(1)]);
        for ip in edges.chain(others).map(|ip| IpAddr::V4(ip.into())) {
            prop_assert_eq!(admits(&program, ip), set.contains(ip), "{}", ip);
        }
    }

    #[test]
    fn the_program_admits_exactly_the_set_v6(cidrs in v6_cidrs(), others in prop::collection::vec(any::<u128>(), 20)) {
        let set = AddressSet::from_cidrs(&cidrs);
        let program = program(&set, Family::V6, LONGEST);
        let edges = set.v6().iter().flat_map(|&(a, b)| [a, b, a.wrapping_sub(1), b.wrapping_add(1)]);
        for ip in edges.chain(others).map(std::net::Ipv6Addr::from) {
            if ip.to_ipv4_mapped().is_none() {
                prop_assert_eq!(admits(&program, ip.into()), set.contains(ip.into()), "{}", ip);
            }
        }
    }
}

/// A UDP header has eight bytes, so byte 13 of a TCP header corresponds to byte 5 of a payload.
#[test]
fn the_kernel_drops_what_begins_a_connection_and_nothing_else() {
    const FIN: u8 = 0x01;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;
    const ECN: u8 = 0xc0;
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    socket2::SockRef::from(&receiver).attach_filter(&begun()).unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for flags in [SYN, SYN | ECN, SYN | FIN, SYN | ACK, ACK, ACK | FIN, RST, 0] {
        sender.send_to(&[0, 0, 0, 0, 0, flags], receiver.local_addr().unwrap()).unwrap();
    }
    let passed: Vec<u8> = std::iter::from_fn(|| {
        let mut packet = [0; 6];
        receiver.recv(&mut packet).ok().map(|_| packet[5])
    })
    .collect();
    assert_eq!(passed, [SYN | ACK, ACK, ACK | FIN, RST, 0]);
}
