//! Whose settings count on a Gateway: limits of a ListenerSet and judgements of a route are kept apart from those of others.

use std::collections::BTreeMap;

use sheave_model::{Frontend, PartTarget};

use super::super::{Options, Projector, Role};
use super::support::options;
use crate::api::kinds::{GatewayClasses, Gateways, Kind, ListenerSets, Pools, Services, TcpRoutes};
use crate::api::store::{Dirty, ServiceKey, Store};

fn put<K: Kind>(store: &mut Store, yaml: &str)
where
    K::Object: serde::de::DeserializeOwned,
{
    store.put::<K>(serde_saphyr::from_str::<K::Object>(yaml).unwrap());
}

/// The frontends of a Gateway with a listener on 80 and these annotations of two ListenerSets and a route, by port.
fn frontends(sets: [&str; 2], route: &str) -> BTreeMap<u16, Frontend> {
    let mut store = Store::default();
    put::<GatewayClasses>(&mut store, "metadata: {name: c}\nspec: {controllerName: sheave.dev/gateway}");
    put::<Gateways>(
        &mut store,
        "metadata: {namespace: shop, name: g, annotations: {sheave.dev/max-connections: '9'}}\n\
         spec: {gatewayClassName: c, listeners: [{name: a, port: 80, protocol: TCP}], allowedListeners: {namespaces: {from: Same}}}\n\
         status: {addresses: [{value: 203.0.113.1}]}",
    );
    for (number, annotations) in sets.iter().enumerate() {
        let yaml = format!(
            "metadata: {{namespace: shop, name: s{number}, annotations: {{{annotations}}}}}\n\
             spec: {{parentRef: {{name: g}}, listeners: [{{name: a, port: {}, protocol: TCP}}]}}",
            81 + number
        );
        put::<ListenerSets>(&mut store, &yaml);
    }
    put::<Services>(&mut store, "metadata: {namespace: shop, name: web}\nspec: {ports: [{port: 80}]}");
    let yaml = format!(
        "metadata: {{namespace: shop, name: r, annotations: {{{route}}}}}\n\
         spec: {{parentRefs: [{{name: g}}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}"
    );
    put::<TcpRoutes>(&mut store, &yaml);
    let mut projector = Projector::new(options());
    let projection = projector.project(store.objects(), &Dirty::Everything);
    projection.table.frontends().iter().map(|it| (it.addr.port, Frontend::clone(it))).collect()
}

#[test]
fn a_listener_set_with_a_limit_counts_for_itself() {
    let all = frontends(["sheave.dev/max-connections: '2'", "sheave.dev/idle-timeout: 1m"], "");
    let limits = all.values().map(|it| {
        let most = it.limits.connections.map(std::num::NonZeroU32::get);
        (it.addr.port, most, it.service.settings_of.as_deref())
    });
    let limits: Vec<_> = limits.collect();
    assert_eq!(
        limits,
        [(80, Some(9), None), (81, Some(2), Some("ListenerSet shop/s0")), (82, Some(9), None)]
    );
}

#[test]
fn a_route_with_a_check_judges_for_itself() {
    for (route, judge) in [
        ("sheave.dev/health-check: 'tcp:8081'", Some("TCPRoute shop/r")),
        ("sheave.dev/slow-start: 10s", Some("TCPRoute shop/r")),
        ("sheave.dev/balance: random", None),
    ] {
        let all = frontends(["", ""], route);
        let split = all[&80].split.clone().expect("it has a route");
        let PartTarget::Pool(pool) = &split.parts[0].target else { panic!("the Service is there") };
        assert_eq!(pool.service.settings_of.as_deref(), judge, "{route}");
    }
}

/// Standalone, equal manifests have equal statuses, whatever was there before.
#[test]
fn a_gateway_that_is_not_accepted_keeps_what_a_pool_has_and_nothing_else() {
    let gateway = |protocol| {
        format!(
            "metadata: {{namespace: shop, name: g}}\n\
             spec: {{gatewayClassName: c, listeners: [{{name: a, port: 80, protocol: {protocol}}}]}}"
        )
    };
    let mut store = Store::default();
    put::<GatewayClasses>(&mut store, "metadata: {name: c}\nspec: {controllerName: sheave.dev/gateway}");
    put::<Pools>(&mut store, "metadata: {name: p}\nspec: {addresses: [203.0.113.7]}");
    let mut projector = Projector::new(Options { role: Role::Standalone, ..options() });
    let mut addresses = |store: &mut Store| {
        let dirty = store.take_dirty();
        let _ = projector.project(store.objects(), &dirty);
        let key = ServiceKey::gateway("shop", "g");
        let status = projector.status(&key).unwrap();
        status.ingress.iter().map(|entry| entry.ip.to_string()).collect::<Vec<_>>()
    };
    for protocol in ["TCP", "HTTP"] {
        put::<Gateways>(&mut store, &gateway(protocol));
        assert_eq!(addresses(&mut store), ["203.0.113.7"], "{protocol}");
    }
    store.remove::<Pools>("", "p");
    assert_eq!(addresses(&mut store), [""; 0]);
}
