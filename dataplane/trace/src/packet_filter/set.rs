//! Sets and maps of nftables, and what rules find in them.

use std::io;

use sheave_kernel::attributes::Walk;

use super::bits::{Bits, both};
use super::verdict::{Verdict, data_value, read_verdict};
use super::{EXPRESSION_NAME, LIST_ELEMENT, message, named, split};
use crate::netlink::Netlink;

/// NFT_MSG_GETSET and NFT_MSG_GETSETELEM (linux/netfilter/nf_tables.h).
const GET_SET: u16 = message(10);
const GET_ELEMENTS: u16 = message(13);
/// From the same header: NFTA_SET_FLAGS, NFTA_SET_KEY_LEN, NFTA_SET_DESC; NFTA_SET_DESC_CONCAT; NFTA_SET_FIELD_LEN.
const SET_FLAGS: u16 = 3;
const SET_KEY_LENGTH: u16 = 5;
const SET_DESCRIPTION: u16 = 9;
const DESCRIPTION_FIELDS: u16 = 2;
const FIELD_LENGTH: u16 = 1;
/// NFT_SET_INTERVAL, and NFT_SET_EVAL: rules add elements.
const INTERVAL: u32 = 4;
const DYNAMIC: u32 = 0x20;
/// NFTA_SET_ELEM_LIST_ELEMENTS; NFTA_SET_ELEM_KEY, _DATA, _FLAGS, _EXPR, _KEY_END and _EXPRESSIONS.
const ELEMENTS: u16 = 3;
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const EXPRESSION: u16 = 7;
const KEY_END: u16 = 10;
const EXPRESSIONS: u16 = 11;
/// NFT_SET_ELEM_INTERVAL_END and NFT_SET_ELEM_CATCHALL.
const INTERVAL_END: u32 = 1;
const CATCH_ALL: u32 = 2;
/// Limit of elements that are looked through.
const MOST: usize = 1 << 18;
/// Fields of a key begin at whole registers.
const REGISTER: usize = 4;

/// What an element of a map leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing: it is an element of a set.
    None,
    Data(Vec<u8>),
    Verdict(Verdict),
    /// Data that is not known.
    Unknown,
}

/// What a key finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The values of all elements that may match; those of a set are one.
    pub(super) values: Vec<Value>,
    /// Whether perhaps none matches.
    pub(super) may_miss: bool,
}

/// A set or a map.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    pub(super) key_length: usize,
    /// Lengths of the parts of its keys, if they are ranges of several.
    fields: Vec<usize>,
    elements: Vec<Element>,
    catch_all: Option<Element>,
    is_dynamic: bool,
}

#[derive(Clone, Debug)]
struct Element {
    from: Vec<u8>,
    until: Until,
    value: Value,
    /// Whether it has a limit or another condition of its own.
    is_conditional: bool,
}

#[derive(Clone, Debug)]
enum Until {
    /// The key alone.
    Itself,
    /// This key, which is in the range, by fields.
    With(Vec<u8>),
    /// This key, which is not in the range.
    Before(Vec<u8>),
    Open,
}

impl Set {
    pub(super) fn read(netlink: &mut Netlink, family: u8, table: &str, name: &str) -> io::Result<Self> {
        let (mut described, of_set) = (None, named(family, table, name));
        netlink.request(GET_SET, &of_set, |_, payload| {
            described = described.take().or_else(|| describe(payload));
        })?;
        let (mut set, is_interval) = described.ok_or(io::ErrorKind::NotFound)?;
        if set.is_dynamic {
            return Ok(set);
        }
        let mut elements = netlink.dump(GET_ELEMENTS, &of_set, |found: &mut Vec<_>, _, payload| {
            let list = split(payload).and_then(|(_, list)| list.find(ELEMENTS));
            let list = Walk(list.unwrap_or_default()).filter(|(kind, _)| *kind == LIST_ELEMENT);
            if found.len() <= MOST {
                found.extend(list.filter_map(|(_, element)| read_element(Walk(element))));
            }
        })?;
        if elements.len() > MOST {
            return Err(io::Error::other("too many elements"));
        }
        set.catch_all =
            elements.extract_if(.., |(flags, _)| *flags & CATCH_ALL != 0).next().map(|(_, it)| it);
        set.elements = if is_interval && set.fields.len() < 2 {
            intervals(elements)
        } else {
            elements.into_iter().map(|(_, element)| element).collect()
        };
        Ok(set)
    }

    /// The elements that a key may find.
    pub(super) fn look_up(&self, key: &Bits) -> Found {
        if self.is_dynamic {
            return Found { values: vec![Value::Unknown], may_miss: true };
        }
        let mut found = Found { values: Vec::new(), may_miss: true };
        for element in &self.elements {
            match element.contains(key, &self.fields) {
                Some(true) if !element.is_conditional => {
                    return Found { values: vec![element.value.clone()], may_miss: false };
                }
                Some(false) => {}
                // Of equal values, as those of a set, one is enough.
                _ if found.values.last() == Some(&element.value) => {}
                _ => found.values.push(element.value.clone()),
            }
        }
        if let Some(element) = &self.catch_all {
            found.may_miss = element.is_conditional;
            found.values.push(element.value.clone());
        }
        found
    }
}

impl Element {
    fn contains(&self, key: &Bits, fields: &[usize]) -> Option<bool> {
        match &self.until {
            Until::Itself => key.equals(&self.from),
            Until::Open => key.at_least(&self.from),
            Until::Before(end) => both(key.at_least(&self.from), key.at_least(end).map(|behind| !behind)),
            Until::With(end) if fields.len() < 2 => both(key.at_least(&self.from), key.at_most(end)),
            Until::With(end) => {
                let mut offset = 0;
                let mut inside = Some(true);
                for length in fields {
                    let range = offset..offset + length;
                    let (Some(from), Some(to)) = (self.from.get(range.clone()), end.get(range)) else {
                        return None;
                    };
                    let field = key.part(offset, *length);
                    inside = both(inside, both(field.at_least(from), field.at_most(to)));
                    offset += length.next_multiple_of(REGISTER);
                }
                inside
            }
        }
    }
}

/// The set without elements, and whether its elements are ranges.
fn describe(payload: &[u8]) -> Option<(Set, bool)> {
    let (_, set) = split(payload)?;
    let flags = set.number(SET_FLAGS).unwrap_or(0);
    let fields = set.find(SET_DESCRIPTION).and_then(|description| Walk(description).find(DESCRIPTION_FIELDS));
    let length = |(_, field): (u16, &[u8])| usize::try_from(Walk(field).number(FIELD_LENGTH)?).ok();
    let fields = Walk(fields.unwrap_or_default()).filter_map(length).collect();
    let key_length = usize::try_from(set.number(SET_KEY_LENGTH)?).ok()?;
    let set = Set { key_length, fields, is_dynamic: flags & DYNAMIC != 0, ..Set::default() };
    Some((set, flags & INTERVAL != 0))
}

/// An element with its flags.
fn read_element(element: Walk<'_>) -> Option<(u32, Element)> {
    let flags = element.number(FLAGS).unwrap_or(0);
    let key = |kind| element.find(kind).and_then(data_value).map(<[u8]>::to_vec);
    let from = if flags & CATCH_ALL != 0 { Vec::new() } else { key(KEY)? };
    let value = match element.find(DATA) {
        None => Value::None,
        Some(data) => match (read_verdict(data), data_value(data)) {
            (Some(verdict), _) => Value::Verdict(verdict),
            (None, Some(data)) => Value::Data(data.to_vec()),
            (None, None) => Value::Unknown,
        },
    };
    let until = key(KEY_END).map_or(Until::Itself, Until::With);
    let own = element.find(EXPRESSION).into_iter();
    let list = Walk(element.find(EXPRESSIONS).unwrap_or_default()).map(|(_, expression)| expression);
    let is_harmless = |it| matches!(Walk(it).text(EXPRESSION_NAME), Some("counter" | "last"));
    let is_conditional = !own.chain(list).all(is_harmless);
    Some((flags, Element { from, until, value, is_conditional }))
}

/// Ranges of a set: the kernel lists the key that begins each one, and the first key behind it, if there is one.
fn intervals(mut elements: Vec<(u32, Element)>) -> Vec<Element> {
    let is_end = |flags: u32| flags & INTERVAL_END != 0;
    // Where one range ends and another one begins, the end comes first.
    elements.sort_by(|(a, one), (b, other)| (&one.from, !is_end(*a)).cmp(&(&other.from, !is_end(*b))));
    let mut ranges: Vec<Element> = Vec::new();
    for (flags, mut element) in elements {
        if let Some(before) = ranges.last_mut().filter(|it| matches!(it.until, Until::Open)) {
            before.until = Until::Before(element.from.clone());
        }
        if !is_end(flags) {
            if matches!(element.until, Until::Itself) {
                element.until = Until::Open;
            }
            ranges.push(element);
        }
    }
    ranges
}
