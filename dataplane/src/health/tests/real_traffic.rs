//! Tests of failures detected by real connections and datagrams.

use tokio::net::UdpSocket as AsyncSocket;

use super::*;
use crate::handover::HealthRecord;
use crate::health::outlier::FIRST_EJECTION;

/// Duration of the first ejection, with jitter and some slack.
const EJECTED: Duration = FIRST_EJECTION.saturating_mul(13).checked_div(10).unwrap();

#[tokio::test]
async fn one_that_refuses_is_left_alone_at_once_and_returns_once_a_trial_has_succeeded() {
    let (refusing, serving) = (refusing(), serving());
    let frontend = frontend(Protocol::Tcp, &[refusing, serving], None);
    let addr = frontend.addr;
    let mut dataplane = start(&[], PATIENCE, frontend);
    // No client connects once there were enough failures, which the health task may process only after the next client.
    while retries(&dataplane, addr) < 3 {
        assert!(following(&mut dataplane, is_served(addr)).await, "another endpoint serves");
    }
    until_unhealthy(&mut dataplane, 1).await;
    let found = dataplane.unhealthy().next().unwrap();
    assert_eq!((found.service.protocol, found.addr), (Protocol::Tcp, refusing));
    assert!(found.why.contains("refused"), "{}", found.why);
    assert_eq!(dataplane.health_counts().ejections, 1);
    let before = retries(&dataplane, addr);
    assert_eq!(before, 3);
    for _ in 0..20 {
        assert!(following(&mut dataplane, is_served(addr)).await);
    }
    assert_eq!(retries(&dataplane, addr), before, "it is not tried any more");

    tokio::time::pause();
    tokio::time::advance(EJECTED).await;
    tokio::time::resume();
    while dataplane.health_counts().ejections == 1 {
        assert!(following(&mut dataplane, is_served(addr)).await);
    }
    assert_eq!(dataplane.unhealthy().count(), 1);
    assert_eq!(retries(&dataplane, addr), before, "no client comes to it before it serves");

    tokio::time::pause();
    tokio::time::advance(2 * EJECTED).await;
    serve(TcpListener::bind((refusing.ip, refusing.port)).unwrap());
    tokio::time::resume();
    until_unhealthy(&mut dataplane, 0).await;
    for _ in 0..20 {
        assert!(following(&mut dataplane, is_served(addr)).await);
    }
    assert_eq!(retries(&dataplane, addr), before);
}

#[tokio::test]
async fn a_process_that_takes_over_knows_what_refuses() {
    let (refusing, serving) = (refusing(), serving());
    let mut former = start(&[], PATIENCE, frontend(Protocol::Tcp, &[refusing, serving], None));
    let addr = former.table().table().frontends().into_iter().next().unwrap().addr;
    while retries(&former, addr) < 3 {
        following(&mut former, is_served(addr)).await;
    }
    until_unhealthy(&mut former, 1).await;
    let records = former.health_records();
    let known = former.unhealthy().next().unwrap();

    let mut next = start(&[], PATIENCE, frontend(Protocol::Tcp, &[refusing, serving], None));
    next.take_over_health(records.clone());
    let told = next.unhealthy().next().unwrap();
    assert_eq!((&told.service, told.addr, &told.why), (&known.service, known.addr, &known.why));
    let addr = next.table().table().frontends().into_iter().next().unwrap().addr;
    for _ in 0..20 {
        assert!(following(&mut next, is_served(addr)).await);
    }
    assert_eq!(retries(&next, addr), 0, "it is not tried");
    serve(TcpListener::bind((refusing.ip, refusing.port)).unwrap());
    tokio::time::pause();
    tokio::time::advance(EJECTED).await;
    tokio::time::resume();
    until_unhealthy(&mut next, 0).await;

    // An endpoint that is neither ejected nor checked would never be marked as healthy, and one that is not served does
    // not matter.
    let unchecked = records.iter().cloned().map(|record| HealthRecord { failures: None, ..record });
    let gone = records.iter().cloned().map(|record| HealthRecord { name: "other".to_owned(), ..record });
    let mut last = start(&[], PATIENCE, frontend(Protocol::Tcp, &[refusing, serving], None));
    last.take_over_health(unchecked.chain(gone).collect());
    assert_eq!(last.unhealthy().count(), 0);
}

#[tokio::test]
async fn no_client_waits_longer_than_the_connect_budget_and_soon_none_waits() {
    let connect = Duration::from_millis(500);
    // Its queue is full, so the kernel drops further SYNs.
    let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::new(own_address(), 8080).into()).unwrap();
    silent.listen(0).unwrap();
    let bound = silent.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = timeout(connect, TcpStream::connect(bound)).await {
        waiting.push(stream);
    }
    let silent_endpoint = EndpointAddr::new(bound.ip(), bound.port());
    let frontend = frontend(Protocol::Tcp, &[silent_endpoint, serving()], None);
    let addr = frontend.addr;
    let mut dataplane = start(&[], connect, frontend);
    let clients = async {
        let clients: Vec<_> = (0..8).map(|_| tokio::spawn(is_served(addr))).collect();
        for client in clients {
            assert!(client.await.unwrap());
        }
    };
    following(&mut dataplane, clients).await;
    assert!(retries(&dataplane, addr) <= 8, "none has tried it twice");
    until_unhealthy(&mut dataplane, 1).await;
    let before = retries(&dataplane, addr);
    for _ in 0..10 {
        assert!(following(&mut dataplane, is_served(addr)).await);
    }
    assert_eq!(retries(&dataplane, addr), before, "it is not tried any more");
}

#[tokio::test]
async fn a_service_whose_endpoints_all_refuse_is_still_tried() {
    let endpoints = [refusing(), refusing()];
    let frontend = frontend(Protocol::Tcp, &endpoints, None);
    let addr = frontend.addr;
    let mut dataplane = start(&[], PATIENCE, frontend);
    while dataplane.unhealthy().count() < 2 {
        assert!(!following(&mut dataplane, is_served(addr)).await);
    }
    // The client may have finished before the latest verdict was applied.
    dataplane.refresh();
    serve(TcpListener::bind((endpoints[1].ip, endpoints[1].port)).unwrap());
    assert!(following(&mut dataplane, is_served(addr)).await, "at once, though both are ejected");
}

/// A server may reset a client that it rejects: that must not take the server from other clients.
#[tokio::test]
async fn a_connection_that_is_reset_once_established_is_no_failure() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let resetting = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).ok();
        }
    });
    let endpoints = [EndpointAddr::new(resetting.ip(), resetting.port()), serving()];
    let frontend = frontend(Protocol::Tcp, &endpoints, None);
    let addr = frontend.addr;
    let mut dataplane = start(&[], PATIENCE, frontend);
    let mut served = 0;
    for _ in 0..20 {
        served += usize::from(following(&mut dataplane, is_served(addr)).await);
    }
    assert_eq!(served, 10, "in turn");
    assert_eq!(dataplane.health_counts(), super::super::HealthCounts::default());
}

#[tokio::test]
async fn one_that_leaves_the_table_is_forgotten() {
    let refusing = refusing();
    let mut frontend = frontend(Protocol::Tcp, &[refusing], None);
    let addr = frontend.addr;
    let mut dataplane = start(&[], PATIENCE, frontend.clone());
    while dataplane.unhealthy().next().is_none() {
        assert!(!following(&mut dataplane, is_served(addr)).await);
    }
    frontend.backends = self::frontend(Protocol::Tcp, &[serving()], None).backends;
    dataplane.apply(table([frontend]));
    assert_eq!(dataplane.unhealthy().count(), 0);
    assert!(following(&mut dataplane, is_served(addr)).await);
}

#[tokio::test]
async fn port_unreachable_counts_for_udp() {
    let gone = refusing();
    let frontend = frontend(Protocol::Udp, &[gone], None);
    let addr = frontend.addr;
    let mut dataplane = start(&[], PATIENCE, frontend);
    let client = AsyncSocket::bind((HERE, 0)).await.unwrap();
    client.connect((addr.ip, addr.port)).await.unwrap();
    let begun = std::time::Instant::now();
    while dataplane.unhealthy().next().is_none() {
        assert!(begun.elapsed() < PATIENCE, "nothing is noticed");
        client.send(b"?").await.ok();
        following(&mut dataplane, tokio::time::sleep(Duration::from_millis(5))).await;
    }
    let found = dataplane.unhealthy().next().unwrap();
    assert_eq!((found.service.protocol, found.addr), (Protocol::Udp, gone));
}

#[tokio::test]
async fn an_endpoint_is_reached_by_its_path_alone() {
    let (serving, missing) = (serving(), "sheave-none");
    let by = |path| EndpointAddr { path: Path(path), ..serving };
    let frontend = frontend(Protocol::Tcp, &[by(1), by(2)], None);
    let addr = frontend.addr;
    let mut dataplane = start(&[missing, "lo"], PATIENCE, frontend);
    while dataplane.unhealthy().next().is_none() {
        assert!(following(&mut dataplane, is_served(addr)).await, "the other path leads there");
    }
    let found = dataplane.unhealthy().next().unwrap();
    assert_eq!(found.addr, by(1));
    assert!(found.why.contains(missing), "{}", found.why);
}

/// A frontend split evenly over Services with one endpoint each.
fn split_over(endpoints: &[EndpointAddr]) -> Frontend {
    let parts = (1..).zip(endpoints).map(|(number, _)| test_util::pool(number, 1, &[(number, 100)]));
    let mut whole = test_util::split(1, Algorithm::Random, parts);
    test_util::move_split(&mut whole, frontend(Protocol::Tcp, &[], None).addr);
    let mut endpoints = endpoints.iter();
    test_util::change_pools(&mut whole, |pool| {
        let mut backend = pool.backends[0].clone();
        backend.endpoints[0].addr = *endpoints.next().unwrap();
        pool.backends = Arc::new([backend]);
    });
    whole
}

#[tokio::test]
async fn an_endpoint_of_a_part_is_judged_by_the_parts_own_service_and_loses_no_clients_to_the_other() {
    let (refusing, serving) = (refusing(), serving());
    let whole = split_over(&[refusing, serving]);
    let addr = whole.addr;
    let service = whole.split.as_ref().unwrap().parts[0].pool().unwrap().service.clone();
    let mut dataplane = start(&[], PATIENCE, whole);
    let mut served = 0;
    while dataplane.unhealthy().next().is_none() {
        served += usize::from(following(&mut dataplane, is_served(addr)).await);
        assert!(served < 1000, "nothing is noticed");
    }
    let found = dataplane.unhealthy().next().unwrap();
    assert_eq!((&found.service, found.addr), (&service, refusing));
    let mut outcomes = [0; 2];
    for _ in 0..60 {
        outcomes[usize::from(following(&mut dataplane, is_served(addr)).await)] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 10), "weights never move with health: {outcomes:?}");
}
