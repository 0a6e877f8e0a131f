//! What is to be said about a Service: what the projection gives it, and what the gateways could not do of it.

use std::collections::BTreeMap;

use super::super::publication::{PortFailure, Statement};
use crate::gateway_report::{GatewayReport, Trouble};
use crate::problem::{ObjectRef, Problem, ProblemPort, reason};
use crate::projection::LoadBalancerStatus;
use crate::store::ServiceKey;

/// What the gateways could not do, by Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Troubles {
    gateways: usize,
    ports: BTreeMap<ServiceKey, Vec<PortFailure>>,
    problems: BTreeMap<ServiceKey, Vec<Problem>>,
}

impl Troubles {
    /// From the reports of `gateways` ready ones. What several of them could not do is said once.
    pub(super) fn read<'a>(gateways: usize, reports: impl Iterator<Item = &'a GatewayReport>) -> Self {
        let mut troubles = Self { gateways, ..Self::default() };
        for report in reports {
            for trouble in report.troubles.iter().filter(|trouble| trouble.kind == "Service") {
                troubles.add(&report.node, trouble);
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

    fn add(&mut self, node: &str, trouble: &Trouble) {
        let key = ServiceKey::new(&trouble.namespace, &trouble.name);
        let known = reason::known(&trouble.reason).unwrap_or(reason::BIND_FAILED);
        let frontend = trouble.frontend.as_ref();
        let protocol = frontend.and_then(|frontend| match frontend.protocol.as_str() {
            "TCP" => Some("TCP"),
            "UDP" => Some("UDP"),
            _ => None,
        });
        if let Some((frontend, protocol)) = frontend.zip(protocol) {
            let failure = PortFailure { ip: frontend.address, port: frontend.port, protocol, reason: known };
            self.ports.entry(key.clone()).or_default().push(failure);
        }
        let problem = Problem {
            object: ObjectRef { kind: "Service", namespace: key.namespace.clone(), name: key.name.clone() },
            reason: known,
            field: String::new(),
            message: format!("gateway {node}: {}", trouble.message),
            port: frontend
                .zip(protocol)
                .map(|(frontend, protocol)| ProblemPort { port: frontend.port, protocol }),
        };
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_report::TroubledFrontend;

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

    fn statement(troubles: &Troubles, name: &str) -> Statement {
        let key = ServiceKey::new("shop", name);
        let status = LoadBalancerStatus { service: key.clone(), ingress: Vec::new() };
        troubles.statement(&key, &status, Vec::new())
    }

    #[test]
    fn a_port_that_two_gateways_cannot_open_is_in_trouble_once_and_told_of_both() {
        let reports =
            ["gw-1", "gw-2"].map(|node| report(node, vec![trouble("web", reason::BIND_FAILED, 80)]));
        let troubles = Troubles::read(2, reports.iter());
        let said = statement(&troubles, "web");
        assert_eq!((said.gateways, said.failed_ports.len()), (2, 1));
        assert_eq!(said.failed_ports[0].reason, reason::BIND_FAILED);
        let told: Vec<&str> = said.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(told, ["gateway gw-1: cannot listen", "gateway gw-2: cannot listen"]);
        assert_eq!(statement(&troubles, "other"), Statement { gateways: 2, ..Statement::default() });
    }

    #[test]
    fn trouble_with_the_whole_service_is_no_ports() {
        let troubles =
            Troubles::read(1, [report("gw-1", vec![trouble("web", reason::CLIENT_SOURCE_LOST, 0)])].iter());
        let said = statement(&troubles, "web");
        assert_eq!((said.failed_ports.len(), said.problems.len()), (0, 1));
        assert_eq!((said.problems[0].reason, said.problems[0].port), (reason::CLIENT_SOURCE_LOST, None));
    }

    #[test]
    fn what_is_not_about_services_or_of_another_version_does_no_harm() {
        let other = Trouble { kind: "MultiClusterService".to_owned(), ..trouble("web", "x", 80) };
        assert_eq!(Troubles::read(1, [report("gw-1", vec![other])].iter()), Troubles::read(1, [].iter()));
        let newer = Troubles::read(1, [report("gw-1", vec![trouble("web", "NewReason", 80)])].iter());
        assert_eq!(statement(&newer, "web").failed_ports[0].reason, reason::BIND_FAILED);
    }
}
