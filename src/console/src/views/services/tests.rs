//! Tests of rows in each state, and of findings.

mod gateways;

use std::sync::Arc;

use sheave_dataplane::select::ActiveTable;
use sheave_model::test_util::{backend, endpoint_addr, frontend, frontend_addr, route, table};
use sheave_model::{
    AddressSet, Algorithm, Backend, EndpointState, Frontend, FrontendKind, PathChoice, Route, SourceRanges,
};

use super::*;

fn problem(object: &str) -> ProblemView {
    ProblemView {
        object: object.to_owned(),
        reason: "InvalidValue".to_owned(),
        message: "no number".to_owned(),
        ..ProblemView::default()
    }
}

/// A frontend with two ready endpoints.
fn web(number: u32) -> Frontend {
    frontend(number, Algorithm::LeastConnections, &[(1, 100), (2, 100)])
}

fn active(frontends: impl IntoIterator<Item = Frontend>, unhealthy: &[u32]) -> ActiveTable {
    let table = ActiveTable::compile(table(frontends), &ActiveTable::default());
    let mut health = table.health().clone();
    for frontend in table.table().frontends() {
        for number in unhealthy {
            health.set_unhealthy(&frontend.service, endpoint_addr(*number), "refused".into());
        }
    }
    table.with_health(health)
}

fn rows_of(active: &ActiveTable, problems: &[ProblemView]) -> Vec<ServiceRow> {
    rows(ServiceFacts { active, problems, obstacles: &ServingObstacles::default(), announcements: None })
}

/// State and reason of the only Service.
fn state(frontend: Frontend, unhealthy: &[u32]) -> (ServiceState, String) {
    let rows = rows_of(&active([frontend], unhealthy), &[]);
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    (row.state, row.why.clone())
}

#[test]
fn a_service_is_as_its_clients_find_it() {
    use ServiceState::{Broken, Degraded, Serving};
    let said = |state, why: &str| (state, why.to_owned());
    assert_eq!(state(web(1), &[]), said(Serving, ""));
    assert_eq!(state(web(1), &[1]), said(Degraded, "1 of 2 endpoints is unhealthy; 10.0.0.1:8080: refused"));
    assert_eq!(state(web(1), &[1, 2]), said(Broken, "all 2 endpoints are unhealthy; 10.0.0.1:8080: refused"));
    let none = frontend(1, Algorithm::Maglev, &[]);
    assert_eq!(state(none, &[]), said(Broken, "it has no endpoints for this port"));
    let not_ready = Backend { capacity: 3, ..backend("local", 100, &[]) };
    let not_ready = Frontend { backends: Arc::new([not_ready]), ..frontend(1, Algorithm::Maglev, &[]) };
    assert_eq!(state(not_ready, &[]), said(Broken, "none of its 3 endpoints is ready"));
    let mut leaving = backend("local", 100, &[(1, 100)]);
    leaving.endpoints[0].state = EndpointState::Terminating;
    let leaving = Frontend { backends: Arc::new([leaving]), ..frontend(1, Algorithm::Maglev, &[(1, 100)]) };
    assert_eq!(state(leaving, &[]), said(Degraded, "every endpoint that is left terminates"));
    let elsewhere = Frontend { node_local: true, external: Route::Drop, ..web(1) };
    let (how, why) = state(elsewhere, &[]);
    assert!(
        how == Serving && why.starts_with("externalTrafficPolicy is Local and no endpoint is on this node"),
        "{why}"
    );
    let clusters: Arc<[_]> = Arc::new([backend("east", 100, &[(1, 100)]), backend("west", 100, &[])]);
    let half =
        Frontend { external: route([(0, 0)]), internal: route([(0, 0)]), backends: clusters, ..web(1) };
    assert_eq!(state(half, &[]), said(Degraded, "no endpoint of cluster west is ready"));
}

#[test]
fn what_a_row_says_besides_its_state() {
    let row = |frontends: [Frontend; 2]| rows_of(&active(frontends, &[]), &[]).remove(0);
    let second = || Frontend { service: web(1).service, ..web(2) };
    let dropped = |frontend: Frontend| Frontend { external: Route::Drop, ..frontend };
    assert!(row([dropped(web(1)), dropped(second())]).elsewhere);
    assert!(!row([web(1), dropped(second())]).elsewhere, "one port serves here");
    let inside = |frontend| Frontend { kind: FrontendKind::ClusterIp, ..frontend };
    assert!(row([inside(web(1)), dropped(second())]).elsewhere, "what those inside get is another matter");
    let local_inside = row([dropped(inside(web(1))), second()]);
    assert!(
        !local_inside.elsewhere && local_inside.why.starts_with("internalTrafficPolicy is Local"),
        "{local_inside:?}"
    );
    assert!(!row([web(1), second()]).restricted);
    let ranges = SourceRanges::new(vec!["192.0.2.0/24".parse().unwrap()]);
    assert!(row([web(1), Frontend { source_ranges: ranges.into(), ..second() }]).restricted);
    let everybody = SourceRanges::new(vec!["0.0.0.0/0".parse().unwrap()]);
    assert!(!row([web(1), Frontend { source_ranges: everybody.into(), ..second() }]).restricted);
}

#[test]
fn one_port_of_several_that_is_closed_degrades_a_service() {
    let second = Frontend { service: web(1).service, ..web(2) };
    let active = active([web(1), second], &[]);
    let closed = BTreeMap::from([(frontend_addr(2), "in use".to_owned())]);
    let mut obstacles = ServingObstacles { closed, ..ServingObstacles::default() };
    let of = |obstacles: &ServingObstacles| {
        rows(ServiceFacts { active: &active, problems: &[], obstacles, announcements: None }).remove(0)
    };
    assert_eq!((of(&obstacles).state, of(&obstacles).why.as_str()), (ServiceState::Degraded, "in use"));
    assert_eq!(of(&obstacles).frontends.len(), 2);
    obstacles.closed.insert(frontend_addr(1), "in use".to_owned());
    assert_eq!(of(&obstacles).state, ServiceState::Broken);
}

#[test]
fn a_row_says_how_many_frontends_the_kernel_carries() {
    let asking = Frontend { path: PathChoice::Kernel, ..web(1) };
    let second = Frontend { service: asking.service.clone(), ..web(2) };
    let rows = rows_of(&active([asking, second], &[]), &[]);
    assert_eq!((rows[0].by_kernel, rows[0].frontends.len()), (1, 2));
    assert!(rows[0].why.contains("not counted"), "{}", rows[0].why);
}

#[test]
fn what_is_served_nowhere_is_listed_by_its_problem() {
    let problems = [problem("Service shop/web-1"), problem("Service shop/gone"), problem("Node n1")];
    let rows = rows_of(&active([web(1), web(2)], &[]), &problems);
    let states: Vec<_> = rows.iter().map(|row| (row.service.as_str(), row.state, row.problems)).collect();
    let expected = [
        ("shop/gone", ServiceState::Broken, 1),
        ("shop/web-1", ServiceState::Degraded, 1),
        ("shop/web-2", ServiceState::Serving, 0),
    ];
    assert_eq!(states, expected);
    assert_eq!(rows[1].why, "no number");

    let view = FindingsView::new(&rows, &problems, &[]);
    let found: Vec<_> =
        view.findings.iter().map(|it| (it.problem.object.as_str(), it.state, it.advice.is_empty())).collect();
    let expected = [
        ("Service shop/gone", ServiceState::Broken, false),
        ("Node n1", ServiceState::Degraded, false),
        ("Service shop/web-1", ServiceState::Degraded, false),
    ];
    assert_eq!(found, expected);
    let counts = [view.services.broken, view.services.degraded, view.services.ok];
    assert_eq!((view.total, counts), (3, [1, 1, 1]));
}

/// A shortage that affects every Service must leave room for another cause.
#[test]
fn the_findings_of_each_reason_are_bounded() {
    let many = (0..5_000).map(|number| problem(&format!("Service shop/s{number:05}")));
    let other = ProblemView { reason: "NoAddress".to_owned(), ..problem("Service shop/z") };
    let problems: Vec<ProblemView> = many.chain([other]).collect();
    let rows = rows_of(&ActiveTable::default(), &problems);
    let view = FindingsView::new(&rows, &problems, &[]);
    assert_eq!((view.total, view.findings.len()), (5_001, 11));
    let counts: Vec<_> = view.reasons.iter().map(|it| (it.reason.as_str(), it.count)).collect();
    assert_eq!(counts, [("InvalidValue", 5_000), ("NoAddress", 1)]);
    let json = serde_json::to_value(&view.findings[0]).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["advice", "message", "object", "reason", "state"]);
}

#[test]
fn what_is_unhealthy_without_a_problem_is_found() {
    let rows = rows_of(&active([web(1)], &[1]), &[]);
    let view = FindingsView::new(&rows, &[], &[]);
    let [finding] = view.findings.as_slice() else { panic!("{view:?}") };
    assert_eq!(finding.problem.reason, "UnhealthyEndpoints");
    assert!(finding.advice.contains("kubectl -n shop get endpointslices"), "{}", finding.advice);
}

#[test]
fn a_service_that_admits_nobody_is_not_said_to_lack_endpoints() {
    let nobody = SourceRanges::showing(Vec::new(), AddressSet::default());
    let rows = rows_of(&active([Frontend { source_ranges: nobody.into(), ..web(1) }], &[]), &[]);
    let view = FindingsView::new(&rows, &[], &[]);
    let [finding] = view.findings.as_slice() else { panic!("{view:?}") };
    assert_eq!(finding.problem.reason, "NobodyAdmitted");
    assert!(finding.advice.contains("spec.loadBalancerSourceRanges"), "{}", finding.advice);
}
