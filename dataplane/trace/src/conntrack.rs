//! Connection tracking: how full its table is, what it dropped, and the entries of a client.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use nix::libc;
use sheave_kernel::attributes::{Attributes, Walk};
use sheave_kernel::tuple::{destination_of, protocol_of, source_of, write_tuple};
use sheave_model::{FrontendAddr, Protocol};

use crate::netlink::{FAMILY_HEADER, Netlink};
use crate::unseen::{Errno, Missing, Right, Unseen};

/// IPCTNL_MSG_CT_GET (linux/netfilter/nfnetlink_conntrack.h), with the subsystem in the upper byte.
const GET: u16 = (libc::NFNL_SUBSYS_CTNETLINK as u16) << 8 | 1;
/// From the same header: CTA_TUPLE_ORIG, CTA_TUPLE_REPLY, CTA_STATUS and CTA_FILTER.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const FILTER: u16 = 25;
/// CTA_FILTER_ORIG_FLAGS and CTA_FILTER_REPLY_FLAGS, and the bits of an address of each side, the protocol and the destination port
/// (`CTA_FILTER_FLAG` in net/netfilter/nf_conntrack_netlink.c).
const FILTER_ORIGINAL: u16 = 1;
const FILTER_REPLY: u16 = 2;
const BY_ADDRESSES: u32 = 1 | 1 << 1;
const BY_PROTOCOL: u32 = 1 << 3;
const BY_DESTINATION_PORT: u32 = 1 << 5;
/// IPS_SEEN_REPLY (linux/netfilter/nf_conntrack_common.h).
const SEEN_REPLY: u32 = 1 << 1;
/// How many entries of a client are returned.
const MOST: usize = 1000;

/// How full the table is, and what was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableUse {
    /// Connections and flows in the table.
    pub count: u64,
    /// Room for them; new ones beyond are dropped.
    pub max: u64,
    /// Losses since the start of the network namespace; `None` where the kernel does not list them.
    pub losses: Option<Losses>,
}

/// Counters of `/proc/net/stat/nf_conntrack`, summed over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets dropped because the table was full, or for want of memory.
    pub drop: u64,
    /// Entries removed before their time to make room.
    pub early_drop: u64,
}

/// An entry of a client towards a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedFlow {
    /// The client.
    pub client: SocketAddr,
    /// Where answers come from: the endpoint, if the destination is translated, or the frontend itself.
    pub reply_source: SocketAddr,
    /// Whether a packet was seen in both directions.
    pub is_replied: bool,
}

impl TrackedFlow {
    /// Whether its destination is translated.
    pub fn is_translated(&self, frontend: FrontendAddr) -> bool {
        self.reply_source != frontend.socket_addr()
    }
}

/// Use of the connection tracking table of this network namespace. The limit of the first one applies to each other one.
///
/// # Errors
/// If connections are not tracked here, or a file is of an unknown form.
pub fn table_use() -> Result<TableUse, Unseen> {
    let number = |name: &str| {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
        let text = fs::read_to_string(&path)
            .map_err(|error| Unseen::from_file("connection tracking", &path, &error))?;
        text.trim().parse().map_err(|_| {
            let error = Errno(libc::EINVAL);
            Unseen::new("connection tracking", Missing::File { path: path.clone(), error })
        })
    };
    // `/proc/net` is that of the process, and not of a thread that has entered another network namespace.
    let losses = fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").ok();
    Ok(TableUse {
        count: number("count")?,
        max: number("max")?,
        losses: losses.and_then(|text| read_losses(&text)),
    })
}

/// Sums a table with a head, and a line of hexadecimal numbers for each processor (`ct_cpu_seq_show` in
/// net/netfilter/nf_conntrack_standalone.c).
fn read_losses(text: &str) -> Option<Losses> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next()?.split_whitespace().collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    let sum = |name: &str| {
        let column = head.iter().position(|found| *found == name)?;
        rows.iter().map(|row| u64::from_str_radix(row.get(column)?, 16).ok()).sum::<Option<u64>>()
    };
    Some(Losses { drop: sum("drop")?, early_drop: sum("early_drop")? })
}

/// The entries of a client towards a frontend, at most a thousand.
///
/// # Errors
/// Without CAP_NET_ADMIN or ctnetlink, or if the table is too large for the time.
pub fn flows(client: IpAddr, frontend: FrontendAddr, within: Duration) -> Result<Vec<TrackedFlow>, Unseen> {
    if client.is_ipv4() != frontend.ip.is_ipv4() {
        return Ok(Vec::new());
    }
    let each = |found: &mut Vec<TrackedFlow>, _, payload: &[u8]| {
        let flow =
            payload.get(FAMILY_HEADER..).and_then(|attributes| read(Walk(attributes), client, frontend));
        if found.len() < MOST {
            found.extend(flow);
        }
    };
    let family = if client.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let body = [&[family as u8, 0, 0, 0], filter(client, frontend).as_bytes()].concat();
    let dump = || -> io::Result<Vec<TrackedFlow>> {
        Netlink::open(libc::NETLINK_NETFILTER, within)?.dump(GET, &body, each)
    };
    dump().map_err(|error| Unseen::from_io("tracked connections", &error, Right::NetAdmin, "ctnetlink"))
}

/// Flows from the client to the frontend. Kernels before Linux 5.8 list all. The kernel takes IPv6 addresses for equal where they
/// differ (`ctnetlink_filter_match_tuple`), so it is not told those.
fn filter(client: IpAddr, frontend: FrontendAddr) -> Attributes {
    let mut filter = Attributes::new();
    let any: IpAddr = match client {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let client = SocketAddr::new(client, 0);
    filter.nested(ORIGINAL, |tuple| {
        write_tuple(tuple, frontend, Some(client), Some(frontend.socket_addr()));
    });
    let any = Some(SocketAddr::new(any, 0));
    filter.nested(REPLY, |tuple| write_tuple(tuple, frontend, any, any));
    filter.nested(FILTER, |flags| {
        let addresses = if client.is_ipv4() { BY_ADDRESSES } else { 0 };
        let original = addresses | BY_PROTOCOL | BY_DESTINATION_PORT;
        flags.bytes(FILTER_ORIGINAL, &original.to_ne_bytes()).bytes(FILTER_REPLY, &0_u32.to_ne_bytes());
    });
    filter
}

fn read(flow: Walk<'_>, client: IpAddr, frontend: FrontendAddr) -> Option<TrackedFlow> {
    let original = flow.find(ORIGINAL)?;
    let protocol = match frontend.protocol {
        Protocol::Tcp => libc::IPPROTO_TCP,
        Protocol::Udp => libc::IPPROTO_UDP,
    };
    let from = source_of(original)?;
    let matches = from.ip() == client
        && destination_of(original) == Some(frontend.socket_addr())
        && protocol_of(original).map(i32::from) == Some(protocol);
    if !matches {
        return None;
    }
    let status = flow.number(STATUS).unwrap_or(0);
    Some(TrackedFlow {
        client: from,
        reply_source: source_of(flow.find(REPLY)?)?,
        is_replied: status & SEEN_REPLY != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_all_processors_are_summed() {
        let text = "entries  clashres found insert_failed drop early_drop search_restart\n\
                    00000002  00000000 00000000 00000001 0000000a 00000000 00000000\n\
                    00000002  00000000 00000000 00000002 00000001 00000003 00000000\n";
        assert_eq!(read_losses(text), Some(Losses { drop: 11, early_drop: 3 }));
        assert_eq!(read_losses("entries\n00000001\n"), None);
        assert_eq!(read_losses("drop early_drop\nnonsense 0\n"), None);
    }
}
