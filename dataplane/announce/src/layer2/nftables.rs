//! Tables of ours in nftables, which drop the kernel's own answers for addresses.
//!
//! In the syntax of nft(8):
//! ```text
//! table arp sheave-announce {
//!     set announced { typeof oif . arp saddr ip; timeout 1m }
//!     chain output {
//!         type filter hook output priority filter
//!         arp operation reply oif . arp saddr ip @announced drop
//!     }
//! }
//! table ip6 sheave-announce {
//!     set announced { typeof oif . icmpv6 taddr; timeout 1m }
//!     chain output {
//!         type filter hook output priority filter
//!         icmpv6 type nd-neighbor-advert oif . icmpv6 taddr @announced drop
//!     }
//! }
//! ```
//! Frames that a packet socket sends do not pass these hooks.

use std::io::{self, Read};
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_ECHO, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Cmp, DataAttribute, Expressions, Hook, Immediate, InetHookNumber,
    ListAttribute, Lookup, Meta, MetaKey, NfTablesMessage, Operator, Payload, Register, RuleAttribute,
    RuleMessage, SetAttribute, SetElementAttribute, SetElementList, SetElementMessage, SetFlags, SetMessage,
    TableAttribute, TableMessage, Verdict, VerdictAttribute,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};

use super::netlink::{LONGEST, append, parse, to_kernel};

const TABLE: &str = "sheave-announce";
const CHAIN: &str = "output";
const SET: &str = "announced";
/// NF_ARP_OUT (linux/netfilter_arp.h).
const ARP_OUT: u32 = 1;
/// NF_DROP (linux/netfilter.h).
const DROP: u32 = 0;
/// From linux/netfilter/nf_tables.h: NFT_PAYLOAD_NETWORK_HEADER and NFT_PAYLOAD_TRANSPORT_HEADER.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// How nft(8) shows the keys: its numbers for an interface and an address of each family (`enum datatypes` in its datatype.h), six bits each.
const SHOWN_V4: u32 = 20 << 6 | 7;
const SHOWN_V6: u32 = 20 << 6 | 8;
/// How many elements a message has: its length and that of a list are counted in 16 bits.
const AT_ONCE: usize = 512;

/// An address, and the interface by which it is announced.
pub(super) type Place = (IpAddr, u32);

/// One of our tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Arp,
    NeighbourDiscovery,
}

/// The kernel's number of a table, which no other table of the network namespace ever has, even with the same name.
pub(super) type Handle = u64;

/// Changes of our tables, as the kernel or a test makes them.
pub(super) trait Tables: Send + 'static {
    /// Makes a table, or makes it anew, with these places. Each ends by itself after this time.
    fn create(&mut self, table: Table, places: &[Place], timeout: Duration) -> io::Result<Handle>;
    /// Has a table drop answers for some no more, and for others from now on.
    fn change(&mut self, table: Table, gone: &[Place], new: &[Place]) -> io::Result<()>;
    /// Removes a table, if it is there: whichever has the name, or only this one.
    fn remove(&mut self, table: Table, only: Option<Handle>) -> io::Result<()>;
}

/// Socket for nftables.
pub(super) struct Nftables {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Nftables {
    /// Needs CAP_NET_ADMIN when it is used.
    pub(super) fn open() -> io::Result<Self> {
        let protocol = Protocol::from(libc::NETLINK_NETFILTER);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        // The kernel has replied before the request returns.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, buffer: vec![0; LONGEST] })
    }

    /// All of the messages take effect or none (`nfnetlink_rcv_batch` in net/netfilter/nfnetlink.c). Returns the handle of a table that
    /// was to be echoed.
    fn transact(
        &mut self,
        table: Table,
        messages: Vec<(NfTablesMessage, u16)>,
    ) -> io::Result<Option<Handle>> {
        let frame = |edge| {
            // The resource id is the receiver of the batch.
            let header =
                NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, libc::NFNL_SUBSYS_NFTABLES as u16);
            to_kernel(NetfilterMessage::new(header, edge), 0)
        };
        let mut bytes = Vec::new();
        append(&mut bytes, frame(ControlMessage::BatchBegin));
        for (message, flags) in messages {
            let message = NetfilterMessage::new(NetfilterHeader::new(table.family(), 0, 0), message);
            append(&mut bytes, to_kernel(message, NLM_F_ACK | flags));
        }
        append(&mut bytes, frame(ControlMessage::BatchEnd));
        self.socket.send(&bytes)?;
        self.outcome()
    }

    /// The first refusal among the replies, or else the handle that they show.
    fn outcome(&mut self) -> io::Result<Option<Handle>> {
        let (mut outcome, mut handle) = (Ok(()), None);
        loop {
            let length = match (&self.socket).read(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return outcome.map(|()| handle),
                Err(error) => return outcome.and(Err(error)),
            };
            let replies: Vec<NetlinkMessage<NetfilterMessage>> = parse(&self.buffer[..length]);
            for reply in replies {
                match reply.payload {
                    NetlinkPayload::Error(verdict) if verdict.code.is_some() => {
                        outcome = outcome.and(Err(verdict.to_io()));
                    }
                    NetlinkPayload::InnerMessage(message) => handle = handle.or(handle_in(&message)),
                    _ => {}
                }
            }
        }
    }
}

impl Tables for Nftables {
    fn create(&mut self, table: Table, places: &[Place], timeout: Duration) -> io::Result<Handle> {
        let (first, rest) = places.split_at(places.len().min(AT_ONCE));
        let mut messages = table.creation(timeout);
        messages.push(table.addition(first));
        let handle = self.transact(table, messages)?;
        rest.chunks(AT_ONCE)
            .try_for_each(|some| self.transact(table, vec![table.addition(some)]).map(drop))?;
        handle.ok_or_else(|| io::Error::other("the kernel does not say which table it has made"))
    }

    fn change(&mut self, table: Table, gone: &[Place], new: &[Place]) -> io::Result<()> {
        let gone = gone.chunks(AT_ONCE).map(|some| table.removal(some));
        let messages: Vec<_> = gone.chain(new.chunks(AT_ONCE).map(|some| table.addition(some))).collect();
        messages.into_iter().try_for_each(|message| self.transact(table, vec![message]).map(drop))
    }

    fn remove(&mut self, table: Table, only: Option<Handle>) -> io::Result<()> {
        let mut which = named();
        which.attributes.extend(only.map(TableAttribute::Handle));
        match self.transact(table, vec![(NfTablesMessage::DeleteTable(which), 0)]) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

impl Table {
    fn family(self) -> NetfilterProtoFamily {
        match self {
            Self::Arp => NetfilterProtoFamily::ARP,
            Self::NeighbourDiscovery => NetfilterProtoFamily::IPv6,
        }
    }

    fn creation(self, timeout: Duration) -> Vec<(NfTablesMessage, u16)> {
        let (hook, shown, length) = match self {
            Self::Arp => (InetHookNumber::Other(ARP_OUT), SHOWN_V4, 8),
            Self::NeighbourDiscovery => (InetHookNumber::LocalOut, SHOWN_V6, 20),
        };
        let set = vec![
            SetAttribute::Table(TABLE.to_owned()),
            SetAttribute::Name(SET.to_owned()),
            SetAttribute::Flags(SetFlags::Timeout),
            SetAttribute::KeyType(shown),
            SetAttribute::KeyLen(length),
            // The kernel wants a number, for rules of the same transaction.
            SetAttribute::Id(1),
            SetAttribute::Timeout(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        ];
        let chain = vec![
            ChainAttribute::Table(TABLE.to_owned()),
            ChainAttribute::Name(CHAIN.to_owned()),
            ChainAttribute::Hook(vec![Hook::Number(hook.into()), Hook::Priority(0)]),
            ChainAttribute::Type("filter".to_owned()),
        ];
        let rule = vec![
            RuleAttribute::Table(TABLE.to_owned()),
            RuleAttribute::Chain(CHAIN.to_owned()),
            RuleAttribute::Expressions(self.expressions().into_iter().map(Into::into).collect()),
        ];
        vec![
            // One that is there already is replaced.
            (NfTablesMessage::NewTable(named()), NLM_F_CREATE),
            (NfTablesMessage::DeleteTable(named()), 0),
            (NfTablesMessage::NewTable(named()), NLM_F_CREATE | NLM_F_ECHO),
            (NfTablesMessage::NewSet(SetMessage { attributes: set }), NLM_F_CREATE),
            (NfTablesMessage::NewChain(ChainMessage { attributes: chain }), NLM_F_CREATE),
            (NfTablesMessage::NewRule(RuleMessage { attributes: rule }), NLM_F_CREATE | NLM_F_APPEND),
        ]
    }

    /// Drops answers for what is in the set.
    fn expressions(self) -> Vec<Expressions> {
        let mut expressions = match self {
            Self::Arp => vec![
                load(NETWORK_HEADER, 6, 2, Register::Reg32_00),
                equals(&2_u16.to_be_bytes()),
                load(NETWORK_HEADER, 14, 4, Register::Reg32_01),
            ],
            Self::NeighbourDiscovery => vec![
                meta(MetaKey::L4Proto),
                equals(&[58]),
                load(TRANSPORT_HEADER, 0, 1, Register::Reg32_00),
                equals(&[136]),
                load(TRANSPORT_HEADER, 8, 16, Register::Reg32_01),
            ],
        };
        let verdict = DataAttribute::Verdict(vec![VerdictAttribute::Code(Verdict::Other(DROP))]);
        expressions.extend([
            meta(MetaKey::Oif),
            Expressions::Lookup(vec![
                Lookup::Set(SET.to_owned()),
                Lookup::SourceRegister(Register::Reg32_00),
            ]),
            Expressions::Immediate(vec![
                Immediate::DestinationRegister(Register::Verdict),
                Immediate::Data(verdict),
            ]),
        ]);
        expressions
    }

    fn addition(self, places: &[Place]) -> (NfTablesMessage, u16) {
        (NfTablesMessage::NewSetElement(elements(places)), NLM_F_CREATE)
    }

    fn removal(self, places: &[Place]) -> (NfTablesMessage, u16) {
        (NfTablesMessage::DeleteSetElement(elements(places)), 0)
    }
}

fn handle_in(message: &NetfilterMessage) -> Option<Handle> {
    let NetfilterMessageInner::NfTables(NfTablesMessage::NewTable(table)) = &message.inner else {
        return None;
    };
    table.attributes.iter().find_map(|attribute| match attribute {
        TableAttribute::Handle(handle) => Some(*handle),
        _ => None,
    })
}

fn named() -> TableMessage {
    TableMessage { attributes: vec![TableAttribute::Name(TABLE.to_owned())] }
}

fn set_named() -> Vec<SetElementList> {
    vec![SetElementList::Table(TABLE.to_owned()), SetElementList::Set(SET.to_owned())]
}

fn elements(places: &[Place]) -> SetElementMessage {
    let key = |&(ip, link): &Place| {
        let mut key = link.to_ne_bytes().to_vec();
        match ip {
            IpAddr::V4(ip) => key.extend(ip.octets()),
            IpAddr::V6(ip) => key.extend(ip.octets()),
        }
        ListAttribute::Element(vec![SetElementAttribute::Key(DataAttribute::Value(key))])
    };
    let mut attributes = set_named();
    attributes.push(SetElementList::Elements(places.iter().map(key).collect()));
    SetElementMessage { attributes }
}

fn load(base: u32, offset: u32, length: u32, register: Register) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

fn meta(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(Register::Reg32_00)])
}

fn equals(value: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg32_00),
        Cmp::Op(Operator::Equal),
        Cmp::Data(DataAttribute::Value(value.to_vec())),
    ])
}
