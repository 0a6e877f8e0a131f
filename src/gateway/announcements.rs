//! Which addresses of the routing table the gateways are to announce, and which gateways can serve each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sheave_announce::{Claim, Member, Nodes};
use sheave_control::api::gateway_members::ListedGateway;
use sheave_model::{EndpointState, Frontend, FrontendKind, RoutingTable};

/// The gateways, as those announce who take part.
pub(super) fn members(gateways: Vec<ListedGateway>) -> Vec<Member> {
    let member = |ListedGateway { node, addresses, ready }| Member { node, addresses, ready };
    gateways.into_iter().map(member).collect()
}

/// The load balancer addresses of the table. Nodes' own addresses are theirs already.
///
/// Under the policy `Local` a gateway serves what it has endpoints for. Where several Services share an address, the gateways that
/// serve the most of them can have it: with the same endpoints, as Kubernetes asks of Services that share one, these serve all. Where
/// none of the `gateways` has an endpoint, the address is nobody's, unless another Service serves there from everywhere.
pub(super) fn claims(
    table: &RoutingTable,
    node_addresses: &BTreeSet<IpAddr>,
    cluster: &str,
    gateways: &BTreeSet<Arc<str>>,
) -> BTreeMap<IpAddr, Claim> {
    let mut served: BTreeMap<IpAddr, BTreeMap<Arc<str>, usize>> = BTreeMap::new();
    let mut from_everywhere: BTreeSet<IpAddr> = BTreeSet::new();
    let mut claims = BTreeMap::new();
    for frontend in table.frontends().iter() {
        let ip = frontend.addr.ip;
        let announced =
            frontend.kind == FrontendKind::LoadBalancer && !ip.is_loopback() && !node_addresses.contains(&ip);
        if !announced {
            continue;
        }
        claims.entry(ip).or_insert_with(Claim::default);
        if frontend.node_local {
            let by_node = served.entry(ip).or_default();
            for node in nodes_with_endpoints(frontend, cluster) {
                if gateways.is_empty() || gateways.contains(&node) {
                    *by_node.entry(node).or_default() += 1;
                }
            }
        } else {
            from_everywhere.insert(ip);
        }
    }
    for (ip, by_node) in served {
        if by_node.is_empty() && from_everywhere.contains(&ip) {
            continue;
        }
        let most = by_node.values().copied().max();
        let best = by_node.into_iter().filter(|(_, count)| Some(*count) == most).map(|(node, _)| node);
        if let Some(claim) = claims.get_mut(&ip) {
            claim.nodes = Nodes::Only(best.collect());
        }
    }
    claims
}

/// The nodes with a ready endpoint; without any, those with one that still serves while it terminates, as kube-proxy has it
/// (`CategorizeEndpoints` in pkg/proxy/topology.go).
fn nodes_with_endpoints(frontend: &Frontend, cluster: &str) -> BTreeSet<Arc<str>> {
    let endpoints = || {
        let own = frontend.backends.iter().filter(|backend| *backend.cluster == *cluster);
        own.flat_map(|backend| &backend.endpoints).filter(|endpoint| !endpoint.node.is_empty())
    };
    let nodes_of = |state| {
        endpoints()
            .filter(|endpoint| endpoint.state == state)
            .map(|endpoint| Arc::clone(&endpoint.node))
            .collect()
    };
    let ready: BTreeSet<Arc<str>> = nodes_of(EndpointState::Ready);
    if ready.is_empty() { nodes_of(EndpointState::Terminating) } else { ready }
}

#[cfg(test)]
mod tests {
    use sheave_model::{Algorithm, Endpoint, FrontendAddr, test_util};

    use super::*;

    fn node_local(ip: &str, port: u16, nodes: &[(&str, EndpointState)]) -> Frontend {
        let mut frontend = on(ip, port);
        let endpoints = (1..).zip(nodes).map(|(number, &(node, state))| {
            let endpoint = test_util::backend("local", 100, &[(number, 100)]).endpoints[0].clone();
            Endpoint { node: node.into(), state, ..endpoint }
        });
        let mut backend = test_util::backend("local", 100, &[]);
        backend.endpoints = endpoints.collect();
        frontend.backends = Arc::new([backend]);
        frontend.node_local = true;
        frontend
    }

    fn on(ip: &str, port: u16) -> Frontend {
        let frontend = test_util::frontend(1, Algorithm::Random, &[(1, 100)]);
        let addr = FrontendAddr { ip: ip.parse().unwrap(), port, ..frontend.addr };
        Frontend { addr, ..frontend }
    }

    fn claimed(frontends: Vec<Frontend>) -> Vec<(String, Option<Vec<String>>)> {
        let nodes = BTreeSet::from(["192.0.2.1".parse().unwrap()]);
        let gateways = ["a", "b", "c"].map(Arc::from).into();
        let claims = claims(&test_util::table(frontends), &nodes, "local", &gateways);
        let shown = |(ip, claim): (IpAddr, Claim)| match claim.nodes {
            Nodes::Any => (ip.to_string(), None),
            Nodes::Only(nodes) => (ip.to_string(), Some(nodes.iter().map(ToString::to_string).collect())),
        };
        claims.into_iter().map(shown).collect()
    }

    fn only(ip: &str, nodes: &[&str]) -> Vec<(String, Option<Vec<String>>)> {
        vec![(ip.to_owned(), Some(nodes.iter().map(|&node| node.to_owned()).collect()))]
    }

    #[test]
    fn load_balancer_addresses_are_announced_and_those_of_nodes_are_not() {
        let node_port = Frontend { kind: FrontendKind::NodePort, ..on("198.51.100.9", 80) };
        let frontends = vec![
            on("203.0.113.7", 80),
            on("203.0.113.7", 443),
            on("192.0.2.1", 80),
            on("127.0.0.1", 80),
            node_port,
        ];
        assert_eq!(claimed(frontends), [("203.0.113.7".to_owned(), None)]);
    }

    #[test]
    fn under_the_policy_local_gateways_with_endpoints_alone_can_serve() {
        use EndpointState::{Ready, Terminating};
        let ip = "203.0.113.7";
        let local = |nodes: &[_]| claimed(vec![node_local(ip, 80, nodes)]);
        assert_eq!(local(&[("a", Ready), ("b", Terminating), ("c", Ready)]), only(ip, &["a", "c"]));
        assert_eq!(local(&[("b", Terminating)]), only(ip, &["b"]));
        assert_eq!(local(&[]), only(ip, &[]));
    }

    #[test]
    fn a_shared_address_goes_to_those_who_serve_the_most_of_it() {
        use EndpointState::Ready;
        let ip = "203.0.113.7";
        let (ab, bc) = ([("a", Ready), ("b", Ready)], [("b", Ready), ("c", Ready)]);
        let shared = vec![node_local(ip, 80, &ab), node_local(ip, 81, &bc), on(ip, 82)];
        assert_eq!(claimed(shared), only(ip, &["b"]));
    }

    #[test]
    fn nodes_without_a_gateway_cannot_have_an_address_and_do_not_take_it_from_others() {
        use EndpointState::Ready;
        let ip = "203.0.113.7";
        let elsewhere = node_local(ip, 80, &[("worker", Ready), ("a", Ready)]);
        assert_eq!(claimed(vec![elsewhere]), only(ip, &["a"]));
        let nowhere = || node_local(ip, 80, &[("worker", Ready)]);
        assert_eq!(claimed(vec![nowhere()]), only(ip, &[]));
        assert_eq!(
            claimed(vec![nowhere(), on(ip, 81)]),
            [(ip.to_owned(), None)],
            "the other Service is served"
        );
    }
}
