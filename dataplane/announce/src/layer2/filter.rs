//! Filters in the kernel for what others say about announced addresses: a gateway does not wake up for the rest of its neighbours' traffic.
//!
//! A filter compares the last 32 bits of an address with the lowest and the highest of those that are announced. Addresses come from
//! pools, so little else is between.

use std::net::IpAddr;

use nix::libc;
use socket2::SockFilter;

/// Of which addresses a filter lets something through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// The lowest and the highest last 32 bits of the addresses.
    range: Option<(u32, u32)>,
}

impl Watched {
    /// Adds an address.
    pub(crate) fn add(&mut self, ip: IpAddr) {
        let last = last_word(ip);
        let (low, high) = self.range.unwrap_or((last, last));
        self.range = Some((low.min(last), high.max(last)));
    }
}

fn last_word(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => u128::from(ip) as u32,
    }
}

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Where the IPv6 header is, for a filter that sees ICMPv6 alone (SKF_NET_OFF in linux/filter.h).
const NETWORK_HEADER: u32 = -0x10_0000_i32 as u32;
const PASS: SockFilter = SockFilter::new(RETURN, 0, 0, u32::MAX);
const DROP: SockFilter = SockFilter::new(RETURN, 0, 0, 0);

/// For frames of ARP: a sender or a target in the range.
pub(super) fn arp_filter(watched: &Watched) -> Vec<SockFilter> {
    let Some((low, high)) = watched.range else { return vec![DROP] };
    let mut filter = vec![
        // The protocol is IPv4.
        SockFilter::new(LOAD_HALF, 0, 0, 16),
        SockFilter::new(EQUAL, 1, 0, 0x0800),
        DROP,
    ];
    // The sender and the target.
    for offset in [28, 38] {
        filter.push(SockFilter::new(LOAD_WORD, 0, 0, offset));
        filter.extend(in_range(low, high));
    }
    filter.push(DROP);
    filter
}

/// For ICMPv6: advertisements and solicitations of an address in the range, that no router has passed on.
pub(super) fn neighbour_filter(watched: &Watched) -> Vec<SockFilter> {
    let Some((low, high)) = watched.range else { return vec![DROP] };
    let mut filter = vec![
        SockFilter::new(LOAD_BYTE, 0, 0, NETWORK_HEADER.wrapping_add(7)),
        SockFilter::new(EQUAL, 1, 0, 255),
        DROP,
        SockFilter::new(LOAD_BYTE, 0, 0, 0),
        SockFilter::new(EQUAL, 2, 0, 136),
        SockFilter::new(EQUAL, 1, 0, 135),
        DROP,
        SockFilter::new(LOAD_WORD, 0, 0, 20),
    ];
    filter.extend(in_range(low, high));
    filter.push(DROP);
    filter
}

/// Passes what is loaded if it is in the range, or goes on after it.
fn in_range(low: u32, high: u32) -> [SockFilter; 3] {
    [SockFilter::new(AT_LEAST, 0, 2, low), SockFilter::new(GREATER, 1, 0, high), PASS]
}
