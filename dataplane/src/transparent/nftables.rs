//! nftables rules that mark replies to transparent sockets, in a table of the gateway.
//!
//! In the syntax of nft(8):
//! ```text
//! table inet sheave-PORT {
//!     flags owner
//!     chain prerouting {
//!         type filter hook prerouting priority mangle
//!         meta l4proto 255 tproxy to :1
//!         socket transparent 1 jump transparent
//!     }
//!     chain transparent {
//!         socket wildcard 1 accept
//!         meta mark set meta mark and ~MASK or MARK
//!     }
//! }
//! ```

use std::io;

use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NetlinkMessage};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, Expressions, Hook, Immediate, InetHookNumber,
    Meta, MetaKey, NfTablesMessage, Operator, Register, RuleAttribute, RuleMessage, TableAttribute,
    TableFlags, TableMessage, Verdict, VerdictAttribute,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};

use super::netlink::{exchange, is, message, unless};
use super::{MARK, MARK_MASK};
use crate::sys::Errno;
use crate::sys::sockets::{Netlink, open_netlink};

/// Prefix of the names of the gateway's tables.
const PREFIX: &str = "sheave-";
/// Every packet passes this chain, so it looks up the socket once; packets of transparent sockets continue in the other.
const CHAIN: &str = "prerouting";
const MARKING_CHAIN: &str = "transparent";
/// NF_IP_PRI_MANGLE (linux/netfilter_ipv4.h): before routing, and after connection tracking.
const PRIORITY: i32 = -150;
/// NF_ACCEPT (linux/netfilter.h).
const ACCEPT: u32 = 1;
/// From linux/netfilter/nf_tables.h: NFTA_SOCKET_KEY, NFTA_SOCKET_DREG, NFT_SOCKET_TRANSPARENT and NFT_SOCKET_WILDCARD.
const SOCKET_KEY: u16 = 1;
const SOCKET_REGISTER: u16 = 2;
const TRANSPARENT: u32 = 0;
const WILDCARD: u32 = 2;
/// From the same header: NFTA_TPROXY_FAMILY and NFTA_TPROXY_REG_PORT.
const TPROXY_FAMILY: u16 = 1;
const TPROXY_PORT_REGISTER: u16 = 3;

/// The table, which exists as long as this value.
#[derive(Debug)]
pub(super) struct MarkingTable {
    netlink: Netlink,
    table: String,
}

impl MarkingTable {
    /// Creates the table in one transaction. The kernel removes it when the socket closes, however the process ends
    /// (`NFT_TABLE_F_OWNER`, Linux 5.12); on older kernels a killed process leaves it behind.
    pub(super) fn install() -> io::Result<Self> {
        match Self::install_with(TableFlags::Owner) {
            // The kernel returns these errors for unknown flags (nf_tables_newtable in net/netfilter/nf_tables_api.c).
            Err(error) if is_unknown_flag(&error) => Self::install_with(TableFlags::empty()),
            outcome => outcome,
        }
    }

    pub(super) fn install_with(flags: TableFlags) -> io::Result<Self> {
        let netlink = open_netlink(libc::NETLINK_NETFILTER, 0)?;
        // Netlink ports are unique in the network namespace, like tables. Process ids are not, since containers have their own.
        let table = format!("{PREFIX}{}", netlink.port);
        exchange(&netlink, transaction(creation(&table, flags)))?;
        Ok(Self { netlink, table })
    }

    /// Creates the table again if it is gone. A table with an owner is protected (`nft_flush` in net/netfilter/nf_tables_api.c); on
    /// older kernels `nft flush ruleset` removes it, and so does each restart of nftables.service.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        if !tables(&self.netlink)?.contains(&self.table) {
            *self = Self::install()?;
        }
        Ok(())
    }

    /// Removes the table, if it still exists; returns whether another gateway has one in this network namespace.
    pub(super) fn remove(&self) -> io::Result<bool> {
        unless(&[Errno::ENOENT], exchange(&self.netlink, transaction(vec![deletion(&self.table)])))?;
        Ok(tables(&self.netlink)?.iter().any(|name| name.starts_with(PREFIX)))
    }
}

fn is_unknown_flag(error: &io::Error) -> bool {
    is(error, Errno::EINVAL) || is(error, Errno::EOPNOTSUPP)
}

/// Names of all tables of the family `inet`, to which the gateway's tables belong.
pub(super) fn tables(netlink: &Netlink) -> io::Result<Vec<String>> {
    let all = NfTablesMessage::GetTable(TableMessage { attributes: Vec::new() });
    let replies = exchange(netlink, vec![message(in_family(NetfilterProtoFamily::Inet, all), NLM_F_DUMP)])?;
    let name = |message: NetfilterMessage| match message.inner {
        NetfilterMessageInner::NfTables(NfTablesMessage::NewTable(table)) => {
            table.attributes.into_iter().find_map(|attribute| match attribute {
                TableAttribute::Name(name) => Some(name),
                _ => None,
            })
        }
        _ => None,
    };
    Ok(replies.into_iter().filter_map(name).collect())
}

/// Frames messages so that all of them take effect or none (`nfnetlink_rcv_batch` in net/netfilter/nfnetlink.c).
fn transaction(messages: Vec<NetlinkMessage<NetfilterMessage>>) -> Vec<NetlinkMessage<NetfilterMessage>> {
    let frame = |edge| {
        // The resource id is the receiver of the batch.
        let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, libc::NFNL_SUBSYS_NFTABLES as u16);
        message(NetfilterMessage::new(header, edge), 0)
    };
    let mut framed = vec![frame(ControlMessage::BatchBegin)];
    framed.extend(messages);
    framed.push(frame(ControlMessage::BatchEnd));
    framed
}

/// Messages that create the table. They first delete a table of the same name, whose owner must have been killed, since its port is
/// free.
fn creation(table: &str, flags: TableFlags) -> Vec<NetlinkMessage<NetfilterMessage>> {
    let new_table = || {
        let attributes = vec![TableAttribute::Name(table.to_owned()), TableAttribute::Flags(flags)];
        change(NfTablesMessage::NewTable(TableMessage { attributes }), NLM_F_CREATE)
    };
    let chain = NfTablesMessage::NewChain(ChainMessage {
        attributes: vec![
            ChainAttribute::Table(table.to_owned()),
            ChainAttribute::Name(CHAIN.to_owned()),
            ChainAttribute::Hook(vec![
                Hook::Number(InetHookNumber::PreRouting.into()),
                Hook::Priority(PRIORITY.cast_unsigned()),
            ]),
            ChainAttribute::Type("filter".to_owned()),
        ],
    });
    let marking_chain = NfTablesMessage::NewChain(ChainMessage {
        attributes: vec![
            ChainAttribute::Table(table.to_owned()),
            ChainAttribute::Name(MARKING_CHAIN.to_owned()),
        ],
    });
    let rule = |chain: &str, expressions: Vec<Expressions>| {
        let attributes = vec![
            RuleAttribute::Table(table.to_owned()),
            RuleAttribute::Chain(chain.to_owned()),
            RuleAttribute::Expressions(expressions.into_iter().map(Into::into).collect()),
        ];
        change(NfTablesMessage::NewRule(RuleMessage { attributes }), NLM_F_CREATE | NLM_F_APPEND)
    };
    vec![
        new_table(),
        deletion(table),
        new_table(),
        change(chain, NLM_F_CREATE),
        change(marking_chain, NLM_F_CREATE),
        rule(CHAIN, reassemble_fragments()),
        rule(CHAIN, match_transparent()),
        rule(MARKING_CHAIN, skip_wildcards()),
        rule(MARKING_CHAIN, mark()),
    ]
}

fn deletion(table: &str) -> NetlinkMessage<NetfilterMessage> {
    let attributes = vec![TableAttribute::Name(table.to_owned())];
    change(NfTablesMessage::DeleteTable(TableMessage { attributes }), 0)
}

fn change(content: NfTablesMessage, flags: u16) -> NetlinkMessage<NetfilterMessage> {
    message(in_family(NetfilterProtoFamily::Inet, content), NLM_F_ACK | flags)
}

fn in_family(family: NetfilterProtoFamily, content: NfTablesMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), content)
}

/// Makes the kernel reassemble fragments. Only the first fragment has ports, so the others would match no socket. The expression
/// `tproxy` enables reassembly before this chain (`nft_tproxy_init` calls `nf_defrag_ipv4_enable` and its IPv6 counterpart), as
/// connection tracking does where it is enabled. Its presence suffices: no packet has the reserved protocol 255.
fn reassemble_fragments() -> Vec<Expressions> {
    let register = Register::Reg1;
    let port = DataAttribute::Value(1_u16.to_be_bytes().to_vec());
    vec![
        Expressions::Meta(vec![Meta::Key(MetaKey::L4Proto), Meta::DestinationRegister(register)]),
        equals(&[u8::MAX]),
        Expressions::Immediate(vec![Immediate::DestinationRegister(register), Immediate::Data(port)]),
        Expressions::Other {
            expression_type: "tproxy".to_owned(),
            attributes: vec![
                number(TPROXY_FAMILY, u8::from(NetfilterProtoFamily::Unspec).into()),
                number(TPROXY_PORT_REGISTER, register.into()),
            ],
        },
    ]
}

/// Matches packets of transparent sockets: TCP, UDP and their ICMP errors (`nf_sk_lookup_slow_v4`), which belong to the socket as well.
fn match_transparent() -> Vec<Expressions> {
    let jump = vec![VerdictAttribute::Code(Verdict::Jump), VerdictAttribute::Chain(MARKING_CHAIN.to_owned())];
    let [load, compare] = socket_is(TRANSPARENT);
    vec![load, compare, verdict(jump)]
}

/// Skips packets of another program's transparent listener on all addresses (TPROXY). It matches any destination, so without this rule
/// it would get packets that only pass through. The gateway's own sockets are bound to a client.
fn skip_wildcards() -> Vec<Expressions> {
    let [load, compare] = socket_is(WILDCARD);
    vec![load, compare, verdict(vec![VerdictAttribute::Code(Verdict::Other(ACCEPT))])]
}

fn verdict(attributes: Vec<VerdictAttribute>) -> Expressions {
    let data = Immediate::Data(DataAttribute::Verdict(attributes));
    Expressions::Immediate(vec![Immediate::DestinationRegister(Register::Verdict), data])
}

/// Marks the packet. This includes packets of sockets in TIME_WAIT: the kernel does not report whether those are wildcards, so the
/// previous rule does not match them.
fn mark() -> Vec<Expressions> {
    let register = Register::Reg1;
    let mark = |value: u32| DataAttribute::Value(value.to_ne_bytes().to_vec());
    vec![
        Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::DestinationRegister(register)]),
        Expressions::Bitwise(vec![
            Bitwise::SourceRegister(register),
            Bitwise::DestinationRegister(register),
            Bitwise::Length(4),
            Bitwise::Mask(mark(!MARK_MASK)),
            Bitwise::Xor(mark(MARK)),
        ]),
        Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(register)]),
    ]
}

/// Matches if the packet's socket has the property; the kernel looks up the socket.
fn socket_is(property: u32) -> [Expressions; 2] {
    let load = Expressions::Other {
        expression_type: "socket".to_owned(),
        attributes: vec![number(SOCKET_KEY, property), number(SOCKET_REGISTER, Register::Reg1.into())],
    };
    [load, equals(&[1])]
}

/// Matches if the register holds this value.
fn equals(value: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(Operator::Equal),
        Cmp::Data(DataAttribute::Value(value.to_vec())),
    ])
}

/// An attribute of an expression for which the crate has no type.
fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
