//! What is to be said about a Service: what the projection gives it, and what the gateways could not do of it.

use std::collections::BTreeMap;

use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Service;

use super::super::publication::{PortFailure, Statement};
use crate::gateway_report::{GatewayReport, Trouble, TroubledFrontend, known_reason};
use crate::karmada::MultiClusterService;
use crate::problem::{Problem, ProblemPort};
use crate::projection::{LoadBalancerStatus, PortStatus};
use crate::store::ServiceKey;

/// What the gateways could not do, by Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Troubles {
    gateways: usize,
    ports: BTreeMap<ServiceKey, Vec<PortFailure>>,
    problems: BTreeMap<ServiceKey, Vec<Problem>>,
}

impl Troubles {
    /// From the reports of `gateways` ready ones. What several of them could not do is said once. Anyone may answer in the place
    /// of a gateway, so only troubles of Services with a `status` count, with those of their ports, and for reasons that
    /// gateways have.
    pub(super) fn read<'a, 's>(
        gateways: usize,
        reports: impl Iterator<Item = &'a GatewayReport>,
        status: impl Fn(&ServiceKey) -> Option<&'s LoadBalancerStatus>,
    ) -> Self {
        let mut troubles = Self { gateways, ..Self::default() };
        for report in reports {
            for trouble in &report.troubles {
                let Some(key) = key(trouble) else { continue };
                if let Some(status) = status(&key) {
                    troubles.add(key, status, &report.node, trouble);
                }
            }
        }
        for failures in troubles.ports.values_mut() {
            failures.sort_unstable();
            failures.dedup();
        }
        for problems in troubles.problems.values_mut() {
            problems.sort_unstable();
            problems.dedup();
        }
        troubles
    }

    fn add(&mut self, key: ServiceKey, status: &LoadBalancerStatus, node: &str, trouble: &Trouble) {
        let Some(reason) = known_reason(&trouble.reason) else { return };
        let failure = match &trouble.frontend {
            None => None,
            Some(frontend) => match failure(status, frontend, reason) {
                None => return,
                failure => failure,
            },
        };
        let problem = Problem {
            object: key.object(),
            reason,
            field: String::new(),
            message: format!("gateway {node}: {}", trouble.message),
            port: failure.map(|PortFailure { port, protocol, .. }| ProblemPort { port, protocol }),
        };
        if let Some(failure) = failure {
            self.ports.entry(key.clone()).or_default().push(failure);
        }
        self.problems.entry(key).or_default().push(problem);
    }

    /// Gateways that are ready.
    pub(super) fn gateways(&self) -> usize {
        self.gateways
    }

    /// All of them, by Service.
    pub(super) fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.values().flatten()
    }

    /// What is to be said about a Service that the projection gives this status and finds these problems in.
    pub(super) fn statement(
        &self,
        key: &ServiceKey,
        status: &LoadBalancerStatus,
        mut problems: Vec<Problem>,
    ) -> Statement {
        problems.extend(self.problems.get(key).into_iter().flatten().cloned());
        Statement {
            ingress: status.ingress.clone(),
            problems,
            gateways: self.gateways,
            failed_ports: self.ports.get(key).cloned().unwrap_or_default(),
            fleet: None,
        }
    }
}

/// Which of the kinds that have frontends the trouble is about, if it is about one.
fn key(trouble: &Trouble) -> Option<ServiceKey> {
    match trouble.kind.as_str() {
        Service::KIND => Some(ServiceKey::new(&trouble.namespace, &trouble.name)),
        MultiClusterService::KIND => Some(ServiceKey::multi_cluster(&trouble.namespace, &trouble.name)),
        _ => None,
    }
}

/// The Service's port that a gateway means, if the Service has it.
fn failure(
    status: &LoadBalancerStatus,
    frontend: &TroubledFrontend,
    reason: &'static str,
) -> Option<PortFailure> {
    let ingress = status.ingress.iter().find(|ingress| ingress.ip == frontend.address)?;
    let named = |port: &&PortStatus| port.port == frontend.port && port.protocol == frontend.protocol;
    let PortStatus { port, protocol, .. } = *ingress.ports.iter().find(named)?;
    Some(PortFailure { ip: ingress.ip, port, protocol, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::reason;
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
        GatewayReport { node: node.to_owned(), generation: 1, troubles }
    }

    /// `web`, which has TCP port 80 on the address that the troubles are about.
    fn web() -> LoadBalancerStatus {
        let ports = vec![PortStatus { port: 80, protocol: "TCP", error: None }];
        let ingress = vec![Ingress { ip: [203, 0, 113, 10].into(), hostname: None, ports }];
        LoadBalancerStatus { service: ServiceKey::new("shop", "web"), ingress }
    }

    fn read(reports: &[GatewayReport]) -> Troubles {
        let web = web();
        Troubles::read(reports.len(), reports.iter(), |key| (*key == web.service).then_some(&web))
    }

    fn statement(troubles: &Troubles, name: &str) -> Statement {
        let key = ServiceKey::new("shop", name);
        let status = LoadBalancerStatus { service: key.clone(), ingress: Vec::new() };
        troubles.statement(&key, &status, Vec::new())
    }

    #[test]
    fn a_port_that_two_gateways_cannot_open_is_in_trouble_once_and_told_of_both() {
        let reports =
            ["gw-1", "gw-2"].map(|node| report(node, vec![trouble("web", reason::BIND_FAILED, 80)]));
        let troubles = read(&reports);
        let said = statement(&troubles, "web");
        assert_eq!((said.gateways, said.failed_ports.len()), (2, 1));
        assert_eq!(said.failed_ports[0].reason, reason::BIND_FAILED);
        let told: Vec<&str> = said.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(told, ["gateway gw-1: cannot listen", "gateway gw-2: cannot listen"]);
        assert_eq!(statement(&troubles, "other"), Statement { gateways: 2, ..Statement::default() });
    }

    #[test]
    fn trouble_with_the_whole_service_is_no_ports() {
        let troubles = read(&[report("gw-1", vec![trouble("web", reason::CLIENT_SOURCE_LOST, 0)])]);
        let said = statement(&troubles, "web");
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
        let troubles = Troubles::read(1, reports.iter(), |it| (*it == key).then_some(&status));
        let said = troubles.statement(&key, &status, Vec::new());
        assert_eq!((said.failed_ports.len(), said.problems[0].object.kind), (1, "MultiClusterService"));
        assert_eq!(statement(&troubles, "web").failed_ports, []);
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
