//! Connection tracking: ends UDP flows of endpoints that left and connections of frontends that left, and tells how full the table is.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fs, io};

use nix::libc;
use sheave_model::{FrontendAddr, Protocol};

use crate::attributes::{Attributes, Walk};
use crate::error::Error;
use crate::expressions::{protocol_family, protocol_number};
use crate::netlink::{CONNTRACK, Netfilter};
use crate::ruleset::Family;
use crate::tuple::{destination_of, protocol_of, source_of, write_tuple};

/// From linux/netfilter/nfnetlink_conntrack.h: IPCTNL_MSG_CT_GET, IPCTNL_MSG_CT_DELETE, CTA_TUPLE_ORIG, CTA_TUPLE_REPLY and CTA_FILTER.
const GET: u16 = 1;
const DELETE: u16 = 2;
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const FILTER: u16 = 25;
/// CTA_STATUS and CTA_STATUS_MASK, and IPS_DST_NAT (linux/netfilter/nf_conntrack_common.h).
const STATUS: u16 = 3;
const STATUS_MASK: u16 = 26;
const DESTINATION_TRANSLATED: u32 = 1 << 5;
/// So many pairs of frontend and endpoint are looked for one by one. For each the kernel goes through all that it tracks, 12 to 70 ms for 55,000
/// flows; to be told of all flows of UDP takes as long as about ten of those.
const FEW: usize = 8;
/// CTA_FILTER_ORIG_FLAGS and CTA_FILTER_REPLY_FLAGS, and their bits (`CTA_FILTER_FLAG` in net/netfilter/nf_conntrack_netlink.c).
const FILTER_ORIGINAL: u16 = 1;
const FILTER_REPLY: u16 = 2;
const BY_SOURCE: u32 = 1;
const BY_DESTINATION: u32 = 1 << 1;
const BY_PROTOCOL: u32 = 1 << 3;
const BY_SOURCE_PORT: u32 = 1 << 4;
const BY_DESTINATION_PORT: u32 = 1 << 5;
/// The kernel takes the family of a deletion into account from this version of the message on.
const VERSION: u8 = 1;

/// How full the connection tracking table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// Connections and flows in the table.
    pub count: u64,
    /// Room for them; new ones beyond are dropped.
    pub max: u64,
}

impl Tracked {
    /// Reads both numbers; `None`: connections are not tracked in this network namespace.
    pub fn read() -> Option<Self> {
        let number = |name: &str| {
            fs::read_to_string(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"))
                .ok()?
                .trim()
                .parse()
                .ok()
        };
        Some(Self { count: number("count")?, max: number("max")? })
    }
}

/// Connection or flow that goes to another address than its client sent it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranslatedFlow {
    /// Its source.
    pub client: SocketAddr,
    /// Address to which it was sent.
    pub frontend: FrontendAddr,
    /// Source of its answers.
    pub endpoint: SocketAddr,
}

impl TranslatedFlow {
    /// Reads an entry; `None`: it is of another protocol. Whether it is translated is not looked at.
    fn read(entry: Walk<'_>, protocol: Protocol) -> Option<Self> {
        let tuple = entry.find(ORIGINAL)?;
        let is_ours = protocol_of(tuple) == Some(protocol_number(protocol));
        let to = destination_of(tuple).filter(|_| is_ours)?;
        Some(Self {
            client: source_of(tuple)?,
            frontend: FrontendAddr { ip: to.ip(), port: to.port(), protocol },
            endpoint: entry.find(REPLY).and_then(source_of)?,
        })
    }
}

/// Ends connections and flows in the connection tracking table.
#[derive(Debug)]
pub struct Flows {
    netfilter: Netfilter,
}

impl Flows {
    /// Needs CAP_NET_ADMIN when it is used.
    pub fn open() -> io::Result<Self> {
        Ok(Self { netfilter: Netfilter::open()? })
    }

    /// The endpoint of the connection or flow from this client to the frontend.
    pub(crate) fn endpoint(
        &mut self,
        frontend: FrontendAddr,
        client: SocketAddr,
    ) -> Result<Option<SocketAddr>, Error> {
        let mut which = Attributes::new();
        which.nested(ORIGINAL, |tuple| {
            write_tuple(tuple, frontend, Some(client), Some(frontend.socket_addr()));
        });
        let family = [protocol_family(Family::of(frontend.ip)), VERSION];
        let reply_source = |flow: Walk<'_>| flow.find(REPLY).and_then(source_of);
        self.netfilter.find(CONNTRACK | GET, family, &which, reply_source).map_err(error)
    }

    /// Whether anything goes to another address than it was sent to, by whatever program's rules.
    pub fn is_any_translated(&mut self) -> Result<bool, Error> {
        // Older kernels list all.
        let each = |any: &mut bool, flow: Walk<'_>| *any |= is_translated(flow);
        let all_families = [0, VERSION];
        self.netfilter.dump(CONNTRACK | GET, all_families, &translated(), each, || false).map_err(error)
    }

    /// Ends the UDP flows from these frontends to these endpoints, so that the clients' next datagrams go to others, but no more than `most` where
    /// they are ended one by one; returns whether none is left. To be called when the endpoints have left the table. Pairs of TCP are passed
    /// over: connections end by themselves.
    pub fn end(
        &mut self,
        left: impl IntoIterator<Item = (FrontendAddr, SocketAddr)>,
        most: usize,
    ) -> Result<bool, Error> {
        let udp = left.into_iter().filter(|(frontend, _)| frontend.protocol == Protocol::Udp);
        let (v4, v6): (HashSet<_>, HashSet<_>) = udp.partition(|(frontend, _)| frontend.ip.is_ipv4());
        let mut left = most;
        for (family, pairs) in [(Family::Ipv4, v4), (Family::Ipv6, v6)] {
            left -= self.end_pairs(family, &pairs, left).map_err(error)?;
        }
        Ok(left > 0)
    }

    /// Ends the UDP flows whose destination is translated and that `ends` selects, but no more than `most` at a time; returns whether none
    /// is left. Goes through all that is tracked, once for each family.
    pub fn end_flows(&mut self, ends: impl Fn(&TranslatedFlow) -> bool, most: usize) -> Result<bool, Error> {
        let mut left = most;
        for family in [Family::Ipv4, Family::Ipv6] {
            left -= self.end_translated(family, Protocol::Udp, &ends, left).map_err(error)?;
        }
        Ok(left > 0)
    }

    /// Ends the connections of these frontends, whatever their endpoints, but no more than `most` at a time; returns whether none is left.
    /// Their next segments are refused once the frontends have left the table. Goes through all that is tracked, once for each family.
    pub fn end_connections(&mut self, frontends: &HashSet<FrontendAddr>, most: usize) -> Result<bool, Error> {
        let ends = |flow: &TranslatedFlow| frontends.contains(&flow.frontend);
        let mut left = most;
        for family in [Family::Ipv4, Family::Ipv6] {
            if frontends.iter().any(|frontend| Family::of(frontend.ip) == family) {
                left -= self.end_translated(family, Protocol::Tcp, ends, left).map_err(error)?;
            }
        }
        Ok(left > 0)
    }

    /// Returns how many have ended.
    fn end_translated(
        &mut self,
        family: Family,
        protocol: Protocol,
        ends: impl Fn(&TranslatedFlow) -> bool,
        most: usize,
    ) -> io::Result<usize> {
        let ends = |entry: Walk<'_>| {
            // Older kernels list what is not translated as well.
            is_translated(entry) && TranslatedFlow::read(entry, protocol).is_some_and(|flow| ends(&flow))
        };
        self.end_listed(family, &translated(), ends, most)
    }

    /// Ends the flows of UDP of these pairs; returns how many it has ended one by one.
    fn end_pairs(
        &mut self,
        family: Family,
        pairs: &HashSet<(FrontendAddr, SocketAddr)>,
        most: usize,
    ) -> io::Result<usize> {
        if pairs.len() <= FEW && self.delete_pairs(family, pairs)? {
            return Ok(0);
        }
        let ends = |entry: Walk<'_>| {
            TranslatedFlow::read(entry, Protocol::Udp)
                .is_some_and(|flow| pairs.contains(&(flow.frontend, flow.endpoint)))
        };
        if pairs.len() > FEW {
            return self.end_listed(family, &udp(family), ends, most);
        }
        let mut ended = 0;
        for (frontend, endpoint) in pairs {
            ended += self.end_listed(family, &filter(*frontend, *endpoint), ends, most - ended)?;
        }
        Ok(ended)
    }

    /// Ends what the kernel lists by this filter and `ends` selects; returns how many have ended.
    fn end_listed(
        &mut self,
        family: Family,
        filter: &Attributes,
        ends: impl Fn(Walk<'_>) -> bool,
        most: usize,
    ) -> io::Result<usize> {
        let each = |found: &mut Vec<Attributes>, entry: Walk<'_>| {
            if found.len() < most && ends(entry) {
                found.extend(entry.find(ORIGINAL).map(whole));
            }
        };
        let of = [protocol_family(family), VERSION];
        let found = self.netfilter.dump(CONNTRACK | GET, of, filter, each, Vec::new)?;
        found.iter().try_for_each(|flow| self.delete_whole(of, flow))?;
        Ok(found.len())
    }

    /// Has the kernel end the flows of each pair by itself; returns whether it can.
    fn delete_pairs(
        &mut self,
        family: Family,
        pairs: &HashSet<(FrontendAddr, SocketAddr)>,
    ) -> io::Result<bool> {
        // The kernel takes IPv6 addresses for equal where they differ (`ctnetlink_filter_match_tuple`).
        if family == Family::Ipv6 {
            return Ok(pairs.is_empty());
        }
        let of = [protocol_family(family), VERSION];
        for (frontend, endpoint) in pairs {
            match self.netfilter.request(CONNTRACK | DELETE, of, &filter(*frontend, *endpoint), |_| {}) {
                // Before Linux 6.12 a deletion takes whole tuples alone: it is invalid, or there is none like it.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                    return Ok(false);
                }
                outcome => outcome?,
            }
        }
        Ok(true)
    }

    fn delete_whole(&mut self, family: [u8; 2], flow: &Attributes) -> io::Result<()> {
        match self.netfilter.request(CONNTRACK | DELETE, family, flow, |_| {}) {
            // It ended by itself in between.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            outcome => outcome,
        }
    }
}

fn is_translated(entry: Walk<'_>) -> bool {
    entry.number(STATUS).is_some_and(|status| status & DESTINATION_TRANSLATED != 0)
}

fn error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::NoRight,
        _ => Error::Socket(error),
    }
}

/// Filter for connections and flows whose destination is translated.
fn translated() -> Attributes {
    let mut filter = Attributes::new();
    for attribute in [STATUS, STATUS_MASK] {
        filter.bytes(attribute, &DESTINATION_TRANSLATED.to_be_bytes());
    }
    filter
}

/// Filter for flows of UDP.
fn udp(family: Family) -> Attributes {
    let ip = match family {
        Family::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut filter = Attributes::new();
    let any = FrontendAddr { ip, port: 0, protocol: Protocol::Udp };
    filter.nested(ORIGINAL, |tuple| write_tuple(tuple, any, None, None));
    filter.nested(FILTER, |flags| {
        // In the machine's order.
        flags.bytes(FILTER_ORIGINAL, &BY_PROTOCOL.to_ne_bytes());
    });
    filter
}

/// A deletion's description of the connection with this original side.
fn whole(tuple: &[u8]) -> Attributes {
    let mut original = Attributes::new();
    original.nested(ORIGINAL, |attributes| attributes.append_bytes(tuple));
    original
}

/// Flows that clients began to the frontend and that the endpoint answers. Both sides, as other frontends may have the endpoint.
fn filter(frontend: FrontendAddr, endpoint: SocketAddr) -> Attributes {
    let mut filter = Attributes::new();
    filter.nested(ORIGINAL, |tuple| write_tuple(tuple, frontend, None, Some(frontend.socket_addr())));
    filter.nested(REPLY, |tuple| write_tuple(tuple, frontend, Some(endpoint), None));
    filter.nested(FILTER, |flags| {
        // These two numbers are in the machine's order.
        let (source, destination) = if endpoint.is_ipv4() { (BY_SOURCE, BY_DESTINATION) } else { (0, 0) };
        let original = destination | BY_PROTOCOL | BY_DESTINATION_PORT;
        let reply = source | BY_PROTOCOL | BY_SOURCE_PORT;
        flags.bytes(FILTER_ORIGINAL, &original.to_ne_bytes()).bytes(FILTER_REPLY, &reply.to_ne_bytes());
    });
    filter
}
