//! Rows of the listeners of Gateways.

use sheave_model::test_util::{change_pools, pool, refused, split};
use sheave_model::{Split, SplitPart};

use super::*;
use crate::views::problem::PortView;

/// A listener of the Gateway of the first frontend.
fn listener(number: u32, name: &str, parts: impl IntoIterator<Item = SplitPart>) -> Frontend {
    let mut listener = split(number, Algorithm::Random, parts);
    listener.service.name = web(1).service.name;
    listener.service.port_name = name.into();
    listener
}

const ONE: &[(u32, u16)] = &[(1, 100)];

#[test]
fn each_listener_has_a_row_with_its_own_state() {
    use ServiceState::{Broken, Degraded, Serving};
    let mut bare = listener(4, "bare", []);
    bare.split = None;
    let frontends = [
        listener(1, "all", [pool(1, 1, ONE), pool(2, 1, &[(2, 100)])]),
        listener(2, "some", [pool(1, 3, ONE), refused("gone", 1)]),
        listener(3, "none", [refused("gone", 1), pool(2, 0, ONE)]),
        bare,
    ];
    let rows = rows_of(&active(frontends, &[]), &[]);
    let of = |row: &ServiceRow| (row.service.clone(), row.source, row.state, row.why.clone());
    let said = |name: &str, state, why: &str| {
        (format!("{}/{name}", web(1).service), "Gateway", state, why.to_owned())
    };
    let expected = [
        said("all", Serving, ""),
        said("bare", Broken, "no route is attached to the listener"),
        said("none", Broken, "no backend of its route serves; gone: BackendNotFound"),
        said("some", Degraded, "25% of new connections are refused; gone: BackendNotFound"),
    ];
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected);
    let FindingsView { findings, .. } = FindingsView::new(&rows, &[], &[]);
    let found: Vec<&str> = findings.iter().map(|it| it.problem.reason.as_str()).collect();
    assert_eq!(found, ["NoRoute"], "the others are Problems of routes");
}

#[test]
fn endpoints_of_all_parts_count_by_the_health_of_their_own_service() {
    let mut whole = listener(1, "tcp", [pool(1, 1, ONE), pool(2, 1, &[(2, 100)]), pool(3, 0, &[(3, 100)])]);
    change_pools(&mut whole, |pool| pool.external = route([(0, 0)]));
    let active = active([whole], &[]);
    let mut health =
        active.table().frontends()[0].split.iter().flat_map(|it| &it.parts).filter_map(SplitPart::pool);
    let second = health.nth(1).unwrap().service.clone();
    let mut unhealthy = active.health().clone();
    unhealthy.set_unhealthy(&second, endpoint_addr(2), "refused".into());
    let row = rows_of(&active.with_health(unhealthy), &[]).remove(0);
    assert_eq!(
        (row.state, row.why.as_str()),
        (ServiceState::Degraded, "1 of 2 endpoints is unhealthy; 10.0.0.2:8080: refused")
    );
    let [cluster] = row.clusters.as_slice() else { panic!("{row:?}") };
    assert_eq!((cluster.serving, cluster.unhealthy, cluster.share), (2, 1, 100));
}

#[test]
fn a_problem_with_a_port_concerns_its_listener_alone() {
    let object = format!("Gateway {}", web(1).service);
    let with = |port: Option<u16>| {
        let port = port.map(|port| PortView { port, protocol: "TCP".to_owned() });
        let frontends = [listener(1, "tcp", [pool(1, 1, ONE)])];
        rows_of(&active(frontends, &[]), &[ProblemView { port, ..problem(&object) }])
    };
    let states = |rows: Vec<ServiceRow>| rows.iter().map(|row| row.state).collect::<Vec<_>>();
    let port = split(1, Algorithm::Random, []).addr.port;
    assert_eq!(states(with(Some(port))), [ServiceState::Degraded]);
    assert_eq!(states(with(None)), [ServiceState::Degraded]);
    let elsewhere = with(Some(port + 1));
    assert_eq!(elsewhere[0].service, web(1).service.to_string());
    assert_eq!(states(elsewhere), [ServiceState::Broken, ServiceState::Serving]);
}

#[test]
fn a_route_that_waits_degrades_the_listener() {
    let mut waits = listener(1, "tcp", [pool(1, 1, ONE)]);
    let parts = waits.split.as_ref().unwrap().parts.clone();
    waits.split = Some(Arc::new(Split { superseded: 2, parts, ..Split::default() }));
    assert_eq!(state(waits, &[]).0, ServiceState::Degraded);
}
