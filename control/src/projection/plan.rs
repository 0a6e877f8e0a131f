//! What one Service asks for, read and checked once: everything that needs neither addresses nor endpoints.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Affinity, Algorithm, FrontendAddr, FrontendKind, ServiceLimits, ServiceTimeouts};

use super::class::{self, Claim, Kinds};
use super::client_address::{self, ClientAddress};
use super::conflicts::{Rank, Title, Titles};
use super::exposure::{self, Exposure, SpecAddresses};
use super::facts::Facts;
use super::families::{self, Families};
use super::members::Member;
use super::multi_cluster::{self, FleetPlan};
use super::placement::{self, Placement};
use super::policy::{self, TrafficPolicies, TrafficPolicy};
use super::ports::{self, ListedPort, PlannedPort};
use super::source_ranges::{self, FamilyRanges};
use super::wishes::{self, Wishes};
use super::{Options, affinity, annotations, health, limits};
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::store::{Objects, ServiceKey};

/// A Service's slices by name.
pub(super) type Slices = BTreeMap<Arc<str>, Arc<EndpointSlice>>;

/// What a Service that is ours asks for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rank: Rank,
    pub(super) uid: Option<String>,
    pub(super) kinds: Kinds,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) families: Families,
    /// Of load balancer addresses; none for a Service that is not ours as a load balancer.
    pub(super) wishes: Wishes,
    /// Addresses that the spec names.
    pub(super) addresses: SpecAddresses,
    pub(super) ports: Vec<PlannedPort>,
    /// Every port that the API can name in a status, in the order of the spec.
    pub(super) listed_ports: Vec<ListedPort>,
    pub(super) affinity: Affinity,
    /// `None` = the default of each port's protocol.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) ranges: FamilyRanges,
    pub(super) policies: TrafficPolicies,
    pub(super) client_address: ClientAddress,
    pub(super) limits: ServiceLimits,
    pub(super) timeouts: ServiceTimeouts,
    pub(super) health_check_port: Option<u16>,
    /// The clusters that it is served from; `None` = the gateway's own.
    pub(super) fleet: Option<FleetPlan>,
    /// Another installation decides about it, or it is not known who does: it keeps what it has, its ports included, and is not
    /// served from here.
    pub(super) suspended: bool,
    /// What was wrong with the Service itself.
    pub(super) problems: Vec<Problem>,
}

/// What a Service comes to before addresses and endpoints are looked at.
#[derive(Debug)]
#[must_use]
pub(super) enum Planned {
    /// Not ours.
    Foreign,
    /// Asks for us, but cannot be served.
    Refused(Vec<Problem>),
    /// To be served as planned.
    Ours(Box<Plan>),
}

/// How Problems name a Service.
pub(super) fn service_ref(key: &ServiceKey) -> ObjectRef {
    key.object()
}

/// Reads a Service. Its slices only suggest IP families where the Service names none.
pub(super) fn plan(
    key: &ServiceKey,
    service: &Service,
    slices: Option<&Slices>,
    options: &Options,
) -> Planned {
    let leaving = service.metadata.deletion_timestamp.is_some();
    if leaving && matches!(options.placement, Placement::Managed { .. }) {
        // What it has is free for others from here on; gateways serve it until its status is empty.
        return Planned::Foreign;
    }
    let mut report = Report::about(service_ref(key));
    let kinds = match class::claim(service, options, &mut report) {
        Claim::Foreign => return Planned::Foreign,
        Claim::Refused => return Planned::Refused(report.into_problems()),
        Claim::Ours(kinds) => kinds,
    };
    annotations::check(service, &mut report);
    let slices = || slices.into_iter().flat_map(BTreeMap::values);
    let fleet = multi_cluster::of_service(key, service, slices(), options, &mut report);
    let mut plan = read(Asked { key, service, kinds, exposed: None }, slices(), options, report);
    plan.fleet = fleet;
    Planned::Ours(Box::new(plan))
}

/// What is to be read once it is clear that it is ours.
pub(super) struct Asked<'a> {
    pub(super) key: &'a ServiceKey,
    pub(super) service: &'a Service,
    pub(super) kinds: Kinds,
    /// The indexes of the ports that are exposed; `None` = all.
    pub(super) exposed: Option<&'a BTreeSet<usize>>,
}

/// Reads what the fields of a Service ask for.
pub(super) fn read<'a>(
    asked: Asked<'_>,
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    options: &Options,
    mut report: Report,
) -> Plan {
    let Asked { key, service, kinds, exposed } = asked;
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let families = families::read(spec, slices, &mut report);
    let (mut wishes, mut ranges) = (Wishes::default(), FamilyRanges::default());
    if kinds.contains(&FrontendKind::LoadBalancer) {
        wishes = wishes::read(service, &families, options, &mut report);
        ranges = source_ranges::read(service, &families, &mut report);
    }
    let exposed = |index: usize| exposed.is_none_or(|exposed| exposed.contains(&index));
    let (ports, listed_ports) = ports::plan(spec.ports.as_deref().unwrap_or_default(), exposed, &mut report);
    let policies = policy::traffic(spec, &mut report);
    Plan {
        rank: Rank::of(key, service),
        uid: service.metadata.uid.clone(),
        labels: service.metadata.labels.clone().unwrap_or_default(),
        addresses: exposure::read(spec, &kinds, &families, options, &mut report),
        families,
        wishes,
        affinity: affinity::read(spec, &mut report),
        algorithm: policy::algorithm(service, &mut report),
        ranges,
        policies,
        client_address: client_address::read(service, &ports, &options.accept_proxy_allow, &mut report),
        limits: limits::limits(service, options.limits, &mut report),
        timeouts: limits::timeouts(service, &mut report),
        health_check_port: health::port(spec, &kinds, policies.external, &mut report),
        ports,
        listed_ports,
        kinds,
        fleet: None,
        suspended: false,
        problems: report.into_problems(),
    }
}

impl Plan {
    pub(super) fn key(&self) -> &ServiceKey {
        &self.rank.key
    }

    /// Whether it has, or wants, load balancer addresses from us.
    pub(super) fn is_load_balancer(&self) -> bool {
        self.kinds.contains(&FrontendKind::LoadBalancer)
    }

    /// Its place among those whose status publishes the same address.
    pub(super) fn seniority(&self) -> (bool, &Rank) {
        (!self.wishes.lost.is_empty(), &self.rank)
    }

    /// Whether its status says that it is served there: not if it says that another Service has the port.
    fn publishes(&self, addr: FrontendAddr) -> bool {
        let port = (addr.ip, i32::from(addr.port), addr.protocol.name().to_owned());
        self.wishes.published.contains(&addr.ip) && !self.wishes.lost.contains(&port)
    }

    /// The Nodes that can serve it from outside, if not every gateway node can: under `Local` those with an endpoint.
    pub(super) fn local_nodes(&self, placement: &Placement, objects: &Objects) -> Option<BTreeSet<Arc<str>>> {
        let managed = matches!(placement, Placement::Managed { .. });
        (managed && self.policies.external == TrafficPolicy::Local).then(|| {
            if let Some(fleet) = &self.fleet {
                let own = fleet.members.iter().filter(|member| member.own);
                let slices = own.flat_map(|member| member.slices.iter().map(|listed| &listed.slice));
                return placement::nodes_with_local(slices);
            }
            let slices = objects.slices.get(self.key());
            placement::nodes_with_local(slices.into_iter().flat_map(BTreeMap::values))
        })
    }

    /// The clusters that it is served from; `slices` are those of its own name in the cluster `own`.
    pub(super) fn members(&self, slices: Option<&Slices>, own: &Arc<str>) -> Cow<'_, [Member]> {
        match &self.fleet {
            Some(fleet) => Cow::Borrowed(&fleet.members),
            None => Cow::Owned(vec![Member::alone(own, slices.into_iter().flat_map(BTreeMap::values))]),
        }
    }

    /// How Problems name a field of the Service that it was read from.
    pub(super) fn field(&self, field: String) -> String {
        multi_cluster::service_field(self.key(), field)
    }

    /// The frontends that the Service claims once it has these load balancer addresses.
    pub(super) fn claims(&self, addresses: &[IpAddr], facts: &Facts) -> Titles {
        let title = |Exposure { kind, addr, .. }: Exposure| match kind {
            FrontendKind::ExternalIp => (addr, Title::Named),
            FrontendKind::LoadBalancer if self.publishes(addr) => (addr, Title::Published),
            FrontendKind::LoadBalancer | FrontendKind::NodePort | FrontendKind::ClusterIp => {
                (addr, Title::Given)
            }
        };
        self.exposures(addresses, facts, |_, _| ()).into_iter().map(title).collect()
    }
}
