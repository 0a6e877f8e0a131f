//! Expressions of rules, and the registers that they use.
//!
//! Each key lies in one piece: source, destination, protocol, port, slot or endpoint, endpoint's port. In IPv6 these are all sixteen
//! registers that there are. Numbers are those of linux/netfilter/nf_tables.h.

use sheave_model::Protocol;

use crate::attributes::Attributes;
use crate::ruleset::Family;

/// NFT_REG_VERDICT and NFT_REG32_00.
const VERDICT: u32 = 0;
const FIRST: u32 = 8;
/// NFT_PAYLOAD_NETWORK_HEADER and NFT_PAYLOAD_TRANSPORT_HEADER.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
/// NFT_JUMP and NFT_GOTO; NF_DROP and NF_ACCEPT (linux/netfilter.h).
pub(crate) const JUMP: i32 = -3;
pub(crate) const GOTO: i32 = -4;
const DROP: i32 = 0;
pub(crate) const ACCEPT: i32 = 1;
/// NFT_META_IIF, NFT_META_OIF, NFT_META_IIFNAME, NFT_META_OIFNAME and NFT_META_L4PROTO.
const IIF: u32 = 4;
const OIF: u32 = 5;
const IIFNAME: u32 = 6;
const OIFNAME: u32 = 7;
const L4PROTO: u32 = 16;
/// NFT_CT_STATE, NFT_CT_DIRECTION, NFT_CT_STATUS, NFT_CT_PROTOCOL, NFT_CT_PROTO_SRC, NFT_CT_PROTO_DST, and NFT_CT_SRC_IP and NFT_CT_DST_IP of each family.
const CT_STATE: u32 = 0;
const CT_DIRECTION: u32 = 1;
const CT_STATUS: u32 = 2;
const CT_PROTOCOL: u32 = 10;
const CT_PROTO_SRC: u32 = 11;
const CT_PROTO_DST: u32 = 12;
/// IP_CT_DIR_ORIGINAL and IP_CT_DIR_REPLY (linux/netfilter/nf_conntrack_tuple_common.h).
const ORIGINAL: u8 = 0;
const REPLY: u8 = 1;
/// IPS_SEEN_REPLY, IPS_ASSURED, IPS_CONFIRMED and IPS_DST_NAT (linux/netfilter/nf_conntrack_common.h), and the bits of `ct state` (`NF_CT_STATE_BIT`).
const SEEN_REPLY: u32 = 1 << 1;
const ASSURED: u32 = 1 << 2;
const CONFIRMED: u32 = 1 << 3;
const DST_NAT: u32 = 1 << 5;
pub(crate) const INVALID: u32 = 1;
pub(crate) const NEW: u32 = 1 << 3;
/// Flags of TCP.
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;
const URG: u8 = 0x20;
/// Offsets in a header of TCP: the two octets that end with the flags, and the checksum.
const LENGTH_AND_FLAGS: u32 = 12;
const CHECKSUM: u32 = 16;
/// NFTA_LIST_ELEM, NFTA_EXPR_NAME and NFTA_EXPR_DATA; NFTA_DATA_VALUE and NFTA_DATA_VERDICT.
pub(crate) const LIST_ELEMENT: u16 = 1;
pub(crate) const EXPRESSION_NAME: u16 = 1;
pub(crate) const EXPRESSION_DATA: u16 = 2;
pub(crate) const DATA_VALUE: u16 = 1;
pub(crate) const DATA_VERDICT: u16 = 2;
/// NFTA_VERDICT_CODE and NFTA_VERDICT_CHAIN.
pub(crate) const VERDICT_CODE: u16 = 1;
pub(crate) const VERDICT_CHAIN: u16 = 2;
/// The seed of every gateway: "SHEA".
pub(crate) const SEED: u32 = 0x5348_4541;

/// Operation of a comparison: NFT_CMP_EQ and NFT_CMP_NEQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal = 0,
    NotEqual = 1,
}

/// Whether what a set has, or what it lacks, passes on: NFT_LOOKUP_F_INV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    Of = 0,
    NotOf = 1,
}

/// Operation of a rule on an element of a dynamic set: NFT_DYNSET_OP_UPDATE and NFT_DYNSET_OP_DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Update { seconds: u32 },
    Delete,
}

/// Registers of a family.
#[derive(Clone, Copy, Debug)]
struct Registers {
    source: u32,
    destination: u32,
    protocol: u32,
    port: u32,
    /// Also that of an affinity record's endpoint, and of what is compared with the set `endpoint`.
    slot: u32,
    slot_endpoint: u32,
}

/// A rule, as a list of expressions.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    family: Family,
    registers: Registers,
    /// How many registers an address has.
    words: u32,
    list: Attributes,
}

impl Rule {
    pub(crate) fn new(family: Family) -> Self {
        let words = address_length(family) / 4;
        let registers = Registers {
            source: FIRST,
            destination: FIRST + words,
            protocol: FIRST + 2 * words,
            port: FIRST + 2 * words + 1,
            slot: FIRST + 2 * words + 2,
            slot_endpoint: FIRST + 2 * words + 3,
        };
        Self { family, registers, words, list: Attributes::new() }
    }

    /// The value of NFTA_RULE_EXPRESSIONS.
    pub(crate) fn expressions(&self) -> &Attributes {
        &self.list
    }

    fn add(mut self, name: &str, data: impl FnOnce(&mut Attributes)) -> Self {
        self.list.nested(LIST_ELEMENT, |expression| {
            expression.text(EXPRESSION_NAME, name).nested(EXPRESSION_DATA, data);
        });
        self
    }

    // Loads of fields.

    /// NFTA_PAYLOAD_DREG, NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET and NFTA_PAYLOAD_LEN.
    fn payload(self, base: u32, offset: u32, length: u32, register: u32) -> Self {
        self.add("payload", |data| {
            data.number(1, register).number(2, base).number(3, offset).number(4, length);
        })
    }

    /// NFTA_META_DREG and NFTA_META_KEY.
    fn meta(self, key: u32, register: u32) -> Self {
        self.add("meta", |data| {
            data.number(1, register).number(2, key);
        })
    }

    /// NFTA_CT_DREG, NFTA_CT_KEY and NFTA_CT_DIRECTION.
    fn conntrack(self, key: u32, direction: Option<u8>, register: u32) -> Self {
        self.add("ct", |data| {
            data.number(1, register).number(2, key);
            if let Some(direction) = direction {
                data.bytes(3, &[direction]);
            }
        })
    }

    /// `ip saddr`
    fn source(self, register: u32) -> Self {
        let (offset, length) = (if self.family == Family::Ipv4 { 12 } else { 8 }, self.words * 4);
        self.payload(NETWORK, offset, length, register)
    }

    /// `ip daddr`
    pub(crate) fn destination(self) -> Self {
        let (offset, length) = (if self.family == Family::Ipv4 { 16 } else { 24 }, self.words * 4);
        let register = self.registers.destination;
        self.payload(NETWORK, offset, length, register)
    }

    /// `ip saddr`, as a key of its own.
    pub(crate) fn client(self) -> Self {
        let register = self.registers.destination;
        self.source(register)
    }

    /// `ip daddr . meta l4proto . th dport`
    pub(crate) fn frontend(self) -> Self {
        let Registers { protocol, port, .. } = self.registers;
        self.destination().meta(L4PROTO, protocol).payload(TRANSPORT, 2, 2, port)
    }

    /// `ip daddr . meta l4proto . th dport . ip saddr`
    pub(crate) fn frontend_and_client(self) -> Self {
        let register = self.registers.slot;
        self.frontend().source(register)
    }

    /// `ip saddr . ip daddr . meta l4proto . th dport`
    pub(crate) fn client_and_frontend(self) -> Self {
        let register = self.registers.source;
        self.source(register).frontend()
    }

    /// `ip saddr . meta l4proto . th sport`
    pub(crate) fn replying_endpoint(self) -> Self {
        let Registers { destination, protocol, port, .. } = self.registers;
        self.source(destination).meta(L4PROTO, protocol).payload(TRANSPORT, 0, 2, port)
    }

    /// `ct original ip daddr`
    pub(crate) fn original_address(self) -> Self {
        let (key, register) = (if self.family == Family::Ipv4 { 20 } else { 22 }, self.registers.destination);
        self.conntrack(key, Some(ORIGINAL), register)
    }

    /// `ct original ip daddr . meta l4proto . ct original proto-dst`; the protocol has been compared.
    pub(crate) fn original_frontend(self) -> Self {
        let Registers { protocol, port, .. } = self.registers;
        self.original_address().meta(L4PROTO, protocol).conntrack(CT_PROTO_DST, Some(ORIGINAL), port)
    }

    /// `ct original ip daddr . ct protocol . ct original proto-dst`: the frontend of the connection that an ICMP error is about.
    pub(crate) fn related_frontend(self) -> Self {
        let Registers { protocol, port, .. } = self.registers;
        self.original_address().conntrack(CT_PROTOCOL, None, protocol).conntrack(
            CT_PROTO_DST,
            Some(ORIGINAL),
            port,
        )
    }

    /// `... . ct reply ip saddr . ct reply proto-src`
    pub(crate) fn chosen_endpoint(self) -> Self {
        let (key, register, words) =
            (if self.family == Family::Ipv4 { 19 } else { 21 }, self.registers.slot, self.words);
        self.conntrack(key, Some(REPLY), register).conntrack(CT_PROTO_SRC, Some(REPLY), register + words)
    }

    /// `ip saddr . ct original ip daddr . ...`
    pub(crate) fn client_and_original_frontend(self) -> Self {
        let register = self.registers.source;
        self.source(register).original_frontend()
    }

    /// `iifname . oifname`
    pub(crate) fn interfaces(self) -> Self {
        self.meta(IIFNAME, FIRST).meta(OIFNAME, FIRST + 4)
    }

    /// `numgen random mod N offset O`: NFTA_NG_DREG, NFTA_NG_MODULUS, NFTA_NG_TYPE (NFT_NG_RANDOM) and NFTA_NG_OFFSET.
    pub(crate) fn random_slot(self, slots: u32, offset: u32) -> Self {
        let register = self.registers.slot;
        self.add("numgen", |data| {
            data.number(1, register).number(2, slots).number(3, 1).number(4, offset);
        })
    }

    /// `jhash ip saddr mod N seed S offset O`: NFTA_HASH_SREG, NFTA_HASH_DREG, NFTA_HASH_LEN, NFTA_HASH_MODULUS, NFTA_HASH_SEED,
    /// NFTA_HASH_OFFSET and NFTA_HASH_TYPE (NFT_HASH_JENKINS).
    pub(crate) fn hashed_slot(self, slots: u32, offset: u32) -> Self {
        let (Registers { source, slot, .. }, length) = (self.registers, self.words * 4);
        self.source(source).add("hash", |data| {
            data.number(1, source).number(2, slot).number(3, length);
            data.number(4, slots).number(5, SEED).number(6, offset).number(7, 0);
        })
    }

    // Conditions.

    /// NFTA_CMP_SREG, NFTA_CMP_OP and NFTA_CMP_DATA.
    fn compare(self, operation: Compare, value: &[u8]) -> Self {
        self.add("cmp", |data| {
            data.number(1, FIRST).number(2, operation as u32).nested(3, |data| {
                data.bytes(DATA_VALUE, value);
            });
        })
    }

    /// NFTA_BITWISE_SREG, NFTA_BITWISE_DREG, NFTA_BITWISE_LEN, NFTA_BITWISE_MASK and NFTA_BITWISE_XOR.
    fn bits(self, mask: &[u8], xor: &[u8]) -> Self {
        let length = u32::try_from(mask.len()).unwrap_or_default();
        self.add("bitwise", |data| {
            data.number(1, FIRST).number(2, FIRST).number(3, length);
            for (attribute, value) in [(4, mask), (5, xor)] {
                data.nested(attribute, |data| {
                    data.bytes(DATA_VALUE, value);
                });
            }
        })
    }

    fn mask(self, mask: &[u8]) -> Self {
        self.bits(mask, &vec![0; mask.len()])
    }

    fn conntrack_has(self, key: u32, bit: u32) -> Self {
        self.conntrack(key, None, FIRST)
            .mask(&bit.to_ne_bytes())
            .compare(Compare::NotEqual, &0_u32.to_ne_bytes())
    }

    /// `ct status & (seen-reply | confirmed | dnat) == confirmed | dnat`: a packet before this one was translated, and nobody has answered.
    pub(crate) fn unanswered(self) -> Self {
        self.conntrack(CT_STATUS, None, FIRST)
            .mask(&(SEEN_REPLY | CONFIRMED | DST_NAT).to_ne_bytes())
            .compare(Compare::Equal, &(CONFIRMED | DST_NAT).to_ne_bytes())
    }

    /// `ct status dnat`
    pub(crate) fn translated(self) -> Self {
        self.conntrack_has(CT_STATUS, DST_NAT)
    }

    /// `ct status assured`: packets of connections that are established, and of flows that go on.
    pub(crate) fn assured(self) -> Self {
        self.conntrack_has(CT_STATUS, ASSURED)
    }

    /// `ct state STATE`
    pub(crate) fn state(self, state: u32) -> Self {
        self.conntrack_has(CT_STATE, state)
    }

    fn l4_protocol(self, number: u8) -> Self {
        self.meta(L4PROTO, FIRST).compare(Compare::Equal, &[number])
    }

    /// `meta l4proto tcp`
    pub(crate) fn protocol(self, protocol: Protocol) -> Self {
        self.l4_protocol(protocol_number(protocol))
    }

    /// `icmp type echo-request`
    pub(crate) fn ping(self) -> Self {
        let (protocol, kind) = if self.family == Family::Ipv4 { (1, 8) } else { (58, 128) };
        self.l4_protocol(protocol).payload(TRANSPORT, 0, 1, FIRST).compare(Compare::Equal, &[kind])
    }

    fn flags(self, mask: u8, operation: Compare, flags: u8) -> Self {
        self.protocol(Protocol::Tcp)
            .payload(TRANSPORT, 13, 1, FIRST)
            .mask(&[mask])
            .compare(operation, &[flags])
    }

    /// `tcp flags & MASK != syn`
    pub(crate) fn no_syn(self, mask: u8) -> Self {
        self.flags(mask, Compare::NotEqual, SYN)
    }

    /// `tcp flags syn / fin,syn,rst,ack`
    pub(crate) fn syn(self) -> Self {
        self.flags(FIN | SYN | RST | ACK, Compare::Equal, SYN)
    }

    /// `tcp flags rst,ack / fin,syn,rst,ack tcp sequence 0 ct direction reply`: the answer to a SYN for a closed port (RFC 9293, section
    /// 3.10.7.1).
    pub(crate) fn refusal(self) -> Self {
        self.flags(FIN | SYN | RST | ACK, Compare::Equal, RST | ACK)
            .payload(TRANSPORT, 4, 4, FIRST)
            .compare(Compare::Equal, &[0; 4])
            .conntrack(CT_DIRECTION, None, FIRST)
            .compare(Compare::Equal, &[REPLY])
    }

    /// `@th,96,32 & 0x00340000 == 0x00340000`: `tcp flags & (rst | ack | urg) == rst | ack | urg`, if it is TCP. Each packet meets this, and of four octets
    /// the kernel makes neither a call to load, nor to mask, nor to compare (`nft_payload_fast_ops`, `nft_bitwise_fast_ops`, `nft_cmp_fast_ops`).
    pub(crate) fn like_an_urgent_reset(self) -> Self {
        let flags = [0, RST | ACK | URG, 0, 0];
        self.payload(TRANSPORT, LENGTH_AND_FLAGS, 4, FIRST).mask(&flags).compare(Compare::Equal, &flags)
    }

    /// `icmp type destination-unreachable icmp code != frag-needed`
    pub(crate) fn unreachable(self) -> Self {
        let (protocol, kind) = if self.family == Family::Ipv4 { (1, 3) } else { (58, 1) };
        let rule =
            self.l4_protocol(protocol).payload(TRANSPORT, 0, 1, FIRST).compare(Compare::Equal, &[kind]);
        match rule.family {
            Family::Ipv4 => rule.payload(TRANSPORT, 1, 1, FIRST).compare(Compare::NotEqual, &[4]),
            Family::Ipv6 => rule,
        }
    }

    /// `ct protocol tcp`, of the connection that an ICMP error is about.
    pub(crate) fn related_to_tcp(self) -> Self {
        let number = protocol_number(Protocol::Tcp);
        self.conntrack(CT_PROTOCOL, None, FIRST).compare(Compare::Equal, &[number])
    }

    /// `fib daddr type local`: NFTA_FIB_DREG, NFTA_FIB_RESULT (NFT_FIB_RESULT_ADDRTYPE), NFTA_FIB_FLAGS (NFTA_FIB_F_DADDR); RTN_LOCAL
    /// (linux/rtnetlink.h).
    pub(crate) fn local_destination(self) -> Self {
        self.add("fib", |data| {
            data.number(1, FIRST).number(2, 3).number(3, 2);
        })
        .compare(Compare::Equal, &2_u32.to_ne_bytes())
    }

    /// `iif 0`: the machine itself sends it.
    pub(crate) fn comes_from_machine(self) -> Self {
        self.meta(IIF, FIRST).compare(Compare::Equal, &0_u32.to_ne_bytes())
    }

    /// `oif "lo"`, whose index is 1 in every namespace.
    pub(crate) fn leaves_by_loopback(self) -> Self {
        self.meta(OIF, FIRST).compare(Compare::Equal, &1_u32.to_ne_bytes())
    }

    /// `@SET` of the key that begins with the destination.
    pub(crate) fn is(self, member: Member, set: &str) -> Self {
        let register = self.registers.destination;
        self.lookup(set, register, None, member)
    }

    /// `@hairpin`
    pub(crate) fn turns_around(self) -> Self {
        self.lookup("hairpin", FIRST, None, Member::Of)
    }

    // What is done.

    /// NFTA_LOOKUP_SET, NFTA_LOOKUP_SREG, NFTA_LOOKUP_DREG and NFTA_LOOKUP_FLAGS.
    fn lookup(self, set: &str, key: u32, data: Option<u32>, member: Member) -> Self {
        self.add("lookup", |attributes| {
            attributes.text(1, set).number(2, key);
            if let Some(data) = data {
                attributes.number(3, data);
            }
            if member == Member::NotOf {
                attributes.number(5, member as u32);
            }
        })
    }

    /// `vmap @MAP`
    pub(crate) fn verdict_of(self, map: &str) -> Self {
        let register = self.registers.destination;
        self.lookup(map, register, Some(VERDICT), Member::Of)
    }

    /// `dnat ip to ... map @slot`
    pub(crate) fn translate_to_slot(self) -> Self {
        let Registers { destination, slot_endpoint, .. } = self.registers;
        self.lookup("slot", destination, Some(slot_endpoint), Member::Of).translate(slot_endpoint)
    }

    /// `dnat ip to ... map @affinity`
    pub(crate) fn translate_to_recorded(self) -> Self {
        let Registers { source, slot, .. } = self.registers;
        self.lookup("affinity", source, Some(slot), Member::Of).translate(slot)
    }

    /// NFTA_NAT_TYPE (NFT_NAT_DNAT), NFTA_NAT_FAMILY, NFTA_NAT_REG_ADDR_MIN and NFTA_NAT_REG_PROTO_MIN.
    fn translate(self, endpoint: u32) -> Self {
        let (family, port) = (u32::from(protocol_family(self.family)), endpoint + self.words);
        self.add("nat", |data| {
            data.number(1, 1).number(2, family).number(3, endpoint).number(5, port);
        })
    }

    /// `update @SET { ... timeout Ts : ... }` or `delete @SET { ... }`: NFTA_DYNSET_SET_NAME, NFTA_DYNSET_OP, NFTA_DYNSET_SREG_KEY,
    /// NFTA_DYNSET_SREG_DATA and NFTA_DYNSET_TIMEOUT.
    fn dynamic(self, set: &str, record: Record, key: u32, value: Option<u32>) -> Self {
        self.add("dynset", |data| {
            data.text(1, set);
            data.number(3, if record == Record::Delete { 2 } else { 1 }).number(4, key);
            if let Some(value) = value {
                data.number(5, value);
            }
            if let Record::Update { seconds } = record {
                data.bytes(6, &(u64::from(seconds) * 1000).to_be_bytes());
            }
        })
    }

    /// `update @affinity` or `delete @affinity`
    pub(crate) fn record(self, record: Record) -> Self {
        let Registers { source, slot, .. } = self.registers;
        self.dynamic("affinity", record, source, Some(slot))
    }

    /// `update @failed`
    pub(crate) fn note_failed(self, seconds: u32) -> Self {
        let key = self.registers.destination;
        self.dynamic("failed", Record::Update { seconds }, key, None)
    }

    /// `tcp flags set rst | ack`, of two octets, since a checksum is made of pairs: NFTA_PAYLOAD_SREG, NFTA_PAYLOAD_BASE,
    /// NFTA_PAYLOAD_OFFSET, NFTA_PAYLOAD_LEN, NFTA_PAYLOAD_CSUM_TYPE (NFT_PAYLOAD_CSUM_INET) and NFTA_PAYLOAD_CSUM_OFFSET.
    pub(crate) fn set_reset(self) -> Self {
        let flags = self.payload(TRANSPORT, LENGTH_AND_FLAGS, 2, FIRST).bits(&[0xff, 0], &[0, RST | ACK]);
        flags.add("payload", |data| {
            data.number(5, FIRST).number(2, TRANSPORT).number(3, LENGTH_AND_FLAGS).number(4, 2);
            data.number(6, 1).number(7, CHECKSUM);
        })
    }

    pub(crate) fn masquerade(self) -> Self {
        self.add("masq", |_| {})
    }

    pub(crate) fn redirect(self) -> Self {
        self.add("redir", |_| {})
    }

    /// `reject with tcp reset`: NFTA_REJECT_TYPE (NFT_REJECT_TCP_RST) and NFTA_REJECT_ICMP_CODE.
    pub(crate) fn reset(self) -> Self {
        self.add("reject", |data| {
            data.number(1, 1).bytes(2, &[0]);
        })
    }

    /// `reject`, with ICMP_PORT_UNREACH or ICMPV6_PORT_UNREACH.
    pub(crate) fn port_unreachable(self) -> Self {
        let code = if self.family == Family::Ipv4 { 3 } else { 4 };
        self.add("reject", |data| {
            data.number(1, 0).bytes(2, &[code]);
        })
    }

    /// NFTA_IMMEDIATE_DREG and NFTA_IMMEDIATE_DATA.
    fn verdict(self, code: i32, chain: Option<&str>) -> Self {
        self.add("immediate", |data| {
            data.number(1, VERDICT).nested(2, |data| write_verdict(data, code, chain));
        })
    }

    pub(crate) fn jump(self, chain: &str) -> Self {
        self.verdict(JUMP, Some(chain))
    }

    pub(crate) fn goto(self, chain: &str) -> Self {
        self.verdict(GOTO, Some(chain))
    }

    pub(crate) fn accept(self) -> Self {
        self.verdict(ACCEPT, None)
    }

    pub(crate) fn drop(self) -> Self {
        self.verdict(DROP, None)
    }
}

/// A verdict as data of an expression or element. That of `learn` jumps, that of `service` does not return.
pub(crate) fn write_verdict(data: &mut Attributes, code: i32, chain: Option<&str>) {
    data.nested(DATA_VERDICT, |verdict| {
        verdict.number(VERDICT_CODE, code.cast_unsigned());
        if let Some(chain) = chain {
            verdict.text(VERDICT_CHAIN, chain);
        }
    });
}

/// Octets of an address.
pub(crate) fn address_length(family: Family) -> u32 {
    match family {
        Family::Ipv4 => 4,
        Family::Ipv6 => 16,
    }
}

/// NFPROTO_IPV4 and NFPROTO_IPV6 (linux/netfilter.h).
pub(crate) fn protocol_family(family: Family) -> u8 {
    match family {
        Family::Ipv4 => 2,
        Family::Ipv6 => 10,
    }
}

/// IPPROTO_TCP and IPPROTO_UDP.
pub(crate) fn protocol_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    }
}
