//! Tests of active checks.

use super::*;

const INTERVAL: Duration = Duration::from_millis(50);

/// A check with a timeout that suffices on a busy machine.
fn check(kind: CheckKind) -> Check {
    Check { kind, port: None, interval: INTERVAL, timeout: PATIENCE, failures: 2, successes: 2 }
}

/// A check whose timeout is its interval.
fn impatient(kind: CheckKind) -> Check {
    Check { timeout: INTERVAL, ..check(kind) }
}

/// Waits until a check has passed.
async fn until_checked(dataplane: &mut Dataplane) {
    let passed = async {
        while dataplane.health_counts().checks_passed == 0 {
            following(dataplane, tokio::time::sleep(INTERVAL)).await;
        }
    };
    timeout(PATIENCE, passed).await.expect("no check passes");
}

fn http(path: &str) -> CheckKind {
    CheckKind::Http { path: path.into() }
}

/// An HTTP server at this address that answers with the current `status`, or not at all while that is 0.
fn answering(ip: IpAddr, status: &Arc<AtomicU16>) -> EndpointAddr {
    let (listener, status) = (TcpListener::bind((ip, 0)).unwrap(), Arc::clone(status));
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 512];
            let length = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let status = status.load(Ordering::Relaxed);
            if status == 0 {
                // Until the other side gives up.
                stream.read_to_end(&mut Vec::new()).ok();
            } else if request.starts_with("GET /ready HTTP/1.1\r\n") && request.contains("\r\nHost: ") {
                write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").ok();
            }
        }
    });
    EndpointAddr::new(addr.ip(), addr.port())
}

#[tokio::test]
async fn an_endpoint_is_unhealthy_while_it_takes_no_connection() {
    let endpoint = refusing();
    let listen = || TcpListener::bind((endpoint.ip, endpoint.port)).unwrap();
    let listener = listen();
    let frontend = frontend(Protocol::Tcp, &[endpoint], Some(check(CheckKind::Tcp)));
    let mut dataplane = start(&[], PATIENCE, frontend);
    until_checked(&mut dataplane).await;
    assert_eq!(dataplane.unhealthy().count(), 0);
    drop(listener);
    until_unhealthy(&mut dataplane, 1).await;
    assert!(dataplane.health_counts().checks_failed >= 2);
    serve(listen());
    until_unhealthy(&mut dataplane, 0).await;
    assert_eq!(dataplane.health_counts().ejections, 0);
}

#[tokio::test]
async fn an_endpoint_is_unhealthy_while_it_answers_with_failure_or_not_at_all() {
    let status = Arc::new(AtomicU16::new(302));
    let endpoint = answering(HERE, &status);
    let kind = http("/ready");
    for (failing, why, check) in
        [(503, "HTTP status 503", check(kind.clone())), (0, "no answer within 50ms", impatient(kind))]
    {
        let mut dataplane = start(&[], PATIENCE, frontend(Protocol::Tcp, &[endpoint], Some(check)));
        until_checked(&mut dataplane).await;
        until_unhealthy(&mut dataplane, 0).await;
        status.store(failing, Ordering::Relaxed);
        until_unhealthy(&mut dataplane, 1).await;
        assert_eq!(*dataplane.unhealthy().next().unwrap().why, *why);
        status.store(200, Ordering::Relaxed);
        until_unhealthy(&mut dataplane, 0).await;
    }
}

#[tokio::test]
async fn an_endpoint_is_unhealthy_while_it_answers_datagrams_with_something_else_or_not() {
    let socket = std::net::UdpSocket::bind((HERE, 0)).unwrap();
    let addr = socket.local_addr().unwrap();
    let answer = Arc::new(std::sync::Mutex::new(Some("pong 1")));
    let answers = Arc::clone(&answer);
    std::thread::spawn(move || {
        let mut question = [0; 16];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            if let Some(answer) =
                answers.lock().unwrap().filter(|_| question.starts_with(b"ping") && length == 4)
            {
                socket.send_to(answer.as_bytes(), from).ok();
            }
        }
    });
    let kind = CheckKind::Udp { payload: b"ping".as_slice().into(), answer: b"pong".as_slice().into() };
    let endpoint = EndpointAddr::new(addr.ip(), addr.port());
    let cases = [
        (Some("no"), "another answer than expected", check(kind.clone())),
        (None, "no answer within 50ms", impatient(kind)),
    ];
    for (failing, why, check) in cases {
        let mut dataplane = start(&[], PATIENCE, frontend(Protocol::Udp, &[endpoint], Some(check)));
        until_checked(&mut dataplane).await;
        until_unhealthy(&mut dataplane, 0).await;
        *answer.lock().unwrap() = failing;
        until_unhealthy(&mut dataplane, 1).await;
        assert_eq!(*dataplane.unhealthy().next().unwrap().why, *why);
        *answer.lock().unwrap() = Some("pong 2");
        until_unhealthy(&mut dataplane, 0).await;
    }
}

#[tokio::test]
async fn where_an_endpoint_is_checked_the_check_decides_when_it_is_healthy_again() {
    let status = Arc::new(AtomicU16::new(200));
    let refusing = refusing();
    let checked = answering(refusing.ip, &status);
    let mut check = check(http("/ready"));
    // Far enough apart that connections detect the failure first.
    (check.port, check.interval, check.failures) = (Some(checked.port), 10 * INTERVAL, 200);
    let frontend = frontend(Protocol::Tcp, &[refusing, serving()], Some(check));
    let addr = frontend.addr;
    let mut dataplane = start(&[], PATIENCE, frontend);
    while dataplane.unhealthy().next().is_none() {
        assert!(following(&mut dataplane, is_served(addr)).await);
    }
    assert_eq!(dataplane.unhealthy().next().unwrap().addr, refusing);
    until_unhealthy(&mut dataplane, 0).await;
    assert_eq!(dataplane.health_counts().ejections, 1);
}

#[tokio::test]
async fn what_checks_found_is_told_to_a_process_that_takes_over_and_its_own_check_undoes_it() {
    let endpoint = refusing();
    let checked = |check| frontend(Protocol::Tcp, &[endpoint], Some(check));
    let mut former = start(&[], PATIENCE, checked(check(CheckKind::Tcp)));
    until_unhealthy(&mut former, 1).await;
    let since = former.unhealthy().next().unwrap().since;
    let told_from = std::time::Instant::now();
    let records = former.health_records();
    // The next check is an hour away.
    let seldom = Check { interval: Duration::from_secs(3600), ..check(CheckKind::Tcp) };
    let mut next = start(&[], PATIENCE, checked(seldom));
    next.take_over_health(records.clone());
    let told = next.unhealthy().next().unwrap();
    // Handed over in whole milliseconds.
    let late = told.since.duration_since(since);
    assert!(late <= told_from.elapsed() + Duration::from_millis(1), "since then, not {late:?} later");
    // Three processes check it: an endpoint that never accepts would soon have a full queue.
    serve(TcpListener::bind((endpoint.ip, endpoint.port)).unwrap());
    let mut last = start(&[], PATIENCE, checked(check(CheckKind::Tcp)));
    last.take_over_health(records);
    assert_eq!(last.unhealthy().count(), 1);
    until_unhealthy(&mut last, 0).await;
}

#[tokio::test]
async fn an_endpoint_that_leaves_is_asked_no_more() {
    let mut frontend = frontend(Protocol::Tcp, &[refusing()], Some(check(CheckKind::Tcp)));
    let mut dataplane = start(&[], PATIENCE, frontend.clone());
    until_unhealthy(&mut dataplane, 1).await;
    frontend.health = Arc::default();
    dataplane.apply(table([frontend]));
    assert_eq!(dataplane.unhealthy().count(), 0);
    let asked = dataplane.health_counts();
    following(&mut dataplane, tokio::time::sleep(4 * INTERVAL)).await;
    assert_eq!(dataplane.health_counts(), asked);
}

#[tokio::test]
async fn nothing_is_checked_without_a_check() {
    let mut dataplane = start(&[], PATIENCE, frontend(Protocol::Tcp, &[refusing()], None));
    following(&mut dataplane, tokio::time::sleep(6 * INTERVAL)).await;
    assert_eq!(dataplane.health_counts(), super::super::HealthCounts::default());
}
