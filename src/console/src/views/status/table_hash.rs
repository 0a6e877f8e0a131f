//! Hash of the node-independent part of a routing table, to compare gateways: generations count the changes of a single process. Two
//! versions of Sheave may hash the same table differently.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sheave_model::{
    AddressSet, Backend, Endpoint, EndpointAddr, Frontend, FrontendKind, PartTarget, RoutingTable, SplitPart,
};

/// Computes the hash. What depends on the node is left out: node ports, which are at its own addresses, which endpoints are local, and
/// what follows from that.
pub fn of(table: &RoutingTable) -> String {
    let mut hasher = DefaultHasher::new();
    let frontends = table.frontends().iter().filter(|frontend| frontend.kind != FrontendKind::NodePort);
    frontends.for_each(|frontend| hash_frontend(frontend, &mut hasher));
    format!("{:016x}", hasher.finish())
}

/// Destructures the frontend, so that each new field needs a decision.
fn hash_frontend(frontend: &Frontend, hasher: &mut DefaultHasher) {
    let Frontend {
        addr,
        kind,
        service,
        affinity,
        source_ranges,
        proxied_by,
        client_sources,
        app_protocol,
        algorithm,
        algorithm_named: _,
        // Each gateway's own, and no client can tell.
        path: _,
        node_local,
        external: _,
        internal: _,
        limits,
        timeouts,
        logged,
        health,
        failover,
        backends,
        split,
        server_names,
    } = frontend;
    let nobody = *source_ranges.allowed() == AddressSet::default();
    (addr, kind, service, affinity).hash(hasher);
    (source_ranges.cidrs(), nobody, proxied_by, client_sources).hash(hasher);
    (app_protocol, algorithm, node_local, limits, timeouts, logged, health, failover).hash(hasher);
    for Backend { cluster, weight, priority, capacity, closed, endpoints, lingering } in backends.iter() {
        (cluster, weight, priority, capacity, closed, endpoints.len()).hash(hasher);
        for Endpoint { addr, node, zone, local: _, state, weight } in endpoints {
            hash_address(*addr, hasher);
            (node, zone, state, weight).hash(hasher);
        }
        lingering.len().hash(hasher);
        lingering.iter().for_each(|addr| hash_address(*addr, hasher));
    }
    let parts = split.iter().flat_map(|split| &split.parts);
    for SplitPart { name, weight, target } in parts {
        (name, weight).hash(hasher);
        match target {
            PartTarget::Pool(pool) => hash_frontend(pool, hasher),
            PartTarget::Refused(reason) => reason.hash(hasher),
        }
    }
    for (name, target) in server_names.iter().flat_map(|names| names.patterns()) {
        (name, target.is_some()).hash(hasher);
        target.into_iter().for_each(|target| hash_frontend(target, hasher));
    }
}

/// The path is left out, since it belongs to each gateway.
fn hash_address(EndpointAddr { ip, port, path: _ }: EndpointAddr, hasher: &mut DefaultHasher) {
    (ip, port).hash(hasher);
}

#[cfg(test)]
mod tests {
    use sheave_model::test_util::{frontend, table};
    use std::sync::Arc;

    use sheave_model::{
        Algorithm, Failover, HealthPolicy, Route, ServerNamePattern, ServerNames, SourceRanges, Spread,
        Weight,
    };

    use super::*;

    fn web() -> Frontend {
        frontend(1, Algorithm::Random, &[(1, 100), (2, 100)])
    }

    fn names(name: &str, target: Option<usize>) -> Arc<ServerNames> {
        ServerNames::new(vec![Arc::new(web())], [(ServerNamePattern::new(name), target)]).into()
    }

    fn changed(change: impl FnOnce(&mut Frontend)) -> String {
        let mut frontend = web();
        change(&mut frontend);
        of(&table(vec![frontend]))
    }

    fn backends(change: impl FnOnce(&mut Backend)) -> String {
        let mut backend = web().backends[0].clone();
        change(&mut backend);
        changed(|it| it.backends = [backend].into())
    }

    #[test]
    fn the_node_makes_no_difference() {
        let same = of(&table(vec![web()]));
        assert_eq!(changed(|it| it.external = Route::Drop), same);
        assert_eq!(backends(|it| it.endpoints[0].local = true), same);
        let node_port = Frontend { kind: FrontendKind::NodePort, ..frontend(2, Algorithm::Random, &[]) };
        assert_eq!(of(&table(vec![web(), node_port])), same);
    }

    #[test]
    fn what_clients_get_makes_one() {
        let hashes = [
            of(&table(Vec::new())),
            of(&table(vec![web()])),
            of(&table(vec![web(), frontend(2, Algorithm::Random, &[])])),
            changed(|it| it.algorithm = Algorithm::Maglev),
            changed(|it| it.server_names = Some(names("a.example", None))),
            changed(|it| it.server_names = Some(names("a.example", Some(0)))),
            changed(|it| it.server_names = Some(names("b.example", Some(0)))),
            changed(|it| it.source_ranges = SourceRanges::new(vec!["10.0.0.0/8".parse().unwrap()]).into()),
            changed(|it| it.source_ranges = SourceRanges::showing(Vec::new(), AddressSet::default()).into()),
            changed(|it| it.proxied_by = Some(AddressSet::all().into())),
            changed(|it| it.failover = Some(Failover { spread: Spread::Backends, overprovisioning: 140 })),
            changed(|it| it.health = HealthPolicy { panic_threshold: 7, ..HealthPolicy::default() }.into()),
            backends(|it| it.capacity += 1),
            backends(|it| drop(it.endpoints.pop())),
            backends(|it| it.endpoints[0].weight = Weight(1)),
            backends(|it| it.weight = Weight(1)),
        ];
        let distinct: std::collections::BTreeSet<&String> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len(), "{hashes:?}");
    }
}
