//! Elements of sets and maps, as the kernel has them: written into messages, and read back from dumps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use sheave_model::{FrontendAddr, Protocol};

use crate::attributes::{Attributes, Walk};
use crate::expressions::{
    ACCEPT, DATA_VALUE, DATA_VERDICT, EXPRESSION_DATA, GOTO, JUMP, LIST_ELEMENT, VERDICT_CHAIN, VERDICT_CODE,
    protocol_number, write_verdict,
};
use crate::rules;
use crate::ruleset::{Action, Chain, Element, Family};
use crate::sets;

/// NFTA_SET_ELEM_LIST_TABLE, NFTA_SET_ELEM_LIST_SET and NFTA_SET_ELEM_LIST_ELEMENTS (linux/netfilter/nf_tables.h).
pub(crate) const LIST_TABLE: u16 = 1;
pub(crate) const LIST_SET: u16 = 2;
pub(crate) const LIST_ELEMENTS: u16 = 3;
/// NFTA_SET_ELEM_KEY and the other attributes of an element; NFT_SET_ELEM_INTERVAL_END.
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const TIMEOUT: u16 = 4;
const EXPIRATION: u16 = 5;
const USERDATA: u16 = 6;
const EXPRESSION: u16 = 7;
const KEY_END: u16 = 10;
const INTERVAL_END: u32 = 1;
/// NFTA_COUNTER_PACKETS.
const COUNTER_PACKETS: u16 = 2;
/// NFTNL_UDATA_SET_ELEM_COMMENT of nft(8).
const COMMENT: u8 = 0;

/// Names of chains that verdicts go to.
const REFUSE: &str = "refuse";
const DISCARD: &str = "discard";

/// How much of an element a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Enough to find it.
    Key,
    /// All of it.
    Whole,
}

/// The set or map that has an element.
pub(crate) fn set_of(element: &Element) -> &'static str {
    match element {
        Element::Service(..) => sets::SERVICE,
        Element::ServiceInternal(..) => sets::SERVICE_INTERNAL,
        Element::Slot(..) => sets::SLOT,
        Element::Endpoint(..) => sets::ENDPOINT,
        Element::ExternalOnly(..) => sets::EXTERNAL_ONLY,
        Element::InternalOnly(..) => sets::INTERNAL_ONLY,
        Element::Learn(..) => sets::LEARN,
        Element::Address(_) => sets::ADDRESS,
        Element::Internal(..) => sets::INTERNAL,
        Element::Machine(_) => sets::MACHINE,
        Element::Masqueraded(_) => sets::MASQUERADED,
        Element::MasqueradedInternal(_) => sets::MASQUERADED_INTERNAL,
        Element::Ranged(_) => sets::RANGED,
        Element::Admitted(..) => sets::ADMITTED,
        Element::EndpointPort(..) => sets::ENDPOINT_PORT,
    }
}

/// Adds an element to a list.
pub(crate) fn write(element: &Element, extent: Extent, list: &mut Attributes) {
    if let Element::Internal(first, last) = *element {
        return write_interval(first, last, list);
    }
    list.nested(LIST_ELEMENT, |one| {
        one.nested(KEY, |key| {
            key.bytes(DATA_VALUE, &key_of(element));
        });
        if let Element::Admitted(frontend, _, last) = element {
            one.nested(KEY_END, |key| {
                key.bytes(DATA_VALUE, &frontend_key(*frontend, |key| push_ip(key, *last)));
            });
        }
        if extent == Extent::Whole {
            write_data(element, one);
        }
    });
}

/// A set of intervals of one field has their beginnings, and what follows their ends.
fn write_interval(first: IpAddr, last: IpAddr, list: &mut Attributes) {
    let mut bound = |ip: IpAddr, flags: u32| {
        let mut value = Vec::with_capacity(16);
        push_ip(&mut value, ip);
        list.nested(LIST_ELEMENT, |one| {
            one.nested(KEY, |key| {
                key.bytes(DATA_VALUE, &value);
            });
            if flags != 0 {
                one.number(FLAGS, flags);
            }
        });
    };
    bound(first, 0);
    if let Some(end) = following(last) {
        bound(end, INTERVAL_END);
    }
}

fn write_data(element: &Element, one: &mut Attributes) {
    match *element {
        Element::Service(_, action) | Element::ServiceInternal(_, action) => {
            one.nested(DATA, |data| write_action(data, action));
        }
        Element::Learn(_, seconds) => {
            one.nested(DATA, |data| write_verdict(data, JUMP, Some(&rules::name(Chain::Learn(seconds)))));
        }
        Element::Slot(_, _, endpoint) => {
            one.nested(DATA, |data| {
                let mut value = Vec::with_capacity(20);
                push_endpoint(&mut value, endpoint);
                data.bytes(DATA_VALUE, &value);
            });
        }
        _ => {}
    }
}

fn write_action(data: &mut Attributes, action: Action) {
    match action {
        Action::Choose(chooser) => write_verdict(data, GOTO, Some(&rules::name(Chain::Choose(chooser)))),
        Action::Refuse => write_verdict(data, GOTO, Some(REFUSE)),
        Action::Discard => write_verdict(data, GOTO, Some(DISCARD)),
        Action::Accept => write_verdict(data, ACCEPT, None),
    }
}

fn key_of(element: &Element) -> Vec<u8> {
    match *element {
        Element::Service(frontend, _)
        | Element::ServiceInternal(frontend, _)
        | Element::Learn(frontend, _)
        | Element::Masqueraded(frontend)
        | Element::MasqueradedInternal(frontend)
        | Element::Ranged(frontend) => frontend_key(frontend, |_| {}),
        Element::Slot(frontend, slot, _) => {
            frontend_key(frontend, |key| key.extend_from_slice(&slot.to_ne_bytes()))
        }
        Element::Endpoint(frontend, endpoint)
        | Element::ExternalOnly(frontend, endpoint)
        | Element::InternalOnly(frontend, endpoint) => {
            frontend_key(frontend, |key| push_endpoint(key, endpoint))
        }
        Element::Admitted(frontend, first, _) => frontend_key(frontend, |key| push_ip(key, first)),
        Element::EndpointPort(protocol, endpoint) => {
            let (ip, port) = (endpoint.ip(), endpoint.port());
            frontend_key(FrontendAddr { ip, port, protocol }, |_| {})
        }
        Element::Address(ip) | Element::Internal(ip, _) | Element::Machine(ip) => {
            let mut key = Vec::with_capacity(16);
            push_ip(&mut key, ip);
            key
        }
    }
}

fn frontend_key(frontend: FrontendAddr, rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut key = Vec::with_capacity(44);
    push_ip(&mut key, frontend.ip);
    key.extend_from_slice(&[protocol_number(frontend.protocol), 0, 0, 0]);
    push_port(&mut key, frontend.port);
    rest(&mut key);
    key
}

/// Key of a client's affinity record.
pub(crate) fn record_key(client: IpAddr, frontend: FrontendAddr) -> Vec<u8> {
    let mut key = Vec::with_capacity(40);
    push_ip(&mut key, client);
    key.extend(frontend_key(frontend, |_| {}));
    key
}

fn push_ip(bytes: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
    }
}

fn push_port(bytes: &mut Vec<u8>, port: u16) {
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
}

fn push_endpoint(bytes: &mut Vec<u8>, endpoint: SocketAddr) {
    push_ip(bytes, endpoint.ip());
    push_port(bytes, endpoint.port());
}

/// The address behind this one.
fn following(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => Some(Ipv4Addr::from(u32::from(ip).checked_add(1)?).into()),
        IpAddr::V6(ip) => Some(Ipv6Addr::from(u128::from(ip).checked_add(1)?).into()),
    }
}

/// The address before this one.
fn preceding(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => Some(Ipv4Addr::from(u32::from(ip).checked_sub(1)?).into()),
        IpAddr::V6(ip) => Some(Ipv6Addr::from(u128::from(ip).checked_sub(1)?).into()),
    }
}

/// Reads a key from its beginning.
struct Fields<'a> {
    family: Family,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn ip(&mut self) -> Option<IpAddr> {
        Some(match self.family {
            Family::Ipv4 => IpAddr::from(self.take::<4>()?),
            Family::Ipv6 => IpAddr::from(self.take::<16>()?),
        })
    }

    fn port(&mut self) -> Option<u16> {
        let [high, low, _, _] = self.take()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn frontend(&mut self) -> Option<FrontendAddr> {
        let ip = self.ip()?;
        let [number, _, _, _] = self.take()?;
        let protocol = [Protocol::Tcp, Protocol::Udp]
            .into_iter()
            .find(|&protocol| protocol_number(protocol) == number)?;
        Some(FrontendAddr { ip, port: self.port()?, protocol })
    }

    fn endpoint(&mut self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.ip()?, self.port()?))
    }
}

/// Where a client's next connections to a frontend go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AffinityRecord<'a> {
    /// Its key as it is.
    pub(crate) key: &'a [u8],
    pub(crate) client: IpAddr,
    pub(crate) frontend: FrontendAddr,
    pub(crate) endpoint: SocketAddr,
}

/// An element of a dump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dumped<'a> {
    family: Family,
    attributes: Walk<'a>,
}

impl<'a> Dumped<'a> {
    /// The elements of one message of a dump.
    pub(crate) fn list(family: Family, message: Walk<'a>) -> impl Iterator<Item = Self> {
        let list = Walk(message.find(LIST_ELEMENTS).unwrap_or_default());
        list.map(move |(_, element)| Self { family, attributes: Walk(element) })
    }

    fn value(self, kind: u16) -> Option<Fields<'a>> {
        let rest = Walk(self.attributes.find(kind)?).find(DATA_VALUE)?;
        Some(Fields { family: self.family, rest })
    }

    /// Code of a verdict, and the chain that it goes to.
    fn verdict(self) -> Option<(u32, &'a str)> {
        let verdict = Walk(Walk(self.attributes.find(DATA)?).find(DATA_VERDICT)?);
        Some((verdict.number(VERDICT_CODE)?, verdict.text(VERDICT_CHAIN).unwrap_or_default()))
    }

    fn action(self) -> Option<Action> {
        Some(match self.verdict()? {
            (code, _) if code == ACCEPT.cast_unsigned() => Action::Accept,
            (_, REFUSE) => Action::Refuse,
            (_, DISCARD) => Action::Discard,
            (_, chain) => match rules::named(chain)? {
                Chain::Choose(chooser) => Action::Choose(chooser),
                Chain::Learn(_) => return None,
            },
        })
    }

    fn learn_seconds(self) -> Option<u32> {
        match rules::named(self.verdict()?.1)? {
            Chain::Learn(seconds) => Some(seconds),
            Chain::Choose(_) => None,
        }
    }

    /// Meaning of the element in this set; not for `internal`, whose elements are [`bounds`](Self::bound).
    pub(crate) fn element(self, set: &str) -> Option<Element> {
        let mut key = self.value(KEY)?;
        Some(match set {
            sets::SERVICE => Element::Service(key.frontend()?, self.action()?),
            sets::SERVICE_INTERNAL => Element::ServiceInternal(key.frontend()?, self.action()?),
            sets::SLOT => {
                let (frontend, slot) = (key.frontend()?, u32::from_ne_bytes(key.take()?));
                Element::Slot(frontend, slot, self.value(DATA)?.endpoint()?)
            }
            sets::ENDPOINT => Element::Endpoint(key.frontend()?, key.endpoint()?),
            sets::EXTERNAL_ONLY => Element::ExternalOnly(key.frontend()?, key.endpoint()?),
            sets::INTERNAL_ONLY => Element::InternalOnly(key.frontend()?, key.endpoint()?),
            sets::LEARN => Element::Learn(key.frontend()?, self.learn_seconds()?),
            sets::ADDRESS => Element::Address(key.ip()?),
            sets::MACHINE => Element::Machine(key.ip()?),
            sets::MASQUERADED => Element::Masqueraded(key.frontend()?),
            sets::MASQUERADED_INTERNAL => Element::MasqueradedInternal(key.frontend()?),
            sets::RANGED => Element::Ranged(key.frontend()?),
            sets::ADMITTED => {
                let (frontend, first) = (key.frontend()?, key.ip()?);
                let mut end = self.value(KEY_END)?;
                end.frontend()?;
                Element::Admitted(frontend, first, end.ip()?)
            }
            sets::ENDPOINT_PORT => {
                let FrontendAddr { ip, port, protocol } = key.frontend()?;
                Element::EndpointPort(protocol, SocketAddr::new(ip, port))
            }
            _ => return None,
        })
    }

    /// Address of a set of intervals, and whether one begins there; otherwise one has ended before.
    pub(crate) fn bound(self) -> Option<(IpAddr, bool)> {
        let begins = self.attributes.number(FLAGS).unwrap_or_default() & INTERVAL_END == 0;
        Some((self.value(KEY)?.ip()?, begins))
    }

    /// Of an element of `endpoint`.
    pub(crate) fn endpoint(self) -> Option<(FrontendAddr, SocketAddr)> {
        let mut key = self.value(KEY)?;
        Some((key.frontend()?, key.endpoint()?))
    }

    /// Connections that the element counted.
    pub(crate) fn packets(self) -> Option<u64> {
        let counter = Walk(Walk(self.attributes.find(EXPRESSION)?).find(EXPRESSION_DATA)?);
        Some(u64::from_be_bytes(counter.find(COUNTER_PACKETS)?.try_into().ok()?))
    }

    pub(crate) fn record(self) -> Option<AffinityRecord<'a>> {
        let mut key = self.value(KEY)?;
        Some(AffinityRecord {
            key: key.rest,
            client: key.ip()?,
            frontend: key.frontend()?,
            endpoint: self.value(DATA)?.endpoint()?,
        })
    }

    /// How long an affinity record lasts still, unless it is renewed.
    pub(crate) fn remaining(self) -> Option<Duration> {
        let milliseconds = self.attributes.find(EXPIRATION)?.try_into().ok()?;
        Some(Duration::from_millis(u64::from_be_bytes(milliseconds)))
    }

    /// An affinity record's attributes, also those that say for how long it lasts still.
    pub(crate) fn whole_record(self) -> Attributes {
        let mut record = Attributes::new();
        for kind in [KEY, DATA] {
            let value = self.attributes.find(kind).unwrap_or_default();
            record.nested(kind, |data| data.append_bytes(value));
        }
        for kind in [TIMEOUT, EXPIRATION] {
            if let Some(value) = self.attributes.find(kind) {
                record.bytes(kind, value);
            }
        }
        record
    }

    /// The two interfaces' name of `hairpin`.
    pub(crate) fn interface(self) -> Option<String> {
        let name: [u8; 16] = self.value(KEY)?.take()?;
        let name = name.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    pub(crate) fn comment(self) -> Option<&'a str> {
        let [COMMENT, length, rest @ ..] = self.attributes.find(USERDATA)? else { return None };
        let text = rest.get(..usize::from(*length))?;
        std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(text)).ok()
    }
}

/// The intervals between these bounds, in any order.
pub(crate) fn intervals(mut bounds: Vec<(IpAddr, bool)>) -> Vec<Element> {
    // The end of one comes before the beginning of the next at the same address.
    bounds.sort_unstable();
    let mut intervals = Vec::new();
    for (place, &(first, begins)) in bounds.iter().enumerate() {
        if !begins {
            continue;
        }
        let last = match bounds.get(place + 1) {
            Some(&(end, _)) => preceding(end),
            None => Some(last_of(first)),
        };
        intervals.extend(last.map(|last| Element::Internal(first, last)));
    }
    intervals
}

fn last_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::BROADCAST.into(),
        IpAddr::V6(_) => Ipv6Addr::from(u128::MAX).into(),
    }
}

/// Adds an element with a key as it is.
pub(crate) fn write_key(list: &mut Attributes, value: &[u8]) {
    list.nested(LIST_ELEMENT, |one| {
        one.nested(KEY, |key| {
            key.bytes(DATA_VALUE, value);
        });
    });
}

/// Adds the element of `state`.
pub(crate) fn write_state(list: &mut Attributes, comment: &str) {
    list.nested(LIST_ELEMENT, |one| {
        one.nested(KEY, |key| {
            key.bytes(DATA_VALUE, &0_u32.to_ne_bytes());
        });
        one.bytes(USERDATA, &sets::entry(COMMENT, &[comment.as_bytes(), &[0]].concat()));
    });
}

/// The key in `hairpin` of what comes from and leaves by the same interface.
pub(crate) fn hairpin_key(interface: &str) -> Vec<u8> {
    let mut name = interface.as_bytes().to_vec();
    name.resize(16, 0);
    name.repeat(2)
}
