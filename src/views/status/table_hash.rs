//! A hash of what a routing table says wherever it is in force, so that gateways can be compared: generations count the changes of one
//! process. Two versions of Sheave may hash the same table differently.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sheave_model::{AddressSet, Backend, Frontend, FrontendKind, RoutingTable};

/// The hash. Left out is what depends on the node: node ports, which are at its own addresses, and which endpoints are local.
pub(crate) fn of(table: &RoutingTable) -> String {
    let mut hasher = DefaultHasher::new();
    let frontends = table.frontends().iter().filter(|frontend| frontend.kind != FrontendKind::NodePort);
    for frontend in frontends {
        let Frontend { addr, kind, service, source, affinity, client_sources, .. } = &**frontend;
        (addr, kind, service, source, affinity, client_sources).hash(&mut hasher);
        let Frontend { source_ranges, algorithm, limits, timeouts, node_local, .. } = &**frontend;
        let nobody = *source_ranges.allowed() == AddressSet::default();
        (source_ranges.cidrs(), nobody, algorithm, limits, timeouts, node_local).hash(&mut hasher);
        for Backend { cluster, weight, priority, endpoints, .. } in frontend.backends.iter() {
            (cluster, weight, priority, endpoints.len()).hash(&mut hasher);
            for endpoint in endpoints {
                (endpoint.addr.ip, endpoint.addr.port, endpoint.state, endpoint.weight).hash(&mut hasher);
            }
        }
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use sheave_model::test_util::{frontend, table};
    use sheave_model::{Algorithm, Route, SourceRanges, Weight};

    use super::*;

    fn web() -> Frontend {
        frontend(1, Algorithm::Random, &[(1, 100), (2, 100)])
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
            changed(|it| it.source_ranges = SourceRanges::new(vec!["10.0.0.0/8".parse().unwrap()]).into()),
            changed(|it| it.source_ranges = SourceRanges::showing(Vec::new(), AddressSet::default()).into()),
            backends(|it| drop(it.endpoints.pop())),
            backends(|it| it.endpoints[0].weight = Weight(1)),
            backends(|it| it.weight = Weight(1)),
        ];
        let distinct: std::collections::BTreeSet<&String> = hashes.iter().collect();
        assert_eq!(distinct.len(), hashes.len(), "{hashes:?}");
    }
}
