//! Tests that each change of a decision is one line.

use super::*;

fn endpoint(address: &str, used: bool, reason: &str) -> ExplainedEndpoint {
    ExplainedEndpoint {
        address: address.to_owned(),
        addr: None,
        cluster: String::new(),
        slice: "web-1".to_owned(),
        node: "n1".to_owned(),
        zone: String::new(),
        state: "Ready".to_owned(),
        unhealthy: None,
        local: true,
        used,
        weight: None,
        share: None,
        reason: reason.to_owned(),
    }
}

fn view() -> ExplainView {
    ExplainView {
        service: "shop/web".to_owned(),
        source: "Service".to_owned(),
        frontend: Some("203.0.113.10:80/TCP".to_owned()),
        kind: Some("LoadBalancer".to_owned()),
        allowed: true,
        action: Some("Forward".to_owned()),
        endpoints: vec![endpoint("10.1.0.7:80", true, "it may be chosen"), endpoint("10.1.0.8:80", true, "")],
        ..ExplainView::default()
    }
}

fn decision(view: ExplainView) -> Decision {
    Decision::of(&Answer::Explained(view))
}

/// Lines after an edit of the view.
fn lines(edit: impl FnOnce(&mut ExplainView)) -> Vec<String> {
    let mut edited = view();
    edit(&mut edited);
    decision(edited).changes(&decision(view())).iter().map(Change::to_text).collect()
}

#[test]
fn the_first_line_is_the_state_and_problems_follow() {
    let first = decision(ExplainView { problems: vec!["Service shop/web: x".to_owned()], ..view() }).state();
    let text: Vec<String> = first.iter().map(Change::to_text).collect();
    let expected = [
        "Service shop/web, on 203.0.113.10:80/TCP (LoadBalancer): A client outside the cluster goes to one of 2 \
         endpoints. Endpoints used: 2 of 2.",
        "Problem: Service shop/web: x",
    ];
    assert_eq!(text, expected);
}

#[test]
fn what_did_not_change_has_no_line() {
    assert_eq!(lines(|_| ()), [""; 0]);
    // Slow start changes the reason every second.
    assert_eq!(lines(|view| view.endpoints[0].reason = "it starts slowly".to_owned()), [""; 0]);
    assert_eq!(lines(|view| view.reasons.push("its record expires in 4 s".to_owned())), [""; 0]);
}

#[test]
fn endpoints_come_go_fail_and_return() {
    let failed = |view: &mut ExplainView| {
        view.endpoints[1] = endpoint("10.1.0.8:80", false, "it is unhealthy (refused), and others are not");
    };
    let left_out = "Ready, left out: it is unhealthy (refused), and others are not";
    assert_eq!(lines(failed), [format!("endpoint 10.1.0.8:80: {left_out} (was: Ready, used)")]);
    let mut before = view();
    failed(&mut before);
    let back = decision(view()).changes(&decision(before));
    assert_eq!(back[0].to_text(), format!("endpoint 10.1.0.8:80: Ready, used (was: {left_out})"));
    assert_eq!(
        lines(|view| view.endpoints[0].state = "Terminating".to_owned()),
        ["endpoint 10.1.0.7:80: Terminating, used (was: Ready, used)"]
    );
    let moved = lines(|view| view.endpoints[0].address = "10.1.0.9:80".to_owned());
    assert_eq!(moved, ["endpoint 10.1.0.7:80 removed", "endpoint 10.1.0.9:80 added: Ready, used"]);
}

#[test]
fn all_else_that_decides_has_a_line_of_its_own() {
    let lines = lines(|view| {
        view.other_frontends = vec!["203.0.113.11:80/TCP".to_owned()];
        view.action = Some("Reject".to_owned());
        view.announced_by = Some("gw-2".to_owned());
        view.client = Some("192.0.2.7".to_owned());
        view.endpoint = Some("10.1.0.7:80".to_owned());
        view.problems = vec!["Service shop/web: AddressInUse: x".to_owned()];
    });
    let expected = [
        "frontend 203.0.113.11:80/TCP added",
        "action: Reject (was: Forward)",
        "announced by: gw-2",
        "the client goes to: 10.1.0.7:80",
        "Problem: Service shop/web: AddressInUse: x",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn clusters_share_the_traffic() {
    let shared = |east: u8, west: u8| {
        let mut view = view();
        for (endpoint, (cluster, share)) in view.endpoints.iter_mut().zip([("east", east), ("west", west)]) {
            (endpoint.cluster, endpoint.share) = (cluster.to_owned(), Some(share));
        }
        decision(view)
    };
    let changes = shared(100, 0).changes(&shared(75, 25));
    let [change] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(change.to_text(), "shares of clusters: east 100 %, west 0 % (was: east 75 %, west 25 %)");
    // Two endpoints with 37.5 % and two with 12.5 % show as 38 % and 13 %.
    assert!(shared(76, 26).state()[0].to_text().ends_with(" Clusters: east 75 %, west 25 %."));
}

#[test]
fn a_service_that_comes_or_goes_is_told_as_a_whole() {
    let none = ExplainView {
        service: "shop/web".to_owned(),
        source: "Service".to_owned(),
        reasons: vec!["there is no Service shop/web".to_owned()],
        ..ExplainView::default()
    };
    let gone = Decision::of(&Answer::NotFound(none));
    let lines = |changes: Vec<Change>| changes.iter().map(Change::to_text).collect::<Vec<_>>();
    assert_eq!(
        lines(gone.changes(&decision(view()))),
        ["Service shop/web is not served here (there is no Service shop/web)"]
    );
    assert_eq!(lines(gone.changes(&gone)), [""; 0]);
    assert_eq!(decision(view()).changes(&gone), decision(view()).state());
}

#[test]
fn problems_that_go_when_the_service_comes_or_goes_are_told() {
    let refused = |problem: &str| ExplainView {
        service: "shop/web".to_owned(),
        source: "Service".to_owned(),
        problems: vec![problem.to_owned()],
        ..ExplainView::default()
    };
    let lines = |now: ExplainView, before: ExplainView| {
        let changes = decision(now).changes(&decision(before));
        changes.iter().skip(1).map(Change::to_text).collect::<Vec<_>>()
    };
    assert_eq!(lines(view(), refused("NoAddress: x")), ["Problem solved: NoAddress: x"]);
    let with_problem = ExplainView { problems: vec!["NoAddress: x".to_owned()], ..view() };
    assert_eq!(lines(with_problem.clone(), refused("NoAddress: x")), [""; 0], "it is known");
    assert_eq!(lines(refused("Y: y"), with_problem), ["Problem solved: NoAddress: x", "Problem: Y: y"]);
}

#[test]
fn json_is_as_promised() {
    let change = Change::new(ChangeKind::Endpoint, None, Some("Ready, used".to_owned())).of("10.1.0.7:80");
    let json = serde_json::to_string(&change).unwrap();
    assert_eq!(json, r#"{"change":"endpoint","subject":"10.1.0.7:80","from":null,"to":"Ready, used"}"#);
}
