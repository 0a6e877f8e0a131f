//! Tests that every query of the dashboards and every metric of the rules has data with a little traffic, except for
//! known exceptions.

use std::collections::BTreeSet;

use regex::Regex;

use crate::prometheus::Prometheus;
use crate::scene::Scene;
use crate::stage::Role;
use crate::support::cluster::Cluster;
use crate::support::patience::{eventually_within, patience};
use crate::{dashboards, rules};

/// Parts of queries that have no data here, with the reason. Such a query with data fails the test.
const EMPTY: &[(&str, &str)] = &[("source=\"karmada\"", "no Karmada control plane")];

#[test]
fn every_query_has_data() {
    let cluster = Cluster::simulated("queries");
    let scene = Scene::new(&cluster);
    // A rate below that of a busy machine, so that connections are refused; and a Problem of another kind.
    scene.web("sheave.dev/max-connection-rate: \"2\", sheave.dev/unknown: \"\"");
    let road = scene.stage.road();
    let gateway = scene.scraped(Role::Gateway, &road, "");
    let controller = scene.scraped(Role::Controller, &road, "");
    let _processes = [&gateway, &controller].map(|it| scene.stage.start(&it.home));
    let _servers = (scene.stage.endpoints(), scene.udp_servers());
    let address = scene.address();
    scene.stage.wait_until_served(address, 80);
    let _load = scene.load(address);
    let targets = [("sheave", gateway.metrics), ("sheave-controller", controller.metrics)];
    let prometheus = Prometheus::start(&scene.stage.host, &targets, &rules::text());

    let mut queries: BTreeSet<(String, String)> =
        dashboards::queries().into_iter().map(|query| (query.panel, query.text)).collect();
    queries.extend(
        rules::all().iter().flat_map(|rule| selectors(&rule.expr).map(|it| (rule.alert.clone(), it))),
    );
    let (empty, full): (Vec<_>, Vec<_>) =
        queries.iter().partition(|(_, query)| EMPTY.iter().any(|(part, _)| query.contains(part)));
    eventually_within(patience(60.0), "every query has data", || {
        scene.ready(&[0, 1]);
        let without: Vec<String> = full
            .iter()
            .filter(|(_, query)| prometheus.query(query).is_empty())
            .map(|(place, query)| format!("\n{place}: {query}"))
            .collect();
        if without.is_empty() { Ok(()) } else { Err(without.concat()) }
    });
    for (place, query) in &empty {
        assert!(prometheus.query(query).is_empty(), "there is data after all: {place}: {query}");
    }
    for (part, why) in EMPTY {
        assert!(empty.iter().any(|(_, query)| query.contains(part)), "nothing asks for {part} ({why})");
    }
}

/// Series in an expression, without its comparison.
fn selectors(expression: &str) -> impl Iterator<Item = String> {
    let selector = Regex::new(r"\b(sheave_\w+|process_\w+|up)\b(\{[^}]*\})?").unwrap();
    let found: BTreeSet<String> =
        selector.find_iter(expression).map(|found| found.as_str().to_owned()).collect();
    found.into_iter()
}

#[test]
fn selectors_are_found_with_their_labels() {
    let found: Vec<String> = selectors("sum(rate(sheave_a_total{b=\"c\"}[5m])) / up > 1").collect();
    assert_eq!(found, ["sheave_a_total{b=\"c\"}", "up"]);
}
