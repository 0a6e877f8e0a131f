//! Replays of logs that picks under known manifests have made, against those picks, independent counts, and what a change must do.

mod kit;

use kit::{Change, Traffic, gateway_route, replayed, service, slice, table};
use sheave_model::{FrontendAddr, Protocol};

use crate::views::replay::{ReplayView, ReplayedServiceView};

const WEB: &str = "203.0.113.10:80";

fn addr(text: &str) -> FrontendAddr {
    let addr: std::net::SocketAddr = text.parse().unwrap();
    FrontendAddr { ip: addr.ip(), port: addr.port(), protocol: Protocol::Tcp }
}

/// The Service `shop/web` with this spec and balancing, on four endpoints.
fn web(spec: &str, balance: &str) -> String {
    service("web", spec, balance) + &slice("web", 1..5)
}

fn only(view: &ReplayView) -> &ReplayedServiceView {
    assert_eq!(view.services.len(), 1, "{view:?}");
    &view.services[0]
}

/// Connections of an endpoint before and after.
fn of(view: &ReplayedServiceView, endpoint: &str) -> (u64, u64) {
    let found = view.endpoints.iter().find(|it| it.endpoint == endpoint);
    found.map_or((0, 0), |it| (it.before.connections, it.after.connections))
}

const STICKY: &str = "sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 20}}";

#[test]
fn the_log_of_a_run_has_the_same_endpoints_under_the_same_manifests() {
    for (spec, balance, exact) in [
        ("", "maglev", true),
        (STICKY, "least-connections", true),
        ("", "least-connections", false),
        ("", "random", false),
        ("", "round-robin", false),
    ] {
        let manifests = web(spec, balance);
        let traffic = Traffic::generate(&table(&manifests), addr(WEB), 5_000);
        let view = replayed(&manifests, &Change::default(), &traffic.log());
        let service = only(&view);
        assert_eq!(service.exact, exact, "{balance}");
        assert_eq!((service.connections.total, service.connections.moved), (5_000, 0), "{balance}");
        assert_eq!((service.connections.refused, service.affinity.lost), (0, 0), "{balance}");
        assert!(view.is_unchanged() && view.log.late == 0);
        for endpoint in &service.endpoints {
            let shift = (endpoint.before.share - endpoint.after.share).abs();
            assert!(shift < if exact { f64::EPSILON } else { 0.02 }, "{balance}: {endpoint:?}");
            assert_eq!(endpoint.cluster, "local");
        }
    }
}

#[test]
fn chance_moves_nothing_in_a_short_log() {
    for count in 1..40 {
        let manifests = web("", "random");
        let traffic = Traffic::generate(&table(&manifests), addr(WEB), count);
        let view = replayed(&manifests, &Change::default(), &traffic.log());
        assert!(view.is_unchanged(), "{count}: {}", view.to_text());
        let change = Change { nodes: vec!["n1"], ..Change::default() };
        let lost = traffic.endpoints().filter(|(_, endpoint)| endpoint == "10.1.0.1:8080").count() as u64;
        assert_eq!(replayed(&manifests, &change, &traffic.log()).connections.moved, lost, "{count}");
    }
}

#[test]
fn split_routes_are_replayed_exactly_with_maglev_and_by_weight_without() {
    let weights =
        |first: u32, second: u32, balance: &str| gateway_route([("v1", first), ("v2", second)], balance);
    let exact = weights(1, 3, "maglev");
    let traffic = Traffic::generate(&table(&exact), addr("203.0.113.20:9300"), 5_000);
    let view = replayed(&exact, &Change::default(), &traffic.log());
    assert!(only(&view).exact && view.is_unchanged(), "{}", view.to_text());

    let before = weights(1, 1, "least-connections");
    let traffic = Traffic::generate(&table(&before), addr("203.0.113.20:9300"), 20_000);
    assert!(replayed(&before, &Change::default(), &traffic.log()).is_unchanged());
    let after = weights(1, 3, "least-connections");
    let view = replayed(&after, &Change::default(), &traffic.log());
    let service = only(&view);
    let share: f64 = service
        .endpoints
        .iter()
        .filter(|it| it.endpoint.starts_with("10.1.2."))
        .map(|it| it.after.share)
        .sum();
    assert!((share - 0.75).abs() < 0.02, "{share}");
    let moved = service.connections.moved as f64 / 20_000.0;
    assert!((moved - 0.25).abs() < 0.03, "{moved}");
    assert_eq!(service.source, "Gateway");
}

#[test]
fn a_lost_node_equals_picks_among_the_endpoints_that_are_left() {
    let change = Change { nodes: vec!["n2"], ..Change::default() };
    let left = |spec, balance| service("web", spec, balance) + &slice("web", [1, 3, 4]);
    for (spec, exact) in [("", true), (STICKY, true)] {
        let before = web(spec, "maglev");
        let traffic = Traffic::generate(&table(&before), addr(WEB), 5_000);
        let view = replayed(&before, &change, &traffic.log());
        let counted = traffic.picked_again(&table(&left(spec, "maglev")));
        let service = only(&view);
        assert_eq!(service.exact, exact);
        for endpoint in &service.endpoints {
            let count = counted.values().filter(|it| **it == endpoint.endpoint).count() as u64;
            assert_eq!(endpoint.after.connections, count, "{endpoint:?}");
        }
        let moved =
            traffic.endpoints().filter(|(client, endpoint)| counted[client] != *endpoint).count() as u64;
        assert_eq!(service.connections.moved, moved);
        assert!(moved >= of(service, "10.1.0.2:8080").0 && of(service, "10.1.0.2:8080").1 == 0);
    }
    let before = web("", "least-connections");
    let traffic = Traffic::generate(&table(&before), addr(WEB), 20_000);
    for change in [change, Change { zones: vec!["z2"], ..Change::default() }] {
        let view = replayed(&before, &change, &traffic.log());
        for endpoint in only(&view).endpoints.iter().filter(|it| it.node != "n2") {
            assert!((endpoint.after.share - 1.0 / 3.0).abs() < 0.02, "{endpoint:?}");
        }
        assert_eq!(only(&view).connections.moved, of(only(&view), "10.1.0.2:8080").0);
    }
}

#[test]
fn clients_that_lose_their_endpoint_are_named() {
    let before = web(STICKY, "least-connections");
    let traffic = Traffic::generate(&table(&before), addr(WEB), 3_000);
    let change = Change { nodes: vec!["n3"], ..Change::default() };
    let view = replayed(&before, &change, &traffic.log());
    let mut clients: Vec<std::net::IpAddr> = traffic
        .endpoints()
        .filter(|(_, endpoint)| endpoint == "10.1.0.3:8080")
        .map(|(client, _)| client.ip())
        .collect();
    clients.sort_unstable();
    clients.dedup();
    let affinity = &only(&view).affinity;
    assert!(affinity.enabled && affinity.lost >= clients.len() as u64, "{affinity:?}");
    assert_eq!(affinity.lost_clients.len(), 5);
    assert!(view.to_text().contains("Affinity lost"));

    // Affinity that the new manifests no longer have.
    let view = replayed(&web("", "random"), &Change::default(), &traffic.log());
    let affinity = &only(&view).affinity;
    assert!(!affinity.enabled && affinity.lost * 10 > affinity.returning * 9, "{affinity:?}");
    // Where there was none, there is none to lose.
    let traffic = Traffic::generate(&table(&web("", "random")), addr(WEB), 3_000);
    let view = replayed(&web("", "random"), &Change::default(), &traffic.log());
    assert_eq!(only(&view).affinity.lost, 0);
}

#[test]
fn who_is_refused_is_told_with_the_reason() {
    let before = web("", "maglev");
    let traffic = Traffic::generate(&table(&before), addr(WEB), 500);
    let reasons = |manifests: &str, change: &Change| {
        let view = replayed(manifests, change, &traffic.log());
        assert!(!view.is_unchanged());
        let refusals = only(&view).refusals.iter().map(|it| (it.reason.clone(), it.connections));
        refusals.collect::<Vec<_>>()
    };
    let none = Change::default();
    let other = service("other", "", "maglev");
    assert_eq!(reasons(&other, &none), [("otherService".to_owned(), 500)]);
    assert_eq!(
        reasons(&other.replace("203.0.113.10", "203.0.113.11"), &none),
        [("noFrontend".to_owned(), 500)]
    );
    let from =
        traffic.endpoints().filter(|(client, _)| client.ip().to_string().starts_with("192.0.2.1")).count()
            as u64;
    let ranges = web(
        "loadBalancerSourceRanges: [192.0.2.0/32, 192.0.2.128/25, 192.0.2.64/26, 192.0.2.20/30]",
        "maglev",
    );
    let [(reason, refused)] = &reasons(&ranges, &none)[..] else { panic!() };
    assert!(reason == "sourceRanges" && *refused > 0 && *refused < 500 && from > 0);
    assert_eq!(reasons(&service("web", "", "maglev"), &none), [("noEndpoint".to_owned(), 500)]);
    let local = web("externalTrafficPolicy: Local", "maglev");
    let here = Change { node: "n9", ..Change::default() };
    assert_eq!(reasons(&local, &here), [("noLocalEndpoint".to_owned(), 500)]);
    assert_eq!(
        reasons(&before, &Change { clusters: vec!["local"], ..none }),
        [("noEndpoint".to_owned(), 500)]
    );
    // On the node of an endpoint, all go there.
    let view = replayed(&local, &Change { node: "n1", ..Change::default() }, &traffic.log());
    assert_eq!(of(only(&view), "10.1.0.1:8080").1, 500);
    // The moved frontend is named.
    let moved = web("", "maglev").replace("203.0.113.10", "203.0.113.11");
    let view = replayed(&moved, &Change::default(), &traffic.log());
    assert!(
        view.to_text()
            .contains("nothing listens on 203.0.113.10:80 any more; shop/web is at 203.0.113.11:80/TCP"),
        "{}",
        view.to_text()
    );
}

#[test]
fn connections_that_had_no_endpoint_get_one() {
    let line = |reason: &str, second: u8| {
        format!(
            "{{\"time\":\"2026-01-01T00:00:{second:02}Z\",\"service\":\"shop/web\",\"portName\":\"http\",\"frontend\":\"{WEB}\",\"client\":\"192.0.2.1:7\",\"reason\":\"{reason}\"}}\n"
        )
    };
    let log = line("no_endpoint", 1) + &line("bad_proxy_header", 2);
    let counts = |manifests: &str| replayed(manifests, &Change::default(), &log).connections;
    let served = counts(&web("", "maglev"));
    assert_eq!((served.newly_served, served.unasked, served.refused), (1, 1, 0));
    let refused = counts(&service("web", "", "maglev"));
    assert_eq!((refused.newly_served, refused.still_refused), (0, 1));
}

#[test]
fn a_service_without_a_status_keeps_the_address_of_the_log() {
    let pool = "---\n{apiVersion: sheave.dev/v1alpha1, kind: AddressPool, metadata: {name: main}, spec: {addresses: [203.0.113.0/24]}}\n";
    let before = web("", "maglev");
    let traffic = Traffic::generate(&table(&before), addr(WEB), 500);
    let exported =
        before.replace("status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}", "status: {}") + pool;
    assert!(exported.contains("status: {}") && table(&exported).get(addr(WEB)).is_none());
    let view = replayed(&exported, &Change::default(), &traffic.log());
    assert!(view.is_unchanged(), "{}", view.to_text());
}

#[test]
fn logs_without_the_name_of_the_cluster_or_with_another_one_are_about_the_same_endpoints() {
    let before = web("", "maglev");
    let log = Traffic::generate(&table(&before), addr(WEB), 500).log();
    for replacement in ["", r#""cluster":"east","#] {
        let log = log.replace(r#""cluster":"local","#, replacement);
        let view = replayed(&before, &Change::default(), &log);
        assert!(view.is_unchanged() && only(&view).endpoints.len() == 4, "{}", view.to_text());
    }
}

#[test]
fn a_name_that_nothing_has_is_refused() {
    for change in [
        Change { nodes: vec!["n7"], ..Change::default() },
        Change { zones: vec!["z7"], ..Change::default() },
        Change { clusters: vec!["west"], ..Change::default() },
    ] {
        assert!(kit::new_table(&web("", "maglev"), &change).is_err());
    }
    assert!(
        kit::new_table(&web("", "maglev"), &Change { nodes: vec!["local/n2"], ..Change::default() }).is_ok()
    );
}

#[test]
fn names_of_the_log_cannot_write_to_the_terminal() {
    let log = format!(
        "{{\"time\":\"2026-01-01T00:00:00Z\",\"service\":\"shop/\\u001b[2J\",\"portName\":\"a\\nb\\u202e\",\"frontend\":\"{WEB}\",\"client\":\"192.0.2.1:7\",\"endpoint\":\"10.1.0.1:8080\",\"node\":\"\\u001b]0;x\\u0007\"}}\n\u{1b}[31mtorn\n"
    );
    let view = replayed(&web("", "maglev"), &Change::default(), &log);
    let text = view.to_text();
    assert!(
        !text.contains(|char: char| char.is_control() && char != '\n') && !text.contains('\u{202e}'),
        "{text:?}"
    );
    let whole =
        replayed(&web("", "maglev"), &Change::default(), &log.replace("torn", &"x\u{1b}".repeat(40_000)));
    assert_eq!(whole.connections.total, 1);
}

#[test]
fn runs_repeat() {
    let manifests = web("", "least-connections");
    let log = Traffic::generate(&table(&manifests), addr(WEB), 2_000).log();
    let run = || replayed(&manifests, &Change { nodes: vec!["n1"], ..Change::default() }, &log);
    assert_eq!(run(), run());
}
