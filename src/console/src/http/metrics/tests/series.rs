//! Tests of the series of a data plane with traffic: of frontends up to the limit, of all frontends, and of
//! endpoints.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sheave_dataplane::Dataplane;
use sheave_dataplane::counters::CloseReason;
use sheave_model::test_util::table;
use sheave_model::{Algorithm, Frontend, FrontendSource, PartTarget, Split, SplitPart};
use tokio::time::timeout;

use super::super::exposition::Exposition;
use super::super::{endpoints, families, frontends};
use super::{dataplane, frontend};
use crate::http::metrics::SeriesLimits;

/// Data plane with series for some frontends, and one endpoint that closes every connection.
struct Scraped {
    dataplane: Dataplane,
    endpoint: SocketAddr,
    limits: SeriesLimits,
}

impl Scraped {
    fn start(frontends: usize, endpoints: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap();
        thread::spawn(move || listener.incoming().for_each(drop));
        Self { dataplane: dataplane(), endpoint, limits: SeriesLimits { frontends, endpoints } }
    }

    fn apply(&mut self, numbers: impl IntoIterator<Item = u32>) {
        let endpoint = self.endpoint;
        self.dataplane.apply(table(numbers.into_iter().map(|number| frontend(number, &[endpoint]))));
    }

    /// One connection to a frontend, from its first to its last byte.
    fn visit(&self, number: u32) {
        let mut client = TcpStream::connect((frontend(number, &[]).addr.ip, 8080)).unwrap();
        // The endpoint's close is counted before it is passed on.
        client.read_to_end(&mut Vec::new()).unwrap();
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let mut text = Exposition::default();
        let observer = self.dataplane.observer();
        frontends::write(&mut text, &observer, observer.table().table(), self.limits.frontends);
        endpoints::write(&mut text, &observer.table(), observer.endpoint_failures(), self.limits.endpoints);
        let text = text.finish().unwrap();
        assert_eq!(families::misfits(&text), [""; 0]);
        let own = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        text.lines().filter(own).map(str::to_owned).collect()
    }

    /// The only series of that name.
    fn value(&self, name: &str) -> u64 {
        let lines = self.lines(name);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

#[test]
fn frontends_beyond_the_bound_are_in_the_totals_which_never_fall() {
    const TOTAL: &str = "sheave_gateway_tcp_connections_total";
    let mut scraped = Scraped::start(2, 0);
    scraped.apply([1, 2]);
    scraped.visit(1);
    scraped.visit(2);
    assert_eq!((scraped.value(TOTAL), scraped.value("sheave_metrics_frontends_omitted")), (2, 0));
    // Exceed the limit: only the first two by address have series, but all are counted.
    scraped.apply(1..=4);
    scraped.visit(4);
    let series = |number: u32, count: u32| {
        let labels = format!("frontend=\"127.83.0.{number}:8080/TCP\",service=\"d/web-{number}\"");
        format!("sheave_tcp_connections_total{{{labels}}} {count}")
    };
    assert_eq!(scraped.lines("sheave_tcp_connections_total"), [series(1, 1), series(2, 1)]);
    assert_eq!((scraped.value(TOTAL), scraped.value("sheave_metrics_frontends_omitted")), (3, 2));
    assert_eq!(scraped.lines("sheave_frontend_info").len(), 2);
    let endpoints = scraped.lines("sheave_frontend_endpoints");
    assert!(endpoints.len() == 2 && endpoints.iter().all(|line| line.ends_with(" 1")), "{endpoints:?}");
    // Then go back, without the frontends that had counts.
    scraped.apply([3]);
    assert_eq!(scraped.lines("sheave_tcp_connections_total"), [series(3, 0)]);
    assert_eq!((scraped.value(TOTAL), scraped.value("sheave_metrics_frontends_omitted")), (3, 0));
    scraped.visit(3);
    assert_eq!(scraped.lines("sheave_tcp_connections_total"), [series(3, 1)]);
    assert_eq!(scraped.value(TOTAL), 4);
}

#[test]
fn without_series_of_frontends_there_are_totals() {
    let mut scraped = Scraped::start(0, 0);
    scraped.apply([11]);
    scraped.visit(11);
    assert_eq!(scraped.lines("sheave_tcp_connections_total"), [""; 0]);
    assert_eq!(scraped.value("sheave_gateway_tcp_connections_total"), 1);
    assert_eq!(scraped.lines("sheave_gateway_tcp_closed_total").len(), CloseReason::ALL.len());
    assert_eq!(scraped.lines("sheave_tcp_connect_seconds_count"), [""; 0]);
    assert_eq!(scraped.value("sheave_gateway_tcp_connect_seconds_count"), 1);
    assert_eq!(scraped.lines("sheave_endpoint_picks_total"), [""; 0]);
    assert_eq!(scraped.lines("sheave_metrics_endpoints_omitted"), [""; 0]);
}

#[test]
fn endpoints_have_series_where_the_configuration_asks_for_them() {
    let mut scraped = Scraped::start(2, 1);
    scraped.apply([21, 22]);
    scraped.visit(21);
    scraped.visit(22);
    let labels = format!(
        "frontend=\"127.83.0.21:8080/TCP\",service=\"d/web-21\",endpoint=\"{}\",cluster=\"local\"",
        scraped.endpoint
    );
    assert_eq!(
        scraped.lines("sheave_endpoint_picks_total"),
        [format!("sheave_endpoint_picks_total{{{labels}}} 1")]
    );
    assert_eq!(scraped.lines("sheave_endpoint_connections").len(), 1);
    assert_eq!(scraped.value("sheave_metrics_endpoints_omitted"), 1);
}

#[test]
fn a_listener_names_its_route_and_its_endpoints_the_service_of_their_part() {
    let mut scraped = Scraped::start(1, 5);
    let part = |number: u32| SplitPart {
        name: format!("Service d/web-{number}:80").into(),
        weight: 1,
        target: PartTarget::Pool(Arc::new(Frontend {
            addr: frontend(23, &[]).addr,
            ..frontend(number, &[scraped.endpoint])
        })),
    };
    let split = Split { route: "TCPRoute d/a".into(), superseded: 0, parts: vec![part(24), part(25)] };
    let mut listener = frontend(23, &[]);
    listener.service.source = FrontendSource::Gateway;
    listener.backends = Arc::new([]);
    listener.split = Some(Arc::new(split));
    scraped.dataplane.apply(table([listener]));
    scraped.visit(23);
    let info = scraped.lines("sheave_frontend_info").remove(0);
    let names = "route=\"TCPRoute d/a\",listener=\"d/web-23/http\"";
    assert!(info.contains("service=\"d/web-23\"") && info.contains(names), "{info}");
    // Both parts have the endpoint, which is one series.
    let picks = scraped.lines("sheave_endpoint_picks_total");
    let [picks] = picks.as_slice() else { panic!("{picks:?}") };
    assert!(picks.contains("service=\"d/web-24\"") && picks.ends_with(" 1"), "{picks}");
}

#[test]
fn connect_times_are_those_of_a_frontend_while_it_is_there_and_of_all() {
    const OF_EACH: &str = "sheave_tcp_connect_seconds";
    let mut scraped = Scraped::start(2, 0);
    scraped.apply(31..=33);
    for number in [31, 31, 33] {
        scraped.visit(number);
    }
    let series = |name: &str, number: u32, count: u32| {
        let labels = format!("frontend=\"127.83.0.{number}:8080/TCP\",service=\"d/web-{number}\"");
        match name.strip_suffix("_bucket") {
            Some(_) => format!("{name}{{{labels},le=\"+Inf\"}} {count}"),
            None => format!("{name}{{{labels}}} {count}"),
        }
    };
    let count = format!("{OF_EACH}_count");
    assert_eq!(scraped.lines(&count), [series(&count, 31, 2), series(&count, 32, 0)]);
    let bucket = format!("{OF_EACH}_bucket");
    let buckets = scraped.lines(&bucket);
    assert_eq!(
        (buckets.len(), &buckets[6], &buckets[13]),
        (14, &series(&bucket, 31, 2), &series(&bucket, 32, 0))
    );
    let sums = scraped.lines(&format!("{OF_EACH}_sum"));
    assert!(!sums[0].ends_with(" 0") && sums[1].ends_with(" 0"), "{sums:?}");
    assert_eq!(scraped.value("sheave_gateway_tcp_connect_seconds_count"), 3);
    assert_eq!(scraped.lines("sheave_gateway_tcp_connect_seconds_bucket").len(), 14, "finer than of each");
    scraped.apply([32]);
    assert_eq!(scraped.lines(&count), [series(&count, 32, 0)]);
    assert_eq!(scraped.value("sheave_gateway_tcp_connect_seconds_count"), 3);
}

/// Two endpoints; the second one refuses connections.
#[tokio::test]
async fn what_an_endpoint_failed_at_is_shown_until_it_leaves() {
    let mut scraped = Scraped::start(1, 2);
    let refusing = SocketAddr::from(([127, 83, 1, 41], 9));
    let endpoints = [scraped.endpoint, refusing];
    let with = |endpoints: &[SocketAddr]| {
        table([Frontend { algorithm: Algorithm::RoundRobin, ..frontend(41, endpoints) }])
    };
    scraped.dataplane.apply(with(&endpoints));
    let values = |scraped: &Scraped, name: &str| -> Vec<f64> {
        let lines = scraped.lines(name);
        lines.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
    };
    let verdicts = ["sheave_endpoint_unhealthy", "sheave_endpoint_ejections_total"];
    let failures = "sheave_endpoint_failures_total";
    assert_eq!(values(&scraped, "sheave_endpoint_share_ratio"), [0.5, 0.5]);
    for name in verdicts.iter().chain([&failures]) {
        assert_eq!(values(&scraped, name), [0.0, 0.0], "{name}");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let clients = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                let mut client = TcpStream::connect((frontend(41, &[]).addr.ip, 8080)).unwrap();
                client.read_to_end(&mut Vec::new()).ok();
            }
        }
    });
    let ejected = async {
        while scraped.dataplane.unhealthy().next().is_none() {
            scraped.dataplane.changed().await;
            scraped.dataplane.refresh();
        }
    };
    timeout(Duration::from_secs(60), ejected).await.expect("nothing is noticed");
    stop.store(true, Ordering::Relaxed);
    clients.join().unwrap();
    assert_eq!(values(&scraped, "sheave_endpoint_share_ratio"), [1.0, 0.0]);
    for name in verdicts {
        assert_eq!(values(&scraped, name), [0.0, 1.0], "{name}");
    }
    let failed = values(&scraped, failures);
    assert!(failed[0] == 0.0 && failed[1] >= 3.0, "{failed:?}");
    scraped.dataplane.apply(with(&endpoints[..1]));
    assert_eq!(values(&scraped, failures), [0.0]);
    scraped.dataplane.apply(with(&endpoints));
    for name in verdicts.iter().chain([&failures]) {
        assert_eq!(values(&scraped, name), [0.0, 0.0], "{name}, of one that came again");
    }
}
