//! Every fault at every point, in simulated time: the source knows the server's objects again within a bounded time, and then
//! works in the best way, with one stream and a watch.

use std::collections::BTreeSet;

use tokio::time::{Instant, sleep, timeout_at};

use super::memory::{Fault, MemoryServer, PAGE, Plan, Point};
use super::*;
use crate::api::kinds;

/// Duration of a lasting fault. After that the server has no fault.
const LASTS: Duration = Duration::from_secs(180);
/// Time within which everything is known that can be known.
const BOUND: Duration = Duration::from_secs(90);
/// Longest time that a refusal of streams counts, after all refusals during a fault.
const UNSTREAMED: Duration = Duration::from_secs(11 * 60);

const STATUSES: [u16; 13] = [400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 502, 503, 504];

/// A source of a server's Nodes.
struct Bench {
    server: MemoryServer,
    watch: ApiWatch,
    store: Store,
}

impl Bench {
    fn start(server: MemoryServer) -> Self {
        let mut watch = ApiWatch {
            plane: ControlPlane::Local,
            gateway_api: GatewayApiMode::Off,
            wants_gateways: AtomicBool::default(),
            sync: Arc::new(SyncState::of(1)),
            discovery: Arc::new(Discovery::new(&WatchLimits::default())),
            subscriptions: Vec::new(),
            tasks: JoinSet::new(),
        };
        watch.follow::<kinds::Nodes>(
            &Connection::by(server.client()),
            WatchLimits { page: PAGE, ..WatchLimits::default() },
            None,
        );
        Self { server, watch, store: Store::default() }
    }

    fn status(&self) -> KindStatus {
        self.watch.kinds().remove(0)
    }

    fn names(&self) -> BTreeSet<&str> {
        self.store.objects().nodes.keys().map(|name| &**name).collect()
    }

    /// Receives batches until the objects equal those of the server.
    async fn until_known(&mut self, what: &str, limit: Duration) -> Result<(), String> {
        let until = Instant::now() + limit;
        while self.names() != self.server.names() {
            match timeout_at(until, self.watch.next()).await {
                Ok(Some(batch)) => batch.changes.into_iter().for_each(|change| self.store.apply(change)),
                Ok(None) => return Err(format!("{what}: the follower has ended")),
                Err(_) => return Err(format!("{what}: {:?} after {limit:?}", self.names())),
            }
        }
        Ok(())
    }

    fn is_well(&self) -> Result<(), String> {
        match (self.status().error, self.watch.problems().is_empty()) {
            (None, true) => Ok(()),
            (error, _) => Err(format!("still {error:?}, {:?}", self.watch.problems())),
        }
    }

    /// Checks that a change arrives at once, and that a forgotten version costs one stream.
    async fn is_at_its_best(&mut self) -> Result<(), String> {
        self.server.set("e", true);
        self.until_known("a watch brings a change", Duration::from_secs(1)).await?;
        sleep(UNSTREAMED).await;
        let before = self.server.requests();
        let lists = self.status().lists;
        self.server.plan(Some(Plan { point: Point::WatchStart, fault: Fault::Status(410), times: 1 }));
        sleep(Duration::from_secs(60)).await;
        let after = self.server.requests();
        let (streams, pages) = (after.streams - before.streams, after.pages - before.pages);
        if (streams, pages, self.status().lists - lists) != (1, 0, 1) {
            return Err(format!("listed by {streams} streams and {pages} pages"));
        }
        self.server.set("f", true);
        self.until_known("the next watch brings a change", Duration::from_secs(1)).await
    }
}

/// A fault that affects the first `times` requests and ends after [`LASTS`].
async fn recovers(point: Point, fault: Fault, times: usize) -> Result<(), String> {
    let server = MemoryServer::new(&["a", "b", "c"]);
    server.plan(Some(Plan { point, fault, times }));
    let mut bench = Bench::start(server.clone());
    let began = Instant::now();
    // Pages that always fail leave nothing that could be known before the end.
    let hopeless = times > 1 && matches!(point, Point::FirstPage | Point::SecondPage);
    if !hopeless {
        bench.until_known("the first list", BOUND).await?;
    }
    server.set("b", false);
    server.set("d", true);
    if !hopeless {
        bench.until_known("what changes meanwhile", BOUND).await?;
    }
    tokio::time::sleep_until(began + LASTS).await;
    server.plan(None);
    bench.until_known("what changed meanwhile", BOUND).await?;
    // A watch that the fault left hanging can last this long.
    sleep(BOUND).await;
    bench.is_well()?;
    bench.is_at_its_best().await
}

#[tokio::test(start_paused = true)]
async fn every_fault_at_every_point_is_recovered_from() {
    fastrand::seed(1);
    let points = [
        Point::FirstPage,
        Point::SecondPage,
        Point::StreamStart,
        Point::MidStream,
        Point::WatchStart,
        Point::MidWatch,
    ];
    let faults = STATUSES.map(Fault::Status).into_iter().chain([Fault::Cut, Fault::Silence, Fault::Garbage]);
    let mut wrong = Vec::new();
    for fault in faults {
        for point in points {
            for times in [1, 3, usize::MAX] {
                if let Err(error) = recovers(point, fault, times).await {
                    wrong.push(format!("{times} of {fault:?} at {point:?}: {error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", wrong.len());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_without_its_past_is_listed_at_once_and_watched() {
    for seed in 0..20 {
        fastrand::seed(seed);
        comes_back_without_its_past().await;
    }
}

async fn comes_back_without_its_past() {
    let server = MemoryServer::new(&["a"]);
    let mut bench = Bench::start(server.clone());
    bench.until_known("the first list", BOUND).await.unwrap();
    let away = Plan { point: Point::Everywhere, fault: Fault::Cut, times: usize::MAX };
    server.plan(Some(away));
    // The current watch lasts for part of this time.
    sleep(Duration::from_secs(180)).await;
    server.set("b", true);
    server.plan(Some(Plan { point: Point::WatchStart, fault: Fault::Status(410), times: 1 }));
    // The longest pause, and no further one.
    bench.until_known("the list", Duration::from_secs(12)).await.unwrap();
    server.set("c", true);
    bench.until_known("a watch brings a change", Duration::from_secs(1)).await.unwrap();
    assert_eq!(bench.status().lists, 2);
    sleep(Duration::from_secs(2)).await;
    bench.is_well().unwrap();
}

/// A source whose server has a fault at each watch.
async fn unwatched(fault: Fault) -> Bench {
    let server = MemoryServer::new(&["a"]);
    server.plan(Some(Plan { point: Point::WatchStart, fault, times: usize::MAX }));
    let mut bench = Bench::start(server);
    bench.until_known("the first list", BOUND).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_watched_is_listed_now_and_then() {
    for fault in [Fault::Status(405), Fault::Status(500), Fault::Cut] {
        let bench = unwatched(fault).await;
        let error = bench.status().error.unwrap();
        assert!(error.ends_with("they are listed every 15 to 30 s instead"), "{error}");
        let lists = bench.status().lists;
        sleep(Duration::from_secs(600)).await;
        let lists = bench.status().lists - lists;
        assert!((19..=40).contains(&lists), "{lists} lists in ten minutes: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rights_that_are_missing_for_watches_alone_are_named() {
    let bench = unwatched(Fault::Status(403)).await;
    let problems = bench.watch.problems();
    assert!(problems[0].message.contains("lets us list them but not watch them"), "{problems:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_everything_as_it_starts_is_not_said_to_lack_rights() {
    let server = MemoryServer::new(&["a"]);
    server.plan(Some(Plan { point: Point::FirstPage, fault: Fault::Status(403), times: usize::MAX }));
    let bench = Bench::start(server);
    sleep(Duration::from_secs(4)).await;
    assert!(bench.status().error.is_some());
    assert!(bench.watch.problems().is_empty(), "{:?}", bench.watch.problems());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.watch.problems()[0].reason, crate::api::problem::reason::ACCESS_DENIED);
}

#[tokio::test(start_paused = true)]
async fn the_watches_of_a_server_that_sends_bookmarks_last_for_minutes() {
    let hour = Duration::from_secs(3600);
    for (server, most) in
        [(MemoryServer::new(&["a"]), 3600 / 25), (MemoryServer::new(&["a"]).with_bookmarks(), 3600 / 600 + 2)]
    {
        let mut bench = Bench::start(server.clone());
        bench.until_known("the first list", BOUND).await.unwrap();
        sleep(hour).await;
        let watches = server.requests().watches;
        assert!(watches <= most, "{watches} watches in an hour");
        assert_eq!(bench.status().lists, 1);
    }
}

#[test]
fn a_thousand_gateways_renew_at_most_ten_watches_a_second() {
    let limits = WatchLimits::default();
    for plane in [ControlPlane::Local, ControlPlane::Karmada] {
        let gateway_api = GatewayApiMode::Auto;
        let wanted = Wanted { pools: true, gateway_api, service_works: true, ..Wanted::of(plane) };
        let rates: Vec<(&str, f64)> = KINDS
            .iter()
            .filter(|row| wanted.includes(row))
            .map(|row| {
                let shortest = limits.lasting_watch(wanted.definition(row).is_some());
                // It lasts for up to twice that.
                (row.resource.kind, 1000.0 / (1.5 * shortest.as_secs_f64()))
            })
            .collect();
        let sum: f64 = rates.iter().map(|(_, rate)| rate).sum();
        assert!(sum <= 10.0, "{sum}: {rates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_watch_that_hangs_is_noticed() {
    let server = MemoryServer::new(&["a"]).with_bookmarks();
    let mut bench = Bench::start(server.clone());
    bench.until_known("the first list", BOUND).await.unwrap();
    let watches = server.requests().watches;
    server.plan(Some(Plan { point: Point::MidWatch, fault: Fault::Silence, times: 1 }));
    while server.requests().watches == watches {
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(1)).await;
    server.set("b", true);
    bench.until_known("what comes while the watch hangs", BOUND).await.unwrap();
    bench.is_well().unwrap();
}

/// Like the restart of an API server's watch cache.
#[tokio::test(start_paused = true)]
async fn versions_that_are_forgotten_together_are_not_listed_together() {
    let server = MemoryServer::new(&["a"]).with_bookmarks();
    let mut gateways: Vec<Bench> = (0..1000).map(|_| Bench::start(server.clone())).collect();
    for gateway in &mut gateways {
        gateway.until_known("the first list", BOUND).await.unwrap();
    }
    // Let their watches start.
    sleep(Duration::from_secs(1)).await;
    let lists = || server.requests().streams + server.requests().pages;
    let before = lists();
    server.forget();
    let mut each: Vec<usize> = Vec::new();
    for _ in 0..100 {
        let known = lists();
        sleep(Duration::from_millis(100)).await;
        each.push(lists() - known);
    }
    assert_eq!(lists() - before, gateways.len());
    let spread = each.iter().filter(|lists| **lists > 0).count();
    assert!(spread >= 50 && each.iter().all(|lists| *lists < 50), "{each:?}");
}
