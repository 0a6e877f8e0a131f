//! Expressions of rules: what each does with a packet of which only a part is known. What is not understood may do anything.

use std::io;

use sheave_kernel::attributes::Walk;

use super::bits::{Bits, both};
use super::extension;
use super::first_packet::PartialPacket;
use super::set::{Found, Set, Value};
use super::verdict::{Effect, Verdict, data_value, read_verdict};

/// NFT_REG_VERDICT, and the first register of four bytes, NFT_REG32_00. Those of sixteen bytes before it are the same memory.
const VERDICT: u32 = 0;
const REG32: u32 = 8;
const REGISTERS: usize = 64;

/// The registers of a rule.
pub(super) struct Registers(Bits);

impl Registers {
    pub(super) fn new() -> Self {
        Self(Bits::unknown(REGISTERS))
    }

    /// `nft_parse_register` in net/netfilter/nf_tables_api.c.
    fn offset(register: u32) -> Option<usize> {
        let offset = match register {
            VERDICT => return None,
            wide if wide < REG32 => (wide - 1) * 16,
            narrow => (narrow - REG32) * 4,
        };
        usize::try_from(offset).ok().filter(|offset| *offset < REGISTERS)
    }

    fn read(&self, register: u32, length: usize) -> Option<Bits> {
        Some(self.0.part(Self::offset(register)?, length))
    }

    /// Writes a value. The kernel fills up the last four bytes with zeros.
    fn write(&mut self, register: u32, value: &Bits) -> Option<()> {
        let mut padded = Bits::known(&vec![0; value.len().next_multiple_of(4)]);
        padded.set(0, value);
        self.0.set(Self::offset(register)?, &padded);
        Some(())
    }
}

/// A place where expressions look up keys.
pub(super) trait Sets {
    fn set(&mut self, name: &str) -> io::Result<&Set>;
}

/// Runs an expression.
///
/// # Errors
/// If a set cannot be read.
pub(super) fn run(
    name: &str,
    data: Walk<'_>,
    packet: &mut PartialPacket,
    registers: &mut Registers,
    sets: &mut impl Sets,
) -> io::Result<Effect> {
    let done = match name {
        "lookup" => look_up(data, registers, sets)?,
        "meta" => meta(data, packet, registers),
        "payload" => payload(data, packet, registers),
        "ct" => ct(data, packet, registers),
        "cmp" => compare(data, registers),
        "range" => range(data, registers),
        "bitwise" => bitwise(data, registers),
        "immediate" => immediate(data, registers),
        "counter" | "log" | "last" => Some(Effect::Matches(Some(true))),
        "objref" => object(data),
        "reject" => Some(Effect::decides(Verdict::Drop)),
        "notrack" => {
            packet.exempt();
            Some(Effect::Matches(Some(true)))
        }
        "nat" | "redir" | "masq" => {
            packet.forget_destination();
            Some(Effect::decides(Verdict::Accept))
        }
        "match" => Some(Effect::Matches(extension::matches(data, packet))),
        "target" => Some(extension::target(data, packet)),
        // What can only end its own rule.
        "byteorder" | "connlimit" | "dup" | "dynset" | "exthdr" | "fib" | "flow_offload" | "hash"
        | "inner" | "limit" | "numgen" | "osf" | "quota" | "rt" | "socket" | "tproxy" | "tunnel" | "xfrm" => {
            *registers = Registers::new();
            Some(Effect::Matches(None))
        }
        _ => None,
    };
    Ok(done.unwrap_or_else(|| {
        *registers = Registers::new();
        Effect::Decides { verdicts: vec![Verdict::Other], may_not: true }
    }))
}

/// NFTA_META_DREG, NFTA_META_KEY and NFTA_META_SREG.
fn meta(data: Walk<'_>, packet: &mut PartialPacket, registers: &mut Registers) -> Option<Effect> {
    let key = data.number(2)?;
    if data.find(3).is_some() {
        packet.set_meta(key);
    } else {
        // The longest one is the name of an interface.
        let value = packet.meta(key);
        let is_known = value.is_some();
        registers.write(data.number(1)?, &value.unwrap_or_else(|| Bits::unknown(16)))?;
        // Some need a device or a socket that may not be there.
        return Some(Effect::Matches(is_known.then_some(true)));
    }
    Some(Effect::Matches(Some(true)))
}

/// NFTA_CT_DREG and NFTA_CT_KEY; NFTA_CT_SREG changes nothing that is looked at here.
fn ct(data: Walk<'_>, packet: &PartialPacket, registers: &mut Registers) -> Option<Effect> {
    if data.find(4).is_some() {
        return Some(Effect::Matches(Some(true)));
    }
    let value = packet.ct(data.number(2)?);
    let is_known = value.is_some();
    registers.write(data.number(1)?, &value.unwrap_or_else(|| Bits::unknown(16)))?;
    Some(Effect::Matches(is_known.then_some(true)))
}

/// NFTA_PAYLOAD_DREG, _BASE, _OFFSET, _LEN and _SREG.
fn payload(data: Walk<'_>, packet: &mut PartialPacket, registers: &mut Registers) -> Option<Effect> {
    let size = |kind| usize::try_from(data.number(kind)?).ok();
    let (base, offset, length) = (data.number(2)?, size(3)?, size(4)?);
    if length > REGISTERS || offset > usize::from(u16::MAX) {
        return None;
    }
    let (value, is_there) = packet.payload(base, offset, length);
    if data.find(5).is_some() {
        packet.overwrite(base, offset, length);
    } else {
        registers.write(data.number(1)?, &value)?;
    }
    Some(Effect::Matches(is_there.then_some(true)))
}

/// NFTA_CMP_SREG, _OP and _DATA.
fn compare(data: Walk<'_>, registers: &Registers) -> Option<Effect> {
    let to = data_value(data.find(3)?)?;
    let value = registers.read(data.number(1)?, to.len())?;
    let not = |answer: Option<bool>| answer.map(|answer| !answer);
    // `enum nft_cmp_ops`.
    Some(Effect::Matches(match data.number(2)? {
        0 => value.equals(to),
        1 => not(value.equals(to)),
        2 => not(value.at_least(to)),
        3 => value.at_most(to),
        4 => not(value.at_most(to)),
        5 => value.at_least(to),
        _ => return None,
    }))
}

/// NFTA_RANGE_SREG, _OP, _FROM_DATA and _TO_DATA.
fn range(data: Walk<'_>, registers: &Registers) -> Option<Effect> {
    let (from, to) = (data_value(data.find(3)?)?, data_value(data.find(4)?)?);
    let value = registers.read(data.number(1)?, from.len())?;
    let inside = both(value.at_least(from), value.at_most(to));
    Some(Effect::Matches(match data.number(2)? {
        0 => inside,
        1 => inside.map(|inside| !inside),
        _ => return None,
    }))
}

/// NFTA_BITWISE_SREG, _DREG, _LEN, _MASK, _XOR and _OP; operations other than the first one shift, or take a second register.
fn bitwise(data: Walk<'_>, registers: &mut Registers) -> Option<Effect> {
    let length = usize::try_from(data.number(3)?).ok().filter(|length| *length <= REGISTERS)?;
    let value = registers.read(data.number(1)?, length)?;
    let result = match data.number(6).unwrap_or(0) {
        0 => value.masked(data_value(data.find(4)?)?, data_value(data.find(5)?)?),
        _ => Bits::unknown(length),
    };
    registers.write(data.number(2)?, &result)?;
    Some(Effect::Matches(Some(true)))
}

/// NFTA_IMMEDIATE_DREG and _DATA.
fn immediate(data: Walk<'_>, registers: &mut Registers) -> Option<Effect> {
    let value = data.find(2)?;
    if data.number(1)? == VERDICT {
        return read_verdict(value).map(Effect::decides);
    }
    registers.write(data.number(1)?, &Bits::known(data_value(value)?))?;
    Some(Effect::Matches(Some(true)))
}

/// NFTA_LOOKUP_SET, _SREG, _DREG and _FLAGS.
fn look_up(data: Walk<'_>, registers: &mut Registers, sets: &mut impl Sets) -> io::Result<Option<Effect>> {
    let (Some(name), Some(source)) = (data.text(1), data.number(2)) else { return Ok(None) };
    let set = sets.set(name)?;
    let Some(key) = registers.read(source, set.key_length) else { return Ok(None) };
    let Found { values, may_miss } = set.look_up(&key);
    let is_found = match (values.is_empty(), may_miss) {
        (true, _) => Some(false),
        (false, false) => Some(true),
        (false, true) => None,
    };
    Ok(match data.number(3) {
        // NFT_LOOKUP_F_INV.
        None if data.number(5).unwrap_or(0) & 1 != 0 => Some(Effect::Matches(is_found.map(|found| !found))),
        None => Some(Effect::Matches(is_found)),
        Some(_) if is_found == Some(false) => Some(Effect::Matches(Some(false))),
        Some(VERDICT) => {
            let verdict = |value| if let Value::Verdict(verdict) = value { verdict } else { Verdict::Other };
            Some(Effect::Decides { verdicts: values.into_iter().map(verdict).collect(), may_not: may_miss })
        }
        Some(register) => {
            let value = match values.as_slice() {
                [Value::Data(data)] => Bits::known(data),
                _ => Bits::unknown(REGISTERS),
            };
            registers.write(register, &value).map(|()| Effect::Matches(is_found))
        }
    })
}

/// NFTA_OBJREF_IMM_TYPE: what counts, or marks a tracked connection, does nothing else. Quotas and limits end their rule.
fn object(data: Walk<'_>) -> Option<Effect> {
    match data.number(1)? {
        // NFT_OBJECT_COUNTER, _CT_HELPER, _CT_TIMEOUT, _SECMARK and _CT_EXPECT.
        1 | 3 | 7 | 8 | 9 => Some(Effect::Matches(Some(true))),
        // NFT_OBJECT_QUOTA, _LIMIT, _CONNLIMIT and _TUNNEL.
        2 | 4 | 5 | 6 => Some(Effect::Matches(None)),
        _ => None,
    }
}
