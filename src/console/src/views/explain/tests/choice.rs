//! Tests of the named endpoint against the pick of the table in force.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheave_dataplane::select::affinity::Scope;
use sheave_dataplane::select::{ActiveTable, Origin, Pick, PickRequest};
use sheave_model::{ClientAddr, EndpointAddr, FrontendAddr, Protocol, Route, Weight};

use super::{Fixture, reason, web, web_with};

#[test]
fn least_connections_round_robin_and_random_choose_anew() {
    for (algorithm, said) in [
        ("least-connections", "any of these 2: least connections chooses for each new connection"),
        ("round-robin", "any of these 2: round robin chooses for each new connection"),
        ("random", "any of these 2: random chooses for each new connection"),
    ] {
        let metadata = format!("annotations: {{sheave.dev/balance: {algorithm}}}");
        let fixture = Fixture::new(&web_with(&metadata, ""));
        let view = fixture.ask("port=80&client=198.51.100.7:5000");
        assert_eq!(view.endpoint, None);
        reason(&view, said);
    }
}

/// Endpoint that the table in force picks for a client.
fn picked(fixture: &Fixture, protocol: Protocol, port: u16, client: &str) -> String {
    let addr = FrontendAddr { ip: "203.0.113.10".parse().unwrap(), port, protocol };
    let request = PickRequest {
        client: ClientAddr(client.parse().unwrap()),
        origin: Origin::External,
        random: 7,
        now: Instant::now(),
        tried: &[],
        part: None,
    };
    match fixture.active.get(addr).unwrap().pick(&request, &fixture.affinity) {
        Pick::Forward(picked) => picked.addr().to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn maglev_chooses_what_the_data_plane_picks_and_needs_the_clients_port() {
    let fixture = Fixture::new(&web(""));
    let mut seen = BTreeSet::new();
    for port in 5000..5020 {
        let client = format!("198.51.100.7:{port}");
        let view = fixture.ask(&format!("protocol=UDP&client={client}"));
        assert_eq!(view.client_port, Some(port));
        assert_eq!(view.endpoint, Some(picked(&fixture, Protocol::Udp, 53, &client)));
        reason(&view, "Maglev hashing of the client's address and port chooses");
        seen.extend(view.endpoint);
    }
    assert_eq!(seen.len(), 2, "the ports hash apart");
    let unknown = fixture.ask("protocol=UDP&client=198.51.100.7");
    assert_eq!(unknown.endpoint, None);
    reason(
        &unknown,
        "any of these 2: Maglev hashes the client's port, too, which is not given: ask with IP:PORT",
    );
    reason(&unknown, "a flow that is open already stays with its endpoint while that serves");
    reason(
        &fixture.ask("protocol=UDP"),
        "any of these 2: Maglev hashing of the client's address and port chooses",
    );
}

#[test]
fn affinity_names_the_record_or_the_hash_that_makes_the_first() {
    let fixture = Fixture::new(&web("sessionAffinity: ClientIP"));
    for last in 1..20 {
        let client = format!("198.51.100.{last}");
        let first = fixture.ask(&format!("port=80&client={client}"));
        reason(&first, "session affinity has no record of the client: Maglev hashing of its address chooses");
        assert_eq!(first.endpoint, Some(picked(&fixture, Protocol::Tcp, 80, &format!("{client}:9"))));
    }
    let service = &fixture.projection.table.frontends()[1].service;
    let ip: IpAddr = "198.51.100.30".parse().unwrap();
    let two = fixture.ask("port=80").endpoints[1].address.parse::<SocketAddr>().unwrap();
    let endpoint = EndpointAddr::new(two.ip(), two.port());
    fixture.affinity.record(
        Scope::of(service, sheave_model::AffinityScope::Port),
        ip,
        endpoint,
        Duration::from_secs(10_800),
        Instant::now(),
    );
    let known = fixture.ask("port=80&client=198.51.100.30");
    assert_eq!(known.endpoint.as_deref(), Some("10.1.0.8:8080"));
    let why = reason(&known, "session affinity: the client's last connection went to 10.1.0.8:8080");
    let seconds: u64 = why.split("another ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((10_000..=10_800).contains(&seconds), "{why}");
    reason(&fixture.ask("port=80"), "session affinity keeps each client at the one that Maglev hashing");
    let offline = fixture.answer("service=shop/web&port=80&client=198.51.100.30", false);
    reason(offline.view(), "a running gateway may have the client on record at another endpoint");
    let local = Fixture::new(&web("sessionAffinity: ClientIP, externalTrafficPolicy: Local"));
    let only = local.answer("service=shop/web&port=80&client=198.51.100.30", false);
    assert!(only.view().reasons.iter().all(|reason| !reason.contains("on record")), "there is no other");
}

#[test]
fn the_weight_of_each_cluster_stands_beside_its_endpoints() {
    let elsewhere = "---\nkind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata: {namespace: shop, name: web-2, labels: \
                     {kubernetes.io/service-name: web, multicluster.kubernetes.io/source-cluster: east}}\naddressType: IPv4\n\
                     ports: [{name: http, port: 8080}]\nendpoints: [{addresses: [10.2.0.7]}]\n";
    let weights = "annotations: {sheave.dev/cluster-weights: 'local=1,east=3'}";
    let fixture = Fixture::new(&(web_with(weights, "") + elsewhere));
    let answer = fixture.answer("service=shop/web&port=80&client=198.51.100.7", true);
    let endpoints = &answer.view().endpoints;
    let weights: Vec<_> = endpoints.iter().map(|it| (it.cluster.as_str(), it.weight)).collect();
    assert_eq!(weights, [("local", Some(1)), ("local", Some(1)), ("east", Some(3))]);
    assert_eq!(endpoints.iter().filter_map(|it| it.share).map(u32::from).sum::<u32>(), 100);
    let text = answer.to_text();
    assert!(text.contains("CLUSTER  WEIGHT  NODE") && text.contains("east     3"), "{text}");
}

#[test]
fn endpoints_of_weight_zero_are_left_out_with_that_reason() {
    let fixture = Fixture::new(&web("")).in_force(|frontend| {
        let mut backends = frontend.backends.to_vec();
        for endpoint in backends.iter_mut().flat_map(|backend| backend.endpoints.first_mut()) {
            endpoint.weight = Weight(0);
        }
        frontend.backends = backends.into();
    });
    let view = fixture.ask("port=80&client=198.51.100.7");
    let said: Vec<(bool, &str)> =
        view.endpoints.iter().map(|endpoint| (endpoint.used, endpoint.reason.as_str())).collect();
    assert_eq!(said, [(false, "its weight is 0, and others have more"), (true, "it may be chosen")]);
    assert_eq!(view.endpoint.as_deref(), Some("10.1.0.8:8080"));
}

#[test]
fn a_table_in_force_that_differs_from_the_objects_is_told() {
    let fixture = Fixture::new(&web("")).in_force(|frontend| {
        if let Route::Forward(candidates) = &frontend.external {
            frontend.external = Route::Forward(Arc::from(&candidates[..1]));
        }
    });
    let view = fixture.ask("port=80&client=198.51.100.7");
    assert_eq!(view.endpoint.as_deref(), Some("10.1.0.7:8080"), "what is in force decides");
    assert_eq!(view.endpoints[1].reason, "it would be used, but the table in force does not have it");
    reason(&view, "the table in force has an older state of this frontend");
    let mut empty = Fixture::new(&web(""));
    empty.active = ActiveTable::default();
    let view = empty.ask("port=80&client=198.51.100.7");
    assert_eq!((view.endpoint.as_deref(), view.endpoints[0].used), (None, false));
    reason(&view, "the table in force does not have this frontend yet");
}
