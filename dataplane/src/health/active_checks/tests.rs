//! Tests of verdicts, of shared checks, and of when checks run.

use sheave_model::{Algorithm, HealthPolicy, test_util};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn check(failures: u8, successes: u8) -> Check {
    Check { kind: CheckKind::Tcp, port: None, interval: SECOND, timeout: SECOND, failures, successes }
}

fn checks() -> ActiveChecks {
    ActiveChecks::new(SlotLimits { total: 64, per_namespace: 32 })
}

/// A frontend over two endpoints; each number is another Service.
fn frontend(number: u32, check: Option<Check>) -> Frontend {
    let frontend = test_util::frontend(number, Algorithm::Random, &[(1, 100), (2, 100)]);
    Frontend { health: Arc::new(HealthPolicy { check, ..HealthPolicy::default() }), ..frontend }
}

fn keys(frontend: &Frontend) -> Vec<EndpointKey> {
    let key = |addr| EndpointKey { service: frontend.service.clone(), addr };
    endpoints(frontend).map(key).collect()
}

#[test]
fn so_many_answers_in_a_row_turn_the_verdict() {
    let (mut streak, check) = (Streak::new(true), check(3, 2));
    let mut said = |answers: &str| -> Vec<bool> {
        answers.chars().map(|answer| streak.add(answer == '+', &check)).collect()
    };
    assert_eq!(said("--+--"), [false; 5]);
    assert_eq!(said("-"), [true]);
    assert_eq!(said("+-+"), [false; 3]);
    assert_eq!(said("+"), [true]);
    assert_eq!(said("--"), [false; 2]);
}

#[test]
fn one_address_has_each_check_once_however_many_services_request_it() {
    let (mut checks, now) = (checks(), Instant::now());
    let frontends = [1, 2].map(|number| frontend(number, Some(check(3, 2))));
    let other = frontend(3, Some(check(2, 2)));
    for frontend in frontends.iter().chain([&other]) {
        checks.add(frontend, now);
    }
    assert_eq!((checks.probes.len(), checks.by_address.len()), (4, 2));
    assert_eq!(checks.remove(&frontends[0]), keys(&frontends[0]));
    assert_eq!(checks.probes.len(), 4, "the other Service still requests it");
    assert_eq!(checks.remove(&frontends[1]).len(), 2);
    assert_eq!(checks.remove(&other).len(), 2);
    assert!(checks.probes.is_empty() && checks.by_address.is_empty());
}

#[test]
fn a_shared_check_tells_each_service_and_what_one_found_itself_is_its_own() {
    let (mut checks, now) = (checks(), Instant::now());
    let frontends = [1, 2].map(|number| frontend(number, Some(check(1, 1))));
    frontends.iter().for_each(|frontend| checks.add(frontend, now));
    let [first, second] = [0, 1].map(|at| keys(&frontends[at]).remove(0));
    assert!(checks.eject(&first));
    assert_eq!([&first, &second].map(|key| checks.is_failing(key)), [true, false]);
    let id = checks.find(first.addr, &check(1, 1)).unwrap();
    let verdicts = checks.finish(id, now, Err(ProbeError::Status(503)));
    assert_eq!(verdicts.iter().map(|it| &it.key).collect::<Vec<_>>(), [&second], "the first knows");
    assert_eq!(checks.finish(id, now, Ok(())).len(), 2);
}

#[test]
fn nothing_is_checked_without_a_check() {
    let (mut checks, now) = (checks(), Instant::now());
    checks.add(&frontend(1, None), now);
    assert!(checks.probes.is_empty() && checks.next_due().is_none());
}

#[test]
fn a_check_without_a_port_is_for_endpoints_of_its_protocol() {
    let (udp, now) = (CheckKind::Udp { payload: Arc::default(), answer: Arc::default() }, Instant::now());
    for (kind, port, expected) in [(CheckKind::Tcp, None, 2), (udp.clone(), None, 0), (udp, Some(53), 2)] {
        let mut checks = checks();
        let frontend = frontend(1, Some(Check { kind, port, ..check(3, 2) }));
        checks.add(&frontend, now);
        assert_eq!(checks.probes.len(), expected);
        assert_eq!(checks.remove(&frontend).len(), expected);
    }
}

#[test]
fn a_check_that_is_edited_does_not_bring_back_what_the_one_before_took_out() {
    let (mut checks, now) = (checks(), Instant::now());
    let [before, after] = [check(3, 2), check(2, 2)].map(|check| frontend(1, Some(check)));
    checks.add(&before, now);
    let keys = keys(&before);
    assert!(checks.eject(&keys[0]));
    checks.add(&after, now);
    checks.remove(&before);
    assert_eq!([0, 1].map(|at| checks.is_failing(&keys[at])), [true, false]);
}

#[test]
fn what_real_connections_found_is_undone_by_answers() {
    let (mut checks, now) = (checks(), Instant::now());
    let frontend = frontend(1, Some(check(3, 2)));
    checks.add(&frontend, now);
    let key = keys(&frontend).remove(0);
    let id = checks.find(key.addr, &check(3, 2)).unwrap();
    assert!(checks.eject(&key) && checks.is_failing(&key));
    assert!(checks.finish(id, now, Ok(())).is_empty() && checks.is_failing(&key));
    assert!(checks.finish(id, now, Ok(())).iter().all(|verdict| verdict.failure.is_none()));
    assert!(!checks.is_failing(&key));
}

/// Five thousand endpoints that are added with one table, over a minute of the checks' own time.
#[test]
fn thousands_of_checks_are_spread_over_the_interval_and_stay_so() {
    const ENDPOINTS: u32 = 5000;
    let interval = 5 * SECOND;
    let endpoints: Vec<(u32, u16)> = (0..ENDPOINTS).map(|number| (number, 100)).collect();
    let mut frontend = test_util::frontend(1, Algorithm::Random, &endpoints);
    let check = Check { interval, ..check(3, 2) };
    frontend.health = Arc::new(HealthPolicy { check: Some(check), ..HealthPolicy::default() });
    let (mut checks, start) = (checks(), Instant::now());
    checks.add(&frontend, start);
    // Counts per tenth of a second: 100 each if they were perfectly even.
    let mut counts = vec![0u32; 600];
    while let Some(at) = checks.next_due()
        && at < start + 60 * SECOND
    {
        let id = checks.take_due(at).unwrap();
        counts[((at - start).as_millis() / 100) as usize] += 1;
        checks.finish(id, at, Ok(()));
    }
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least >= 50 && *most <= 150, "from {least} to {most} in a tenth of a second");
    let total: u32 = counts.iter().sum();
    assert!((58_000..62_000).contains(&total), "{total}");
}

/// Endpoints that hang, and are checked for as long as a test lasts, in their own namespace.
#[tokio::test]
async fn a_namespace_whose_checks_hang_delays_those_of_no_other_and_waiting_is_no_failure() {
    let silent = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let addr = silent.local_addr().unwrap();
    let kind = CheckKind::Udp { payload: b"?".as_slice().into(), answer: Arc::default() };
    let hour = 3600 * SECOND;
    let check = Check { kind, port: Some(addr.port()), timeout: hour, interval: hour, ..check(1, 1) };
    let numbers: Vec<(u32, u16)> = (0..1000).map(|number| (number, 100)).collect();
    let mut many = test_util::frontend(1, Algorithm::Random, &numbers);
    let mut backend = test_util::backend("local", 100, &numbers);
    for (endpoint, port) in backend.endpoints.iter_mut().zip(1..) {
        endpoint.addr = EndpointAddr::new(addr.ip(), port);
    }
    many.backends = Arc::new([backend]);
    many.service.namespace = "many".into();
    many.health = Arc::new(HealthPolicy { check: Some(check.clone()), ..HealthPolicy::default() });
    let mut few = frontend(2, None);
    few.service.namespace = "few".into();
    let (mut checks, now, paths) = (checks(), Instant::now(), Arc::default());
    checks.add(&many, now);
    checks.start_due(now + 2 * hour, &paths);
    assert_eq!((checks.slots.load("many"), checks.next_due()), (1000, None));
    let running =
        |checks: &ActiveChecks| checks.probes.values().filter(|probe| probe.running.is_some()).count();
    assert_eq!(running(&checks), 32);

    few.health = many.health.clone();
    checks.add(&few, now);
    checks.start_due(now + 2 * hour, &paths);
    assert_eq!(running(&checks), 34, "those of the other namespace run at once");
    assert_eq!(checks.counts(), (0, 0));
    checks.remove(&many);
    checks.remove(&few);
    for _ in 0..34 {
        assert!(checks.next().await.is_some_and(|verdicts| verdicts.is_empty()));
    }
    checks.start_due(now + 2 * hour, &paths);
    assert_eq!((checks.slots.load("many"), checks.slots.load("few")), (0, 0), "nothing is left of them");
}
