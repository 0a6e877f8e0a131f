//! Desired state of Services before a new leader has read the Karmada API server, while the addresses of MultiClusterServices are
//! unknown. No Service may get such an address, so Services keep their addresses and none is allocated. No I/O.

use crate::api::problem::{Problem, reason};
use crate::api::store::ServiceKey;
use crate::controller::desired_status::{Announcement, Desired, DesiredStatus};
use crate::controller::service_object::ServiceObject;
use crate::projection::LoadBalancerStatus;

/// The desired state of a Service that would get this status; `None` if it cannot be decided yet.
pub(super) fn desired(
    object: &ServiceObject,
    status: &LoadBalancerStatus,
    desired_status: DesiredStatus,
) -> Option<Desired> {
    if object.has_addresses(status) {
        return Some(Desired::Published(desired_status));
    }
    let waits = DesiredStatus {
        ingress: Vec::new(),
        problems: vec![problem(&status.service)],
        announcement: Announcement::NotNeeded,
        ..desired_status
    };
    // A Service with addresses other than these keeps them.
    object.ingress().is_empty().then_some(Desired::Published(waits))
}

/// The Problem of a Service that gets no address yet.
pub(super) fn problem(key: &ServiceKey) -> Problem {
    Problem {
        object: key.object(),
        reason: reason::NO_ADDRESS,
        field: String::new(),
        message:
            "no address is allocated until the Karmada API server has been read: MultiClusterServices may have any of them"
                .to_owned(),
        port: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::controller::tests::objects::{desired_status, ingress, service};

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

    #[test]
    fn a_service_keeps_what_it_has() {
        let desired = desired(&with(&["203.0.113.7"]), &status(), desired_status());
        assert_eq!(desired, Some(Desired::Published(desired_status())));
    }

    #[test]
    fn a_service_without_an_address_waits_and_says_for_what() {
        let Some(Desired::Published(published)) = desired(&with(&[]), &status(), desired_status()) else {
            panic!()
        };
        assert_eq!(published.ingress, []);
        assert_eq!(published.problems, [problem(&status().service)]);
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
