//! Tests of scrapes with a hundred thousand frontends, next to a busy control loop.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use metrics_exporter_prometheus::PrometheusBuilder;
use sheave_dataplane::Dataplane;
use sheave_model::test_util::table;
use tokio::net::TcpListener;

use super::super::tests::{dataplane, frontend};
use super::*;
use crate::connection_log::LineCounts;
use crate::http::admin::{self, LookingPages};
use crate::http::health::Health;
use crate::http::metrics::SeriesLimits;
use crate::http::query::Query;
use crate::http::server::{Connections, Server};
use crate::views::status::ProcessView;

/// Long enough for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);
/// More than the buffers of a connection hold, by far.
const MANY: u32 = 40_000;

/// Server with a control loop on this thread that answers like a gateway's.
struct ScrapedServer {
    addr: SocketAddr,
    scrapes: ScrapeQueue,
    _server: Server,
    _dataplane: Dataplane,
}

async fn start(frontends: u32, patience: Duration) -> ScrapedServer {
    let mut dataplane = dataplane();
    // Frontends that refuse everyone need no sockets.
    dataplane.apply(table((0..frontends).map(|number| frontend(number, &[]))));
    let own = PrometheusBuilder::new().build_recorder().handle();
    let scrapes = ScrapeQueue { patience, ..ScrapeQueue::new(dataplane.observer(), own) };
    let (queries, mut inbox) = mpsc::channel(16);
    tokio::spawn(async move {
        let health = Health::new(Connections::default());
        while let Some(query) = inbox.recv().await {
            match query {
                Query::Metrics(reply) => drop(reply.send(facts(&health))),
                Query::Live(reply) => drop(reply.send(Ok(()))),
                _ => {}
            }
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let pages = LookingPages::start(&dataplane.observer(), &queries, None, "n");
    let server = admin::serve(listener, queries, scrapes.clone(), pages, "n", Connections::of_admin(8));
    ScrapedServer { addr, scrapes, _server: server, _dataplane: dataplane }
}

fn facts(health: &Health) -> LoopFacts {
    LoopFacts {
        connection_log: LineCounts::default(),
        dropped_log_lines: 0,
        problems: Default::default(),
        all_problems: Vec::new(),
        obstacles: Default::default(),
        announcements: std::sync::Arc::default(),
        status: ProcessView::default(),
        pages: health.pages().clone(),
        worker_restarts: 0,
        health: sheave_dataplane::HealthCounts::default(),
        series: SeriesLimits { frontends: MANY as usize, endpoints: 0 },
    }
}

/// Sends a request without reading the answer.
fn ask(addr: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").as_bytes()).unwrap();
    stream
}

/// Reads until the end of the connection, outside of the server's thread.
async fn read(mut stream: TcpStream) -> String {
    let read = move || {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// Waits until this many turns are free.
async fn until_free(scrapes: &ScrapeQueue, free: usize) {
    let wait = async {
        while scrapes.turn.available_permits() != free {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, wait).await.unwrap();
}

#[tokio::test]
async fn the_loop_answers_while_a_scrape_of_a_large_table_waits_for_its_reader() {
    let ScrapedServer { addr, scrapes, .. } = &start(MANY, NEVER).await;
    let slow = ask(*addr, "/metrics");
    until_free(scrapes, 0).await;
    for _ in 0..10 {
        assert!(read(ask(*addr, "/livez")).await.ends_with("ok\n"));
    }
    assert_eq!(scrapes.turn.available_permits(), 0, "the scrape goes on: nobody has read it");
    drop(slow);
    until_free(scrapes, 1).await;
}

#[tokio::test]
async fn a_scrape_that_is_given_up_does_not_look_complete() {
    let ScrapedServer { addr, scrapes, .. } = &start(MANY, Duration::from_millis(1)).await;
    let slow = ask(*addr, "/metrics");
    until_free(scrapes, 0).await;
    until_free(scrapes, 1).await;
    let text = read(slow).await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && !text.ends_with("\r\n0\r\n\r\n"), "{}", text.len());
}

#[tokio::test]
async fn scrapes_at_the_same_time_take_turns_and_both_are_complete() {
    let ScrapedServer { addr, .. } = &start(1_000, NEVER).await;
    let (one, other) = (ask(*addr, "/metrics"), ask(*addr, "/metrics"));
    for text in [read(other).await, read(one).await] {
        assert!(text.ends_with("\r\n0\r\n\r\n"));
        assert_eq!(text.matches("sheave_frontend_info{").count(), 1_000);
    }
}
