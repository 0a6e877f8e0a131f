//! From what was found in each cluster to the members of the plan, with their shares and tiers.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use sheave_model::{Path, Weight};

use super::super::annotations::DRAIN;
use super::super::members::{Listed, Member};
use super::super::topology::Scope;
use super::clusters::{self, Clusters};
use super::ingress::{self, Mode};
use super::sources::{NotCounted, Sources};
use super::status::{ClusterState, ClusterStatus, Lack};
use super::tiers::{Region, Tiers};
use super::{Found, template};
use crate::api::karmada::ResourceBinding;
use crate::api::problem::report::Report;
use crate::api::store::ServiceKey;

/// Puts everything together.
pub(super) fn build(
    key: &ServiceKey,
    effective: &Service,
    (clusters, mut sources): (&Clusters<'_>, Sources<'_>),
    report: &mut Report,
) -> Found {
    let mut names: BTreeSet<Arc<str>> = sources.parts.keys().cloned().collect();
    names.extend(clusters.expected());
    let options = clusters.options;
    let mut own = Report::about(key.object());
    let mode = ingress::mode(effective, &mut own);
    let region = Region { own: &options.cluster, clusters: &clusters.fleet.clusters };
    let tiers = Tiers::read(effective, &names, &region, &mut own);
    clusters::check_names(DRAIN, clusters.drained().iter().map(String::as_str), &names, &mut own);
    if let Some(service) = clusters.fleet.services.get(key) {
        report.extend(template::renamed(own.into_problems(), service));
    }
    let mut found = Found {
        members: Vec::with_capacity(names.len()),
        standing: Vec::with_capacity(names.len()),
        spread: tiers.spread(),
        left: Vec::new(),
        nothing_collected: false,
        problems: Vec::new(),
    };
    for name in names {
        let state = clusters.state(&name);
        found.problems.extend(clusters.misread(&name));
        let slices = match state {
            ClusterState::NotBound => Vec::new(),
            _ => slices(key, effective, &name, (clusters, &mut sources, mode), &mut found.problems),
        };
        let is_own = *name == *options.cluster;
        let member = Member {
            path: options.fleet.paths.get(&name).copied().unwrap_or(Path::DEFAULT),
            weight: Weight(tiers.weight(&name)),
            priority: tiers.priority(&name),
            scope: scope(&state, is_own),
            own: is_own,
            slices,
            cluster: name.clone(),
        };
        if state != ClusterState::NotBound && !member.slices.is_empty() {
            found.members.push(member.clone());
        }
        let (weight, priority) = (member.weight.0, member.priority);
        let lack = Some(lack(&state, &member, mode, clusters));
        found
            .standing
            .push((ClusterStatus { name, state, ready: 0, total: 0, weight, priority, lack }, member));
    }
    found.left = sources.left;
    // Where addresses of Services were asked for, these are what lacks.
    found.nothing_collected = mode != Mode::Ingress
        && found.members.is_empty()
        && found
            .left
            .iter()
            .all(|left| matches!(left.why, NotCounted::Dispatched | NotCounted::NotCollected));
    found.problems.append(&mut sources.problems);
    found
}

/// Why the member has no endpoint, if it should turn out to have none.
fn lack(state: &ClusterState, member: &Member, mode: Mode, clusters: &Clusters<'_>) -> Lack {
    let unscheduled = || clusters.binding.and_then(ResourceBinding::unscheduled);
    if *state == ClusterState::NotBound
        && let Some(message) = unscheduled()
    {
        return Lack::NotScheduled(message.to_owned());
    }
    let cluster = clusters.fleet.clusters.get(&member.cluster);
    if !member.slices.is_empty() {
        Lack::Empty
    } else if mode == Mode::Ingress {
        Lack::NoIngress
    } else if cluster.is_some_and(|cluster| cluster.serves_exports() == Some(false)) {
        Lack::NoExports
    } else {
        Lack::NotCollected
    }
}

fn scope(state: &ClusterState, own: bool) -> Scope {
    match (state.takes_new(), own) {
        (false, _) => Scope::Closed,
        (true, true) => Scope::Own,
        (true, false) => Scope::Other,
    }
}

/// What counts of what a cluster has.
fn slices(
    key: &ServiceKey,
    effective: &Service,
    name: &Arc<str>,
    (clusters, sources, mode): (&Clusters<'_>, &mut Sources<'_>, Mode),
    problems: &mut Vec<crate::api::problem::Problem>,
) -> Vec<Listed> {
    let pods = sources.parts.get_mut(name).map(|part| std::mem::take(&mut part.slices)).unwrap_or_default();
    let by_ingress = match mode {
        Mode::Pods => false,
        Mode::Ingress => true,
        Mode::Auto => pods.is_empty(),
    };
    if !by_ingress {
        return pods;
    }
    pods.iter().for_each(|it| sources.leave(name, &it.slice, NotCounted::IngressCounts));
    ingress::slices(key, name, sources.parts.get(name), effective, clusters, problems)
}
