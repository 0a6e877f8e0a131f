//! Addresses at which gateways are polled, and the handling of silent gateways.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

fn slice(ports: &str, endpoints: &str) -> Arc<EndpointSlice> {
    let yaml = format!("{{addressType: IPv4, ports: [{ports}], endpoints: [{endpoints}]}}");
    Arc::new(serde_saphyr::from_str(&yaml).unwrap())
}

#[test]
fn ready_gateways_are_asked_at_the_port_named_report() {
    let slices = [
        slice(
            "{name: metrics, port: 1}, {name: report, port: 9842}",
            "{addresses: [192.0.2.2]}, {addresses: [192.0.2.1], conditions: {ready: true}}, \
             {addresses: [192.0.2.3], conditions: {ready: false}}, {addresses: [x]}, {addresses: []}",
        ),
        slice("{name: report, port: 9842}", "{addresses: [192.0.2.1]}"),
        slice("{name: report, port: 99999}", "{addresses: [192.0.2.4]}"),
        slice("{name: other, port: 1}", "{addresses: [192.0.2.5]}"),
    ];
    let texts: Vec<String> = addresses(slices.iter()).iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["192.0.2.1:9842", "192.0.2.2:9842"]);
}

#[test]
fn a_gateway_of_both_families_is_one_whether_it_reports_or_not() {
    let slices = [
        slice(
            "",
            "{addresses: [192.0.2.1], nodeName: a}, {addresses: [192.0.2.2], nodeName: b, conditions: {ready: false}}",
        ),
        slice(
            "{name: report, port: 1}",
            "{addresses: ['2001:db8::1'], nodeName: a}, {addresses: ['2001:db8::3']}",
        ),
    ];
    assert_eq!(count(slices.iter()), 2);
    assert!(any_without_port(slices.iter()), "the ready one of the first slice");
    assert!(!any_without_port(slices[1..].iter()));
}

#[tokio::test]
async fn a_gateway_that_cannot_be_reached_was_asked_all_the_same() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
    let mut reports = GatewayReports::start(None);
    assert!(reports.asked_all(), "there is none to ask");
    reports.follow(vec![closed]);
    assert!(!reports.asked_all());
    assert!(reports.any(Liveness::Late) && !reports.any(Liveness::Answering), "it was not asked yet");
    reports.changed(false).await;
    assert!(reports.asked_all() && reports.now().is_empty());
    assert!(!reports.any(Liveness::Answering));
}

#[test]
fn a_silent_gateway_is_believed_for_a_while() {
    let gateway = SocketAddr::from(([192, 0, 2, 1], 9842));
    let report = GatewayReport { node: "gw-1".into(), ..GatewayReport::default() };
    let mut known = BTreeMap::new();
    let start = Instant::now();
    take(&mut known, gateway, Ok(report.clone()), start);
    assert_eq!(known[&gateway].standing(start), Liveness::Answering);
    take(&mut known, gateway, Err(GatewayRequestError::Silent(EVERY)), start + VALID);
    assert_eq!(known[&gateway].report.as_deref(), Some(&report));
    assert_eq!(known[&gateway].standing(start + VALID), Liveness::Late);
    let later = start + VALID + Duration::from_millis(1);
    take(&mut known, gateway, Err(GatewayRequestError::Silent(EVERY)), later);
    assert_eq!((&known[&gateway].report, known[&gateway].standing(later)), (&None, Liveness::Silent));
    take(&mut known, gateway, Ok(report), later);
    assert_eq!(known[&gateway].standing(later), Liveness::Answering);
}

#[test]
fn a_gateway_that_never_answers_has_its_time_first() {
    let gateway = SocketAddr::from(([192, 0, 2, 1], 9842));
    let (mut known, start) = (BTreeMap::new(), Instant::now());
    take(&mut known, gateway, Err(GatewayRequestError::Silent(EVERY)), start);
    assert_eq!(known[&gateway].standing(start + VALID), Liveness::Late);
    take(&mut known, gateway, Err(GatewayRequestError::Silent(EVERY)), start + 2 * VALID);
    assert_eq!(known[&gateway].standing(start + 2 * VALID), Liveness::Silent);
}

/// Answers one connection with `answer` and returns the request.
async fn server(answer: String) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let length = stream.read(&mut asked).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&asked[..length]).into_owned()
    });
    (address, serving)
}

fn http(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_report_is_read() {
    let (address, serving) = server(http("200 OK", r#"{"node":"gw-1","generation":7,"future":1}"#)).await;
    let mut reports = GatewayReports::start(None);
    reports.tell_kinds("gateways,services");
    reports.follow(vec![address]);
    reports.changed(false).await;
    assert!(reports.any(Liveness::Answering));
    assert_eq!(
        *reports.now()[&address],
        GatewayReport { node: "gw-1".into(), generation: 7, ..GatewayReport::default() }
    );
    let asked = serving.await.unwrap();
    assert!(asked.starts_with("GET /api/report HTTP/1.1\r\nhost: 127.0.0.1:"), "{asked}");
    assert!(asked.contains("\r\nsheave-kinds: gateways,services\r\n"), "{asked}");
}

#[tokio::test]
async fn gateways_are_shown_the_token_of_the_moment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let asked_by = async |file: PathBuf| {
        let (address, serving) = server(http("200 OK", r#"{"node":"gw-1","generation":7}"#)).await;
        let mut reports = GatewayReports::start(Some(file));
        reports.follow(vec![address]);
        reports.changed(false).await;
        serving.await.unwrap()
    };
    assert!(!asked_by(file.clone()).await.contains("authorization"), "there is no file yet");
    std::fs::write(&file, "first\n").unwrap();
    let asked = asked_by(file.clone()).await;
    assert!(asked.contains("\r\nauthorization: Bearer first\r\n"), "{asked}");
    std::fs::write(&file, "not\na token").unwrap();
    assert!(!asked_by(file).await.contains("authorization"));
}

#[tokio::test]
async fn a_gateway_that_comes_is_asked_alone() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let known = listener.local_addr().unwrap();
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let answer = http("200 OK", r#"{"node":"gw-1","generation":7}"#);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut reports = GatewayReports::start(None);
    reports.follow(vec![known]);
    reports.changed(false).await;
    let before = asked.load(std::sync::atomic::Ordering::Relaxed);
    let (new, _serving) = server(http("200 OK", r#"{"node":"gw-2","generation":1}"#)).await;
    reports.now();
    reports.follow(vec![known, new]);
    while reports.now().len() < 2 {
        reports.changed(false).await;
    }
    reports.follow(vec![known]);
    while reports.now().len() > 1 {
        reports.changed(false).await;
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), before);
}

#[tokio::test]
async fn other_answers_are_no_reports() {
    for (answer, expected) in [
        (http("404 Not Found", ""), "it answers 404 Not Found"),
        (http("200 OK", "{}"), "this is no report: missing field `node`"),
        ("SSH-2.0-x\r\n".to_owned(), "invalid HTTP version parsed"),
    ] {
        let (address, _serving) = server(answer).await;
        let error = gateway_request::report(address, None, None).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn an_answer_does_not_wait_for_a_gateway_that_is_silent() {
    // The kernel accepts connections, but no process reads from them.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let silent = listener.local_addr().unwrap();
    let (answering, _serving) =
        server(http("200 OK", r#"{"node":"gw-1","generation":7,"draining":true}"#)).await;
    let mut reports = GatewayReports::start(None);
    reports.follow(vec![silent, answering]);
    reports.changed(false).await;
    assert!(reports.now().get(&answering).is_some_and(|report| report.draining));
    assert!(!reports.asked_all(), "the other one still has its time");
}

#[tokio::test(start_paused = true)]
async fn polls_are_counted_though_the_answers_are_the_same() {
    let mut reports = GatewayReports::start(None);
    for polls in 1..4 {
        reports.changed(true).await;
        assert_eq!(reports.polls(), polls);
    }
}
