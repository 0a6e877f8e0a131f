//! The sets and maps of a table: their keys, what they hold, and how nft(8) shows them.

use crate::attributes::Attributes;
use crate::expressions::{EXPRESSION_DATA, EXPRESSION_NAME, LIST_ELEMENT, address_length};
use crate::ruleset::Family;

/// From linux/netfilter/nf_tables.h: NFTA_SET_TABLE and the other attributes of a set, NFTA_SET_DESC_SIZE, NFTA_SET_DESC_CONCAT and
/// NFTA_SET_FIELD_LEN.
const TABLE: u16 = 1;
const NAME: u16 = 2;
const FLAGS: u16 = 3;
const KEY_TYPE: u16 = 4;
const KEY_LENGTH: u16 = 5;
const DATA_TYPE: u16 = 6;
const DATA_LENGTH: u16 = 7;
const DESCRIPTION: u16 = 9;
const ID: u16 = 10;
const USERDATA: u16 = 13;
const EXPRESSION: u16 = 17;
const DESCRIPTION_SIZE: u16 = 1;
const DESCRIPTION_FIELDS: u16 = 2;
const FIELD_LENGTH: u16 = 1;
/// NFT_SET_INTERVAL, NFT_SET_MAP, NFT_SET_TIMEOUT, NFT_SET_EVAL and NFT_SET_CONCAT.
const INTERVAL: u32 = 0x4;
const MAP: u32 = 0x8;
const TIMEOUT: u32 = 0x10;
const DYNAMIC: u32 = 0x20;
const CONCATENATED: u32 = 0x80;
/// NFT_DATA_VERDICT.
const VERDICT: u32 = 0xffff_ff00;

/// Part of a key; its number is nft's (`enum datatypes` in its datatype.h), but for addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Integer = 4,
    Address = 7,
    Protocol = 12,
    Port = 13,
    Mark = 19,
    Interface = 41,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Keys,
    Verdicts,
    Endpoints,
}

/// Properties that distinguish a set from a plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    None,
    /// Elements count connections.
    Counter,
    Interval,
    /// Rules add elements, which end by themselves.
    Learnt,
    /// nft cannot tell the type of a slot's number without being told.
    Described,
}

/// Set or map of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    key: &'static [Field],
    holds: Holds,
    feature: Feature,
}

const FRONTEND: &[Field] = &[Field::Address, Field::Protocol, Field::Port];

/// A frontend and one of its endpoints.
const PAIR: &[Field] = &[Field::Address, Field::Protocol, Field::Port, Field::Address, Field::Port];

const fn set(name: &'static str, key: &'static [Field], holds: Holds, feature: Feature) -> Set {
    Set { name, key, holds, feature }
}

/// The sets and maps of each table.
pub(crate) const SETS: [Set; 18] = [
    set(SERVICE, FRONTEND, Holds::Verdicts, Feature::None),
    set(SERVICE_INTERNAL, FRONTEND, Holds::Verdicts, Feature::None),
    set(
        SLOT,
        &[Field::Address, Field::Protocol, Field::Port, Field::Integer],
        Holds::Endpoints,
        Feature::Described,
    ),
    set(ENDPOINT, PAIR, Holds::Keys, Feature::Counter),
    set(EXTERNAL_ONLY, PAIR, Holds::Keys, Feature::None),
    set(INTERNAL_ONLY, PAIR, Holds::Keys, Feature::None),
    set(FAILED, PAIR, Holds::Keys, Feature::Learnt),
    set(
        AFFINITY,
        &[Field::Address, Field::Address, Field::Protocol, Field::Port],
        Holds::Endpoints,
        Feature::Learnt,
    ),
    set(LEARN, FRONTEND, Holds::Verdicts, Feature::None),
    set(ADDRESS, &[Field::Address], Holds::Keys, Feature::None),
    set(INTERNAL, &[Field::Address], Holds::Keys, Feature::Interval),
    set(MACHINE, &[Field::Address], Holds::Keys, Feature::None),
    set(MASQUERADED, FRONTEND, Holds::Keys, Feature::None),
    set(MASQUERADED_INTERNAL, FRONTEND, Holds::Keys, Feature::None),
    set(RANGED, FRONTEND, Holds::Keys, Feature::None),
    set(
        ADMITTED,
        &[Field::Address, Field::Protocol, Field::Port, Field::Address],
        Holds::Keys,
        Feature::Interval,
    ),
    set(ENDPOINT_PORT, &[Field::Address, Field::Protocol, Field::Port], Holds::Keys, Feature::None),
    set(HAIRPIN, &[Field::Interface, Field::Interface], Holds::Keys, Feature::None),
];

/// The set of one element, whose comment says what a table is.
pub(crate) const STATE_SET: Set = set(STATE, &[Field::Mark], Holds::Keys, Feature::None);

pub(crate) const SERVICE: &str = "service";
pub(crate) const SERVICE_INTERNAL: &str = "service_internal";
pub(crate) const SLOT: &str = "slot";
pub(crate) const ENDPOINT: &str = "endpoint";
pub(crate) const EXTERNAL_ONLY: &str = "external_only";
pub(crate) const INTERNAL_ONLY: &str = "internal_only";
pub(crate) const FAILED: &str = "failed";
pub(crate) const AFFINITY: &str = "affinity";
pub(crate) const LEARN: &str = "learn";
pub(crate) const ADDRESS: &str = "address";
pub(crate) const INTERNAL: &str = "internal";
pub(crate) const MACHINE: &str = "machine";
pub(crate) const MASQUERADED: &str = "masqueraded";
pub(crate) const MASQUERADED_INTERNAL: &str = "masqueraded_internal";
pub(crate) const RANGED: &str = "ranged";
pub(crate) const ADMITTED: &str = "admitted";
pub(crate) const ENDPOINT_PORT: &str = "endpoint_port";
pub(crate) const HAIRPIN: &str = "hairpin";
pub(crate) const STATE: &str = "state";

impl Field {
    /// The ipv6_addr of nft is 8.
    fn kind(self, family: Family) -> u32 {
        self as u32 + u32::from(self == Self::Address && family == Family::Ipv6)
    }

    /// In whole registers.
    fn length(self, family: Family) -> u32 {
        match self {
            Self::Address => address_length(family),
            Self::Interface => 16,
            Self::Integer | Self::Protocol | Self::Port | Self::Mark => 4,
        }
    }
}

fn kind(fields: &[Field], family: Family) -> u32 {
    // nft has six bits for each field.
    fields.iter().fold(0, |kind, field| kind << 6 | field.kind(family))
}

fn length(fields: &[Field], family: Family) -> u32 {
    fields.iter().map(|field| field.length(family)).sum()
}

impl Set {
    /// The attributes of NFT_MSG_NEWSET.
    pub(crate) fn definition(&self, table: &str, family: Family, learnt: u32) -> Attributes {
        let mut set = Attributes::new();
        // The kernel wants a number, which rules of the same batch might use.
        set.text(TABLE, table).text(NAME, self.name).number(ID, 1);
        set.number(KEY_TYPE, kind(self.key, family)).number(KEY_LENGTH, length(self.key, family));
        let mut flags = 0;
        match self.holds {
            Holds::Keys => {}
            Holds::Verdicts => {
                flags |= MAP;
                set.number(DATA_TYPE, VERDICT);
            }
            Holds::Endpoints => {
                let endpoint = [Field::Address, Field::Port];
                flags |= MAP;
                set.number(DATA_TYPE, kind(&endpoint, family)).number(DATA_LENGTH, length(&endpoint, family));
            }
        }
        match self.feature {
            Feature::None => {}
            Feature::Counter => {
                set.nested(EXPRESSION, |counter| {
                    counter.text(EXPRESSION_NAME, "counter").nested(EXPRESSION_DATA, |_| {});
                });
            }
            Feature::Interval => {
                flags |= INTERVAL;
                if self.key.len() > 1 {
                    flags |= CONCATENATED;
                    set.nested(DESCRIPTION, |description| self.describe_fields(description, family));
                }
            }
            Feature::Learnt => {
                flags |= DYNAMIC | TIMEOUT;
                set.nested(DESCRIPTION, |description| {
                    description.number(DESCRIPTION_SIZE, learnt);
                });
            }
            Feature::Described => {
                set.bytes(USERDATA, &slot_userdata(family));
            }
        }
        set.number(FLAGS, flags);
        set
    }

    fn describe_fields(&self, description: &mut Attributes, family: Family) {
        description.nested(DESCRIPTION_FIELDS, |fields| {
            for field in self.key {
                fields.nested(LIST_ELEMENT, |one| {
                    one.number(FIELD_LENGTH, field.length(family));
                });
            }
        });
    }
}

/// Expression that `slot` is a `typeof` of, as nft keeps it in NFTA_SET_USERDATA: `ip daddr . meta l4proto . th dport . numgen random mod 1`, and
/// `ip daddr . th dport`. The numbers are those of its expressions (`enum expr_types`, `enum proto_desc_id`), which other versions must
/// be able to read.
fn slot_userdata(family: Family) -> Vec<u8> {
    const CONCATENATION: u32 = 13;
    const PAYLOAD: u32 = 7;
    const META: u32 = 9;
    const NUMGEN: u32 = 23;
    let number = |kind: u8, value: u32| entry(kind, &value.to_ne_bytes());
    let expression = |kind: u32, data: Vec<u8>| [number(0, kind), entry(1, &data)].concat();
    let concatenation = |parts: &[Vec<u8>]| {
        let parts: Vec<_> = (0..).zip(parts).map(|(place, part)| entry(place, part)).collect();
        expression(CONCATENATION, parts.concat())
    };
    let (protocol, field) = match family {
        Family::Ipv4 => (12, 12),
        Family::Ipv6 => (13, 9),
    };
    let address = expression(PAYLOAD, [number(0, protocol), number(1, field)].concat());
    let port = expression(PAYLOAD, [number(0, 11), number(1, 2)].concat());
    let l4_protocol = expression(META, number(0, 16));
    let slot = expression(NUMGEN, [number(0, 1), number(1, 1), number(2, 0)].concat());
    let key = concatenation(&[address.clone(), l4_protocol, port.clone(), slot]);
    let data = concatenation(&[address, port]);
    // Byte orders of key and data, which the types tell, the types, and that the data are no intervals.
    [number(0, 0), number(1, 0), entry(3, &key), entry(4, &data), number(6, 0)].concat()
}

/// Type, length and value, a byte each for the former two, as nft writes user data.
pub(crate) fn entry(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
    [&[kind, length], value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What nft 1.0.6 writes for the two maps.
    #[test]
    fn slots_are_described_as_nft_describes_them() {
        let v4 = "000400000000010400000000036000040d00000001580014000407000000010c00040c00000001040c000000010e0004\
                  0900000001060004100000000214000407000000010c00040b000000010402000000031a000417000000011200040100\
                  0000010401000000020400000000043400040d000000012c0014000407000000010c00040c00000001040c0000000114\
                  000407000000010c00040b000000010402000000060400000000";
        let v6 = "000400000000010400000000036000040d00000001580014000407000000010c00040d000000010409000000010e0004\
                  0900000001060004100000000214000407000000010c00040b000000010402000000031a000417000000011200040100\
                  0000010401000000020400000000043400040d000000012c0014000407000000010c00040d0000000104090000000114\
                  000407000000010c00040b000000010402000000060400000000";
        for (family, expected) in [(Family::Ipv4, v4), (Family::Ipv6, v6)] {
            let written: String = slot_userdata(family).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(written, expected, "{family:?}");
        }
    }
}
