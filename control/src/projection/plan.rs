//! What one Service asks for, read and checked once: everything that needs neither addresses nor endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_dataplane::model::{Affinity, Algorithm, FrontendAddr};

use super::class::{self, Claim};
use super::conflicts::Rank;
use super::families::{self, Families};
use super::policy::{self, TrafficPolicy};
use super::ports::{self, PlannedPort};
use super::source_ranges::{self, FamilyRanges};
use super::wishes::{self, Wishes};
use super::{Options, affinity};
use crate::problem::{ObjectRef, Problem};
use crate::report::Report;
use crate::store::ServiceKey;

/// A Service's slices by name.
pub(super) type Slices = BTreeMap<Arc<str>, Arc<EndpointSlice>>;

/// What a Service that is ours asks for.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rank: Rank,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) families: Families,
    pub(super) wishes: Wishes,
    pub(super) ports: Vec<PlannedPort>,
    pub(super) affinity: Affinity,
    /// `None` = the default of each port's protocol.
    pub(super) algorithm: Option<Algorithm>,
    pub(super) ranges: FamilyRanges,
    pub(super) external: TrafficPolicy,
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
    ObjectRef { kind: "Service", namespace: key.namespace.clone(), name: key.name.clone() }
}

/// Reads a Service. Its slices only suggest IP families where the Service names none.
pub(super) fn plan(
    key: &ServiceKey,
    service: &Service,
    slices: Option<&Slices>,
    options: &Options,
) -> Planned {
    let mut report = Report::about(service_ref(key));
    match class::claim(service, options, &mut report) {
        Claim::Foreign => return Planned::Foreign,
        Claim::Refused => return Planned::Refused(report.into_problems()),
        Claim::Ours => {}
    }
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let families = families::read(spec, slices.into_iter().flat_map(BTreeMap::values), &mut report);
    let wishes = wishes::read(service, &families, &mut report);
    Planned::Ours(Box::new(Plan {
        rank: Rank::of(key, service),
        labels: service.metadata.labels.clone().unwrap_or_default(),
        families,
        wishes,
        ports: ports::plan(spec.ports.as_deref().unwrap_or_default(), &mut report),
        affinity: affinity::read(spec, &mut report),
        algorithm: policy::algorithm(service.metadata.annotations.as_ref(), &mut report),
        ranges: source_ranges::read(service, &mut report),
        external: policy::external(spec, &mut report),
        problems: report.into_problems(),
    }))
}

impl Plan {
    pub(super) fn key(&self) -> &ServiceKey {
        &self.rank.key
    }

    /// The frontends that the Service claims once it has these addresses.
    pub(super) fn claims(&self, addresses: &[IpAddr]) -> BTreeSet<FrontendAddr> {
        let on = |ip: IpAddr| self.ports.iter().map(move |port| port.on(ip));
        addresses.iter().copied().flat_map(on).collect()
    }
}
