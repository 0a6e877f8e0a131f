//! Annotation about failover between clusters.

use k8s_openapi::api::core::v1::Service;
use sheave_model::{Failover, Spread};

use super::OVERPROVISIONING;
use super::health::percent;
use crate::api::problem::Problem;
use crate::api::problem::report::Report;
use crate::api::store::ServiceKey;
use crate::projection::options::Options;

/// The failover rules of a Service, and the Problems of its annotations. An invalid annotation is ignored.
pub(in crate::projection) fn read(
    key: &ServiceKey,
    service: &Service,
    spread: Spread,
    options: &Options,
) -> (Failover, Vec<Problem>) {
    let mut report = Report::about(key.object());
    let default = options.fleet.overprovisioning;
    let overprovisioning = percent(service, OVERPROVISIONING, 100..=1000, default, &mut report);
    (Failover { spread, overprovisioning }, report.into_problems())
}
