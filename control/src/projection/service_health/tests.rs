//! State of Services and Gateways by their frontends.

use sheave_model::test_util::{backend, frontend, pool, refused, split};
use sheave_model::{Algorithm, ServerNamePattern};

use super::*;

#[test]
fn a_service_is_broken_if_every_frontend_is_and_degraded_if_some_is_or_it_has_a_problem() {
    use ServiceState::{Broken, Degraded, Serving};
    let (broken, degraded) = (Fault::AdmitsNobody, Fault::OnlyTerminating);
    let health = |frontends: &[Option<&Fault>], has_problem| {
        ServiceHealth::new(frontends.iter().map(|fault| (*fault, 1)), has_problem)
    };
    let state = |frontends: &[Option<&Fault>], has_problem| health(frontends, has_problem).state;
    assert_eq!(state(&[None, None], false), Serving);
    assert_eq!(state(&[None, None], true), Degraded);
    assert_eq!(state(&[None, Some(&degraded)], false), Degraded);
    assert_eq!(state(&[None, Some(&broken)], true), Degraded);
    assert_eq!(state(&[Some(&broken), Some(&broken)], false), Broken);
    assert_eq!(health(&[], true), ServiceHealth { state: Broken, worst: None });
}

#[test]
fn the_frontend_that_explains_a_state_is_the_worst_and_the_first_of_those() {
    let (broken, degraded) = (Fault::AdmitsNobody, Fault::OnlyTerminating);
    let worst =
        |frontends: &[(Option<&Fault>, usize)]| ServiceHealth::new(frontends.iter().copied(), false).worst;
    assert_eq!(worst(&[(None, 0), (Some(&degraded), 2), (Some(&broken), 3)]), Some(2));
    assert_eq!(worst(&[(None, 2), (None, 1), (None, 1)]), Some(1));
}

const NODES: GatewayScope<'_> = GatewayScope::Of { cluster: "local", nodes: &BTreeSet::new() };

fn text_of(frontend: &Frontend, live: Live) -> Option<(ServiceState, String)> {
    let here = fault_of(frontend, GatewayScope::This, live.clone());
    assert_eq!(here, fault_of(frontend, NODES, live), "a Gateway has no policy of one node");
    here.map(|fault| (fault.state(), fault.to_string()))
}

fn of_parts(parts: impl IntoIterator<Item = SplitPart>) -> Option<(ServiceState, String)> {
    text_of(&split(1, Algorithm::Random, parts), Live::default())
}

const ONE: &[(u32, u16)] = &[(1, 100)];

#[test]
fn a_listener_without_a_route_is_broken() {
    let mut listener = split(1, Algorithm::Random, []);
    listener.split = None;
    let broken = (ServiceState::Broken, "no route is attached to the listener".to_owned());
    assert_eq!(text_of(&listener, Live::default()), Some(broken));
}

#[test]
fn a_split_is_broken_if_no_part_with_a_weight_serves() {
    let broken = |text: &str| Some((ServiceState::Broken, text.to_owned()));
    assert_eq!(of_parts([pool(1, 0, ONE)]), broken("no backend of its route has a weight"));
    assert_eq!(of_parts([pool(1, 1, &[])]), broken("it has no endpoints for this port"));
    let invalid = "no backend of its route serves; gone: BackendNotFound";
    assert_eq!(of_parts([refused("gone", 1), pool(2, 0, ONE)]), broken(invalid));
    assert_eq!(of_parts([refused("gone", 1), pool(2, 1, &[])]), broken(invalid));
}

#[test]
fn a_split_is_degraded_if_a_part_refuses_its_share() {
    let degraded = |text: &str| Some((ServiceState::Degraded, text.to_owned()));
    let parts = [pool(1, 69, ONE), refused("gone", 1), pool(2, 30, &[])];
    assert_eq!(of_parts(parts), degraded("31% of new connections are refused; gone: BackendNotFound"));
    let name = pool(2, 1, &[]).name;
    let text = format!("50% of new connections are refused; {name}: it has no endpoints for this port");
    assert_eq!(of_parts([pool(1, 1, ONE), pool(2, 1, &[])]), degraded(&text));
    assert_eq!(of_parts([pool(1, 1, ONE), pool(2, 0, &[]), refused("gone", 0)]), None, "without weight");
}

#[test]
fn endpoints_of_a_split_that_fail_are_counted_over_all_parts() {
    let with = |parts: Vec<SplitPart>, failing| {
        let live = Live { failing, ..Live::default() };
        text_of(&split(1, Algorithm::Random, parts), live)
    };
    let two = || vec![pool(1, 1, ONE), pool(2, 1, &[(2, 100)])];
    let text = |state, text: &str| Some((state, text.to_owned()));
    assert_eq!(with(two(), 1), text(ServiceState::Degraded, "1 of 2 endpoints is unhealthy"));
    assert_eq!(with(two(), 2), text(ServiceState::Broken, "all 2 endpoints are unhealthy"));
    let refusing = [two(), vec![refused("gone", 2)]].concat();
    assert_eq!(with(refusing, 2), text(ServiceState::Broken, "all 2 endpoints are unhealthy"), "worst first");
}

#[test]
fn a_listener_is_degraded_if_a_route_waits_behind_the_one_that_serves() {
    let with = |parts: &[SplitPart], superseded| {
        let mut listener = split(1, Algorithm::Random, parts.to_vec());
        let other = Split { superseded, ..Split::clone(listener.split.as_ref().unwrap()) };
        listener.split = Some(Arc::new(other));
        text_of(&listener, Live::default())
    };
    let degraded = |text: &str| Some((ServiceState::Degraded, text.to_owned()));
    let one = "another route is attached and gets nothing: this one is older";
    assert_eq!(with(&[pool(1, 1, ONE)], 1), degraded(one));
    assert_eq!(with(&[pool(1, 1, ONE)], 0), None);
    assert_eq!(with(&[pool(1, 1, &[])], 1).unwrap().0, ServiceState::Broken, "worst first");
}

#[test]
fn a_tls_listener_is_broken_if_every_route_is_and_degraded_if_some_is() {
    let with = |targets: Vec<Vec<SplitPart>>| {
        let mut listener = split(1, Algorithm::Random, []);
        listener.split = None;
        let targets: Vec<_> =
            targets.into_iter().map(|parts| Arc::new(split(1, Algorithm::Random, parts))).collect();
        let names =
            (0..targets.len()).map(|at| (ServerNamePattern::new(&format!("n{at}.example")), Some(at)));
        let names = ServerNames::new(targets.clone(), names.collect::<Vec<_>>());
        listener.server_names = Some(Arc::new(names));
        text_of(&listener, Live::default())
    };
    let text = |state, text: &str| Some((state, text.to_owned()));
    let broken = "no backend of its route serves; gone: BackendNotFound";
    assert_eq!(with(vec![]), text(ServiceState::Broken, "no route is attached to the listener"));
    assert_eq!(with(vec![vec![pool(1, 1, ONE)], vec![pool(2, 1, ONE)]]), None);
    assert_eq!(
        with(vec![vec![refused("gone", 1)], vec![refused("gone", 1)]]),
        text(ServiceState::Broken, broken)
    );
    assert_eq!(
        with(vec![vec![pool(1, 1, ONE)], vec![refused("gone", 1)]]),
        text(
            ServiceState::Degraded,
            &format!("1 of 2 routes do not serve their server names; TCPRoute default/route: {broken}")
        )
    );
}

#[test]
fn policy_local_counts_no_endpoint_of_a_cluster_that_is_closed() {
    let with = |closed, scope: GatewayScope<'_>| {
        let mut frontend = frontend(1, Algorithm::Random, ONE);
        let mut own = frontend.backends[0].clone();
        own.closed = closed;
        own.endpoints[0].local = true;
        own.endpoints[0].node = "n1".into();
        frontend.backends = Arc::new([own, backend("member2", 1, &[(2, 1)])]);
        frontend.node_local = true;
        if closed {
            frontend.external = Route::Drop;
        }
        fault_of(&frontend, scope, Live::default())
    };
    let nodes = BTreeSet::from(["n1".into()]);
    let cluster = GatewayScope::Of { cluster: "local", nodes: &nodes };
    assert_eq!([with(false, cluster), with(false, GatewayScope::This)], [None, None]);
    let none = Some(Fault::NoneChosen);
    assert_eq!([with(true, cluster), with(true, GatewayScope::This)], [none.clone(), none]);
}
