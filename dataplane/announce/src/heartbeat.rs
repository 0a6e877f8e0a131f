//! The heartbeat on the wire.
//!
//! Numbers are big-endian. A header of 16 bytes: magic, major and minor version, hash of the fleet, length of the body. The body: what
//! the sender is, then what it knows of each other member, 12 bytes each, then what it is able to own, and what those are
//! able to own whom somebody does not hear, then what another machine uses (`Contested`), then whatever a newer minor version appends.
//! An ability is a weight, the number of subnets, and for each subnet the interface's number, the length of the prefix, a byte of bits, and the
//! network's address. Contested addresses are their number, and a hash of each.
//! The signature follows (`keys`). 100 members with names of 63 characters take 1,306 bytes and 21 of signature, an IPv4 subnet 10: one frame of Ethernet.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ability::{Ability, InterfaceId, LARGEST_WEIGHT, MOST_SUBNETS, Reach, ReachedSubnet};
use crate::hash::name_hash;
use crate::network::Network;

const MAGIC: [u8; 4] = *b"SHVE";
/// Another one means another layout: it is refused.
const MAJOR: u8 = 1;
/// A newer one appends fields.
const MINOR: u8 = 2;
const HEADER: usize = 16;
/// The longest name of a node: a DNS subdomain (RFC 1123).
pub(crate) const LONGEST_NAME: usize = 253;
/// The most members that a heartbeat describes.
pub(crate) const MOST_ENTRIES: usize = 1_000;
/// The most bytes in which it passes on what others are able to own, unless one takes more.
pub(crate) const MOST_PASSED_ON: usize = 512;
/// The longest `fail_after` that fits.
pub(crate) const LONGEST_FAIL_AFTER: Duration = Duration::from_millis(u16::MAX as u64);

/// One heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// The name of its node.
    pub(crate) node: String,
    /// A random number of its process.
    pub(crate) incarnation: u64,
    /// Increases by one with each heartbeat.
    pub(crate) sequence: u32,
    pub(crate) state: NodeState,
    /// Asks for an answer at once.
    pub(crate) asks: bool,
    /// Its view of the API server is old: it does not say for how long.
    pub(crate) cut_off: bool,
    /// How long it has been listening.
    pub(crate) listening: Silence,
    /// After which silence it believes a member dead: its promise to those whose numbers it echoes.
    pub(crate) fail_after: Duration,
    pub(crate) applied: Applied,
    pub(crate) entries: Vec<Entry>,
    /// Ability of the sender.
    pub(crate) ability: Arc<Ability>,
    /// Abilities of other members, for those who do not hear them.
    pub(crate) passed_on: Vec<PassedOn>,
    /// The addresses that it leaves to another machine.
    pub(crate) contested: Contested,
}

/// Ability of a member, as another one passes it on.
pub(crate) type PassedOn = (MemberId, Arc<Ability>);

/// View and assignment that a gateway follows: all that it does not own by them is withdrawn. Zeros: none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The hash of the candidates.
    pub view: u64,
    /// The hash of the owners of all addresses.
    pub assignment: u64,
}

/// State of a member, by itself or passed on by others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// May own addresses.
    pub eligible: bool,
    /// About to stop.
    pub leaving: bool,
    /// Leaving, and announces nothing any more.
    pub left: bool,
    /// Others go first: its view of the API server has long been old, and another's was not.
    pub stale: bool,
    /// Without a quorum; announces nothing.
    pub fenced: bool,
    /// Goes on without a majority, because the tie-breaker answers.
    pub minority: bool,
}

/// Entry of another member: what the sender knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: MemberId,
    /// The last number that the sender received from it.
    pub(crate) echo: Option<u32>,
    /// The echo is of an incarnation that has not proved yet that it is alive: no lease.
    pub(crate) unproven: bool,
    /// How long the sender has not heard it; in an unproven one, since that came.
    pub(crate) silence: Silence,
    /// Its last state; but `minority` is whether the sender went on without it.
    pub(crate) state: NodeState,
}

/// The name of a member, hashed to 48 bits: among 1,000 members two are equal with a probability of 2 in 10^9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MemberId(u64);

/// A length of time in 64ths of the sender's `fail_after`, rounded down; 255 is "or more".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence(pub(crate) u8);

impl MemberId {
    pub(crate) fn of(node: &str) -> Self {
        Self(name_hash(node) >> 16)
    }

    fn bytes(self) -> [u8; 6] {
        let [_, _, bytes @ ..] = self.0.to_be_bytes();
        bytes
    }

    fn from_bytes([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }
}

impl Silence {
    const PARTS: u32 = 64;

    pub(crate) fn of(time: Duration, fail_after: Duration) -> Self {
        let parts = time.as_micros() * u128::from(Self::PARTS) / fail_after.as_micros().max(1);
        Self(u8::try_from(parts).unwrap_or(u8::MAX))
    }

    /// The least time that it may stand for.
    pub(crate) fn at_least(self, fail_after: Duration) -> Duration {
        fail_after * u32::from(self.0) / Self::PARTS
    }

    /// Whether it is shorter than `fail_after`: the sender hears the member.
    pub(crate) fn is_heard(self) -> bool {
        u32::from(self.0) < Self::PARTS
    }
}

impl NodeState {
    /// From the lowest bit on.
    fn bits(self) -> u8 {
        let Self { eligible, leaving, left, stale, fenced, minority } = self;
        let all = [eligible, leaving, left, stale, fenced, minority];
        all.iter().rev().fold(0, |bits, set| bits << 1 | u8::from(*set))
    }

    /// Bits of newer versions are ignored.
    fn from_bits(bits: u8) -> Self {
        let [eligible, leaving, left, stale, fenced, minority] =
            std::array::from_fn(|number| bits >> number & 1 != 0);
        Self { eligible, leaving, left, stale, fenced, minority }
    }
}

/// In the byte of a state, beside the state.
const ASKS: u8 = 1 << 7;
const CUT_OFF: u8 = 1 << 6;
const UNPROVEN: u8 = 1 << 7;
const ECHOES: u8 = 1 << 6;

impl Heartbeat {
    /// Its bytes, without a signature.
    pub(crate) fn encode(&self, fleet: u64) -> Vec<u8> {
        let entries = &self.entries[..self.entries.len().min(MOST_ENTRIES)];
        let mut body = Vec::with_capacity(64 + self.node.len() + entries.len() * Entry::SIZE);
        body.extend_from_slice(&self.incarnation.to_be_bytes());
        body.extend_from_slice(&self.sequence.to_be_bytes());
        let asks = if self.asks { ASKS } else { 0 };
        body.push(self.state.bits() | asks | if self.cut_off { CUT_OFF } else { 0 });
        body.push(self.listening.0);
        body.extend_from_slice(&u16::try_from(self.fail_after.as_millis()).unwrap_or(u16::MAX).to_be_bytes());
        body.extend_from_slice(&self.applied.view.to_be_bytes());
        body.extend_from_slice(&self.applied.assignment.to_be_bytes());
        body.push(u8::try_from(self.node.len()).unwrap_or(u8::MAX));
        body.extend_from_slice(self.node.as_bytes());
        body.extend_from_slice(&(entries.len() as u16).to_be_bytes());
        entries.iter().for_each(|entry| entry.encode(&mut body));
        encode_ability(&self.ability, &mut body);
        let passed_on = self.passed_on.iter().take(u8::MAX.into());
        body.push(passed_on.len() as u8);
        for (id, ability) in passed_on {
            body.extend_from_slice(&id.bytes());
            encode_ability(ability, &mut body);
        }
        self.contested.encode(&mut body);

        let mut bytes = Vec::with_capacity(HEADER + body.len() + 128);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[MAJOR, MINOR]);
        bytes.extend_from_slice(&fleet.to_be_bytes());
        bytes.extend_from_slice(&(body.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Whether a datagram may be a heartbeat of this fleet and version: what can be told before its signature is verified.
    pub(crate) fn check_header(bytes: &[u8], fleet: u64) -> Result<(), WireError> {
        let mut reader = Reader(bytes);
        if reader.array()? != MAGIC {
            return Err(WireError::Malformed);
        }
        let [major, _minor] = reader.array()?;
        if major != MAJOR {
            return Err(WireError::Version(major));
        }
        if reader.array()? != fleet.to_be_bytes() { Err(WireError::ForeignFleet) } else { Ok(()) }
    }

    /// Decodes what `encode` wrote, of this or a newer minor version.
    pub(crate) fn decode(bytes: &[u8], fleet: u64) -> Result<Self, WireError> {
        Self::check_header(bytes, fleet)?;
        let mut reader = Reader(bytes.get(HEADER - 2..).ok_or(WireError::Malformed)?);
        let length = reader.u16()?;
        if reader.0.len() != usize::from(length) {
            return Err(WireError::Malformed);
        }
        let incarnation = u64::from_be_bytes(reader.array()?);
        let sequence = u32::from_be_bytes(reader.array()?);
        let [state, listening] = reader.array()?;
        let fail_after = Duration::from_millis(reader.u16()?.into());
        let [view, assignment] = [reader.array()?, reader.array()?].map(u64::from_be_bytes);
        let [name] = reader.array()?;
        let name = reader.take(name.into())?;
        let node = str::from_utf8(name).map_err(|_| WireError::Malformed)?.to_owned();
        let count = usize::from(reader.u16()?);
        if node.is_empty() || node.len() > LONGEST_NAME || fail_after.is_zero() || count > MOST_ENTRIES {
            return Err(WireError::Malformed);
        }
        let (entries, _) = reader.take(count * Entry::SIZE)?.as_chunks();
        let (ability, passed_on) = decode_abilities(&mut reader)?;
        let contested = Contested::decode(&mut reader)?;
        // What follows is a newer version's.
        Ok(Self {
            node,
            incarnation,
            sequence,
            state: NodeState::from_bits(state),
            asks: state & ASKS != 0,
            cut_off: state & CUT_OFF != 0,
            listening: Silence(listening),
            fail_after,
            applied: Applied { view, assignment },
            entries: entries.iter().map(Entry::decode).collect(),
            ability,
            passed_on,
            contested,
        })
    }
}

/// Abilities of the sender and of others.
fn decode_abilities(reader: &mut Reader<'_>) -> Result<(Arc<Ability>, Vec<PassedOn>), WireError> {
    let ability = decode_ability(reader)?;
    let [count] = reader.array()?;
    let passed_on =
        (0..count).map(|_| Ok((MemberId::from_bytes(reader.array()?), decode_ability(reader)?.into())));
    Ok((ability.into(), passed_on.collect::<Result<_, _>>()?))
}

impl Entry {
    const SIZE: usize = 12;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.id.bytes());
        bytes.extend_from_slice(&self.echo.unwrap_or(0).to_be_bytes());
        bytes.push(self.silence.0);
        let unproven = if self.unproven { UNPROVEN } else { 0 };
        bytes.push(self.state.bits() | unproven | if self.echo.is_some() { ECHOES } else { 0 });
    }

    fn decode(&[a, b, c, d, e, f, w, x, y, z, silence, bits]: &[u8; Self::SIZE]) -> Self {
        Self {
            id: MemberId::from_bytes([a, b, c, d, e, f]),
            echo: (bits & ECHOES != 0).then(|| u32::from_be_bytes([w, x, y, z])),
            unproven: bits & UNPROVEN != 0,
            silence: Silence(silence),
            state: NodeState::from_bits(bits),
        }
    }
}

/// In place of the number of subnets.
const EVERYWHERE: u8 = u8::MAX;
const IPV6: u8 = 1;
const BY_DEFAULT: u8 = 1 << 1;

fn encode_ability(ability: &Ability, bytes: &mut Vec<u8>) {
    bytes.push(ability.weight);
    let Reach::Subnets(subnets) = &ability.reach else { return bytes.push(EVERYWHERE) };
    bytes.push(u8::try_from(subnets.len()).unwrap_or(EVERYWHERE));
    for subnet in subnets {
        bytes.extend_from_slice(&subnet.interface.0.to_be_bytes());
        let network = subnet.network;
        let ipv6 = if network.address().is_ipv6() { IPV6 } else { 0 };
        bytes.extend([network.prefix(), ipv6 | if subnet.by_default { BY_DEFAULT } else { 0 }]);
        match network.address() {
            IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
        }
    }
}

fn decode_ability(reader: &mut Reader<'_>) -> Result<Ability, WireError> {
    let [weight, count] = reader.array()?;
    let weight = weight.clamp(1, LARGEST_WEIGHT);
    if count == EVERYWHERE {
        return Ok(Ability { weight, reach: Reach::Everywhere });
    }
    if usize::from(count) > MOST_SUBNETS {
        return Err(WireError::Malformed);
    }
    let subnets = (0..count).map(|_| decode_subnet(reader)).collect::<Result<_, _>>()?;
    Ok(Ability { weight, reach: Reach::Subnets(subnets) })
}

fn decode_subnet(reader: &mut Reader<'_>) -> Result<ReachedSubnet, WireError> {
    let interface = InterfaceId(u32::from_be_bytes(reader.array()?));
    let [prefix, bits] = reader.array()?;
    let address: IpAddr = match bits & IPV6 {
        0 => reader.array::<4>()?.into(),
        _ => reader.array::<16>()?.into(),
    };
    Ok(ReachedSubnet { network: Network::of(address, prefix), interface, by_default: bits & BY_DEFAULT != 0 })
}

/// The most that a heartbeat names: 64 bytes.
const MOST: usize = 16;
/// In place of the number: more than it can name.
const ALL: u8 = u8::MAX;

/// Addresses that another machine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contested {
    These(Vec<AddressHash>),
    /// So many that each may be among them.
    All,
}

/// An address, hashed to 32 bits: two that are equal cost a probe that was not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AddressHash(u32);

impl AddressHash {
    pub(crate) fn of(ip: IpAddr) -> Self {
        Self((name_hash(&ip.to_string()) >> 32) as u32)
    }
}

impl Default for Contested {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl Contested {
    pub(crate) fn of(ips: &[IpAddr]) -> Self {
        if ips.len() > MOST {
            Self::All
        } else {
            Self::These(ips.iter().copied().map(AddressHash::of).collect())
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        let Self::These(hashes) = self else { return bytes.push(ALL) };
        bytes.push(u8::try_from(hashes.len()).unwrap_or(ALL));
        hashes.iter().for_each(|hash| bytes.extend_from_slice(&hash.0.to_be_bytes()));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let [count] = reader.array()?;
        if count == ALL {
            return Ok(Self::All);
        }
        let hashes = (0..count).map(|_| Ok(AddressHash(u32::from_be_bytes(reader.array()?))));
        Ok(Self::These(hashes.collect::<Result<_, _>>()?))
    }
}

/// Why a datagram is no heartbeat for this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("not a heartbeat, or cut short")]
    Malformed,
    #[error("of another major version: {0}")]
    Version(u8),
    #[error("of another fleet")]
    ForeignFleet,
}

/// Rest of a datagram.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.first_chunk().copied().ok_or(WireError::Malformed)
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }
}

#[cfg(test)]
mod tests;
