//! Tests that each change of a gateway is found, and that a look at the same finds none.

use std::time::Duration;

use sheave_model::{Affinity, AffinityScope, Algorithm, Route, test_util};

use super::*;
use crate::views::status::ProcessView;

fn overview(status: ProcessView) -> Overview {
    Overview { status, announcements: None, revision: 1, objects: None }
}

fn active(frontends: Vec<Frontend>) -> ActiveTable {
    ActiveTable::compile(test_util::table(frontends), &ActiveTable::default())
}

fn look(active: &ActiveTable, problems: Vec<ProblemView>) -> Observation {
    let objects = ObjectFacts { problems, ..ObjectFacts::default() };
    Observation::new(&overview(ProcessView::default()), &objects, active)
}

/// Changes as lines, without the word Service.
fn lines(before: &Observation, now: &Observation) -> Vec<String> {
    let line = |(concerned, change): Found| {
        let name = concerned.map_or_else(|| "-".to_owned(), |(name, _)| name);
        format!("{name} {}", change.to_text())
    };
    now.changes(before).into_iter().map(line).collect()
}

fn frontend(endpoints: &[(u32, u16)]) -> Frontend {
    test_util::frontend(1, Algorithm::RoundRobin, endpoints)
}

#[test]
fn endpoints_that_come_and_go_are_named_once_for_all_frontends_of_their_service() {
    let other = |endpoints| {
        let mut other = frontend(endpoints);
        other.addr.port += 1;
        other
    };
    let before = look(&active(vec![frontend(&[(1, 100)]), other(&[(1, 100)])]), Vec::new());
    let both: &[_] = &[(1, 100), (2, 100)];
    let now = look(&active(vec![frontend(both), other(both)]), Vec::new());
    let endpoint = frontend(both).backends[0].endpoints[1].addr;
    assert_eq!(lines(&before, &now), [format!("shop/web-1 endpoint {endpoint} added: Ready")]);
    assert_eq!(lines(&now, &before), [format!("shop/web-1 endpoint {endpoint} removed")]);
    assert_eq!(lines(&now, &now), [""; 0]);
}

#[test]
fn an_endpoint_that_fails_and_recovers_changes_the_state_too() {
    let table = active(vec![frontend(&[(1, 100)])]);
    let healthy = look(&table, Vec::new());
    let spec = frontend(&[(1, 100)]);
    let endpoint = spec.backends[0].endpoints[0].addr;
    let mut health = table.health().clone();
    health.set_unhealthy(&spec.service, endpoint, "connection refused".into());
    let failing = look(&table.with_health(health), Vec::new());
    let came = lines(&healthy, &failing);
    assert_eq!(
        came[0],
        format!("shop/web-1 endpoint {endpoint}: unhealthy: connection refused (was: healthy)")
    );
    assert!(came[1].starts_with("shop/web-1 state: broken: ") && came[1].ends_with(" (was: ok)"), "{came:?}");
    assert_eq!(lines(&failing, &healthy).len(), 2);
    // One that leaves is not healthy again.
    let gone = look(&active(vec![frontend(&[])]), Vec::new());
    let left = lines(&failing, &gone);
    assert!(!left.iter().any(|line| line.contains("healthy (was")), "{left:?}");
}

#[test]
fn frontends_and_their_settings_are_compared() {
    let (before, empty) =
        (look(&active(vec![frontend(&[(1, 100)])]), Vec::new()), look(&active(Vec::new()), Vec::new()));
    let addr = frontend(&[]).addr;
    assert_eq!(lines(&empty, &before), [format!("shop/web-1 frontend {addr} added")]);
    assert_eq!(lines(&before, &empty), [format!("shop/web-1 frontend {addr} removed")]);
    let timeout = Duration::from_secs(60);
    let affinity = Affinity::ClientIp { timeout, scope: AffinityScope::Port };
    let sticky = look(&active(vec![Frontend { affinity, ..frontend(&[(1, 100)]) }]), Vec::new());
    let changed = lines(&before, &sticky);
    assert!(changed.len() == 1 && changed[0].starts_with("shop/web-1 affinity: "), "{changed:?}");
    let refused = Frontend { external: Route::Reject, internal: Route::Reject, ..frontend(&[(1, 100)]) };
    let refused = lines(&before, &look(&active(vec![refused]), Vec::new()));
    assert!(
        refused.iter().any(|line| line == "shop/web-1 external.action: Reject (was: Forward)"),
        "{refused:?}"
    );
}

#[test]
fn problems_of_objects_and_of_the_process_come_and_are_over() {
    let table = active(Vec::new());
    let problem = ProblemView {
        object: "Service shop/web-1".to_owned(),
        reason: "NoAddress".to_owned(),
        message: "no pool has a free address".to_owned(),
        ..ProblemView::default()
    };
    let (well, ill) = (look(&table, Vec::new()), look(&table, vec![problem]));
    assert_eq!(lines(&well, &ill)[0], "shop/web-1 Problem: NoAddress: no pool has a free address");
    assert_eq!(lines(&ill, &well)[0], "shop/web-1 Problem solved: NoAddress: no pool has a free address");
    let not_ready = |seconds: u32| {
        let not_ready = Some(format!("waiting for {seconds} s"));
        let status = ProcessView { not_ready, ..ProcessView::default() };
        (Observation::new(&overview(status.clone()), &ObjectFacts::default(), &table), overview(status))
    };
    let (waiting, _) = not_ready(1);
    assert!(lines(&well, &waiting).contains(&"- not ready: waiting for N s".to_owned()));
    assert!(lines(&waiting, &well).contains(&"- over: not ready: waiting for N s".to_owned()));
    let (later, overview) = not_ready(2);
    assert_eq!(lines(&waiting, &later), [""; 0]);
    assert!(waiting.is_of(&overview, &table));
}

#[test]
fn numbers_that_stand_alone_are_left_out() {
    let text = "worker 3 on gw-1 (10.0.0.1) for 12 s, 40 % of 100";
    assert_eq!(without_numbers(text), "worker N on gw-1 (10.0.0.1) for N s, N % of N");
}
