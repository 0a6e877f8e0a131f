//! What is published while nobody knows which addresses MultiClusterServices have: a new leader has not heard from the Karmada
//! API server yet. A pool must not give such an address to a Service, so what Services have stays, and nothing is given. Pure.

use crate::api::problem::{Problem, reason};
use crate::api::store::ServiceKey;
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::service_object::ServiceObject;
use crate::projection::LoadBalancerStatus;

/// What is to be true meanwhile of a Service that would get this status; nothing if that can only be said later.
pub(super) fn desired(
    object: &ServiceObject,
    status: &LoadBalancerStatus,
    desired_status: DesiredStatus,
) -> Option<Desired> {
    if object.has_addresses(status) {
        return Some(Desired::Published(desired_status));
    }
    let waits =
        DesiredStatus { ingress: Vec::new(), problems: vec![problem(&status.service)], ..desired_status };
    // With other addresses than it would get it keeps them.
    object.ingress().is_empty().then_some(Desired::Published(waits))
}

/// What is told of a Service that gets nothing yet.
pub(super) fn problem(key: &ServiceKey) -> Problem {
    Problem {
        object: key.object(),
        reason: reason::NO_ADDRESS,
        field: String::new(),
        message:
            "no address is given until the Karmada API server has said which ones MultiClusterServices have"
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
        let Some(Desired::Published(said)) = desired(&with(&[]), &status(), desired_status()) else {
            panic!()
        };
        assert_eq!(said.ingress, []);
        assert_eq!(said.problems, [problem(&status().service)]);
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
