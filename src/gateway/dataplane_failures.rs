//! Failures of a running data plane, as Problems of the affected objects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use sheave_announce::Disagreement;
use sheave_console::http::health::Health;
use sheave_console::http::report::Failure;
use sheave_console::retry;
use sheave_console::views::services::ServingObstacles;
use sheave_control::api::problem::{ObjectRef, Problem, ProblemPort, reason};
use sheave_dataplane::{BindFailure, Dataplane, KernelPathErrors, LocalPortsError};
use sheave_model::{ClientSource, Frontend, FrontendAddr, FrontendKind, FrontendSource, Protocol};

/// Failures, cached between changes: there can be thousands when descriptors are short.
#[derive(Debug, Default)]
pub(super) struct Failures {
    inputs: Option<FailureInputs>,
    all: Vec<Failure>,
}

/// Inputs of the failures.
#[derive(Debug, PartialEq)]
struct FailureInputs {
    failures: u64,
    /// Reason why endpoints do not see client addresses, with the table generation that names the affected Services.
    lost: Option<(String, u64)>,
    /// Reason why UDP flows cannot share local ports, with the table generation.
    ports_taken: Option<(LocalPortsError, u64)>,
    /// Reasons why the kernel carries nothing, with the table generation.
    no_kernel_path: (KernelPathErrors, u64),
    health: Vec<Problem>,
    /// Reasons why addresses are not announced, with the table generation that names their Services.
    unannounced: (BTreeMap<IpAddr, Unannounced>, u64),
    disagreements: BTreeMap<Arc<str>, Disagreement>,
}

/// An address that this gateway should announce but cannot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unannounced {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Failures {
    /// Refreshes the failures. Returns whether they may have changed.
    pub(super) fn refresh(
        &mut self,
        dataplane: &Dataplane,
        health: &Health,
        unannounced: BTreeMap<IpAddr, Unannounced>,
        disagreements: BTreeMap<Arc<str>, Disagreement>,
    ) -> bool {
        let generation = dataplane.table().table().generation();
        let inputs = FailureInputs {
            failures: dataplane.failures_revision(),
            lost: dataplane.client_addresses().err().map(|error| (error.to_string(), generation)),
            ports_taken: ports_taken(dataplane).map(|error| (error, generation)),
            no_kernel_path: match dataplane.kernel_path_errors() {
                none if *none == KernelPathErrors::NONE => Default::default(),
                errors => (errors.clone(), generation),
            },
            health: health.problems().collect(),
            unannounced: if unannounced.is_empty() { Default::default() } else { (unannounced, generation) },
            disagreements,
        };
        if self.inputs.as_ref() == Some(&inputs) {
            return false;
        }
        self.all = of(dataplane);
        self.all.extend(inputs.health.iter().cloned().map(Failure::from));
        self.all.extend(not_announced(dataplane, &inputs.unannounced.0));
        self.all.extend(inputs.disagreements.iter().map(|(node, about)| disagrees(node, *about).into()));
        self.inputs = Some(inputs);
        true
    }

    /// Failures as of the last refresh.
    pub(super) fn all(&self) -> &[Failure] {
        &self.all
    }
}

/// One failure for each frontend that cannot be opened, and for each Service whose endpoints should see client addresses
/// but do not.
fn of(dataplane: &Dataplane) -> Vec<Failure> {
    let mut failures: Vec<Failure> = dataplane.failures().map(unopened).collect();
    let again = retry::EVERY.as_secs();
    if let Err(error) = dataplane.client_addresses() {
        let message = format!(
            "endpoints see the gateway's address in place of the client's: {error}; retrying every {again} s"
        );
        let is_lost = |frontend: &Frontend| frontend.client_sources.any(ClientSource::Transparent);
        failures.extend(of_services(dataplane, is_lost, reason::CLIENT_SOURCE_LOST, &message));
    }
    for family in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
        let Some(error) = dataplane.kernel_path_errors().of(family) else { continue };
        let message = format!(
            "the proxy carries its connections instead of the kernel: {error}; retrying every {again} s"
        );
        let asks = |frontend: &Frontend| {
            frontend.addr.ip.is_ipv4() == family.is_ipv4() && frontend.kernel_path().is_ok()
        };
        failures.extend(of_services(dataplane, asks, reason::KERNEL_PATH_UNAVAILABLE, &message));
    }
    if let Some(error) = dataplane.kernel_path_errors().tracking_full() {
        let message = format!("the kernel soon drops new connections: {error}; raise that sysctl");
        let asks = |frontend: &Frontend| frontend.kernel_path().is_ok();
        failures.extend(of_services(dataplane, asks, reason::CONNECTION_TRACKING_FULL, &message));
    }
    if let Some(error) = ports_taken(dataplane) {
        let message =
            format!("each UDP flow takes a local port for itself: {error}; retrying every {again} s");
        let is_udp = |frontend: &Frontend| frontend.addr.protocol == Protocol::Udp;
        failures.extend(of_services(dataplane, is_udp, reason::LOCAL_PORTS_TAKEN, &message));
    }
    failures
}

/// One failure for each Service with an affected frontend.
fn of_services(
    dataplane: &Dataplane,
    is_affected: impl Fn(&Frontend) -> bool,
    reason: &'static str,
    message: &str,
) -> Vec<Failure> {
    let table = dataplane.table();
    let affected = table.table().frontends().iter().filter(|frontend| is_affected(frontend));
    let services: BTreeSet<ObjectRef> = affected.map(|frontend| object_ref(frontend)).collect();
    services.into_iter().map(|service| problem(service, reason, message.to_owned()).into()).collect()
}

fn problem(object: ObjectRef, reason: &'static str, message: String) -> Problem {
    Problem { object, reason, field: String::new(), message, port: None }
}

/// Only ports that are taken. An unusable state directory harms nothing as far as known, and is logged.
fn ports_taken(dataplane: &Dataplane) -> Option<LocalPortsError> {
    dataplane.local_ports_error().filter(|error| matches!(error, LocalPortsError::Taken(_)))
}

/// One failure for each Service with such an address.
fn not_announced(dataplane: &Dataplane, unannounced: &BTreeMap<IpAddr, Unannounced>) -> Vec<Failure> {
    if unannounced.is_empty() {
        return Vec::new();
    }
    let table = dataplane.table();
    let frontends = table.table().frontends().iter();
    let ours = frontends.filter(|frontend| frontend.kind == FrontendKind::LoadBalancer);
    let services: BTreeSet<(IpAddr, ObjectRef)> = ours
        .filter(|frontend| unannounced.contains_key(&frontend.addr.ip))
        .map(|frontend| (frontend.addr.ip, object_ref(frontend)))
        .collect();
    let failure = |(ip, object): (IpAddr, ObjectRef)| {
        let Unannounced { reason, message } = unannounced.get(&ip)?;
        Some(problem(object, reason, format!("{ip}: {message}")).into())
    };
    services.into_iter().filter_map(failure).collect()
}

/// One for each gateway that announces by something else than this one.
fn disagrees(node: &Arc<str>, about: Disagreement) -> Problem {
    let what = match about {
        Disagreement::Candidates => {
            "it counts others among the gateways that may own addresses, or other networks or weights of theirs"
        }
        Disagreement::Addresses => "it knows other addresses, or other gateways that can serve them",
    };
    let object = ObjectRef { kind: "Node", namespace: Arc::default(), name: Arc::clone(node) };
    let message = format!(
        "the gateway there does not agree with this one about who owns what: {what}; an address may have two owners, or none"
    );
    problem(object, reason::GATEWAYS_DISAGREE, message)
}

/// What keeps the gateway from serving as its table says.
pub(super) fn obstacles(dataplane: &Dataplane) -> ServingObstacles {
    ServingObstacles { closed: closed(dataplane), no_kernel_path: dataplane.kernel_path_errors().clone() }
}

/// Frontends of the table that accept nothing here, with the reason. A frontend whose change failed stays open as it was.
pub(super) fn closed(dataplane: &Dataplane) -> BTreeMap<FrontendAddr, String> {
    let closed = dataplane.failures().filter(|failure| !failure.listening);
    closed.map(|failure| (failure.frontend.addr, failure_message(failure))).collect()
}

fn failure_message(BindFailure { frontend, error, listening, is_final }: &BindFailure) -> String {
    let failed = if *listening { "cannot update the allowed sources of" } else { "cannot listen on" };
    let advice = if *is_final { retry::advice_once(error) } else { retry::advice(error) };
    format!("{failed} {}: {advice}", frontend.addr)
}

fn unopened(failure: &BindFailure) -> Failure {
    let frontend = &failure.frontend;
    let failed = problem(object_ref(frontend), reason::BIND_FAILED, failure_message(failure));
    let problem = Problem { port: Some(problem_port(frontend.addr)), ..failed };
    Failure { problem, frontend: Some(frontend.addr) }
}

/// The port for a Problem of this frontend.
pub(super) fn problem_port(addr: FrontendAddr) -> ProblemPort {
    ProblemPort { port: addr.port, protocol: addr.protocol.name() }
}

/// Object that the frontend belongs to.
pub(super) fn object_ref(frontend: &Frontend) -> ObjectRef {
    ObjectRef {
        kind: match frontend.service.source {
            FrontendSource::Service => "Service",
            FrontendSource::MultiClusterService => "MultiClusterService",
            FrontendSource::Gateway => "Gateway",
        },
        namespace: Arc::clone(&frontend.service.namespace),
        name: Arc::clone(&frontend.service.name),
    }
}
