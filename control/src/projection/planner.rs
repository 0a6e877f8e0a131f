//! Decision whether a Service or a MultiClusterService is ours, and its plan.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use sheave_model::FrontendSource;

use super::class::ClassMatch;
use super::options::{Options, Role};
use super::plan::{Planned, Slices, service_ref};
use super::read_service::{ServiceFields, read};
use super::{annotations, class, multi_cluster};
use crate::api::problem::report::Report;
use crate::api::store::{Objects, ServiceKey};

/// Plans a Service. Its slices only suggest IP families if the Service names none.
pub(super) fn plan_service(
    key: &ServiceKey,
    service: &Service,
    slices: Option<&Slices>,
    options: &Options,
) -> Planned {
    let leaving = service.metadata.deletion_timestamp.is_some();
    if leaving && matches!(options.role, Role::Controller { .. }) {
        // Gateways serve it until its status is empty, and it keeps its addresses until then.
        return Planned::Foreign;
    }
    let mut report = Report::about(service_ref(key));
    let kinds = match class::classify(service, options, &mut report) {
        ClassMatch::Foreign => return Planned::Foreign,
        ClassMatch::Refused => return Planned::Refused(report.into_problems()),
        ClassMatch::Ours(kinds) => kinds,
    };
    annotations::check(service, &mut report);
    let slices = || slices.into_iter().flat_map(BTreeMap::values);
    let fleet = multi_cluster::of_service(key, service, slices(), options, &mut report);
    let mut plan = read(ServiceFields { key, service, kinds, exposed: None }, slices(), options, report);
    plan.fleet = fleet;
    Planned::Ours(Box::new(plan))
}

/// Plans a Service or a MultiClusterService.
pub(super) fn plan_object(
    objects: &Objects,
    key: &ServiceKey,
    options: &Options,
    now: Option<Timestamp>,
) -> Planned {
    if key.source == FrontendSource::MultiClusterService {
        return multi_cluster::plan(key, &objects.fleet, options, now);
    }
    match objects.services.get(key) {
        Some(service) => plan_service(key, service, objects.slices.get(key), options),
        None => Planned::Foreign,
    }
}
