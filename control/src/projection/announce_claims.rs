//! AddressClaims for announcements: which addresses of the routing table gateways announce, which gateways may own each, and on which interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sheave_model::{Claim, FrontendKind, Nodes, RoutingTable};

use super::allocator::AnnouncePolicies;
use super::shared_addresses::{SharedAddresses, common_nodes, nodes_with_endpoints};
use crate::api::store::ServiceKey;

/// Input of claims.
#[derive(Clone, Copy, Debug)]
pub struct ClaimContext<'a> {
    /// The table whose addresses are announced.
    pub table: &'a RoutingTable,
    /// Addresses of Nodes, which are never announced.
    pub node_addresses: &'a BTreeSet<IpAddr>,
    /// Name of the gateways' own cluster.
    pub cluster: &'a str,
    /// Nodes with a gateway; empty = unknown.
    pub gateways: &'a BTreeSet<Arc<str>>,
    /// Announcement policies of the pools.
    pub policies: &'a AnnouncePolicies,
    /// Services with `externalTrafficPolicy: Local` that share an address.
    pub shared: &'a SharedAddresses,
}

/// AddressClaims for the load balancer addresses of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddressClaims {
    /// Gateways that may own each address.
    pub all: BTreeMap<IpAddr, Claim>,
    /// Reason why no gateway may own an address, if its pool leaves none.
    pub left_out: BTreeMap<IpAddr, String>,
}

impl ClaimContext<'_> {
    /// Computes the claims. All gateways must get the same claims from the same objects.
    ///
    /// With `externalTrafficPolicy: Local`, a gateway serves the Services that it has endpoints for, and those with the most may own the
    /// address. If several such Services share an address, only gateways that serve all of them may own it; Services that have no gateway
    /// in common with older ones are ignored. If no gateway has an endpoint, the address has no owner, unless another Service there is
    /// served from all gateways. Gateways that the pool excludes do not count.
    pub fn claims(&self) -> AddressClaims {
        let mut served: BTreeMap<IpAddr, BTreeMap<Arc<str>, usize>> = BTreeMap::new();
        let mut from_everywhere: BTreeSet<IpAddr> = BTreeSet::new();
        let mut sharing: BTreeMap<(IpAddr, ServiceKey), BTreeSet<Arc<str>>> = BTreeMap::new();
        let mut claims = AddressClaims::default();
        for frontend in self.table.frontends().iter() {
            let ip = frontend.addr.ip;
            let announced = frontend.kind == FrontendKind::LoadBalancer
                && !ip.is_loopback()
                && !self.node_addresses.contains(&ip);
            if !announced {
                continue;
            }
            claims.all.entry(ip).or_insert_with(|| self.claim(ip));
            if frontend.node_local {
                let by_node = served.entry(ip).or_default();
                let mut nodes = nodes_with_endpoints(frontend, self.cluster);
                nodes.retain(|node| self.gateways.is_empty() || self.gateways.contains(node));
                for node in &nodes {
                    *by_node.entry(Arc::clone(node)).or_default() += 1;
                }
                if self.shared.contains_key(&ip) {
                    sharing.entry((ip, ServiceKey::from(&frontend.service))).or_default().extend(nodes);
                }
            } else {
                from_everywhere.insert(ip);
            }
        }
        for (ip, claim) in &mut claims.all {
            if claim.nodes == Nodes::Only(BTreeSet::new()) {
                claims.left_out.extend(self.pool(*ip).map(|pool| (*ip, leaves_out_all(pool))));
                continue;
            }
            let Some(by_node) = served.remove(ip) else { continue };
            let is_served = !by_node.is_empty();
            let mut selected: BTreeMap<_, _> =
                by_node.into_iter().filter(|(node, _)| claim.nodes.contains(node)).collect();
            if selected.is_empty() && from_everywhere.contains(ip) {
                continue;
            }
            if selected.is_empty() && is_served {
                claims.left_out.extend(self.pool(*ip).map(|pool| (*ip, leaves_out_endpoints(pool))));
            }
            if let Some(services) = self.shared.get(ip) {
                let nodes = |service: &ServiceKey| {
                    let mut nodes = sharing.remove(&(*ip, service.clone())).unwrap_or_default();
                    nodes.retain(|node| selected.contains_key(node));
                    (service.clone(), nodes)
                };
                let (common, _) = common_nodes(services.iter().map(nodes));
                selected.retain(|node, _| common.contains(node));
            }
            claim.nodes = Nodes::Only(most(selected));
        }
        claims
    }

    fn pool(&self, ip: IpAddr) -> Option<&str> {
        self.policies.of(ip).map(|policy| &*policy.pool)
    }

    /// Claim as defined by the pool alone.
    fn claim(&self, ip: IpAddr) -> Claim {
        let policy = self.policies.of(ip);
        let nodes = match policy.and_then(|policy| policy.nodes.as_ref()) {
            None => Nodes::Any,
            Some(selected) if self.gateways.is_empty() => Nodes::Only(selected.clone()),
            // Nodes without a gateway make no difference, and there may be thousands of them.
            Some(selected) => Nodes::Only(self.gateways.intersection(selected).cloned().collect()),
        };
        Claim { nodes, interfaces: policy.map(|policy| policy.interfaces.clone()).unwrap_or_default() }
    }
}

fn leaves_out_all(pool: &str) -> String {
    format!("the node selector of AddressPool {pool} leaves out every gateway")
}

fn leaves_out_endpoints(pool: &str) -> String {
    format!("the node selector of AddressPool {pool} leaves out every gateway with an endpoint")
}

/// The nodes with the highest count.
fn most(by_node: BTreeMap<Arc<str>, usize>) -> BTreeSet<Arc<str>> {
    let most = by_node.values().copied().max();
    by_node.into_iter().filter(|(_, count)| Some(*count) == most).map(|(node, _)| node).collect()
}

#[cfg(test)]
mod tests {
    use sheave_model::{Algorithm, Endpoint, EndpointState, Frontend, FrontendAddr, test_util};

    use super::*;
    use crate::api::store::Dirty;
    use crate::projection::{Options, Projector};
    use crate::sources::manifests;

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

    /// AddressClaims with these pools and the Nodes a, b and c, each in a rack of its name.
    fn claims(frontends: Vec<Frontend>, pools: &str) -> AddressClaims {
        let folder = tempfile::tempdir().unwrap();
        let node = |name: &str| {
            format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{rack: {name}}}}}\n---\n")
        };
        let nodes: String = ["a", "b", "c"].map(node).concat();
        std::fs::write(folder.path().join("all.yaml"), format!("{nodes}{pools}")).unwrap();
        let loaded = manifests::load(folder.path());
        let mut projector = Projector::new(Options::default());
        let policies = projector.project(&loaded.objects, &Dirty::Everything).announce_policies;
        let mut shared = SharedAddresses::new();
        for frontend in frontends.iter().filter(|frontend| frontend.node_local) {
            let (services, service) =
                (shared.entry(frontend.addr.ip).or_default(), ServiceKey::from(&frontend.service));
            if !services.contains(&service) {
                services.push(service);
            }
        }
        shared.retain(|_, services| services.len() > 1);
        ClaimContext {
            shared: &shared,
            table: &test_util::table(frontends),
            node_addresses: &BTreeSet::from(["192.0.2.1".parse().unwrap()]),
            cluster: "local",
            gateways: &["a", "b", "c"].map(Arc::from).into(),
            policies: &policies,
        }
        .claims()
    }

    /// A pool with 203.0.113.7 for the gateways of these racks.
    fn pool(racks: &str) -> String {
        format!(
            "apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {{name: edge}}\nspec: {{addresses: [203.0.113.7], \
             announce: {{nodeSelector: {{matchExpressions: [{{key: rack, operator: In, values: [{racks}]}}]}}, interfaces: [eth7]}}}}\n"
        )
    }

    fn claimed(frontends: Vec<Frontend>) -> Vec<(String, Option<Vec<String>>)> {
        claimed_by(frontends, "")
    }

    fn claimed_by(frontends: Vec<Frontend>, pools: &str) -> Vec<(String, Option<Vec<String>>)> {
        let shown = |(ip, claim): (IpAddr, Claim)| match claim.nodes {
            Nodes::Any => (ip.to_string(), None),
            Nodes::Only(nodes) => (ip.to_string(), Some(nodes.iter().map(ToString::to_string).collect())),
        };
        claims(frontends, pools).all.into_iter().map(shown).collect()
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
    fn among_services_without_a_common_gateway_the_first_in_rank_is_served() {
        use EndpointState::Ready;
        let ip = "203.0.113.7";
        let of = |name: &str, port, nodes: &[_]| {
            let mut frontend = node_local(ip, port, nodes);
            frontend.service.name = name.into();
            frontend
        };
        let (first, second) =
            (of("older", 80, &[("a", Ready)]), of("younger", 81, &[("b", Ready), ("c", Ready)]));
        assert_eq!(claimed(vec![first.clone(), second]), only(ip, &["a"]));
        let (second, third) = (of("younger", 81, &[("b", Ready)]), of("youngest", 82, &[("b", Ready)]));
        assert_eq!(claimed(vec![first, second, third]), only(ip, &["a"]), "b serves more of them");
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

    #[test]
    fn the_gateways_that_the_pool_selects_can_have_its_addresses_where_the_pool_says() {
        let (ip, other) = ("203.0.113.7", "203.0.113.8");
        let claims = claims(vec![on(ip, 80), on(other, 80)], &pool("a, c, worker"));
        let nodes = |nodes: &[&str]| Nodes::Only(nodes.iter().map(|&node| node.into()).collect());
        let of_pool = Claim { nodes: nodes(&["a", "c"]), interfaces: vec!["eth7".into()] };
        assert_eq!(claims.all[&ip.parse().unwrap()], of_pool);
        assert_eq!(claims.all[&other.parse().unwrap()], Claim::default(), "no pool has it");
        assert_eq!(claims.left_out, BTreeMap::new());
    }

    #[test]
    fn under_the_policy_local_those_count_that_the_pool_selects() {
        use EndpointState::Ready;
        let ip = "203.0.113.7";
        let (ab, bc) = ([("a", Ready), ("b", Ready)], [("b", Ready), ("c", Ready)]);
        let shared = || vec![node_local(ip, 80, &ab), node_local(ip, 81, &bc)];
        assert_eq!(claimed_by(shared(), &pool("a, b")), only(ip, &["b"]));
        assert_eq!(
            claimed_by(shared(), &pool("a, c")),
            only(ip, &["a", "c"]),
            "b serves more, and is left out"
        );
    }

    #[test]
    fn where_the_pool_leaves_no_gateway_the_reason_names_it() {
        use EndpointState::Ready;
        let ip = "203.0.113.7";
        let why = |frontends, racks| claims(frontends, &pool(racks)).left_out.into_values().next();
        let all = "the node selector of AddressPool edge leaves out every gateway".to_owned();
        assert_eq!(why(vec![on(ip, 80)], "worker"), Some(all.clone()));
        assert_eq!(claimed_by(vec![on(ip, 80)], &pool("worker")), only(ip, &[]));
        assert_eq!(why(vec![node_local(ip, 80, &[("a", Ready)])], "worker"), Some(all.clone()));
        let on_a = || node_local(ip, 80, &[("a", Ready)]);
        assert_eq!(why(vec![on_a()], "b"), Some(format!("{all} with an endpoint")));
        assert_eq!(claimed_by(vec![on_a()], &pool("b")), only(ip, &[]));
        assert_eq!(why(vec![on_a(), on(ip, 81)], "b"), None, "the other Service is served there");
        assert_eq!(claimed_by(vec![on_a(), on(ip, 81)], &pool("b")), only(ip, &["b"]));
        assert_eq!(
            why(vec![node_local(ip, 80, &[])], "b"),
            None,
            "without endpoints the pool is not the reason"
        );
    }
}
