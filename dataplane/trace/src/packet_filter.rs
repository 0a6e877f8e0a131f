//! Packet filters of others: chains of nftables that see packets, how much they drop, and what they do with the first packet of a client.
//! iptables-nft appears in them.

mod bits;
mod evaluate;
mod expression;
mod extension;
mod first_packet;
mod set;
mod verdict;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use std::{fmt, fs, io};

use nix::libc;
use sheave_kernel::attributes::{Attributes, Walk};

pub use self::evaluate::{ChainVerdict, DroppedBy, Way, evaluate};
pub use self::first_packet::FirstPacket;
use self::verdict::{DROP, Verdict, read_verdict};
use crate::netlink::{FAMILY_HEADER, Netlink};
use crate::unseen::{Right, Unseen};

/// NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN and NFT_MSG_GETRULE (linux/netfilter/nf_tables.h).
const GET_TABLE: u16 = message(1);
const GET_CHAIN: u16 = message(4);
const GET_RULE: u16 = message(7);
/// From the same header: NFTA_TABLE_NAME, NFTA_TABLE_FLAGS and NFT_TABLE_F_DORMANT.
const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const DORMANT: u32 = 1;
/// NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME, NFTA_CHAIN_HOOK, NFTA_CHAIN_POLICY, NFTA_CHAIN_TYPE and NFTA_CHAIN_COUNTERS.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const CHAIN_COUNTERS: u16 = 8;
/// NFTA_HOOK_HOOKNUM, NFTA_HOOK_PRIORITY, NFTA_HOOK_DEV and NFTA_HOOK_DEVS; NFTA_DEVICE_NAME and NFTA_DEVICE_PREFIX.
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const HOOK_DEVICES: u16 = 4;
const DEVICE_NAME: u16 = 1;
const DEVICE_PREFIX: u16 = 2;
/// NFTA_RULE_TABLE, NFTA_RULE_CHAIN and NFTA_RULE_EXPRESSIONS.
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
/// NFTA_EXPR_NAME and NFTA_EXPR_DATA.
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
/// NFTA_IMMEDIATE_DATA; NFTA_TARGET_NAME; NFTA_COUNTER_PACKETS.
const IMMEDIATE_DATA: u16 = 2;
const TARGET_NAME: u16 = 1;
const COUNTER_PACKETS: u16 = 2;
/// NFTA_LIST_ELEM.
const LIST_ELEMENT: u16 = 1;
/// The gateway's tables: `sheave` of the kernel path, and `sheave-...` of announced addresses and client source addresses.
const OURS: &str = "sheave";
const OURS_PREFIX: &str = "sheave-";

/// A chain at a hook, in a table that is not Sheave's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// Family of its table.
    pub family: TableFamily,
    /// Its table.
    pub table: String,
    /// Its name.
    pub chain: String,
    /// Where it sees packets.
    pub hook: Hook,
    /// Its place among the chains of the hook: lower ones come first. The kernel path of Sheave redirects at -110.
    pub priority: i32,
    /// Whether it sees the first packet of a connection alone, and may change its addresses: type `nat`.
    pub is_nat: bool,
    /// Names of the devices whose packets it sees, in hooks of devices; `*` ends what such names begin with.
    pub devices: Vec<String>,
    /// Whether packets that no rule accepts are dropped.
    pub drops_by_policy: bool,
    /// Packets that its policy decided; `None` where they are not counted.
    pub policy_packets: Option<u64>,
    /// Whether a rule drops or rejects, in any chain of its table: a jump may lead to it. Verdicts in maps do not count.
    pub has_drops: bool,
}

/// Family of a table (NFPROTO_... in linux/netfilter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableFamily {
    /// Both families.
    Inet,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// ARP.
    Arp,
    /// Frames that a bridge passes on.
    Bridge,
    /// All frames of a device.
    Netdev,
}

/// Where a chain sees packets, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// When they arrive on a device.
    Ingress,
    /// Before routing.
    Prerouting,
    /// On the way to this machine.
    Input,
    /// On the way through this machine.
    Forward,
    /// On the way from this machine.
    Output,
    /// After routing.
    Postrouting,
    /// When they leave by a device.
    Egress,
}

/// The chains of others that see packets of the family of an address, in the order in which packets pass hooks and priorities. Chains of
/// bridges and devices count for both families, and those of ARP for IPv4.
///
/// # Errors
/// Without CAP_NET_ADMIN or nf_tables, or if the rules are too many for the time.
pub fn base_chains(of: IpAddr, within: Duration) -> Result<Vec<BaseChain>, Unseen> {
    read_all(of, within)
        .map_err(|error| Unseen::from_io("nftables' packet filters", &error, Right::NetAdmin, "nf_tables"))
}

/// Tables of the older iptables, whose rules are not in nftables and are not shown here.
///
/// # Errors
/// If the file is there and cannot be read.
pub fn legacy_tables(of: IpAddr) -> Result<Vec<String>, Unseen> {
    let name = if of.is_ipv4() { "ip_tables_names" } else { "ip6_tables_names" };
    let path = format!("/proc/thread-self/net/{name}");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Unseen::from_file("tables of iptables", &path, &error)),
    }
}

impl TableFamily {
    /// NFPROTO_... in linux/netfilter.h.
    fn number(self) -> u8 {
        let number = match self {
            Self::Inet => libc::NFPROTO_INET,
            Self::Ip => libc::NFPROTO_IPV4,
            Self::Ip6 => libc::NFPROTO_IPV6,
            Self::Arp => libc::NFPROTO_ARP,
            Self::Bridge => libc::NFPROTO_BRIDGE,
            Self::Netdev => libc::NFPROTO_NETDEV,
        };
        number as u8
    }
}

impl fmt::Display for TableFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Arp => "arp",
            Self::Bridge => "bridge",
            Self::Netdev => "netdev",
        })
    }
}

type TableKey = (TableFamily, String);

/// Type of a message of nftables: its number, with the subsystem in the upper byte.
const fn message(number: u16) -> u16 {
    (libc::NFNL_SUBSYS_NFTABLES as u16) << 8 | number
}

/// A request for what has this name in a table. Table and name are attributes 1 and 2 of chains' rules, sets and lists of elements.
fn named(family: u8, table: &str, name: &str) -> Vec<u8> {
    let mut attributes = Attributes::new();
    attributes.text(1, table).text(2, name);
    [&[family, 0, 0, 0][..], attributes.as_bytes()].concat()
}

fn read_all(of: IpAddr, within: Duration) -> io::Result<Vec<BaseChain>> {
    let mut netlink = Netlink::open(libc::NETLINK_NETFILTER, within)?;
    // NFPROTO_UNSPEC: all families.
    let all_families = [0; FAMILY_HEADER];
    let mut chains = netlink.dump(GET_CHAIN, &all_families, |found: &mut Vec<BaseChain>, _, payload| {
        found.extend(read_chain(payload).filter(|chain| sees(chain.family, of) && !is_ours(&chain.table)));
    })?;
    // Chains of a table that is dormant see nothing.
    let dormant = netlink.dump(GET_TABLE, &all_families, |found: &mut BTreeSet<TableKey>, _, payload| {
        found.extend(read_dormant(payload));
    })?;
    chains.retain(|chain| !dormant.contains(&(chain.family, chain.table.clone())));
    if chains.is_empty() {
        return Ok(chains);
    }
    let dropping = netlink.dump(GET_RULE, &all_families, |found: &mut BTreeSet<TableKey>, _, payload| {
        found.extend(read_dropping_rule(payload));
    })?;
    for chain in &mut chains {
        chain.has_drops = dropping.contains(&(chain.family, chain.table.clone()));
    }
    chains.sort_by(|a, b| (a.hook, a.priority, &a.table).cmp(&(b.hook, b.priority, &b.table)));
    Ok(chains)
}

fn is_ours(table: &str) -> bool {
    table == OURS || table.starts_with(OURS_PREFIX)
}

fn sees(family: TableFamily, ip: IpAddr) -> bool {
    match family {
        TableFamily::Ip | TableFamily::Arp => ip.is_ipv4(),
        TableFamily::Ip6 => ip.is_ipv6(),
        TableFamily::Inet | TableFamily::Bridge | TableFamily::Netdev => true,
    }
}

/// The table, if it is dormant.
fn read_dormant(payload: &[u8]) -> Option<TableKey> {
    let (family, table) = split(payload)?;
    let is_dormant = table.number(TABLE_FLAGS)? & DORMANT != 0;
    is_dormant.then(|| Some((family, table.text(TABLE_NAME)?.to_owned())))?
}

/// `None`: a chain without a hook, which only jumps lead to.
fn read_chain(payload: &[u8]) -> Option<BaseChain> {
    let (family, chain) = split(payload)?;
    let hook = Walk(chain.find(CHAIN_HOOK)?);
    Some(BaseChain {
        family,
        table: chain.text(CHAIN_TABLE)?.to_owned(),
        chain: chain.text(CHAIN_NAME)?.to_owned(),
        hook: read_hook(family, hook.number(HOOK_NUMBER)?)?,
        priority: hook.number(HOOK_PRIORITY)?.cast_signed(),
        is_nat: chain.text(CHAIN_TYPE) == Some("nat"),
        devices: read_devices(hook),
        drops_by_policy: chain.number(CHAIN_POLICY) == Some(DROP),
        policy_packets: chain
            .find(CHAIN_COUNTERS)
            .and_then(|counters| wide(Walk(counters).find(COUNTER_PACKETS)?)),
        has_drops: false,
    })
}

fn read_devices(hook: Walk<'_>) -> Vec<String> {
    let one = hook.find(HOOK_DEVICE).map(|name| (DEVICE_NAME, name)).into_iter();
    let list = Walk(hook.find(HOOK_DEVICES).unwrap_or_default());
    let name = |(kind, name): (u16, &[u8])| {
        let name = str::from_utf8(name.strip_suffix(&[0]).unwrap_or(name)).ok()?;
        Some(if kind == DEVICE_PREFIX { format!("{name}*") } else { name.to_owned() })
    };
    one.chain(list).filter_map(name).collect()
}

/// The table of a rule that drops or rejects.
fn read_dropping_rule(payload: &[u8]) -> Option<TableKey> {
    let (family, rule) = split(payload)?;
    rule.find(RULE_CHAIN)?;
    let drops = expressions(rule.find(RULE_EXPRESSIONS)?).any(|(name, data)| match name {
        "reject" => true,
        // An extension of iptables.
        "target" => matches!(data.text(TARGET_NAME), Some("REJECT" | "DROP")),
        "immediate" => data.find(IMMEDIATE_DATA).and_then(read_verdict) == Some(Verdict::Drop),
        _ => false,
    });
    drops.then(|| Some((family, rule.text(RULE_TABLE)?.to_owned())))?
}

/// The expressions of a rule: name and attributes of each.
fn expressions(list: &[u8]) -> impl Iterator<Item = (&str, Walk<'_>)> {
    Walk(list).map(|(_, expression)| {
        let expression = Walk(expression);
        let data = expression.find(EXPRESSION_DATA).unwrap_or_default();
        (expression.text(EXPRESSION_NAME).unwrap_or_default(), Walk(data))
    })
}

fn wide(value: &[u8]) -> Option<u64> {
    value.try_into().ok().map(u64::from_be_bytes)
}

/// Family and attributes of a message.
fn split(payload: &[u8]) -> Option<(TableFamily, Walk<'_>)> {
    let family = match i32::from(*payload.first()?) {
        libc::NFPROTO_INET => TableFamily::Inet,
        libc::NFPROTO_IPV4 => TableFamily::Ip,
        libc::NFPROTO_IPV6 => TableFamily::Ip6,
        libc::NFPROTO_ARP => TableFamily::Arp,
        libc::NFPROTO_BRIDGE => TableFamily::Bridge,
        libc::NFPROTO_NETDEV => TableFamily::Netdev,
        _ => return None,
    };
    Some((family, Walk(payload.get(FAMILY_HEADER..)?)))
}

/// Numbers of hooks (`enum nf_inet_hooks` and `enum nf_dev_hooks` in linux/netfilter.h, linux/netfilter_arp.h).
fn read_hook(family: TableFamily, number: u32) -> Option<Hook> {
    Some(match (family, number) {
        (TableFamily::Netdev, 0) => Hook::Ingress,
        (TableFamily::Netdev, 1) => Hook::Egress,
        (TableFamily::Netdev, _) => return None,
        (TableFamily::Arp, 0) => Hook::Input,
        (TableFamily::Arp, 1) => Hook::Output,
        (TableFamily::Arp, _) | (_, 2) => Hook::Forward,
        (_, 0) => Hook::Prerouting,
        (_, 1) => Hook::Input,
        (_, 3) => Hook::Output,
        (_, 4) => Hook::Postrouting,
        (_, 5) => Hook::Ingress,
        _ => return None,
    })
}
