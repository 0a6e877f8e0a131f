//! The heartbeat on the wire.
//!
//! Numbers are big-endian. A header of 16 bytes: magic, major and minor version, hash of the fleet, length of the body. The body: what
//! the sender is, then what it knows of each other member, 12 bytes each, then what it is able to own, and what those are
//! able to own whom somebody does not hear (`abilities`), then what another machine uses (`contested`), then whatever a newer minor version appends.
//! The signature follows (`keys`). 100 members with names of 63 characters take 1,306 bytes and 21 of signature, an IPv4 subnet 10: one frame of Ethernet.

use std::sync::Arc;
use std::time::Duration;

use crate::ability::Ability;
use crate::hash::name_hash;

mod abilities;
mod contested;
mod reader;

pub(crate) use contested::{AddressHash, Contested};
use reader::Reader;
pub(crate) use reader::WireError;

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
    /// It wants to be answered at once.
    pub(crate) asks: bool,
    /// How long it has been listening.
    pub(crate) listening: Silence,
    /// After which silence it believes a member dead: its promise to those whose numbers it echoes.
    pub(crate) fail_after: Duration,
    pub(crate) applied: Applied,
    pub(crate) entries: Vec<Entry>,
    /// What it is able to own.
    pub(crate) ability: Arc<Ability>,
    /// What other members are able to own, for those who do not hear them.
    pub(crate) passed_on: Vec<PassedOn>,
    /// The addresses that it leaves to another machine.
    pub(crate) contested: Contested,
}

/// What a member is able to own.
pub(crate) type PassedOn = (MemberId, Arc<Ability>);

/// What a gateway follows: all that it does not own by it is withdrawn. Zeros: nothing yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The hash of the candidates.
    pub view: u64,
    /// The hash of the owners of all addresses.
    pub assignment: u64,
}

/// What a member says of itself, and what others pass on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// It may own addresses.
    pub eligible: bool,
    /// It is about to stop.
    pub leaving: bool,
    /// It is leaving and announces nothing any more.
    pub left: bool,
    /// Its view of the API server is old.
    pub stale: bool,
    /// It has no quorum and announces nothing.
    pub fenced: bool,
    /// Goes on without a majority, because the tie-breaker answers.
    pub minority: bool,
}

/// What the sender knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: MemberId,
    /// The last number that the sender received from it.
    pub(crate) echo: Option<u32>,
    /// The echo is of an incarnation that has not proved yet that it is alive: no lease.
    pub(crate) unproven: bool,
    /// How long the sender has not heard it; in an unproven one, since that came.
    pub(crate) silence: Silence,
    /// What it last said of itself; but `minority` says whether the sender went on without it.
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
    const ELIGIBLE: u8 = 1;
    const LEAVING: u8 = 1 << 1;
    const LEFT: u8 = 1 << 2;
    const STALE: u8 = 1 << 3;
    const FENCED: u8 = 1 << 4;
    const MINORITY: u8 = 1 << 5;

    fn bits(self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.eligible, Self::ELIGIBLE)
            | bit(self.leaving, Self::LEAVING)
            | bit(self.left, Self::LEFT)
            | bit(self.stale, Self::STALE)
            | bit(self.fenced, Self::FENCED)
            | bit(self.minority, Self::MINORITY)
    }

    /// Bits of newer versions are ignored.
    fn from_bits(bits: u8) -> Self {
        Self {
            eligible: bits & Self::ELIGIBLE != 0,
            leaving: bits & Self::LEAVING != 0,
            left: bits & Self::LEFT != 0,
            stale: bits & Self::STALE != 0,
            fenced: bits & Self::FENCED != 0,
            minority: bits & Self::MINORITY != 0,
        }
    }
}

/// In the byte of a state, beside the state.
const ASKS: u8 = 1 << 7;
const UNPROVEN: u8 = 1 << 7;
const ECHOES: u8 = 1 << 6;

impl Heartbeat {
    /// Its bytes, without a signature.
    pub(crate) fn encode(&self, fleet: u64) -> Vec<u8> {
        let entries = &self.entries[..self.entries.len().min(MOST_ENTRIES)];
        let mut body = Vec::with_capacity(64 + self.node.len() + entries.len() * Entry::SIZE);
        body.extend_from_slice(&self.incarnation.to_be_bytes());
        body.extend_from_slice(&self.sequence.to_be_bytes());
        body.push(self.state.bits() | if self.asks { ASKS } else { 0 });
        body.push(self.listening.0);
        body.extend_from_slice(&u16::try_from(self.fail_after.as_millis()).unwrap_or(u16::MAX).to_be_bytes());
        body.extend_from_slice(&self.applied.view.to_be_bytes());
        body.extend_from_slice(&self.applied.assignment.to_be_bytes());
        body.push(u8::try_from(self.node.len()).unwrap_or(u8::MAX));
        body.extend_from_slice(self.node.as_bytes());
        body.extend_from_slice(&(entries.len() as u16).to_be_bytes());
        entries.iter().for_each(|entry| entry.encode(&mut body));
        abilities::encode(&self.ability, &mut body);
        let passed_on = self.passed_on.iter().take(u8::MAX.into());
        body.push(passed_on.len() as u8);
        for (id, ability) in passed_on {
            body.extend_from_slice(&id.bytes());
            abilities::encode(ability, &mut body);
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
        // What follows is a newer version's.
        let (ability, passed_on) = decode_abilities(&mut reader)?;
        let contested = Contested::decode(&mut reader)?;
        Ok(Self {
            node,
            incarnation,
            sequence,
            state: NodeState::from_bits(state),
            asks: state & ASKS != 0,
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

/// What the sender and others are able to own; an older version does not say.
fn decode_abilities(reader: &mut Reader<'_>) -> Result<(Arc<Ability>, Vec<PassedOn>), WireError> {
    if reader.0.is_empty() {
        return Ok(Default::default());
    }
    let ability = abilities::decode(reader)?;
    let [count] = reader.array()?;
    let passed_on =
        (0..count).map(|_| Ok((MemberId::from_bytes(reader.array()?), abilities::decode(reader)?.into())));
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

#[cfg(test)]
mod tests;
