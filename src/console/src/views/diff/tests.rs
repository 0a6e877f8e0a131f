//! Tests of differences between tables, as data and as text.

use super::*;
use crate::views::routes::{BackendView, ClientSourceView, HealthView};

fn endpoint(address: &str, weight: u16) -> EndpointView {
    EndpointView {
        address: address.to_owned(),
        node: "n1".to_owned(),
        zone: String::new(),
        local: false,
        state: "Ready".to_owned(),
        weight,
    }
}

fn frontend(address: &str, endpoints: &[(&str, u16)]) -> FrontendView {
    let route = RouteView {
        action: if endpoints.is_empty() { "Reject" } else { "Forward" }.to_owned(),
        endpoints: endpoints.iter().map(|(address, _)| (*address).to_owned()).collect(),
    };
    FrontendView {
        address: address.to_owned(),
        port: 80,
        protocol: "TCP".to_owned(),
        kind: "LoadBalancer".to_owned(),
        service: "shop/web".to_owned(),
        port_name: String::new(),
        app_protocol: None,
        source: "Service".to_owned(),
        affinity: None,
        source_ranges: Vec::new(),
        admits_nobody: false,
        balance: "random".to_owned(),
        path: None,
        client_source: ClientSourceView::default(),
        accept_proxy: Vec::new(),
        limits: None,
        connection_log: None,
        closed: None,
        external: route.clone(),
        internal: route,
        health: HealthView::default(),
        failover: None,
        backends: vec![BackendView {
            cluster: "local".to_owned(),
            weight: 100,
            priority: 0,
            capacity: 0,
            endpoints: endpoints.iter().map(|(address, weight)| endpoint(address, *weight)).collect(),
        }],
        listener: None,
        route: None,
        split: None,
        server_names: None,
        names: Vec::new(),
    }
}

fn table(frontends: Vec<FrontendView>) -> RoutesView {
    RoutesView {
        generation: 1,
        node: "n1".to_owned(),
        steering: None,
        frontends,
        status: Vec::new(),
        gateway_status: Vec::new(),
        health_checks: Vec::new(),
        problems: Vec::new(),
        not_served: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn the_same_table_does_not_differ() {
    let view = || table(vec![frontend("203.0.113.1", &[("10.0.0.1:80", 100)])]);
    let diff = DiffView::new(&view(), &RoutesView { generation: 9, ..view() });
    assert!(diff.is_empty());
    assert_eq!(diff.to_text(), "Frontends: 0 added, 0 removed, 0 changed, 1 unchanged\n");
}

#[test]
fn the_text_has_what_comes_and_goes_and_what_changes_under_it() {
    let old = table(vec![
        frontend("203.0.113.1", &[("10.0.0.1:80", 100), ("10.0.0.2:80", 100), ("10.0.0.3:80", 100)]),
        frontend("203.0.113.2", &[("10.0.0.1:80", 100)]),
        frontend("203.0.113.9", &[]),
    ]);
    let mut changed =
        frontend("203.0.113.1", &[("10.0.0.1:80", 100), ("10.0.0.2:80", 50), ("10.0.0.4:80", 50)]);
    changed.balance = "maglev".to_owned();
    changed.source_ranges = vec!["198.51.100.0/24".to_owned(), "2001:db8::/32".to_owned()];
    let mut new = table(vec![
        changed,
        frontend("203.0.113.2", &[]),
        frontend("2001:db8::1", &[("10.0.0.1:80", 100), ("10.0.0.2:80", 100)]),
    ]);
    new.problems.push(ProblemView {
        object: "Service shop/web".to_owned(),
        reason: "NoEndpoints".to_owned(),
        message: "it has none".to_owned(),
        ..ProblemView::default()
    });
    let expected = "\
- 203.0.113.9:80/TCP  Service shop/web  rejects connections
+ [2001:db8::1]:80/TCP  Service shop/web  2 endpoints
~ 203.0.113.1:80/TCP  shop/web
    balance: random -> maglev
    sourceRanges: none -> 198.51.100.0/24, 2001:db8::/32
    - 10.0.0.3:80  cluster local, node n1, Ready, weight 100
    + 10.0.0.4:80  cluster local, node n1, Ready, weight 50
    ~ 10.0.0.2:80  cluster local, node n1, Ready, weight 50
    42 % or more of new connections go to another endpoint
~ 203.0.113.2:80/TCP  shop/web
    external.action: Forward -> Reject
    internal.action: Forward -> Reject
    - 10.0.0.1:80  cluster local, node n1, Ready, weight 100
Addresses new: 2001:db8::1
Addresses no longer used: 203.0.113.9
Problems that come:
  Service shop/web: NoEndpoints: it has none
Frontends: 1 added, 1 removed, 2 changed, 0 unchanged
";
    let diff = DiffView::new(&old, &new);
    assert_eq!(diff.to_text(), expected);
    assert!(!diff.is_empty());
}

#[test]
fn a_problem_that_is_written_elsewhere_is_the_same() {
    let with = |line: u32| {
        let problem = ProblemView { object: "File a".to_owned(), line: Some(line), ..ProblemView::default() };
        RoutesView { problems: vec![problem], ..table(Vec::new()) }
    };
    assert!(DiffView::new(&with(1), &with(2)).is_empty());
    assert!(!DiffView::new(&with(1), &table(Vec::new())).is_empty(), "one that is solved counts");
}

#[test]
fn connections_move_with_the_weights_of_clusters_and_endpoints() {
    type Cluster<'a> = (u16, u32, &'a [(&'a str, u16)]);
    let of = |clusters: &[Cluster<'_>]| {
        let mut view =
            frontend("203.0.113.1", &[("10.0.0.1:80", 100), ("10.0.0.2:80", 100), ("10.0.0.3:80", 100)]);
        let backend = |&(weight, priority, endpoints): &Cluster<'_>| BackendView {
            cluster: format!("c{weight}-{priority}"),
            weight,
            priority,
            capacity: 0,
            endpoints: endpoints.iter().map(|(address, weight)| endpoint(address, *weight)).collect(),
        };
        view.backends = clusters.iter().map(backend).collect();
        view
    };
    let (one, two): (&[_], &[_]) = (&[("10.0.0.1:80", 100)], &[("10.0.0.2:80", 100), ("10.0.0.3:80", 100)]);
    let moved = |old: &[_], new: &[_]| (shares::moved(&of(old), &of(new)) * 1000.0).round();
    assert_eq!(moved(&[(100, 0, one), (100, 0, two)], &[(100, 0, one), (100, 0, two)]), 0.0);
    assert_eq!(moved(&[(100, 0, one), (100, 0, two)], &[(100, 0, one), (300, 0, two)]), 250.0);
    assert_eq!(moved(&[(100, 0, one), (100, 1, two)], &[(100, 0, one), (100, 0, two)]), 500.0, "priorities");
    assert_eq!(moved(&[(100, 0, one)], &[(0, 0, two)]), 1000.0, "a cluster without weight");
}

/// Part of a split: name, weight, and endpoints or why the share is refused.
type Part<'a> = (&'a str, u32, Result<&'a [(&'a str, u16)], &'a str>);

/// A frontend of a listener with these parts.
fn listener(parts: &[Part<'_>]) -> FrontendView {
    let all: Vec<(&str, u16)> =
        parts.iter().filter(|part| part.1 > 0).filter_map(|part| part.2.ok()).flatten().copied().collect();
    let part = |(name, weight, target): &Part<'_>| {
        let backends = target.map(|endpoints| frontend("", endpoints).backends);
        let json = match backends {
            Ok(backends) => serde_json::json!({
                "ref": name, "weight": weight, "balance": "random", "affinity": null, "health": HealthView::default(),
                "failover": null, "backends": backends,
            }),
            Err(reason) => serde_json::json!({"ref": name, "weight": weight, "refused": reason}),
        };
        serde_json::from_value::<PartView>(json).unwrap()
    };
    FrontendView {
        source: "Gateway".to_owned(),
        service: "shop/gw".to_owned(),
        backends: Vec::new(),
        listener: Some("shop/gw/tcp".to_owned()),
        route: Some("TCPRoute shop/a".to_owned()),
        split: Some(parts.iter().map(part).collect()),
        ..frontend("203.0.113.1", &all)
    }
}

#[test]
fn splits_are_compared_by_the_names_of_their_parts() {
    let (one, two): (&[_], &[_]) = (&[("10.0.0.1:80", 100)], &[("10.0.0.2:80", 100)]);
    let before = [("Service shop/v1:80", 70, Ok(one)), ("Service shop/v2:80", 30, Ok(two))];
    let after = [("Service shop/v2:80", 30, Err("BackendNotFound")), ("Service shop/v1:80", 70, Ok(one))];
    let diff = |old: &[_], new: &[_]| DiffView::new(&table(vec![listener(old)]), &table(vec![listener(new)]));
    let expected = "\
~ 203.0.113.1:80/TCP  shop/gw
    split: Service shop/v1:80 (weight 70), Service shop/v2:80 (weight 30) -> Service shop/v2:80 (weight 30, refused: \
BackendNotFound), Service shop/v1:80 (weight 70)
    - 10.0.0.2:80  Service shop/v2:80, cluster local, node n1, Ready, weight 100
    30 % or more of new connections go to another endpoint
Frontends: 0 added, 0 removed, 1 changed, 0 unchanged
";
    assert_eq!(diff(&before, &after).to_text(), expected);
    assert!(diff(&before, &before).is_empty());
    let shifted = [("Service shop/v1:80", 50, Ok(one)), ("Service shop/v2:80", 50, Ok(two))];
    let moved = diff(&before, &shifted).changed[0].moved;
    assert!((moved - 0.2).abs() < 1e-9, "{moved}");
}
