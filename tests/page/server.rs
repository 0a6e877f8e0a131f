//! Tests of the server of the page: access, and the cost of pages.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scene::{Gateway, Service, host};
use crate::support::http::{self, Response};
use crate::support::patience::{eventually_within, io_deadline, patience};

/// Limit of concurrent streams in `src/console/src/http/live.rs`.
const STREAMS: usize = 16;

impl Gateway<'_> {
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        let host = self.admin.to_string();
        let mut all = vec![("Host", host.as_str())];
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other == name));
        all.extend(headers);
        let response = self.run(|| http::send(self.admin, method, path, &all, ""));
        response.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Opens an event stream, and reads its status.
    fn stream(&self, last_event: Option<&str>) -> (u16, BufReader<TcpStream>) {
        self.stream_of("", last_event)
    }

    /// Opens an event stream with this query.
    fn stream_of(&self, query: &str, last_event: Option<&str>) -> (u16, BufReader<TcpStream>) {
        let mut stream = self.run(|| TcpStream::connect(self.admin)).expect("the admin server listens");
        stream.set_read_timeout(Some(io_deadline())).expect("a deadline");
        let last = last_event.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        write!(stream, "GET /api/live{query} HTTP/1.1\r\nHost: localhost\r\n{last}\r\n")
            .expect("a request is sent");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("an answer");
        (line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), reader)
    }
}

/// Rest of the next line with this prefix.
fn next_line(reader: &mut BufReader<TcpStream>, beginning: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).expect("a line"), 0, "the stream ended before {beginning}");
        if let Some(rest) = line.trim_end().strip_prefix(beginning) {
            return rest.to_owned();
        }
    }
}

#[test]
fn only_those_who_may_get_it() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let link = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")];
    for path in ["/", "/page/gateway.js", "/page/style.css", "/api/status", "/api/routes", "/api/traffic"] {
        assert_eq!(gateway.ask("GET", path, &[]).status, 200, "{path}");
        assert_eq!(gateway.ask("GET", path, &[("Host", "localhost:9841")]).status, 200, "{path}");
        assert_eq!(gateway.ask("GET", path, &[("Host", "rebound.example")]).status, 421, "{path}");
        let foreign = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")];
        assert_eq!(gateway.ask("GET", path, &foreign).status, 403, "{path}");
        let followed = if path == "/" { 200 } else { 403 };
        assert_eq!(gateway.ask("GET", path, &link).status, followed, "{path}");
    }
    assert_eq!(gateway.ask("GET", "/metrics", &link).status, 403);
    for path in ["status", "explain", "routes", "gateways", "traffic", "live"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            assert_eq!(gateway.ask(method, &format!("/api/{path}"), &[]).status, 405, "{method} {path}");
        }
    }
    for (path, status) in [("/livez", 200), ("/readyz", 200), ("/metrics", 421)] {
        assert_eq!(gateway.ask("GET", path, &[("Host", "gateway.example.com")]).status, status, "{path}");
    }
    assert_eq!(gateway.ask("GET", "/page/../Cargo.toml", &[]).status, 404);
    assert_eq!(gateway.ask("GET", "/api/traffic?services=shop/web,<b>", &[]).status, 400);
    assert_eq!(gateway.ask("GET", "/api/live?other=1", &[]).status, 400);
    let many = vec!["shop/web"; 201].join(",");
    assert_eq!(gateway.ask("GET", &format!("/api/traffic?services={many}"), &[]).status, 400);
}

#[test]
fn streams_are_few_and_go_on_where_they_ended() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let (_, mut first) = gateway.stream(None);
    let id = next_line(&mut first, "id: ");
    assert!(next_line(&mut first, "data: ").contains("\"reset\":true"));
    gateway.apply(&[Service::new("web", 10), Service::new("new", 11)]);
    let newer = next_line(&mut first, "id: ");
    assert_ne!(id, newer);
    assert!(!next_line(&mut first, "data: ").contains("\"reset\":true"));

    // A page that returns gets what it is missing. A page that is up to date gets nothing, and one with an ID of
    // another process gets everything.
    let (_, mut back) = gateway.stream(Some(&id));
    assert_eq!(next_line(&mut back, "id: "), newer);
    let change = next_line(&mut back, "data: ");
    assert!(
        change.contains("shop/new") && !change.contains("shop/web") && change.contains("\"reset\":false"),
        "{change}"
    );
    for unknown in ["0-1", "nonsense", &format!("{}9", newer)] {
        let (_, mut back) = gateway.stream(Some(unknown));
        assert_eq!(next_line(&mut back, "id: "), newer);
        assert!(next_line(&mut back, "data: ").contains("\"reset\":true"), "{unknown}");
    }

    // Streams that have ended leave room.
    let mut open = vec![first, back];
    eventually_within(patience(20.0), "all places are taken", || match gateway.stream(None) {
        (200, stream) => Err({
            open.push(stream);
            open.len()
        }),
        (status, mut stream) => {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map_err(|_| open.len())?;
            assert_eq!(status, 503);
            assert!(answer.contains("close one"), "{answer}");
            Ok(())
        }
    });
    assert!(open.len() <= STREAMS, "{}", open.len());
    // Other requests are answered nevertheless.
    assert_eq!(gateway.ask("GET", "/api/status", &[]).status, 200);
    open.clear();
    eventually_within(patience(20.0), "there is room again", || match gateway.stream(None) {
        (200, _) => Ok(()),
        (status, _) => Err(status),
    });
}

/// Rates cover the time since then, while choices of endpoints are counted all the time, whatever other viewers
/// follow.
#[test]
fn the_first_counters_of_endpoints_are_of_the_moment_when_somebody_begins_to_look() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let uptime = |reader: &mut BufReader<TcpStream>, event: &str| {
        while next_line(reader, "event: ") != event {}
        let data: Value = serde_json::from_str(&next_line(reader, "data: ")).expect("JSON");
        data["uptimeMilliseconds"].as_u64().expect("a time")
    };
    let (_, mut clients) = gateway.stream_of("?traffic=clients", None);
    uptime(&mut clients, "clientTraffic");
    let counted = uptime(&mut clients, "clientTraffic");
    let read = Instant::now();
    while read.elapsed() < Duration::from_millis(5) {
        thread::yield_now();
    }
    let (_, mut endpoints) = gateway.stream_of("?traffic=endpoints", None);
    let began = uptime(&mut endpoints, "endpointTraffic");
    assert!(began > counted, "{began} is not after {counted}");
    assert!(uptime(&mut clients, "clientTraffic") > counted, "the others go on");
}

/// Unread streams, and the server's own time limit of connections, must not block other pages.
#[test]
fn streams_that_are_not_read_hold_nobody_up() {
    let host = host();
    let gateway = Gateway::start(&host, &[Service::new("web", 10)], "");
    let unread: Vec<_> = (1..STREAMS).map(|_| gateway.stream(None)).collect();
    let (status, mut reader) = gateway.stream(None);
    assert_eq!(status, 200);
    let mut uptimes = Vec::new();
    for _ in 0..4 {
        while next_line(&mut reader, "event: ") != "traffic" {}
        uptimes.push(next_line(&mut reader, "data: "));
    }
    uptimes.dedup();
    assert_eq!(uptimes.len(), 4);
    drop(unread);
}
