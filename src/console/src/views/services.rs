//! Summary of a gateway's Services and listeners for the status page: state, addresses, clusters and Problems. JSON keys may be added, but are never
//! renamed.

mod findings;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;
use std::sync::Arc;

use serde::Serialize;
use sheave_announce::Status;
use sheave_control::projection::service_health::Fault;
pub(crate) use sheave_control::projection::service_health::ServiceState;
use sheave_dataplane::KernelPathErrors;
use sheave_dataplane::select::ActiveTable;
use sheave_model::{Frontend, FrontendAddr, FrontendSource};

pub(crate) use self::findings::{FindingsView, ServiceCounts};
use crate::views::problem::ProblemView;
use crate::views::routes::{row_name, source_name};

/// One Service, or one listener of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRow {
    /// `namespace/name`; for a listener `namespace/gateway/listener`.
    pub service: String,
    /// Kind of the object: `Service`, `MultiClusterService` or `Gateway`.
    pub source: &'static str,
    /// State for clients.
    pub state: ServiceState,
    /// Reason for the state, or a remark; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// `address:port/protocol` of each frontend, in order.
    pub frontends: Vec<String>,
    /// Nodes of the gateways that announce its addresses; empty if gateways announce nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Whether it works, but not for clients outside the cluster at this gateway: its endpoints are on other nodes, and the policy is
    /// Local.
    #[serde(skip_serializing_if = "Not::not")]
    pub elsewhere: bool,
    /// Whether source ranges admit only some clients.
    #[serde(skip_serializing_if = "Not::not")]
    pub restricted: bool,
    /// Number of frontends whose connections the kernel carries.
    #[serde(skip_serializing_if = "is_zero")]
    pub by_kernel: usize,
    /// Clusters of the port with the fewest endpoints that serve.
    pub clusters: Vec<ClusterRow>,
    /// Number of Problems.
    #[serde(skip_serializing_if = "is_zero")]
    pub problems: usize,
    /// The worst fault of its frontends.
    #[serde(skip)]
    pub fault: Option<Fault>,
}

impl ServiceRow {
    /// Name in findings: that of the object, or of the listener.
    pub(crate) fn object(&self) -> String {
        format!("{} {}", self.source, self.service)
    }
}

/// The endpoints of a Service in one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRow {
    /// Name of the cluster.
    pub cluster: String,
    /// Endpoints that serve, including unhealthy ones.
    pub serving: usize,
    /// All endpoints, including those that do not serve at present.
    pub of: usize,
    /// Endpoints that serve but that new traffic avoids.
    #[serde(skip_serializing_if = "is_zero")]
    pub unhealthy: usize,
    /// Percentage of new traffic from clients outside the cluster.
    pub share: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What keeps a gateway from serving as its table says.
#[derive(Clone, Debug, Default)]
pub struct ServingObstacles {
    /// Frontends that accept nothing, with the reason.
    pub closed: BTreeMap<FrontendAddr, String>,
    /// Why the proxy carries the frontends that ask for the kernel.
    pub no_kernel_path: KernelPathErrors,
}

/// Input of the rows.
#[derive(Clone, Copy)]
pub struct ServiceFacts<'a> {
    /// The table in force.
    pub active: &'a ActiveTable,
    /// All known Problems.
    pub problems: &'a [ProblemView],
    /// What keeps this gateway from serving as the table says.
    pub obstacles: &'a ServingObstacles,
    /// State of announcements, if gateways announce addresses.
    pub announcements: Option<&'a Status>,
}

/// Services by `namespace/name` and kind: those with frontends, and those that have none because of a Problem. A Gateway has a row for
/// each listener that is served, and one for its Problems that concern none of these.
pub fn rows(facts: ServiceFacts<'_>) -> Vec<ServiceRow> {
    let mut of_object = BTreeMap::<&str, Vec<&ProblemView>>::new();
    for problem in facts.problems {
        of_object.entry(&problem.object).or_default().push(problem);
    }
    let mut rows = Vec::new();
    let mut served = BTreeSet::new();
    for ((service, source), frontends) in by_service(facts.active) {
        let object = frontends.first().map(|it| format!("{source} {}", it.service)).unwrap_or_default();
        let of_all = of_object.get(object.as_str()).map(Vec::as_slice).unwrap_or_default();
        let concerning = of_all.iter().copied().filter(|problem| concerns(problem, &frontends));
        let problems: Vec<&ProblemView> = concerning.collect();
        served.extend(problems.iter().copied());
        rows.push(row::of_frontends(service, source, &frontends, &problems, facts));
    }
    let sources = [FrontendSource::Service, FrontendSource::MultiClusterService, FrontendSource::Gateway]
        .map(source_name);
    for (object, mut problems) in of_object {
        let Some((kind, service)) = object.split_once(' ') else { continue };
        problems.retain(|problem| !served.contains(problem));
        if let Some(source) = sources.into_iter().find(|source| *source == kind && !problems.is_empty()) {
            rows.push(row::without_frontends(service, source, &problems));
        }
    }
    rows.sort_unstable_by(|one, other| (&one.service, one.source).cmp(&(&other.service, other.source)));
    rows
}

/// Whether a Problem of an object concerns the row of these frontends. All rows but those of listeners are about the whole object.
fn concerns(problem: &ProblemView, frontends: &[&Arc<Frontend>]) -> bool {
    let Some(port) = &problem.port else { return true };
    let is_there = |it: &FrontendAddr| it.port == port.port && it.protocol.name() == port.protocol;
    frontends.iter().any(|it| it.service.source != FrontendSource::Gateway || is_there(&it.addr))
}

fn by_service(active: &ActiveTable) -> BTreeMap<(String, &'static str), Vec<&Arc<Frontend>>> {
    let mut services = BTreeMap::<_, Vec<_>>::new();
    for frontend in active.table().frontends() {
        let key = (row_name(&frontend.service), source_name(frontend.service.source));
        services.entry(key).or_default().push(frontend);
    }
    services
}

#[cfg(test)]
mod tests;
