//! Requirements of the kernel path, beside a kernel that loads the rules.

use std::{fmt, fs, io};

use crate::attributes::{Attributes, Walk};
use crate::batch::{CHAIN_HOOK, CHAIN_NAME, CHAIN_POLICY, CHAIN_TABLE, GET_CHAIN, HOOK_NUMBER};
use crate::conntrack::Tracked;
use crate::netlink::{NFTABLES, Netfilter};
use crate::ruleset::Family;
use crate::table::NAME;

/// NF_INET_FORWARD and NF_DROP (linux/netfilter.h).
const FORWARD: u32 = 2;
const DROP: u32 = 0;
/// The families of tables whose chains see forwarded packets, as nft(8) calls them: NFPROTO_INET, NFPROTO_IPV4 and NFPROTO_IPV6.
const FORWARDING_TABLES: [(u8, &str); 3] = [(1, "inet"), (2, "ip"), (10, "ip6")];
/// Bit of CAP_NET_ADMIN (linux/capability.h).
const NET_ADMIN: u32 = 12;
/// From this share of a full connection tracking table on, in percent.
const NEARLY_FULL: u64 = 80;

/// Why connections would not get through, although the kernel takes the rules.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The process may not change nf_tables.
    NoRight,
    /// Packets of this family are not forwarded.
    NotForwarding(Family),
    /// A chain of another program drops forwarded packets that none of its rules accepts.
    ForwardDropped {
        /// Table and chain, as nft(8) names them.
        chain: String,
    },
    /// New connections will soon find no room.
    TrackingFull {
        /// Share of the table that is in use, in percent, rounded down to tens.
        percent: u64,
        /// Room for connections and flows.
        max: u64,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRight => f.write_str("the capability CAP_NET_ADMIN is missing"),
            Self::NotForwarding(Family::Ipv4) => f.write_str("the sysctl net.ipv4.ip_forward is 0"),
            Self::NotForwarding(Family::Ipv6) => f.write_str("the sysctl net.ipv6.conf.all.forwarding is 0"),
            Self::ForwardDropped { chain } => {
                write!(f, "the nftables chain `{chain}` drops forwarded packets (policy drop)")
            }
            Self::TrackingFull { percent, max } => {
                write!(
                    f,
                    "{percent} % of the {max} entries of connection tracking are in use (net.netfilter.nf_conntrack_max)"
                )
            }
        }
    }
}

/// Obstacles in this network namespace. The caller decides for which frontends: an obstacle of IPv6 is none for IPv4.
pub fn obstacles() -> io::Result<Vec<Obstacle>> {
    if !has_right()? {
        return Ok(vec![Obstacle::NoRight]);
    }
    let mut obstacles = Vec::new();
    if !forwards("/proc/sys/net/ipv4/ip_forward")? {
        obstacles.push(Obstacle::NotForwarding(Family::Ipv4));
    }
    if !forwards("/proc/sys/net/ipv6/conf/all/forwarding")? {
        obstacles.push(Obstacle::NotForwarding(Family::Ipv6));
    }
    obstacles.extend(dropping_chains()?.into_iter().map(|chain| Obstacle::ForwardDropped { chain }));
    obstacles.extend(Tracked::read().and_then(nearly_full));
    Ok(obstacles)
}

/// A kernel without the family has no such file.
fn forwards(path: &str) -> io::Result<bool> {
    match fs::read_to_string(path) {
        Ok(value) => Ok(value.trim() != "0"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn nearly_full(Tracked { count, max }: Tracked) -> Option<Obstacle> {
    let percent = (count * 100).checked_div(max)?;
    (percent >= NEARLY_FULL).then_some(Obstacle::TrackingFull { percent: percent / 10 * 10, max })
}

fn has_right() -> io::Result<bool> {
    let status = fs::read_to_string("/proc/thread-self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or_default();
    Ok((effective >> NET_ADMIN) & 1 == 1)
}

/// Chains of other programs that drop what they do not accept.
fn dropping_chains() -> io::Result<Vec<String>> {
    let mut netfilter = Netfilter::open()?;
    let mut all = Vec::new();
    for (family, shown) in FORWARDING_TABLES {
        let each = |found: &mut Vec<String>, chain: Walk<'_>| {
            let hook = chain.find(CHAIN_HOOK).and_then(|hook| Walk(hook).number(HOOK_NUMBER));
            let table = chain.text(CHAIN_TABLE).unwrap_or_default();
            if hook == Some(FORWARD) && chain.number(CHAIN_POLICY) == Some(DROP) && table != NAME {
                found.push(format!("{shown} {table} {}", chain.text(CHAIN_NAME).unwrap_or_default()));
            }
        };
        all.extend(netfilter.dump(NFTABLES | GET_CHAIN, [family, 0], &Attributes::new(), each, Vec::new)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_nearly_full_from_four_fifths_on() {
        let told = |count| nearly_full(Tracked { count, max: 1_000 });
        let full = |percent| Some(Obstacle::TrackingFull { percent, max: 1_000 });
        assert_eq!([told(799), told(800), told(899), told(1_000)], [None, full(80), full(80), full(100)]);
        assert_eq!(nearly_full(Tracked { count: 0, max: 0 }), None);
    }
}
