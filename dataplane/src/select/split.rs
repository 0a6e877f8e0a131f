//! Split of a frontend compiled for picking: the part of a connection or flow, by weight, before its endpoint.
//!
//! Each pool is compiled as the frontend that it would be alone. Its endpoints are those of the whole frontend, so that an endpoint in
//! two pools has one load.

use std::time::Duration;

use sheave_model::{Affinity, Algorithm, ClientAddr, EndpointAddr, Frontend, Protocol, Split, SplitPart};

use super::active_frontend::{ActiveFrontend, Preview};
use super::affinity::{AffinityTable, ScopeOwner};
use super::endpoint_health::EndpointHealth;
use super::endpoint_load::ServingEndpoints;
use super::{Origin, Pick, PickRequest, RefusedShare};
use crate::balance::hash;
use crate::balance::rendezvous::{Rendezvous, Run, runs};
use crate::balance::weights::Weights;
use crate::counters::{CloseReason, DropReason};

/// Part of a split, the same in every table and on every gateway: a hash of the part's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartId(u64);

impl PartId {
    /// The identity of the part with this name.
    pub fn of(name: &str) -> Self {
        Self(hash::part(name))
    }
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
#[derive(Debug)]
enum Method {
    /// At random for each connection.
    Random,
    /// By the hash of the client's address and port.
    Client(Hashed),
    /// By the hash of the client's address, since clients with session affinity keep their part as they keep their endpoint.
    ClientIp(Hashed),
}

/// Parts with a weight, for rendezvous hashing.
#[derive(Debug)]
struct Hashed {
    identities: Box<[u64]>,
    runs: Box<[Run]>,
}

impl Hashed {
    fn choose(&self, client: u64) -> usize {
        let Self { identities, runs } = self;
        Rendezvous { identities, runs }.first(client, |_| true).unwrap_or_default()
    }
}

/// Part with what it forwards to.
#[derive(Debug)]
struct ActivePart {
    id: PartId,
    weight: u32,
    /// `None` if the part is refused.
    pool: Option<ActiveFrontend>,
}

/// A split compiled for picking.
#[derive(Debug)]
pub(super) struct ActiveSplit {
    /// Indices of the parts with a weight.
    open: Box<[u32]>,
    /// Their weights; `None` if there are none.
    weights: Option<Weights>,
    method: Method,
    /// Whether a pool with a weight has session affinity.
    sticky: bool,
    /// Whether any part forwards the clients outside and inside the cluster.
    forwards: [bool; 2],
    /// All parts, in the order of the spec.
    parts: Box<[ActivePart]>,
}

impl ActiveSplit {
    /// Compiles the split of `whole`, whose endpoints are `serving`. Pools keep the turns and Maglev tables that the part of the same
    /// name had in `previous`.
    pub(super) fn compile(
        whole: &Frontend,
        split: &Split,
        health: &EndpointHealth,
        serving: &ServingEndpoints,
        previous: Option<&Self>,
    ) -> Self {
        let part = |part: &SplitPart| {
            let id = PartId::of(&part.name);
            let owner = ScopeOwner::Part(&whole.service, id.0);
            let before = previous.and_then(|previous| previous.find(id)?.pool.as_ref());
            let pool = part.pool().map(|pool| {
                let own = serving.of_pool(pool);
                ActiveFrontend::compile_pool(pool.clone(), health, own, owner, before)
            });
            ActivePart { id, weight: part.weight, pool }
        };
        let parts: Box<[ActivePart]> = split.parts.iter().map(part).collect();
        let with_weight = || parts.iter().filter(|part| part.weight > 0);
        let forwards = |origin| with_weight().filter_map(|it| it.pool.as_ref()).any(|it| it.forwards(origin));
        let weights = Weights::new(with_weight().map(|part| part.weight.into()));
        Self {
            open: (0..).zip(&parts).filter(|(_, part)| part.weight > 0).map(|(index, _)| index).collect(),
            method: method(whole, &identities(&parts), weights.as_ref()),
            weights,
            sticky: with_weight().filter_map(|part| part.pool.as_ref()).any(ActiveFrontend::is_sticky),
            forwards: [Origin::External, Origin::Internal].map(forwards),
            parts,
        }
    }

    /// The compiled pools.
    pub(super) fn pools(&self) -> impl Iterator<Item = &ActiveFrontend> {
        self.parts.iter().filter_map(|part| part.pool.as_ref())
    }

    fn find(&self, id: PartId) -> Option<&ActivePart> {
        self.parts.iter().find(|part| part.id == id)
    }

    /// Whether any part forwards these clients.
    pub(super) fn forwards(&self, origin: Origin) -> bool {
        self.forwards[origin as usize]
    }

    /// The part of a new connection or flow; `None` if no part has a weight.
    pub(super) fn part(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<PartId> {
        self.choose(request, affinity).map(|part| part.id)
    }

    /// The pool of a connection or flow: that of the part it has been given, while there is that part, or of the one chosen now.
    ///
    /// # Errors
    /// If the share of the part is refused.
    fn pool(
        &self,
        request: &PickRequest<'_>,
        affinity: &AffinityTable,
    ) -> Result<&ActiveFrontend, RefusedShare> {
        let given = request.part.and_then(|id| self.find(id));
        usable(given.or_else(|| self.choose(request, affinity)), request.origin)
    }

    /// Picks an endpoint of the chosen part.
    pub(super) fn pick(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Pick {
        if !self.forwards(request.origin) {
            return Pick::Reject;
        }
        match self.pool(request, affinity) {
            Ok(pool) => pool.pick(request, affinity),
            Err(refused) => Pick::Refused(refused),
        }
    }

    /// The result of [`Self::pick`], without counting, recording or renewing anything.
    pub(super) fn preview(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Preview {
        if !self.forwards(request.origin) {
            return Preview::Reject;
        }
        match self.pool(request, affinity) {
            Ok(pool) => pool.preview(request, affinity),
            Err(refused) => Preview::Refused(refused),
        }
    }

    /// Why a client is refused whatever its connection; `None` also if that depends on the connection or an affinity record.
    pub(super) fn refusal(&self, origin: Origin, client: ClientAddr) -> Option<RefusedShare> {
        let index = match &self.method {
            _ if self.sticky => return None,
            Method::Random => return None,
            Method::Client(hashed) => hashed.choose(hash::client(client)),
            Method::ClientIp(hashed) => hashed.choose(hash::client_ip(client)),
        };
        usable(self.open_part(index), origin).err()
    }

    fn choose(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<&ActivePart> {
        let kept = if self.sticky { self.kept(request, affinity) } else { None };
        kept.or_else(|| self.by_weight(request))
    }

    /// The part with the client's affinity record, the last one used if there are several: a part's weight may have been 0 meanwhile.
    fn kept(&self, request: &PickRequest<'_>, affinity: &AffinityTable) -> Option<&ActivePart> {
        let recorded = |part: &&ActivePart| -> Option<Duration> {
            part.pool.as_ref()?.time_since_record(request, affinity)
        };
        let parts = self.open.iter().filter_map(|&index| self.parts.get(index as usize));
        let parts = parts.filter_map(|part| Some((recorded(&part)?, part)));
        parts.min_by_key(|(quiet, _)| *quiet).map(|(_, part)| part)
    }

    fn by_weight(&self, request: &PickRequest<'_>) -> Option<&ActivePart> {
        let index = match &self.method {
            Method::Random => self.weights.as_ref()?.draw(hash::mix(request.random ^ PART)),
            Method::Client(hashed) => hashed.choose(hash::client(request.client)),
            Method::ClientIp(hashed) => hashed.choose(hash::client_ip(request.client)),
        };
        self.open_part(index)
    }

    /// The part with this index among those with a weight.
    fn open_part(&self, index: usize) -> Option<&ActivePart> {
        self.parts.get(*self.open.get(index)? as usize)
    }

    /// The endpoints with their shares, each in proportion to the weight of its part, sorted by address.
    pub(super) fn shares(&self, origin: Origin) -> Vec<(EndpointAddr, u64)> {
        /// The whole of a part of weight 1; times the largest weight, it leaves room for the sum over all parts.
        const WHOLE: u128 = 1 << 32;
        let mut shares: Vec<(EndpointAddr, u64)> = Vec::new();
        for part in self.parts.iter().filter(|part| part.weight > 0) {
            let Some(pool) = &part.pool else { continue };
            let own: Vec<(EndpointAddr, u64)> = pool.shares(origin).collect();
            let total: u128 = own.iter().map(|&(_, share)| u128::from(share)).sum();
            let of_all = |share: u64| WHOLE * u128::from(part.weight) * u128::from(share) / total.max(1);
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
}

/// The pool of a part, if it forwards these clients.
fn usable(part: Option<&ActivePart>, origin: Origin) -> Result<&ActiveFrontend, RefusedShare> {
    let pool = part.and_then(|part| part.pool.as_ref()).ok_or(RefusedShare::InvalidBackend)?;
    if pool.forwards(origin) { Ok(pool) } else { Err(RefusedShare::NoEndpoint) }
}

/// Identities of the parts with a weight. Parts of the same name get different ones, or all clients would choose the first of them.
fn identities(parts: &[ActivePart]) -> Box<[u64]> {
    let same_before = |index: usize, id| parts[..index].iter().filter(|part| part.id == id).count();
    let with_weight = parts.iter().enumerate().filter(|(_, part)| part.weight > 0);
    let identity = |(index, part): (usize, &ActivePart)| match same_before(index, part.id) {
        0 => part.id.0,
        before => hash::in_part(part.id.0, before as u64),
    };
    with_weight.map(identity).collect()
}

/// The way to choose parts. It depends on all parts, with or without weight, so that a change of weights does not change it.
fn method(whole: &Frontend, identities: &[u64], weights: Option<&Weights>) -> Method {
    let all = || std::iter::once(whole).chain(whole.pools());
    let hashed = || Hashed { identities: identities.into(), runs: weights.map(runs).unwrap_or_default() };
    if all().any(|frontend| frontend.affinity != Affinity::None) {
        Method::ClientIp(hashed())
    } else if whole.addr.protocol == Protocol::Udp || all().any(|it| it.algorithm == Algorithm::Maglev) {
        Method::Client(hashed())
    } else {
        Method::Random
    }
}
