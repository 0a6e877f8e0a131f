//! Compilation of a frontend: its targets by server name, the parts of its split, its routes. What is still valid of the previous table is
//! kept.

use std::collections::HashSet;
use std::sync::Arc;

use sheave_model::{AddressSet, Affinity, Frontend, Route, ServicePort};

use super::{ActiveFrontend, ActiveRoute, Sticky, effective_algorithm};
use crate::balance::maglev::Maglev;
use crate::limits::service::Limiter;
use crate::select::Origin;
use crate::select::affinity::{Scope, ScopeOwner};
use crate::select::candidates::Candidates;
use crate::select::endpoint_health::EndpointHealth;
use crate::select::endpoint_load::ServingEndpoints;
use crate::select::server_names::ActiveServerNames;
use crate::select::split::ActiveSplit;

impl ActiveFrontend {
    /// Compiles `spec`, keeping the loads, turns and Maglev tables of `previous` that are still valid. Targets of server names that are
    /// the same as in `previous` are carried over, unless one of the `rejudged` Service ports judges their endpoints.
    pub(in crate::select) fn compile(
        spec: Arc<Frontend>,
        (health, rejudged): (&EndpointHealth, &HashSet<&ServicePort>),
        limiter: Option<Arc<Limiter>>,
        previous: Option<&Self>,
    ) -> Self {
        let serving = ServingEndpoints::new(&spec, previous.map(|previous| &previous.serving));
        let mut whole = match &spec.server_names {
            None => Self::compile_target(spec, health, serving, previous, |owner| owner),
            Some(names) => {
                let target = |target: &Arc<Frontend>, before: Option<&Arc<Self>>| {
                    let same = |it: &&Arc<Self>| it.spec == *target && !it.is_judged_by(rejudged);
                    before.filter(same).cloned().unwrap_or_else(|| {
                        let before = before.map(AsRef::as_ref);
                        Arc::new(Self::compile_named(target, health, serving.of_pool(target), before))
                    })
                };
                let before = previous.and_then(Self::server_names);
                let names =
                    ActiveRoute::ServerNames(Box::new(ActiveServerNames::compile(names, before, target)));
                let owner = spec.service.clone();
                let mut whole = Self::compile_pool(spec, health, serving, ScopeOwner::Port(&owner), None);
                (whole.external, whole.internal, whole.sticky) = (names, None, None);
                whole
            }
        };
        whole.limiter = limiter;
        whole
    }

    /// Compiles a target of server names. Routes that share the port and name the same Service share no affinity records.
    fn compile_named(
        spec: &Arc<Frontend>,
        health: &EndpointHealth,
        serving: ServingEndpoints,
        previous: Option<&Self>,
    ) -> Self {
        let route = spec.split.as_ref().map(|split| &*split.route).unwrap_or_default();
        Self::compile_target(Arc::clone(spec), health, serving, previous, |owner| owner.of_route(route))
    }

    /// Compiles a frontend without server names, whose endpoints are `serving`. `owner` makes the owner of affinity records more specific.
    fn compile_target(
        spec: Arc<Frontend>,
        health: &EndpointHealth,
        serving: ServingEndpoints,
        previous: Option<&Self>,
        owner: impl Fn(ScopeOwner<'_>) -> ScopeOwner<'_>,
    ) -> Self {
        let split = spec.split.as_ref().map(|split| {
            let before = previous.and_then(Self::split);
            let pool = |pool: &Arc<Frontend>, part: ScopeOwner<'_>, before: Option<&Self>| {
                Self::compile_pool(Arc::clone(pool), health, serving.of_pool(pool), owner(part), before)
            };
            ActiveRoute::Split(Box::new(ActiveSplit::compile(&spec, split, before, pool)))
        });
        // A frontend that was split or had server names before has nothing to keep but its endpoints, and the other way round.
        let previous =
            previous.filter(|previous| previous.split().is_none() && previous.server_names().is_none());
        let whole = Arc::clone(&spec);
        let mut whole =
            Self::compile_pool(spec, health, serving, owner(ScopeOwner::Port(&whole.service)), previous);
        if let Some(split) = split {
            (whole.external, whole.internal, whole.sticky) = (split, None, None);
        }
        whole
    }

    /// Compiles a frontend that is not split, or a pool of one that is, whose endpoints are `serving`. `owner` has its affinity records.
    fn compile_pool(
        spec: Arc<Frontend>,
        health: &EndpointHealth,
        serving: ServingEndpoints,
        owner: ScopeOwner<'_>,
        previous: Option<&Self>,
    ) -> Self {
        let health = health.of(&spec.service);
        let algorithm = effective_algorithm(&spec);
        let mut known: Vec<Arc<Maglev>> = previous.into_iter().flat_map(Self::maglevs).collect();
        let prepare = |route: &Route, origin, known: &[Arc<Maglev>]| match route {
            Route::Forward(candidates) => {
                let turns = previous.and_then(|previous| previous.route_of(origin).candidates());
                Candidates::compile(&spec, algorithm, candidates, health, &serving, (turns, known))
                    .map_or(ActiveRoute::Reject, ActiveRoute::Forward)
            }
            Route::Reject => ActiveRoute::Reject,
            Route::Drop => ActiveRoute::Drop,
        };
        let external = prepare(&spec.external, Origin::External, &known);
        let internal = (spec.internal != spec.external).then(|| {
            known.extend(external.candidates().into_iter().flat_map(Candidates::maglevs));
            Box::new(prepare(&spec.internal, Origin::Internal, &known))
        });
        let sticky = match spec.affinity {
            Affinity::None => None,
            Affinity::ClientIp { timeout, scope: reach } => {
                Some(Sticky { scope: Scope::of_owner(owner, reach), reach, timeout })
            }
        };
        Self {
            addr: spec.addr,
            ranged: *spec.source_ranges.allowed() != AddressSet::all(),
            client_sources: spec.client_sources,
            sticky,
            serving,
            external,
            internal,
            limiter: None,
            proxied_by: spec.proxied_by.clone(),
            timeouts: spec.timeouts,
            logged: spec.logged,
            spec,
        }
    }
}
