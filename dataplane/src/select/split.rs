//! Split of a frontend compiled for picking: the part of a connection or flow, by weight, before its endpoint.
//!
//! Each pool is compiled as the frontend that it would be alone. Its endpoints are those of the whole frontend, so that an endpoint in
//! two pools has one load.

use std::sync::Arc;
use std::time::Duration;

use sheave_model::{Affinity, Algorithm, ClientAddr, EndpointAddr, Frontend, Protocol, Split, SplitPart};

use super::affinity::{AffinityTable, ScopeOwner};
use super::{Origin, PickRequest, RefusedShare};
use crate::balance::{hash, rendezvous, weights};
use crate::counters::{CloseReason, DropReason};

/// Part of a split that a connection has been given.
#[derive(Clone, Copy, Debug)]
pub struct PartId {
    identity: u64,
    /// Index of the part in the table of the choice. Saves a search, which reads a cache line of each part.
    index: u32,
}

impl From<RefusedShare> for CloseReason {
    fn from(refused: RefusedShare) -> Self {
        match refused {
            RefusedShare::InvalidBackend => Self::InvalidBackend,
            RefusedShare::NoEndpoint => Self::NoEndpoint,
        }
    }
}

impl From<RefusedShare> for DropReason {
    fn from(refused: RefusedShare) -> Self {
        match refused {
            RefusedShare::InvalidBackend => Self::InvalidBackend,
            RefusedShare::NoEndpoint => Self::NoEndpoint,
        }
    }
}

/// Keeps the draw of a part apart from those of endpoints, which use the same random number.
const PART: u64 = 0x7061_7274_0000_0000;

/// How the part of a client is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartMethod {
    /// At random for each connection.
    Random,
    /// By the hash of the client's address and port.
    Client,
    /// By the hash of the client's address, since clients with session affinity keep their part as they keep their endpoint.
    ClientIp,
}

impl PartMethod {
    /// The way to choose. It depends on all parts, with or without weight, so that a change of weights does not change it.
    fn of(whole: &Frontend) -> Self {
        let all = || std::iter::once(whole).chain(whole.pools());
        if all().any(|frontend| frontend.affinity != Affinity::None) {
            Self::ClientIp
        } else if whole.addr.protocol == Protocol::Udp || all().any(|it| it.algorithm == Algorithm::Maglev) {
            Self::Client
        } else {
            Self::Random
        }
    }

    /// The client's hash, unless the choice is random.
    fn hash(self, client: ClientAddr) -> Option<u64> {
        match self {
            Self::Random => None,
            Self::Client => Some(hash::client(client)),
            Self::ClientIp => Some(hash::client_ip(client)),
        }
    }
}

/// Part with a weight, as far as choices need it: two fit a cache line.
#[derive(Debug)]
struct OpenPart {
    identity: u64,
    /// Sum of the weights up to this one.
    end: u64,
    /// 1 / weight.
    pace: f64,
    /// Index of the part.
    index: u32,
}

/// A compiled pool, as far as the choice of a part needs it.
pub(super) trait SplitPool {
    /// Whether it forwards these clients.
    fn forwards(&self, origin: Origin) -> bool;
    /// Whether it has session affinity.
    fn is_sticky(&self) -> bool;
    /// Time since the last use of the client's affinity record, if there is one.
    fn time_since_record(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<Duration>;
    /// Its endpoints with their shares.
    fn shares(&self, origin: Origin) -> Vec<(EndpointAddr, u64)>;
}

/// Part with what it forwards to.
#[derive(Debug)]
struct ActivePart<P> {
    identity: u64,
    weight: u32,
    /// `None` if the part is refused.
    pool: Option<P>,
}

/// A split compiled for picking.
#[derive(Debug)]
pub(super) struct ActiveSplit<P> {
    method: PartMethod,
    /// Whether a pool with a weight has session affinity.
    sticky: bool,
    /// Whether any part forwards the clients outside and inside the cluster.
    forwards: [bool; 2],
    /// Whether any part with a weight refuses the clients outside and inside the cluster.
    refuses: [bool; 2],
    /// Whether all weights but those of 0 are equal.
    equal: bool,
    /// The parts with a weight.
    open: Box<[OpenPart]>,
    /// All parts, in the order of the spec.
    parts: Box<[ActivePart<P>]>,
}

impl<P: SplitPool> ActiveSplit<P> {
    /// Compiles the split of `whole`. `compile_pool` compiles a pool, whose affinity records have this owner, from the pool that the
    /// part of the same name had in `previous`.
    pub(super) fn compile(
        whole: &Frontend,
        split: &Split,
        previous: Option<&Self>,
        compile_pool: impl Fn(&Arc<Frontend>, ScopeOwner<'_>, Option<&P>) -> P,
    ) -> Self {
        let part = |(index, part): (usize, &SplitPart)| {
            let identity = identity(split, index);
            let owner = ScopeOwner::Part(&whole.service, identity);
            let before = previous.and_then(|previous| previous.find(identity)?.pool.as_ref());
            let pool = part.pool().map(|pool| compile_pool(pool, owner, before));
            ActivePart { identity, weight: part.weight, pool }
        };
        let parts: Box<[ActivePart<P>]> = split.parts.iter().enumerate().map(part).collect();
        let with_weight = || (0..).zip(&parts).filter(|(_, part)| part.weight > 0);
        let pools = || with_weight().filter_map(|(_, part)| part.pool.as_ref());
        let mut end = 0;
        let open = with_weight().map(|(index, &ActivePart { identity, weight, .. })| {
            end += u64::from(weight);
            OpenPart { identity, end, pace: 1.0 / f64::from(weight), index }
        });
        let open: Box<[OpenPart]> = open.collect();
        let refuses = |origin| with_weight().any(|(_, part)| usable(Some(part), origin).is_err());
        Self {
            method: PartMethod::of(whole),
            sticky: pools().any(SplitPool::is_sticky),
            forwards: [Origin::External, Origin::Internal]
                .map(|origin| pools().any(|it| it.forwards(origin))),
            refuses: [Origin::External, Origin::Internal].map(refuses),
            equal: with_weight().map(|(_, part)| part.weight).is_sorted_by(|one, next| one == next),
            open,
            parts,
        }
    }

    /// The compiled pools.
    pub(super) fn pools(&self) -> impl Iterator<Item = &P> {
        self.parts.iter().filter_map(|part| part.pool.as_ref())
    }

    fn find(&self, identity: u64) -> Option<&ActivePart<P>> {
        self.parts.iter().find(|part| part.identity == identity)
    }

    /// The part that a connection was given, in this table or an earlier one.
    fn given(&self, PartId { identity, index }: PartId) -> Option<&ActivePart<P>> {
        let same = self.parts.get(index as usize).filter(|part| part.identity == identity);
        same.or_else(|| self.find(identity))
    }

    /// Whether any part forwards these clients.
    pub(super) fn forwards(&self, origin: Origin) -> bool {
        self.forwards[origin as usize]
    }

    /// The part of a new connection or flow; `None` if no part has a weight.
    #[inline(never)]
    pub(super) fn part(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<PartId> {
        let index = self.choose(request, affinity)?;
        Some(PartId { identity: self.parts.get(index as usize)?.identity, index })
    }

    /// The pool of a connection or flow: that of the part it has been given, while there is that part, or of the one chosen now.
    ///
    /// # Errors
    /// If the share of the part is refused.
    pub(super) fn pool(
        &self,
        request: &PickRequest<'_>,
        affinity: &AffinityTable,
    ) -> Result<&P, RefusedShare> {
        let given = request.part.and_then(|part| self.given(part));
        let chosen = || self.parts.get(self.choose(request, affinity)? as usize);
        usable(given.or_else(chosen), request.origin)
    }

    /// Why a client is refused whatever its connection; `None` also if that depends on the connection or an affinity record.
    pub(super) fn refusal(&self, origin: Origin, client: ClientAddr) -> Option<RefusedShare> {
        if !self.refuses[origin as usize] || self.sticky {
            return None;
        }
        let hash = self.method.hash(client)?;
        usable(self.parts.get(self.by_hash(hash)? as usize), origin).err()
    }

    /// Index of the part of a new connection or flow.
    fn choose(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<u32> {
        let kept = if self.sticky { self.kept(request, affinity) } else { None };
        kept.or_else(|| match self.method.hash(request.client) {
            Some(hash) => self.by_hash(hash),
            None => self.at_random(hash::mix(request.random ^ PART)),
        })
    }

    /// The part with the client's affinity record, the last one used if there are several: a part's weight may have been 0 meanwhile.
    fn kept(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<u32> {
        let recorded = |part: &OpenPart| -> Option<Duration> {
            let pool = self.parts.get(part.index as usize)?.pool.as_ref()?;
            pool.time_since_record(request, affinity)
        };
        let parts = self.open.iter().filter_map(|part| Some((recorded(part)?, part.index)));
        parts.min_by_key(|(quiet, _)| *quiet).map(|(_, index)| index)
    }

    fn at_random(&self, random: u64) -> Option<u32> {
        let point = weights::scale(random, self.open.last()?.end);
        self.open.iter().find(|part| point < part.end).map(|part| part.index)
    }

    /// Rendezvous hashing, as among endpoints.
    fn by_hash(&self, client: u64) -> Option<u32> {
        let random = |part: &OpenPart| hash::mix(client ^ part.identity);
        let first = if self.equal {
            self.open.iter().max_by_key(|part| random(part))
        } else {
            let times = self.open.iter().map(|it| (rendezvous::exponential(random(it)) * it.pace, it));
            times.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, part)| part)
        };
        first.map(|part| part.index)
    }

    /// The endpoints with their shares, each in proportion to the weight of its part, sorted by address.
    pub(super) fn shares(&self, origin: Origin) -> Vec<(EndpointAddr, u64)> {
        let open = self.parts.iter().filter(|part| part.weight > 0);
        weighted_shares(open.filter_map(|part| Some((part.weight, part.pool.as_ref()?.shares(origin)))))
    }
}

/// The endpoints of all parts with their shares, each in proportion to the weight of its part, sorted by address.
pub(super) fn weighted_shares(
    parts: impl Iterator<Item = (u32, Vec<(EndpointAddr, u64)>)>,
) -> Vec<(EndpointAddr, u64)> {
    /// The whole of a part of weight 1; times the largest weight, it leaves room for the sum over all parts.
    const WHOLE: u128 = 1 << 32;
    let mut shares: Vec<(EndpointAddr, u64)> = Vec::new();
    for (weight, own) in parts {
        let total: u128 = own.iter().map(|&(_, share)| u128::from(share)).sum();
        let of_all = |share: u64| WHOLE * u128::from(weight) * u128::from(share) / total.max(1);
        shares.extend(own.into_iter().map(|(addr, share)| (addr, of_all(share) as u64)));
    }
    shares.sort_unstable();
    shares.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
    shares
}

/// The pool of a part, if it forwards these clients.
fn usable<P: SplitPool>(part: Option<&ActivePart<P>>, origin: Origin) -> Result<&P, RefusedShare> {
    let pool = part.and_then(|part| part.pool.as_ref()).ok_or(RefusedShare::InvalidBackend)?;
    if pool.forwards(origin) { Ok(pool) } else { Err(RefusedShare::NoEndpoint) }
}

/// Identity of a part, the same in every table and on every gateway: a hash of its name. Parts of the same name get different ones, or all
/// clients would choose the first.
fn identity(split: &Split, index: usize) -> u64 {
    let Some(part) = split.parts.get(index) else { return 0 };
    let name = hash::part(&part.name);
    match split.parts.iter().take(index).filter(|earlier| earlier.name == part.name).count() {
        0 => name,
        earlier => hash::in_part(name, earlier as u64),
    }
}
