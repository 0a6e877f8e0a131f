//! Tests of what counts as a difference between gateways, and of the text.

use serde_json::json;
use sheave_control::api::gateway_report::GatewayReport;

use super::*;
use crate::views::services::ServiceState;
use crate::views::status::UnhealthyView;

fn known(node: &str) -> KnownGateway {
    KnownGateway {
        node: node.to_owned(),
        addresses: vec!["192.0.2.1".parse().unwrap()],
        listeners: Vec::new(),
        ready: true,
    }
}

fn problem(object: &str, reason: &str, message: &str) -> ProblemView {
    let [object, reason, message] = [object, reason, message].map(str::to_owned);
    ProblemView { object, reason, message, ..ProblemView::default() }
}

fn unhealthy(endpoint: &str) -> UnhealthyView {
    let [service, protocol, endpoint, reason] =
        ["shop/web", "TCP", endpoint, "connection refused"].map(str::to_owned);
    UnhealthyView { service, protocol, endpoint, reason, seconds: 7, checked: true }
}

/// A healthy gateway, after a change.
fn status(node: &str, change: impl FnOnce(&mut ProcessView)) -> (KnownGateway, GatewayAnswer) {
    let mut status = ProcessView {
        node: node.to_owned(),
        version: "0.1.0".to_owned(),
        role: "gateway".to_owned(),
        generation: 7,
        table_age_seconds: Some(60),
        table_hash: Some("a1b2c3d4".to_owned()),
        frontends: 3,
        ..ProcessView::default()
    };
    status.source.synced = true;
    change(&mut status);
    (known(node), GatewayAnswer::Status(Box::new(status)))
}

fn well(node: &str) -> (KnownGateway, GatewayAnswer) {
    status(node, |_| ())
}

fn with_problems(node: &str, problems: &[ProblemView], count: usize) -> (KnownGateway, GatewayAnswer) {
    status(node, |it| {
        it.problems = count;
        it.first_problems = problems.to_vec();
    })
}

fn view(answers: Vec<(KnownGateway, GatewayAnswer)>) -> AllGatewaysView {
    seen_by(Vec::new(), answers)
}

fn seen_by(problems: Vec<ProblemView>, answers: Vec<(KnownGateway, GatewayAnswer)>) -> AllGatewaysView {
    AllGatewaysView::new("ctl", ControllerView { problems, ..leading() }, answers)
}

fn leading() -> ControllerView {
    ControllerView { leading: true, leader: Some("ctl-0".to_owned()), ..ControllerView::default() }
}

fn marks(view: &AllGatewaysView) -> Vec<String> {
    let marked = view.gateways.iter().filter(|it| !it.differs.is_empty());
    marked.map(|it| format!("{}: {}", it.node, it.differs.join(" "))).collect()
}

#[test]
fn gateways_that_are_alike_differ_in_nothing() {
    let alike = view(vec![well("gw-2"), status("gw-1", |it| it.generation = 900)]);
    assert_eq!((marks(&alike), &alike.differences), (Vec::new(), &Vec::new()));
    assert_eq!(alike.exit(), Exit::Ok);
    let text = alike.to_text();
    assert!(
        text.starts_with("2 gateways: 2 serving, asked by the controller on ctl; ctl-0 leads.\n"),
        "{text}"
    );
    assert!(!text.contains("What differs"), "{text}");
    let nodes: Vec<&str> = alike.gateways.iter().map(|it| it.node.as_str()).collect();
    assert_eq!(nodes, ["gw-1", "gw-2"]);
}

#[test]
fn a_gateway_with_another_table_stands_out() {
    let older = |it: &mut ProcessView| {
        it.table_hash = Some("ffff".to_owned());
        it.frontends = 2;
        it.table_age_seconds = Some(600);
    };
    let view = view(vec![well("gw-1"), status("gw-2", older), well("gw-3")]);
    assert!(view.tables_differ());
    assert_eq!(marks(&view), ["gw-2: table"]);
    assert_eq!(
        view.differences,
        [
            "routing tables differ: gw-1, gw-3 (3 frontends, changed 60 s ago); gw-2 (2 frontends, changed 10 min ago); those that differ \
             see other objects or have another configuration (`sheave routes` on each)"
        ]
    );
    assert_eq!(view.exit(), Exit::Degraded);
}

#[test]
fn tables_that_all_change_were_asked_at_different_moments() {
    let changing = |node: &str, hash: &str| {
        status(node, |it| (it.table_hash, it.table_age_seconds) = (Some(hash.to_owned()), Some(1)))
    };
    let changes = view(vec![changing("gw-1", "a"), changing("gw-2", "b"), changing("gw-3", "c")]);
    assert_eq!(marks(&changes), Vec::<String>::new());
    let stuck = view(vec![changing("gw-1", "a"), well("gw-2")]);
    assert_eq!(marks(&stuck), ["gw-1: table", "gw-2: table"], "nobody knows which is right");
}

#[test]
fn tables_of_other_versions_and_of_gateways_that_end_are_not_compared() {
    let other = |it: &mut ProcessView| {
        it.version = "0.2.0".to_owned();
        it.table_hash = Some("ffff".to_owned());
    };
    let draining = |it: &mut ProcessView| {
        it.draining = true;
        it.table_hash = Some("eeee".to_owned());
    };
    let view = view(vec![well("gw-1"), status("gw-2", other), well("gw-3"), status("gw-4", draining)]);
    assert_eq!(marks(&view), ["gw-2: version"]);
    assert_eq!(
        view.differences,
        ["versions differ: 0.1.0 on gw-1, gw-3, gw-4, 0.2.0 on gw-2; a rollout is under way, or is stuck"]
    );
}

#[test]
fn a_problem_of_all_is_one_and_a_problem_of_one_comes_first() {
    let shared = |node: &str| problem("Service shop/api", "NoAddress", &format!("as {node} has it"));
    let own = problem("Service shop/web", "BindFailed", "cannot listen");
    let view = view(vec![
        with_problems("gw-1", &[shared("gw-1")], 1),
        with_problems("gw-2", &[shared("gw-2"), own], 2),
        with_problems("gw-3", &[shared("gw-3")], 1),
    ]);
    assert_eq!(marks(&view), ["gw-2: problems"]);
    let text = view.to_text();
    assert!(
        text.contains(
            "\nProblems\n  - on gw-2 only: Service shop/web: BindFailed: cannot listen\n  - on all 3 gateways: Service shop/api: NoAddress: as gw-1 \
             has it\n"
        ),
        "{text}"
    );
}

#[test]
fn what_most_have_is_missed_in_those_that_lack_it() {
    let it = problem("Service shop/api", "NoAddress", "");
    let one = [it];
    let view = view(vec![with_problems("gw-1", &one, 1), with_problems("gw-2", &one, 1), well("gw-3")]);
    assert_eq!(marks(&view), ["gw-3: problems"]);
    assert!(view.to_text().contains("on all but gw-3: Service shop/api"), "{}", view.to_text());
}

#[test]
fn what_the_controller_alone_sees_is_wrong_as_well() {
    let [both, own] = ["Service a/a", "Service b/b"].map(|object| problem(object, "NoAddress", "no pool"));
    let gateways = vec![with_problems("gw-1", std::slice::from_ref(&both), 1)];
    let view = seen_by(vec![both, own.clone()], gateways);
    assert_eq!(view.controller_problems, std::slice::from_ref(&own));
    let text = view.to_text();
    assert!(text.contains("  - by the controller: Service b/b: NoAddress: no pool\n"), "{text}");
    assert_eq!(seen_by(vec![own], vec![well("gw-1")]).exit(), Exit::Degraded);
}

#[test]
fn what_is_wrong_with_controllers_degrades_whichever_of_them_is_asked() {
    let asked = |controller: ControllerView| AllGatewaysView::new("ctl", controller, vec![well("gw-1")]);
    let nobody = asked(ControllerView::default());
    assert_eq!(nobody.exit(), Exit::Degraded);
    let text = nobody.to_text();
    assert!(
        text.contains("; no controller leads.\n")
            && text.contains("  - no controller leads: traffic continues"),
        "{text}"
    );
    let refused = asked(ControllerView { write_failures: Some(2), ..leading() });
    assert_eq!(refused.exit(), Exit::Degraded);
    assert!(refused.to_text().contains("writes to 2 objects"), "{}", refused.to_text());
    let standby = asked(ControllerView { leading: false, ..leading() });
    assert_eq!(standby.exit(), Exit::Ok);
    let note = "\nThis controller does not lead. Problems that only controllers see are known to the leader, ctl-0: run \
                `sheave status --fleet` there.\n";
    assert!(standby.to_text().ends_with(note) && !asked(leading()).to_text().contains("does not lead"));
}

#[test]
fn the_problems_that_a_controller_does_not_list_are_counted() {
    let more = ControllerView {
        problems: vec![problem("Service a/a", "NoAddress", "")],
        more_problems: 7,
        ..leading()
    };
    let view = AllGatewaysView::new(
        "ctl",
        more,
        vec![with_problems("gw-1", &[problem("Service a/a", "NoAddress", "")], 1)],
    );
    assert_eq!((view.controller_problems.len(), view.more_controller_problems), (0, 7));
    let text = view.to_text();
    assert!(text.contains("\n  and 7 more by the controller, which gateways may have as well\n"), "{text}");
}

/// A list may be cut, and a gateway that is starting or stopping sees other things.
#[test]
fn nothing_is_claimed_of_gateways_of_which_nothing_is_known() {
    let one = [problem("Service shop/api", "NoAddress", "")];
    let draining = |node: &str| status(node, |it| it.draining = true);
    let has = |node: &str| with_problems(node, &one, 1);
    let most = view(vec![has("gw-1"), has("gw-2"), well("gw-3"), draining("gw-4")]).to_text();
    assert!(most.contains("  - on gw-1, gw-2: Service shop/api"), "{most}");
    let few = view(vec![has("gw-1"), well("gw-2"), draining("gw-3")]).to_text();
    assert!(few.contains("  - on gw-1: Service shop/api"), "{few}");
}

/// Each gateway lists only its first Problems.
#[test]
fn what_a_list_leaves_out_is_not_missing() {
    let [first, second] = ["Service a/a", "Service b/b"].map(|object| problem(object, "NoAddress", ""));
    let view = view(vec![
        with_problems("gw-1", &[first.clone(), second.clone()], 2),
        with_problems("gw-2", &[first], 2),
        with_problems("gw-3", &[second], 1),
    ]);
    let missing: Vec<(&str, &[String])> =
        view.problems.iter().map(|it| (it.problem.object.as_str(), it.missing.as_slice())).collect();
    assert_eq!(missing, [("Service a/a", &["gw-3".to_owned()][..]), ("Service b/b", &[])]);
}

#[test]
fn a_service_that_is_not_well_on_a_gateway_is_listed_once_as_where_it_is_worst() {
    let with = |state, why: &str| {
        let unwell = UnwellView { state, object: "Service shop/web".to_owned(), why: why.to_owned() };
        move |it: &mut ProcessView| it.first_unwell = vec![unwell]
    };
    let view = view(vec![
        status("gw-1", with(ServiceState::Degraded, "1 of 2 endpoints is unhealthy")),
        status("gw-2", with(ServiceState::Broken, "all 2 endpoints are unhealthy")),
        well("gw-3"),
    ]);
    let listed =
        "\nServices that are not well\n  - Service shop/web is broken: all 2 endpoints are unhealthy\n";
    assert!(view.to_text().contains(listed), "{}", view.to_text());
    assert_eq!(view.exit(), Exit::Degraded);
}

#[test]
fn an_endpoint_that_fails_on_one_gateway_alone_stands_out() {
    let failing = |it: &mut ProcessView| {
        it.unhealthy_endpoints = 1;
        it.first_unhealthy = vec![unhealthy("10.1.0.7:8080")];
    };
    let view = view(vec![well("gw-1"), status("gw-2", failing), well("gw-3")]);
    assert_eq!(marks(&view), ["gw-2: health"]);
    let text = view.to_text();
    assert!(text.contains("on gw-2 only: 10.1.0.7:8080 (TCP) of shop/web: connection refused"), "{text}");
    assert_eq!(view.exit(), Exit::Degraded);
}

/// For example, a `Local` or L2-announced Service: other gateways do not use the endpoint, or have no clients
/// for it.
#[test]
fn an_endpoint_of_which_connections_tell_makes_no_difference_to_gateways_that_do_not_use_it() {
    let failing = |it: &mut ProcessView| {
        it.unhealthy_endpoints = 1;
        it.first_unhealthy = vec![UnhealthyView { checked: false, ..unhealthy("10.1.0.7:8080") }];
    };
    let one = view(vec![well("gw-1"), status("gw-2", failing), well("gw-3")]);
    assert_eq!((marks(&one), &one.differences, one.exit()), (Vec::new(), &Vec::new(), Exit::Ok));
    assert!(one.to_text().contains("  - on gw-2: 10.1.0.7:8080 (TCP) of shop/web"), "{}", one.to_text());
    let two = view(vec![status("gw-1", failing), status("gw-2", failing), well("gw-3")]);
    assert!(two.to_text().contains("  - on gw-1, gw-2: 10.1.0.7:8080"), "{}", two.to_text());
}

#[test]
fn gateways_that_do_not_answer_or_say_little_are_named() {
    let silent = |node| (known(node), GatewayAnswer::Silent("no answer within 2 s".to_owned()));
    let report =
        GatewayReport { node: "gw-3".to_owned(), generation: 4, draining: true, ..GatewayReport::default() };
    let old = (known("gw-3"), GatewayAnswer::of_report(report, "it is old".to_owned()));
    let some = view(vec![well("gw-1"), silent("gw-2"), old]);
    assert_eq!(some.exit(), Exit::Degraded);
    let text = some.to_text();
    for part in [
        "3 gateways: 1 serving, 1 draining, 1 silent",
        "gw-2: it does not answer: no answer within 2 s",
        "gw-3: it is old",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(view(vec![silent("gw-1")]).exit(), Exit::Down);
    let none = view(Vec::new());
    assert_eq!(none.exit(), Exit::Down);
    assert!(
        none.to_text().starts_with("No gateway, as the controller on ctl sees it; ctl-0 leads"),
        "{}",
        none.to_text()
    );
}

#[test]
fn a_thousand_gateways_with_problems_of_their_own_make_a_short_answer() {
    let own = |gateway: usize| {
        let one =
            |number| problem(&format!("Service g{gateway}/s{number:02}"), "BindFailed", "cannot listen");
        let problems: Vec<ProblemView> = (0..20).map(one).collect();
        with_problems(&format!("gw-{gateway:03}"), &problems, 5000)
    };
    let view = view((0..1000).map(own).collect());
    assert_eq!((view.gateways.len(), view.problems.len(), view.more_problems), (1000, MOST, 19_800));
    let text = view.to_text();
    assert!(text.contains("  and 19980 more (`-o json` lists more)\n"), "{}", &text[text.len() - 300..]);
}

#[test]
fn one_who_answers_in_the_place_of_a_gateway_is_believed_so_far_and_no_farther() {
    let hostile = "\u{1b}[31mred\n\u{202e}txt".to_owned();
    let status = ProcessView {
        node: "gw-1".to_owned(),
        first_problems: vec![problem("Service a/a", "R", &hostile); 5000],
        ..ProcessView::default()
    };
    let read: ProcessView = bounded_view(&serde_json::to_vec(&status).unwrap()).unwrap();
    assert_eq!(read.first_problems.len(), 1000);
    assert_eq!(read.first_problems[0].message, " [31mred  txt");
    let long = ProcessView { version: "x".repeat(100_000), ..ProcessView::default() };
    let read: ProcessView = bounded_view(&serde_json::to_vec(&long).unwrap()).unwrap();
    assert_eq!(read.version.len(), 1024);
    assert!(bounded_view::<ProcessView>(b"{\"node\": 7}").is_err());
    assert!(bounded_view::<ProcessView>("[".repeat(100_000).as_bytes()).is_err());
    let elsewhere = view(vec![(known("gw-2"), GatewayAnswer::Status(Box::new(status)))]);
    assert!(
        elsewhere.to_text().contains("it calls itself gw-1, and runs on gw-2"),
        "{}",
        elsewhere.to_text()
    );
}

/// JSON as programs read it.
#[test]
fn the_json_is_a_contract() {
    let own = problem("Service shop/web", "BindFailed", "cannot listen");
    let view = view(vec![with_problems("gw-1", &[own], 1), well("gw-2")]);
    let json: serde_json::Value = serde_json::from_str(&view.to_json()).unwrap();
    assert_eq!(
        json["problems"],
        json!([{"object": "Service shop/web", "reason": "BindFailed", "message": "cannot listen", "gateways": ["gw-1"],
                "missing": ["gw-2"]}])
    );
    let gateway = &json["gateways"][0];
    assert_eq!(
        (&gateway["node"], &gateway["state"], &gateway["tableHash"]),
        (&json!("gw-1"), &json!("serving"), &json!("a1b2c3d4"))
    );
    assert_eq!(serde_json::from_value::<AllGatewaysView>(json).unwrap(), view);
}
