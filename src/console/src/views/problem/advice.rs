//! Advice for each reason of a Problem.

use sheave_control::api::problem::reason;

/// Reason on the status page for a Service without an endpoint that serves. It is not a Problem of an object.
pub(crate) const NO_READY_ENDPOINT: &str = "NoReadyEndpoint";
/// Reason on the status page for a Service with endpoints that fail. It is not a Problem of an object.
pub(crate) const UNHEALTHY_ENDPOINTS: &str = "UnhealthyEndpoints";

/// Reason on the status page for a listener without a route. It is not a Problem of an object.
pub(crate) const NO_ROUTE: &str = "NoRoute";

/// Advice for a listener without a route.
pub(crate) const ATTACH_ROUTE: &str = "Attach a TCPRoute or UDPRoute of the listener's protocol: its parentRefs name the Gateway, and sectionName the listener.";

/// Advice for an object without an endpoint that serves.
pub(crate) fn no_ready_endpoint(source: &str, service: &str, has_endpoints: bool) -> String {
    let check = match has_endpoints {
        true => "Check why its Pods are not ready",
        false => "Check that its selector matches Pods, and that its ports are theirs",
    };
    match plain_name(source, service) {
        Some((namespace, name)) => {
            format!(
                "{check}: `kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name}`."
            )
        }
        None if source == "Gateway" => {
            "Check the Pods of the Services that its route names: `sheave explain gateway` lists them."
                .to_owned()
        }
        None => format!("{check}, in the clusters that serve it."),
    }
}

/// Advice for an object whose endpoints fail.
pub(crate) fn unhealthy_endpoints(source: &str, service: &str) -> String {
    let which = match plain_name(source, service) {
        Some((namespace, name)) => {
            format!(
                " (`kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name} -o yaml` names them)"
            )
        }
        None => String::new(),
    };
    format!("Check that its Pods{which} listen on that port, and the path from this gateway to them.")
}

/// Advice for an object whose source ranges admit no client.
pub(crate) const NOBODY_ADMITTED: &str = "Add the networks of its clients to spec.loadBalancerSourceRanges.";

/// Namespace and name of a Service, if they are safe to paste into a shell. Manifests may contain any text as a
/// name.
fn plain_name<'a>(source: &str, service: &'a str) -> Option<(&'a str, &'a str)> {
    let plain = service.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-./".contains(&byte));
    service.split_once('/').filter(|_| source == "Service" && plain)
}

/// Advice for each reason.
const ADVICE: [(&str, &str); 40] = [
    (
        reason::INVALID_MANIFEST,
        "Correct the file; until then what cannot be read has no effect. `sheave validate --manifests DIR` lists every mistake.",
    ),
    (reason::DUPLICATE_OBJECT, "Delete one of the two documents."),
    (reason::UNREADABLE_OBJECT, "Correct the object with `kubectl edit`."),
    (reason::DEFINITION_MISSING, "Install it: `kubectl apply -f deploy/base/crd.yaml`."),
    (
        reason::ACCESS_DENIED,
        "Grant the rights of `deploy/base` to the ServiceAccount: `kubectl apply -k deploy/base`.",
    ),
    (reason::INVALID_VALUE, "Correct the field; the message says what holds until then."),
    (reason::PROTOCOL_NOT_SUPPORTED, "Remove the port, or serve it with another load balancer."),
    (reason::ADDRESS_IN_USE, "Use another port or another address."),
    (
        reason::NODE_PORT_CONFLICT,
        "Use another port, or another node port for the other Service. At addresses that are no node's own, `nodePortAddresses: [primary]` in kube-proxy's configuration is enough.",
    ),
    (
        reason::EXTERNAL_IP_REFUSED,
        "Remove the address from spec.externalIPs, or add it to `externalIPs.allow` in the configuration.",
    ),
    (
        reason::SOURCE_RANGES_ONE_FAMILY,
        "Add a range of the other family to spec.loadBalancerSourceRanges: 0.0.0.0/0 or ::/0 admits everybody.",
    ),
    (
        reason::NO_ADDRESS,
        "Add free addresses to an AddressPool that selects the Service: `kubectl get addresspools`.",
    ),
    (
        reason::ENDPOINT_LOOP,
        "Put addresses of Pods or other machines into the Service's EndpointSlices, in place of the gateway's own or of other Services.",
    ),
    (
        reason::BIND_FAILED,
        "The gateway tries again by itself. `ss -ltnup` on the node shows which process has a port.",
    ),
    (
        reason::ANNOUNCE_FAILED,
        "Check the interface and the gateway's CAP_NET_RAW; `sheave gateways` shows who has which address.",
    ),
    (reason::ADDRESS_CONFLICT, "Take the address away from the other machine, or out of the AddressPool."),
    (
        reason::GATEWAYS_DISAGREE,
        "Give all gateways the same objects, configuration and version; `sheave status` shows how old what each knows is.",
    ),
    (
        reason::CLIENT_SOURCE_LOST,
        "Give the gateway CAP_NET_ADMIN, or set the annotation `sheave.dev/client-source: gateway`.",
    ),
    (
        reason::POD_NETWORKS_UNKNOWN,
        "Set `internalCIDRs` in the configuration to the networks of Pods, for example Calico's IPPools or the subnets of the VPC.",
    ),
    (
        reason::KERNEL_PATH_UNAVAILABLE,
        "The message says what the node lacks. Without it, set the annotation `sheave.dev/path: proxy`.",
    ),
    (
        reason::CONNECTION_TRACKING_FULL,
        "Raise `net.netfilter.nf_conntrack_max` on the node: `conntrack -C` counts the entries, each of which takes about 300 bytes.",
    ),
    (
        reason::LOCAL_PORTS_TAKEN,
        "Run one gateway in each network namespace, or end the other one: `fuser` shows which process has the file open.",
    ),
    (reason::OVERLOADED, "Add gateways, or raise `limits` and the limit of open files (ulimit -n)."),
    (
        reason::LIMIT_REACHED,
        "If the traffic is wanted, raise the limit: the annotation on the Service, or the key in the gateway's configuration.",
    ),
    (reason::NOT_SERVED, "Change the field in the object, or remove the class from it."),
    (
        reason::FAILED_TO_START_SERVICE_HEALTHCHECK,
        "Free the health check's port: `ss -ltnp` on the node shows which process has it.",
    ),
    (reason::SERVICE_NOT_FOUND, "Create a Service of that name in the Karmada control plane."),
    (reason::PORT_NOT_FOUND, "Name a port that the Service has."),
    (reason::CLUSTER_NOT_FOUND, "Correct the name: `kubectl get clusters` lists the members."),
    (reason::LEGACY_FIELD, "Use the field that replaces it."),
    (reason::NOT_ACROSS_CLUSTERS, "Remove the field from the object."),
    (
        reason::WRITE_REFUSED,
        "Check for an admission webhook or policy that refuses the controller's writes, and its rights.",
    ),
    (
        reason::OVERLAPPING_ADDRESSES,
        "Name the interface that leads to each cluster: `clusters: {NAME: {interface: ...}}` in the configuration.",
    ),
    (
        reason::NO_COMMON_NODE,
        "Set `externalTrafficPolicy: Cluster`, select the same Pods as the other Service, or give the Service another address.",
    ),
    (reason::LISTENER_CONFLICT, "Give one of the listeners another port, or remove it."),
    (
        reason::UNSUPPORTED_LISTENER,
        "Use the protocol TCP or UDP, or move the listener to a Gateway of another GatewayClass.",
    ),
    (
        reason::ROUTE_NOT_ACCEPTED,
        "Correct sectionName or port of the parentRef, or `allowedRoutes` of the listener: `sheave explain` names both.",
    ),
    (
        reason::ROUTE_SUPERSEDED,
        "Give the route another listener, or delete the older route of that listener; a route serves alone.",
    ),
    (
        reason::BACKEND_REF_INVALID,
        "Correct the backendRef, create the Service, or grant the reference with a ReferenceGrant in its namespace.",
    ),
    (reason::NO_WEIGHT, "Give a backend a weight above 0, or remove the weights."),
];

/// Advice for this reason; empty if this version does not know it.
pub(crate) fn of_reason(reason: &str) -> &'static str {
    ADVICE.iter().find(|(known, _)| *known == reason).map_or("", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_put_into_commands() {
        assert!(no_ready_endpoint("Service", "shop/web", false).contains("kubectl -n shop get"));
        assert!(!no_ready_endpoint("Service", "shop/web;reboot", true).contains("reboot"));
        assert!(!unhealthy_endpoints("MultiClusterService", "shop/web").contains("kubectl"));
    }

    #[test]
    fn every_reason_has_one() {
        let source = include_str!("../../../../../control/src/api/problem.rs");
        let reasons = source.lines().filter_map(|line| line.trim().strip_prefix("pub const "));
        let reasons: Vec<&str> = reasons.filter_map(|line| line.split('"').nth(1)).collect();
        assert!(reasons.len() > 20, "{reasons:?}");
        for reason in reasons {
            assert!(of_reason(reason).ends_with('.'), "{reason}");
        }
    }
}
