//! The nftables rules that mark what comes back for a transparent socket, in a table of our own. It must not know what is
//! done with the mark.
//!
//! In the words of nft(8):
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

use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NetlinkMessage};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, Expressions, Hook, Immediate, InetHookNumber,
    Meta, MetaKey, NfTablesMessage, Operator, Register, RuleAttribute, RuleMessage, TableAttribute,
    TableFlags, TableMessage, Verdict, VerdictAttribute,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};

use super::netlink::{is, list, message, request, unless};
use super::{MARK, MARK_MASK};
use crate::sys::Errno;
use crate::sys::sockets::{Netlink, open_netlink};

/// How the names of our tables begin.
const PREFIX: &str = "sheave-";
/// Every packet passes this chain, so it looks for a socket once; the other is for those that have one of ours.
const CHAIN: &str = "prerouting";
const MARKING_CHAIN: &str = "transparent";
/// NF_IP_PRI_MANGLE (linux/netfilter_ipv4.h): before the route is chosen, and after connection tracking.
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

/// The table, which is there as long as this.
#[derive(Debug)]
pub(super) struct Marks {
    netlink: Netlink,
    table: String,
}

impl Marks {
    /// Makes the table, as one transaction. The kernel removes it when the socket closes, however the process ends
    /// (`NFT_TABLE_F_OWNER`, Linux 5.12); on an older one a killed process leaves it behind.
    pub(super) fn install() -> io::Result<Self> {
        match Self::install_with(TableFlags::Owner) {
            // What kernels say to flags that they do not know (nf_tables_newtable in net/netfilter/nf_tables_api.c).
            Err(error) if is_unknown_flag(&error) => Self::install_with(TableFlags::empty()),
            outcome => outcome,
        }
    }

    pub(super) fn install_with(flags: TableFlags) -> io::Result<Self> {
        let netlink = open_netlink(libc::NETLINK_NETFILTER)?;
        // Ports are unique where tables are: in the network namespace. Process ids are not, containers having their own.
        let table = format!("{PREFIX}{}", netlink.port);
        request(&netlink, transaction(creation(&table, flags)))?;
        Ok(Self { netlink, table })
    }

    /// Removes the table, if it is still there, and says whether another gateway has one in this network namespace.
    pub(super) fn remove(&self) -> io::Result<bool> {
        unless(&[Errno::ENOENT], request(&self.netlink, transaction(vec![deletion(&self.table)])))?;
        Ok(tables(&self.netlink)?.iter().any(|name| name.starts_with(PREFIX)))
    }
}

fn is_unknown_flag(error: &io::Error) -> bool {
    is(error, Errno::EINVAL) || is(error, Errno::EOPNOTSUPP)
}

/// The names of all tables that are in force for both families at once, as ours are.
pub(super) fn tables(netlink: &Netlink) -> io::Result<Vec<String>> {
    let all = NfTablesMessage::GetTable(TableMessage { attributes: Vec::new() });
    let answers = list(netlink, in_family(NetfilterProtoFamily::Inet, all))?;
    let name = |message: NetfilterMessage| match message.inner {
        NetfilterMessageInner::NfTables(NfTablesMessage::NewTable(table)) => {
            table.attributes.into_iter().find_map(|attribute| match attribute {
                TableAttribute::Name(name) => Some(name),
                _ => None,
            })
        }
        _ => None,
    };
    Ok(answers.into_iter().filter_map(name).collect())
}

/// Frames messages so that all of them take effect, or none (`nfnetlink_rcv_batch` in net/netfilter/nfnetlink.c).
fn transaction(messages: Vec<NetlinkMessage<NetfilterMessage>>) -> Vec<NetlinkMessage<NetfilterMessage>> {
    let frame = |edge| {
        // The resource says for whom the batch is.
        let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, libc::NFNL_SUBSYS_NFTABLES as u16);
        message(NetfilterMessage::new(header, edge), 0)
    };
    let mut framed = vec![frame(ControlMessage::BatchBegin)];
    framed.extend(messages);
    framed.push(frame(ControlMessage::BatchEnd));
    framed
}

/// Takes a table of this name away first: its maker was killed, since we have its port now.
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
        rule(CHAIN, put_fragments_together()),
        rule(CHAIN, look_closer_at_transparent()),
        rule(MARKING_CHAIN, leave_wildcards()),
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

/// Fragments but the first say nothing of ports, so they belong to no socket. The expression `tproxy` makes the kernel put
/// them together before our chain (`nft_tproxy_init` calls `nf_defrag_ipv4_enable` and its like), as connection tracking
/// does where it is on. Being there is all that it is for: no packet has protocol 255, which is reserved.
fn put_fragments_together() -> Vec<Expressions> {
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

/// TCP, UDP and the ICMP errors about them (`nf_sk_lookup_slow_v4`): those belong to the socket, too.
fn look_closer_at_transparent() -> Vec<Expressions> {
    let jump = vec![VerdictAttribute::Code(Verdict::Jump), VerdictAttribute::Chain(MARKING_CHAIN.to_owned())];
    let [load, compare] = socket_is(TRANSPARENT);
    vec![load, compare, verdict(jump)]
}

/// Someone else's transparent listener on all addresses (TPROXY) is found for any destination: without this rule we would
/// deliver to it what only passes through. Ours are bound to a client.
fn leave_wildcards() -> Vec<Expressions> {
    let [load, compare] = socket_is(WILDCARD);
    vec![load, compare, verdict(vec![VerdictAttribute::Code(Verdict::Other(ACCEPT))])]
}

fn verdict(attributes: Vec<VerdictAttribute>) -> Expressions {
    let data = Immediate::Data(DataAttribute::Verdict(attributes));
    Expressions::Immediate(vec![Immediate::DestinationRegister(Register::Verdict), data])
}

/// Sockets in TIME_WAIT come here, too: of them the kernel does not say whether they are wildcards, and the rule before
/// does not apply.
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

/// Goes on with the rule if the packet's socket has the property. The kernel looks the socket up.
fn socket_is(property: u32) -> [Expressions; 2] {
    let load = Expressions::Other {
        expression_type: "socket".to_owned(),
        attributes: vec![number(SOCKET_KEY, property), number(SOCKET_REGISTER, Register::Reg1.into())],
    };
    [load, equals(&[1])]
}

/// Goes on with the rule if the register holds this.
fn equals(value: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(Operator::Equal),
        Cmp::Data(DataAttribute::Value(value.to_vec())),
    ])
}

/// An attribute of an expression that the crate has no type for.
fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}
