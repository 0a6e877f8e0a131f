//! Tests of exact responses, and of how ports follow the projection.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use axum::body::to_bytes;
use jiff::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// Long enough for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// A port that is free in both families, from the node port range, which is not used for outgoing connections.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(31_700);
    loop {
        let port = NEXT.fetch_add(1, Ordering::SeqCst);
        if std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok() {
            return port;
        }
    }
}

fn check(name: &str, port: u16, local_v4: Option<usize>, local_v6: Option<usize>) -> HealthCheck {
    HealthCheck { service: ServiceKey::new("ns", name), port, local_v4, local_v6 }
}

fn node_ports() -> NodePorts {
    NodePorts::new(ProxyHealth::new(), Connections::default())
}

fn problems(ports: &NodePorts) -> Vec<String> {
    ports.problems().map(|problem| problem.to_string()).collect()
}

/// Status, Service and count of the response on a new connection.
async fn ask(to: impl Into<SocketAddr>) -> (u16, String) {
    ask_on(TcpStream::connect(to.into()).await.unwrap()).await
}

async fn ask_on(mut connection: TcpStream) -> (u16, String) {
    connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(DEADLINE, connection.read_to_string(&mut text)).await.unwrap().unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, format!("{} {}", body["service"]["name"].as_str().unwrap(), body["localEndpoints"]))
}

async fn assert_refused(to: impl Into<SocketAddr>) {
    let refused = TcpStream::connect(to.into()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

/// Status, weight and body of the response for `local` endpoints.
async fn answered(local: usize, serving: bool) -> (u16, String, String) {
    let now = Timestamp::UNIX_EPOCH;
    let report = HealthReport { now, proven: now, healthy: serving, eligible: true, serving };
    let answer = answer(&LocalEndpoints { service: ServiceKey::new("ns", "svc"), local }, &report);
    let (parts, body) = answer.into_parts();
    assert_eq!(parts.headers["content-type"], "application/json");
    assert_eq!(parts.headers["x-content-type-options"], "nosniff");
    let weight = parts.headers["x-load-balancing-endpoint-weight"].to_str().unwrap().to_owned();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status.as_u16(), weight, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_answer_is_kube_proxys_byte_by_byte() {
    let (status, weight, body) = answered(2, true).await;
    assert_eq!((status, weight.as_str()), (200, "2"));
    assert_eq!(
        body,
        "{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"svc\"\n\t},\n\t\"localEndpoints\": 2,\n\t\
         \"serviceProxyHealthy\": true\n}"
    );
}

#[tokio::test]
async fn without_local_endpoints_or_without_a_healthy_proxy_it_is_503() {
    let (status, weight, body) = answered(0, true).await;
    assert_eq!((status, weight.as_str()), (503, "0"));
    assert!(body.contains("\"localEndpoints\": 0,\n\t\"serviceProxyHealthy\": true"), "{body}");
    let (status, weight, body) = answered(3, false).await;
    assert_eq!((status, weight.as_str()), (503, "3"));
    assert!(body.contains("\"localEndpoints\": 3,\n\t\"serviceProxyHealthy\": false"), "{body}");
}

#[tokio::test]
async fn counts_and_owners_change_without_a_new_socket_until_the_port_closes() {
    let (mut ports, port) = (node_ports(), free_port());
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    ports.follow(&[check("a", port, Some(1), None)], &[]);
    assert_eq!(ask(here).await, (200, "a 1".to_owned()));
    let early = TcpStream::connect(here).await.unwrap();
    ports.follow(&[check("a", port, Some(0), None)], &[]);
    assert_eq!(ask_on(early).await, (503, "a 0".to_owned()));
    let early = TcpStream::connect(here).await.unwrap();
    ports.follow(&[check("b", port, Some(4), None)], &[]);
    assert_eq!(ask_on(early).await, (200, "b 4".to_owned()));
    ports.shared.proxy.drain();
    assert_eq!(ask(here).await, (503, "b 4".to_owned()));
    ports.follow(&[], &[]);
    assert_refused(here).await;
}

#[tokio::test]
async fn a_port_that_closes_can_be_opened_again_at_once() {
    let (mut ports, port) = (node_ports(), free_port());
    for count in 1..20 {
        ports.follow(&[check("a", port, Some(count), None)], &[]);
        ports.follow(&[], &[]);
        ports.follow(&[check("a", port, Some(count), None)], &[]);
        assert_eq!(ask((Ipv4Addr::LOCALHOST, port)).await, (200, format!("a {count}")));
    }
}

#[tokio::test]
async fn each_family_has_its_own_count() {
    let (mut ports, port) = (node_ports(), free_port());
    ports.follow(&[check("a", port, Some(2), Some(0))], &[]);
    assert_eq!(ask((Ipv4Addr::LOCALHOST, port)).await, (200, "a 2".to_owned()));
    assert_eq!(ask((Ipv6Addr::LOCALHOST, port)).await, (503, "a 0".to_owned()));
    ports.follow(&[check("a", port, None, Some(1))], &[]);
    assert_eq!(ask((Ipv6Addr::LOCALHOST, port)).await, (200, "a 1".to_owned()));
    assert_refused((Ipv4Addr::LOCALHOST, port)).await;
}

#[tokio::test]
async fn a_port_that_another_process_has_is_no_problem_and_is_taken_over_when_it_leaves() {
    let (mut ports, port) = (node_ports(), free_port());
    let occupant = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
    ports.follow(&[check("a", port, Some(1), None)], &[]);
    assert!(!ports.retry());
    assert_eq!(problems(&ports), Vec::<String>::new());
    drop(occupant);
    assert!(!ports.retry());
    assert_eq!(ask((Ipv4Addr::LOCALHOST, port)).await, (200, "a 1".to_owned()));
}

#[tokio::test]
async fn any_other_failure_is_a_problem_until_the_port_opens() {
    let (mut ports, port) = (node_ports(), free_port());
    let addr = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let endpoints = watch::Sender::new(LocalEndpoints { service: ServiceKey::new("ns", "a"), local: 1 });
    let state = ListenState::Failed(io::Error::from_raw_os_error(13));
    ports.ports.insert(addr, NodePort { endpoints, state, rival: None });
    assert_eq!(
        problems(&ports),
        [format!(
            "Service ns/a: FailedToStartServiceHealthcheck: spec.healthCheckNodePort: cannot listen on \
             0.0.0.0:{port}: Permission denied (os error 13): ports below 1024 need CAP_NET_BIND_SERVICE; retrying \
             every 2 s"
        )]
    );
    assert!(ports.retry());
    assert_eq!(problems(&ports), Vec::<String>::new());
    assert_eq!(ask((Ipv4Addr::LOCALHOST, port)).await, (200, "a 1".to_owned()));
}

#[tokio::test]
async fn of_two_services_with_one_port_the_first_is_answered_for() {
    let (mut ports, port) = (node_ports(), free_port());
    ports.follow(&[check("a", port, Some(1), None), check("b", port, Some(2), None)], &[]);
    assert_eq!(ask((Ipv4Addr::LOCALHOST, port)).await, (200, "a 1".to_owned()));
    assert_eq!(
        problems(&ports),
        [format!(
            "Service ns/b: FailedToStartServiceHealthcheck: spec.healthCheckNodePort: {port} is already the health \
             check node port of Service ns/a, which keeps it over IPv4; give this Service another one"
        )]
    );
    ports.follow(&[check("b", port, Some(2), None)], &[]);
    assert_eq!(ask((Ipv4Addr::LOCALHOST, port)).await, (200, "b 2".to_owned()));
    assert_eq!(problems(&ports), Vec::<String>::new());
}
