//! Tests of verdicts that need more than one machine, or a machine at its limit: judged from facts.

use std::net::{IpAddr, Ipv4Addr};

use sheave_model::{Algorithm, test_util};
use sheave_trace::conntrack::{Losses, TableUse};
use sheave_trace::neighbour::{Neighbour, NeighbourState};
use sheave_trace::route::{Admission, Interface, ReversePath, Route, RouteKind};
use sheave_trace::{MacAddress, Missing, Unseen};

use super::address::AddressFacts;
use super::arrival::ArrivalFacts;
use super::machine::MachineFacts;
use super::*;
use crate::views::gateways::AddressView;
use crate::views::status::ProcessView;
use crate::views::traffic::TrafficCounts;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

fn subject(announced: Option<(bool, Option<AddressView>)>) -> Subject {
    let frontend = test_util::frontend(1, Algorithm::Random, &[(1, 100)]);
    Subject {
        exists: true,
        view: sheave_control::projection::explain::ExplainView::default(),
        status: ProcessView { node: "gw-1".to_owned(), ..ProcessView::default() },
        client: None,
        frontend: Some(Arc::new(frontend)),
        announced,
        by_kernel: false,
        counts: TrafficCounts::default(),
        endpoints: Vec::new(),
        out_of_reach: 0,
    }
}

fn row(owner: Option<&str>, state: &str, message: Option<&str>) -> AddressView {
    AddressView {
        address: "203.0.113.10".to_owned(),
        owner: owner.map(str::to_owned),
        state: state.to_owned(),
        message: message.map(str::to_owned),
        ..AddressView::default()
    }
}

/// Judges the address where these machines answer for it.
fn address(announced: Option<(bool, Option<AddressView>)>, is_taken: bool, answers: &[u8]) -> StepView {
    let macs = answers.iter().map(|last| MacAddress([2, 0, 0, 0, 0, *last])).collect();
    let facts = AddressFacts { is_taken, answers: vec![("eth0".to_owned(), Ok(macs))] };
    address::step(&subject(announced), IpAddr::from([203, 0, 113, 10]), &facts)
}

fn expect(step: &StepView, state: StepState, words: &str) {
    assert!(step.state == state && step.found.contains(words), "expected {state:?} with {words:?}: {step:?}");
}

#[test]
fn the_address_of_a_gateway_by_bgp_is_announced_or_the_route_is_stale() {
    let announced = |row| Some((true, Some(row)));
    expect(&address(announced(row(None, "announced", None)), true, &[]), StepState::Ok, "by BGP");
    let stale = address(announced(row(None, "", Some("this gateway has no endpoint for it"))), true, &[]);
    expect(
        &stale,
        StepState::Stopped,
        "does not announce 203.0.113.10 by BGP: this gateway has no endpoint for it",
    );
    assert!(stale.advice.contains("should have withdrawn"), "{stale:?}");
}

#[test]
fn the_owner_of_an_address_is_compared_with_who_answers_for_it() {
    let of = |owner, state: &str| Some((false, Some(row(Some(owner), state, None))));
    expect(&address(of("gw-1", "announced"), true, &[]), StepState::Ok, "announces 203.0.113.10");
    expect(
        &address(of("gw-1", "announced"), true, &[7]),
        StepState::Stopped,
        "02:00:00:00:00:07 answers for it, too",
    );
    expect(&address(of("gw-2", ""), false, &[7]), StepState::Doubtful, "gateway gw-2 announces");
    expect(&address(of("gw-2", ""), false, &[]), StepState::Stopped, "nobody answers for it on the segment");
    expect(&address(of("gw-2", ""), false, &[7, 8]), StepState::Stopped, "several machines answer");
    let nobody = Some((false, Some(row(None, "", Some("no gateway may own addresses")))));
    expect(&address(nobody, false, &[]), StepState::Stopped, "no gateway may own addresses");
    expect(&address(None, false, &[7]), StepState::Stopped, "02:00:00:00:00:07 answers for 203.0.113.10");
}

#[test]
fn a_full_or_nearly_full_table_of_connections_is_told() {
    let facts = |count, losses| MachineFacts {
        chains: Ok(Vec::new()),
        legacy: Vec::new(),
        tracking: Ok(TableUse { count, max: 1000, losses }),
        forwards: Some(true),
        straight: None,
    };
    expect(&machine::tracking(&facts(10, None)), StepState::Ok, "10 of 1000");
    let unlimited =
        MachineFacts { tracking: Ok(TableUse { count: 10, max: 0, losses: None }), ..facts(10, None) };
    expect(&machine::tracking(&unlimited), StepState::Ok, "10 of 0");
    expect(&machine::tracking(&facts(960, None)), StepState::Doubtful, "nearly full");
    let losses = Losses { drop: 3, early_drop: 4 };
    expect(
        &machine::tracking(&facts(1000, Some(losses))),
        StepState::Stopped,
        "7 packets or entries were dropped",
    );
}

#[test]
fn the_way_back_is_judged_where_packets_arrive() {
    let back = |kind, gateway| Route {
        kind,
        interface: Some(Interface { index: 2, name: "eth1".to_owned() }),
        gateway,
        mtu: None,
    };
    let facts = |admission, route, state| ArrivalFacts {
        admissions: vec![("eth0".to_owned(), Ok(admission))],
        elsewhere: Vec::new(),
        checked: Some(ReversePath::Strict),
        back: Ok(route),
        neighbour: Some((IpAddr::from([192, 0, 2, 1]), Neighbour { state, mac: None })),
    };
    let taken = Admission::Admitted(RouteKind::Local);
    let router = Some(IpAddr::from([192, 0, 2, 1]));
    let well = facts(taken, back(RouteKind::Unicast, router), NeighbourState::Reachable);
    expect(&arrival::step(CLIENT, &well, false), StepState::Ok, "answers leave by eth1 via 192.0.2.1");
    let routed = ArrivalFacts { elsewhere: vec!["eth2".to_owned()], ..well.clone() };
    expect(
        &arrival::step(CLIENT, &routed, false),
        StepState::Doubtful,
        "if they came by eth2, rp_filter (strict)",
    );
    expect(&arrival::step(CLIENT, &routed, true), StepState::Ok, "if they came by eth2");
    let silent = facts(taken, back(RouteKind::Unicast, router), NeighbourState::Failed);
    expect(&arrival::step(CLIENT, &silent, false), StepState::Stopped, "192.0.2.1 does not answer");
    let checked =
        facts(Admission::ReversePathFilter, back(RouteKind::Unicast, router), NeighbourState::Reachable);
    expect(&arrival::step(CLIENT, &checked, false), StepState::Stopped, "rp_filter (strict)");
    let nowhere = facts(taken, back(RouteKind::None, None), NeighbourState::Absent);
    expect(&arrival::step(CLIENT, &nowhere, false), StepState::Stopped, "there is no route");
    let missing = Unseen { what: "the route".into(), missing: Missing::Time };
    let unseen = ArrivalFacts { back: Err(missing), ..well };
    expect(&arrival::step(CLIENT, &unseen, false), StepState::Unseen, "cannot see the route");
}
