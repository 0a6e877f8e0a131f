//! Failures that gateways report, by Service, and the desired status that follows from them and the projection.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Service;

#[cfg(fuzzing)]
use super::super::conditions;
#[cfg(fuzzing)]
use crate::api::condition::DesiredCondition;
use crate::api::gateway_api::Gateway;
use crate::api::gateway_report::{GatewayReport, Trouble, TroubledFrontend, known_reason};
use crate::api::karmada::MultiClusterService;
use crate::api::problem::{Problem, ProblemPort};
use crate::api::store::ServiceKey;
use crate::controller::desired_status::DesiredStatus;
use crate::controller::port_errors::PortFailure;
use crate::projection::{LoadBalancerStatus, PortStatus};
use crate::text::{MAX_MESSAGE_BYTES, cut_middle, first_few};

/// How many gateways with the same failure a text names.
const NAMED: usize = 3;
/// How many texts about one port are used: gateways may fail for different causes, but hardly for more.
const TEXTS: usize = 3;

/// Summary of all gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gateways {
    /// Number of ready gateways.
    pub(super) ready: usize,
    /// Whether one of them answers, or has no port for reports.
    pub(super) answer: bool,
    /// Whether one of them answers, or did recently.
    pub(super) recent: bool,
}

impl Gateways {
    /// Whether the status of all Services changes. The number of gateways is in no condition.
    pub(super) fn differs(self, before: Self) -> bool {
        (self.ready > 0, self.answer, self.recent) != (before.ready > 0, before.answer, before.recent)
    }

    /// Number of gateways that count as serving a Service. A Service that was `programmed` stays so while gateways are silent for
    /// a short time, because they may be busy. A new one needs a gateway that answers, because a dead machine stays ready for a
    /// while.
    fn serving(self, programmed: bool) -> usize {
        if self.answer || (programmed && self.recent) { self.ready } else { 0 }
    }
}

/// Failures of all gateways, by Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayFailures {
    gateways: Gateways,
    services: BTreeMap<ServiceKey, ServiceFailures>,
    /// Text like `gateway gw-1` about the gateways that do not read Gateways, if there are any.
    unaware: Option<String>,
}

/// Failures for one Service; both lists are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ServiceFailures {
    ports: Vec<PortFailure>,
    problems: Vec<Problem>,
}

/// Reason of a failure, and the port if only one is affected.
type Cause = (&'static str, Option<PortFailure>);
/// Gateways by the text that they report.
type Reporters<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

impl GatewayFailures {
    /// Evaluates the reports of `gateways`. The same failure of several gateways is one Problem. A report may come from an
    /// impostor, so a failure counts only for a Service with a `status`, for one of its ports, and with a reason that gateways
    /// may use.
    pub(super) fn read<'a, 's>(
        gateways: Gateways,
        reports: impl Iterator<Item = &'a GatewayReport>,
        status: impl Fn(&ServiceKey) -> Option<&'s LoadBalancerStatus>,
    ) -> Self {
        let mut found: BTreeMap<ServiceKey, BTreeMap<Cause, Reporters<'a>>> = BTreeMap::new();
        let mut unaware = BTreeSet::new();
        for report in reports {
            if report.gateway_api == Some(false) {
                unaware.insert(report.node.as_str());
            }
            for trouble in &report.troubles {
                let Some(key) = key(trouble) else { continue };
                let Some(cause) = status(&key).and_then(|status| cause(status, trouble)) else { continue };
                let reporters = found.entry(key).or_default().entry(cause).or_default();
                reporters.entry(&trouble.message).or_default().insert(&report.node);
            }
        }
        let services = found.into_iter().map(|(key, causes)| {
            let failures = ServiceFailures::of(&key, &causes, gateways.ready);
            (key, failures)
        });
        let unaware = (!unaware.is_empty()).then(|| names(&unaware));
        Self { gateways, services: services.collect(), unaware }
    }

    /// Summary of all gateways.
    pub(super) fn gateways(&self) -> Gateways {
        self.gateways
    }

    /// The gateways that would not serve a new Gateway, if there are any.
    pub(super) fn unaware_of_gateways(&self) -> Option<&str> {
        self.unaware.as_deref()
    }

    /// The Problems of a Service.
    pub(super) fn problems_of(&self, key: &ServiceKey) -> &[Problem] {
        self.services.get(key).map(|service| service.problems.as_slice()).unwrap_or_default()
    }

    /// Services whose failures differ from those in `before`.
    pub(super) fn differing<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a ServiceKey> {
        let keys: BTreeSet<&ServiceKey> = self.services.keys().chain(before.services.keys()).collect();
        keys.into_iter().filter(|key| self.services.get(*key) != before.services.get(*key))
    }

    /// The desired status of a Service, from the projected status and Problems. `programmed` is whether its conditions report
    /// that it is served.
    pub(super) fn desired_status(
        &self,
        key: &ServiceKey,
        status: &LoadBalancerStatus,
        mut problems: Vec<Problem>,
        programmed: bool,
    ) -> DesiredStatus {
        let gateways = self.gateways.serving(programmed);
        let failures = self.services.get(key).cloned().unwrap_or_default();
        problems.extend(failures.problems);
        DesiredStatus {
            ingress: status.ingress.clone(),
            problems,
            gateways,
            silent: gateways == 0 && self.gateways.ready > 0,
            failed_ports: failures.ports,
            ..DesiredStatus::default()
        }
    }
}

impl ServiceFailures {
    fn of(key: &ServiceKey, causes: &BTreeMap<Cause, Reporters<'_>>, ready: usize) -> Self {
        let mut problems = Vec::new();
        let mut nodes_by_port: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for ((reason, failure), reporters) in causes {
            let nodes = failure.map(|it| nodes_by_port.entry((it.ip, it.port, it.protocol)).or_default());
            nodes.into_iter().for_each(|nodes| nodes.extend(reporters.values().flatten()));
            problems.extend(reporters.iter().take(TEXTS).map(|(text, nodes)| Problem {
                object: key.object(),
                reason,
                field: String::new(),
                message: cut_middle(format!("{}: {text}", names(nodes)), MAX_MESSAGE_BYTES),
                port: failure.map(|PortFailure { port, protocol, .. }| ProblemPort { port, protocol }),
            }));
        }
        problems.sort_unstable();
        problems.dedup();
        let is_everywhere = |it: &PortFailure| {
            nodes_by_port.get(&(it.ip, it.port, it.protocol)).is_some_and(|nodes| nodes.len() >= ready)
        };
        let ports = causes.keys().filter_map(|(_, failure)| *failure);
        let ports = ports.map(|it| PortFailure { everywhere: is_everywhere(&it), ..it }).collect();
        Self { ports, problems }
    }
}

/// Text like `gateway gw-1`, or `gateways gw-1, gw-2, gw-3 and at least 900 more`. Large numbers are rounded down: while gateways
/// come and go one by one, each new text would be a new Event and another write of the condition.
fn names(nodes: &BTreeSet<&str>) -> String {
    let noun = if nodes.len() == 1 { "gateway" } else { "gateways" };
    let more = nodes.len().saturating_sub(NAMED);
    if more < 10 {
        return format!("{noun} {}", first_few(nodes, ", ", NAMED));
    }
    let power = 10_usize.pow(more.ilog10());
    let first: Vec<&str> = nodes.iter().copied().take(NAMED).collect();
    format!("{noun} {} and at least {} more", first.join(", "), more / power * power)
}

/// The cause, if gateways may report it and the Service has the port.
fn cause(status: &LoadBalancerStatus, trouble: &Trouble) -> Option<Cause> {
    let reason = known_reason(&trouble.reason)?;
    Some(match &trouble.frontend {
        None => (reason, None),
        Some(frontend) => (reason, Some(failure(status, frontend, reason)?)),
    })
}

/// Services in the reports, whether the failures count or not.
pub(super) fn named<'a>(reports: impl Iterator<Item = &'a GatewayReport>) -> BTreeSet<ServiceKey> {
    reports.flat_map(|report| &report.troubles).filter_map(key).collect()
}

/// The Service, MultiClusterService or Gateway that the failure is about, if any.
fn key(trouble: &Trouble) -> Option<ServiceKey> {
    match trouble.kind.as_str() {
        Service::KIND => Some(ServiceKey::new(&trouble.namespace, &trouble.name)),
        MultiClusterService::KIND => Some(ServiceKey::multi_cluster(&trouble.namespace, &trouble.name)),
        Gateway::KIND => Some(ServiceKey::gateway(&trouble.namespace, &trouble.name)),
        _ => None,
    }
}

/// The failure of a port, if the Service has this port.
fn failure(
    status: &LoadBalancerStatus,
    frontend: &TroubledFrontend,
    reason: &'static str,
) -> Option<PortFailure> {
    let ingress = status.ingress.iter().find(|ingress| ingress.ip == frontend.address)?;
    let named = |port: &&PortStatus| port.port == frontend.port && port.protocol == frontend.protocol;
    let PortStatus { port, protocol, .. } = *ingress.ports.iter().find(named)?;
    Some(PortFailure { ip: ingress.ip, port, protocol, reason, everywhere: false })
}

/// Entry point of the fuzz target: the conditions of a Service with this status and no other Problems, and the number of its
/// failed ports.
#[cfg(fuzzing)]
pub fn conditions_by_reports(
    reports: &[GatewayReport],
    status: &LoadBalancerStatus,
) -> (Vec<DesiredCondition>, usize) {
    let gateways = Gateways { ready: reports.len().max(1), answer: true, recent: true };
    let key = &status.service;
    let failures = GatewayFailures::read(gateways, reports.iter(), |it| (it == key).then_some(status));
    let desired_status = failures.desired_status(key, status, Vec::new(), true);
    // Gateways may fail at one port for several reasons.
    let ports = desired_status.failed_ports.iter().map(|it| (it.ip, it.port, it.protocol));
    (conditions::conditions_for(&desired_status), ports.collect::<BTreeSet<_>>().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::reason;
    use crate::projection::Ingress;

    fn trouble(name: &str, reason: &str, port: u16) -> Trouble {
        Trouble {
            kind: "Service".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            reason: reason.to_owned(),
            message: "cannot listen".to_owned(),
            frontend: (port != 0).then(|| TroubledFrontend {
                address: [203, 0, 113, 10].into(),
                port,
                protocol: "TCP".to_owned(),
            }),
        }
    }

    fn report(node: &str, troubles: Vec<Trouble>) -> GatewayReport {
        GatewayReport { node: node.to_owned(), generation: 1, troubles, ..GatewayReport::default() }
    }

    /// The Service `web`, which has TCP port 80 on the address of the failures.
    fn web() -> LoadBalancerStatus {
        let ports = vec![PortStatus { port: 80, protocol: "TCP", error: None }];
        let ingress = vec![Ingress { ip: [203, 0, 113, 10].into(), hostname: None, ports, whole: false }];
        LoadBalancerStatus { ingress, ..LoadBalancerStatus::empty(&ServiceKey::new("shop", "web")) }
    }

    fn answering(ready: usize) -> Gateways {
        Gateways { ready, answer: true, recent: true }
    }

    fn read(reports: &[GatewayReport]) -> GatewayFailures {
        let web = web();
        let gateways = answering(reports.len());
        GatewayFailures::read(gateways, reports.iter(), |key| (*key == web.service).then_some(&web))
    }

    fn desired_status(failures: &GatewayFailures, name: &str) -> DesiredStatus {
        let key = ServiceKey::new("shop", name);
        let status = LoadBalancerStatus::empty(&key);
        failures.desired_status(&key, &status, Vec::new(), false)
    }

    #[test]
    fn gateways_that_are_silent_serve_what_they_served_for_a_while_and_nothing_new() {
        let count = |gateways: Gateways, programmed: bool| {
            let failures = GatewayFailures { gateways, ..GatewayFailures::default() };
            let said = failures.desired_status(&web().service, &web(), Vec::new(), programmed);
            (said.gateways, said.silent)
        };
        assert_eq!([false, true].map(|it| count(answering(2), it)), [(2, false); 2]);
        let late = Gateways { answer: false, ..answering(2) };
        assert_eq!([false, true].map(|it| count(late, it)), [(0, true), (2, false)]);
        let dead = Gateways { recent: false, ..late };
        assert_eq!([false, true].map(|it| count(dead, it)), [(0, true); 2]);
        assert_eq!([false, true].map(|it| count(Gateways::default(), it)), [(0, false); 2]);
        assert!(late.differs(answering(2)) && dead.differs(late) && !answering(3).differs(answering(2)));
    }

    #[test]
    fn a_thousand_gateways_with_the_same_trouble_are_one_problem_and_few_texts() {
        let all: Vec<GatewayReport> = (0..1000)
            .map(|index| report(&format!("gw-{index:04}"), vec![trouble("web", reason::BIND_FAILED, 80)]))
            .collect();
        let texts: BTreeSet<String> = (1..=all.len())
            .map(|count| desired_status(&read(&all[..count]), "web").problems[0].message.clone())
            .collect();
        assert!(texts.len() < 40, "{} texts while they join one by one", texts.len());
        let said = desired_status(&read(&all), "web");
        assert_eq!((said.problems.len(), said.failed_ports.len()), (1, 1));
        assert_eq!(
            said.problems[0].message,
            "gateways gw-0000, gw-0001, gw-0002 and at least 900 more: cannot listen"
        );
        let five = desired_status(&read(&all[..5]), "web");
        assert_eq!(five.problems[0].message, "gateways gw-0000, gw-0001, gw-0002 and 2 more: cannot listen");
    }

    #[test]
    fn many_texts_about_one_port_are_cut_to_a_few() {
        let reports: Vec<GatewayReport> = (0..100)
            .map(|index| {
                let message = format!("cause {index}");
                report("gw-1", vec![Trouble { message, ..trouble("web", reason::BIND_FAILED, 80) }])
            })
            .collect();
        assert_eq!(desired_status(&read(&reports), "web").problems.len(), TEXTS);
    }

    #[test]
    fn a_report_concerns_the_services_that_it_changes() {
        let before =
            read(&[report("gw-1", vec![trouble("web", reason::BIND_FAILED, 80)]), report("gw-2", vec![])]);
        let key = ServiceKey::new("shop", "web");
        let after = read(&[report("gw-1", vec![]), report("gw-2", vec![])]);
        assert_eq!(after.differing(&before).collect::<Vec<_>>(), [&key]);
        assert_eq!(before.differing(&after).collect::<Vec<_>>(), [&key]);
        assert_eq!(before.differing(&before).count(), 0);
    }

    #[test]
    fn a_port_that_two_gateways_cannot_open_is_in_trouble_once_and_names_both() {
        let reports =
            ["gw-1", "gw-2"].map(|node| report(node, vec![trouble("web", reason::BIND_FAILED, 80)]));
        let failures = read(&reports);
        let said = desired_status(&failures, "web");
        assert_eq!((said.gateways, said.failed_ports.len()), (2, 1));
        assert_eq!(said.failed_ports[0].reason, reason::BIND_FAILED);
        assert!(said.failed_ports[0].everywhere);
        let told: Vec<&str> = said.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(told, ["gateways gw-1, gw-2: cannot listen"]);
        let [one, other] = reports;
        let third = desired_status(&read(&[one, other, report("gw-3", vec![])]), "web");
        assert!(!third.failed_ports[0].everywhere);
        assert_eq!(
            desired_status(&failures, "other"),
            DesiredStatus { gateways: 2, ..DesiredStatus::default() }
        );
    }

    #[test]
    fn trouble_with_the_whole_service_is_no_ports() {
        let failures = read(&[report("gw-1", vec![trouble("web", reason::CLIENT_SOURCE_LOST, 0)])]);
        let said = desired_status(&failures, "web");
        assert_eq!((said.failed_ports.len(), said.problems.len()), (0, 1));
        assert_eq!((said.problems[0].reason, said.problems[0].port), (reason::CLIENT_SOURCE_LOST, None));
    }

    #[test]
    fn trouble_of_a_multi_cluster_service_is_not_that_of_the_service_of_its_name() {
        let key = ServiceKey::multi_cluster("shop", "web");
        let status = LoadBalancerStatus { service: key.clone(), ..web() };
        let trouble =
            Trouble { kind: "MultiClusterService".to_owned(), ..trouble("web", reason::BIND_FAILED, 80) };
        let reports = [report("gw-1", vec![trouble])];
        let failures =
            GatewayFailures::read(answering(1), reports.iter(), |it| (*it == key).then_some(&status));
        let said = failures.desired_status(&key, &status, Vec::new(), false);
        assert_eq!((said.failed_ports.len(), said.problems[0].object.kind), (1, "MultiClusterService"));
        assert_eq!(desired_status(&failures, "web").failed_ports, []);
    }

    #[test]
    fn a_failure_of_a_gateways_listener_is_one_of_its_port() {
        let key = ServiceKey::gateway("shop", "web");
        let status = LoadBalancerStatus { service: key.clone(), ..web() };
        let trouble = Trouble { kind: "Gateway".to_owned(), ..trouble("web", reason::BIND_FAILED, 80) };
        let reports = [report("gw-1", vec![trouble])];
        let failures =
            GatewayFailures::read(answering(1), reports.iter(), |it| (*it == key).then_some(&status));
        let desired = failures.desired_status(&key, &status, Vec::new(), false);
        assert_eq!((desired.failed_ports.len(), desired.problems[0].object.kind), (1, "Gateway"));
    }

    #[test]
    fn gateways_speak_only_of_what_they_serve_for_us() {
        let fields = |change: fn(&mut TroubledFrontend)| {
            let mut trouble = trouble("web", reason::BIND_FAILED, 80);
            change(trouble.frontend.as_mut().unwrap());
            trouble
        };
        for trouble in [
            Trouble { kind: "MultiClusterService".to_owned(), ..trouble("web", reason::BIND_FAILED, 80) },
            Trouble { namespace: "other".to_owned(), ..trouble("web", reason::BIND_FAILED, 0) },
            trouble("foreign", reason::BIND_FAILED, 80),
            trouble("web", reason::NOT_SERVED, 0),
            trouble("web", "FreeText", 80),
            fields(|it| it.port = 81),
            fields(|it| it.protocol = "UDP".to_owned()),
            fields(|it| it.address = [203, 0, 113, 11].into()),
        ] {
            let told = format!("{trouble:?}");
            assert_eq!(read(&[report("gw-1", vec![trouble])]), read(&[report("gw-1", vec![])]), "{told}");
        }
    }
}
