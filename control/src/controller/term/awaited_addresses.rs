//! Objects that a new leader has to read before it may allocate addresses, while their addresses and ports are unknown. No Service may
//! get one of these, so Services keep what they have published, and nothing is allocated. No I/O.

use sheave_model::{FrontendAddr, Protocol};

use crate::api::kinds::Gateways;
use crate::api::names::FROM_GATEWAY_NODES;
use crate::api::problem::{Problem, ProblemPort, reason};
use crate::api::store::ServiceKey;
use crate::controller::desired_status::{Announcement, Desired, DesiredStatus};
use crate::controller::service_object::ServiceObject;
use crate::projection::{LoadBalancerStatus, NodeFamilies};
use crate::sources::Source;

/// Objects whose addresses are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitedAddresses {
    /// MultiClusterServices.
    OfKarmada,
    /// Gateways.
    OfGateways,
}

impl AwaitedAddresses {
    /// Warning for the log when it takes long.
    pub(super) fn warning(self) -> &'static str {
        match self {
            Self::OfKarmada => {
                "the Karmada API server has not been read yet, and MultiClusterServices may have any address: until then Services \
                 keep their addresses, and none is allocated"
            }
            Self::OfGateways => {
                "the Gateways cannot be listed yet, and they may have any address: until then Services keep their addresses, and \
                 none is allocated"
            }
        }
    }

    /// The Problem of an object that gets no address yet.
    pub(super) fn problem(self, key: &ServiceKey) -> Problem {
        let message = match self {
            Self::OfKarmada => {
                "no address is allocated until the Karmada API server has been read: MultiClusterServices may have any of them"
            }
            Self::OfGateways => {
                "no address is allocated until the Gateways have been listed: they may have any of them"
            }
        };
        Problem {
            object: key.object(),
            reason: reason::NO_ADDRESS,
            field: String::new(),
            message: message.to_owned(),
            port: None,
        }
    }

    /// The desired state of a Service that would get this status; `None` if it cannot be decided yet.
    pub(crate) fn desired(
        self,
        object: &ServiceObject,
        status: &LoadBalancerStatus,
        desired_status: DesiredStatus,
    ) -> Option<Desired> {
        // Where this condition appears, gateways serve at the addresses of their nodes, published or not.
        let origin = object.conditions().iter().find(|condition| condition.type_ == FROM_GATEWAY_NODES);
        let node_families = origin.map(|condition| NodeFamilies::named(&condition.reason));
        let desired_status = DesiredStatus { node_families, ..desired_status };
        if object.has_addresses(status) {
            return Some(Desired::Published(without_new_ports(object, status, desired_status)));
        }
        let waits = DesiredStatus {
            ingress: Vec::new(),
            problems: vec![self.problem(&status.service)],
            announcement: Announcement::NotNeeded,
            ..desired_status
        };
        // A Service with addresses other than these keeps them.
        object.ingress().is_empty().then_some(Desired::Published(waits))
    }
}

/// The status without ports that the object does not publish yet.
fn without_new_ports(
    object: &ServiceObject,
    status: &LoadBalancerStatus,
    mut desired: DesiredStatus,
) -> DesiredStatus {
    let published = object.published();
    for entry in &mut desired.ingress {
        let ip = entry.ip;
        for port in entry.ports.iter_mut().filter(|port| port.error != Some(reason::ADDRESS_IN_USE)) {
            let Some(protocol) = Protocol::named(port.protocol) else { continue };
            let addr = FrontendAddr { ip, port: port.port, protocol };
            if !published.has(addr) {
                port.error = Some(reason::ADDRESS_IN_USE);
                desired.problems.push(Problem {
                    object: status.service.object(),
                    reason: reason::ADDRESS_IN_USE,
                    field: String::new(),
                    message: format!(
                        "{addr} is not given yet: an object that this controller has not read yet may have it"
                    ),
                    port: Some(ProblemPort { port: port.port, protocol: port.protocol }),
                });
            }
        }
    }
    desired
}

/// Knowledge of the Gateways in a term. It never returns to `Unknown`: where definitions come later, addresses were allocated without
/// them, and are not withdrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KnownGateways {
    /// There may be some.
    #[default]
    Unknown,
    /// The API server lacks or refuses them.
    None,
    /// They are in the store.
    Listed,
}

impl KnownGateways {
    /// Updates it after a batch of the source. Returns whether it differs.
    pub(super) fn update(&mut self, local: &Source) -> bool {
        let before = *self;
        if local.has_listed::<Gateways>() {
            *self = Self::Listed;
        } else if before == Self::Unknown && !local.awaits::<Gateways>() {
            *self = Self::None;
        }
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::controller::tests::objects::{desired_status, ingress, service};
    use crate::projection::PortStatus;

    fn status() -> LoadBalancerStatus {
        LoadBalancerStatus {
            ingress: desired_status().ingress,
            ..LoadBalancerStatus::empty(&ServiceKey::new("shop", "web"))
        }
    }

    fn with(ips: &[&str]) -> ServiceObject {
        let ingress: Vec<_> = ips.iter().map(|ip| json!({"ip": ip, "ipMode": "Proxy"})).collect();
        ServiceObject::from(&Arc::new(service(&json!({"status": {"loadBalancer": {"ingress": ingress}}}))))
    }

    fn desired(
        object: &ServiceObject,
        status: &LoadBalancerStatus,
        desired_status: DesiredStatus,
    ) -> Option<Desired> {
        AwaitedAddresses::OfKarmada.desired(object, status, desired_status)
    }

    #[test]
    fn a_service_keeps_what_it_has() {
        let desired = desired(&with(&["203.0.113.7"]), &status(), desired_status());
        assert_eq!(desired, Some(Desired::Published(desired_status())));
    }

    #[test]
    fn a_service_gets_no_port_that_it_has_not_published() {
        let listing = |ports: serde_json::Value| {
            let ingress = json!([{"ip": "203.0.113.7", "ipMode": "Proxy", "ports": ports}]);
            let object = service(&json!({"status": {"loadBalancer": {"ingress": ingress}}}));
            let object = ServiceObject::from(&Arc::new(object));
            let Some(Desired::Published(kept)) = desired(&object, &status(), desired_status()) else {
                panic!()
            };
            (kept.ingress[0].ports[0].error, kept.problems)
        };
        let PortStatus { port, protocol, .. } = desired_status().ingress[0].ports[0];
        let (error, problems) = listing(json!([{"port": port, "protocol": protocol}]));
        assert_eq!((error, problems.as_slice()), (None, [].as_slice()));
        let lost = json!([{"port": port, "protocol": protocol, "error": "sheave.dev/AddressInUse"}]);
        for ports in [lost, json!([{"port": 9, "protocol": protocol}])] {
            let (error, problems) = listing(ports);
            assert_eq!(error, Some(reason::ADDRESS_IN_USE));
            assert_eq!(problems[0].port, Some(ProblemPort { port, protocol }));
        }
    }

    #[test]
    fn a_service_without_an_address_waits_and_says_for_what() {
        let of_nodes = DesiredStatus { node_families: Some(NodeFamilies::named("IPv4")), ..desired_status() };
        for (awaited, named) in [
            (AwaitedAddresses::OfKarmada, "until the Karmada API server has been read: "),
            (AwaitedAddresses::OfGateways, "until the Gateways have been listed: "),
        ] {
            let desired = awaited.desired(&with(&[]), &status(), of_nodes.clone());
            let Some(Desired::Published(published)) = desired else { panic!() };
            assert_eq!((published.ingress.as_slice(), published.node_families), ([].as_slice(), None));
            assert_eq!(published.problems, [awaited.problem(&status().service)]);
            assert!(published.problems[0].message.contains(named), "{}", published.problems[0].message);
        }
        let none = LoadBalancerStatus { ingress: Vec::new(), ..status() };
        let nothing = DesiredStatus { ingress: Vec::new(), ..desired_status() };
        assert_eq!(
            desired(&with(&[]), &none, nothing.clone()),
            Some(Desired::Published(nothing)),
            "it would get none either way"
        );
    }

    #[test]
    fn a_service_that_would_get_others_is_left_as_it_is() {
        assert_eq!(desired(&with(&["203.0.113.9"]), &status(), desired_status()), None);
        let mut more = status();
        more.ingress.push(ingress("2001:db8::7", None));
        assert_eq!(desired(&with(&["203.0.113.7"]), &more, desired_status()), None);
    }
}
