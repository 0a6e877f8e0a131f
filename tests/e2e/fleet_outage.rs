//! Tests of a member cluster that becomes unreachable: clients are served by the others, wait at most for the attempts to
//! connect, and soon not at all. The cluster is used again when it is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use crate::support::fleet::{Cluster, Exposure};
use crate::support::gateway::{Gateway, Settings};
use crate::support::load::Load;
use crate::support::manifest::{at, vip};
use crate::support::members::{ask_timed, cluster_of, endpoints, serve, tally};
use crate::support::patience::{eventually, eventually_within, patience};
use crate::support::tcp;
use crate::support::udp;
use crate::support::world::{CLIENTS, Family, World};

for_both_families!(
    a_cluster_that_is_cut_off_costs_nobody_more_than_the_attempts_and_comes_back,
    a_cluster_that_refuses_fails_no_request_and_is_left_alone,
    when_every_cluster_is_cut_off_clients_are_told_within_the_attempts,
    a_silent_cluster_is_found_by_checks_before_a_client_meets_it,
    an_endpoint_whose_page_says_no_gets_nothing_until_it_says_yes,
    flows_leave_a_cluster_that_checks_find_silent,
);

/// Threads of load, each of which is a client with its own address.
const THREADS: u16 = 4;
/// Number of endpoints in each cluster.
const ENDPOINTS: u16 = 2;
/// Timeout of one attempt to connect.
const CONNECT: Duration = Duration::from_secs(1);
/// Maximum number of attempts for one connection.
const ATTEMPTS: u32 = 3;

fn shop(family: Family) -> Exposure {
    Exposure::new("shop", &[family.vip(0)])
        .tcp(80, 9000)
        .ready("m0", endpoints(family, 0, ENDPOINTS))
        .ready("m1", endpoints(family, 1, ENDPOINTS))
}

fn start<'w>(world: &'w World, exposure: &Exposure) -> Gateway<'w> {
    let clusters = [Cluster::new("m0"), Cluster::new("m1")];
    let settings = Settings { connect: "1s", ..Settings::default() };
    Gateway::start_in_fleet(world, std::slice::from_ref(exposure), &clusters, &settings)
}

/// Time for all attempts, with a margin for slow machines.
fn budget() -> Duration {
    CONNECT * ATTEMPTS + patience(1.5)
}

/// Load that also records its longest request.
struct WatchedLoad {
    load: Load,
    longest: Arc<Mutex<Duration>>,
    /// Lock that each request holds for reading.
    requests: Arc<RwLock<()>>,
}

impl WatchedLoad {
    fn start(world: &World, family: Family) -> Self {
        let (longest, requests) = (Arc::<Mutex<Duration>>::default(), Arc::<RwLock<()>>::default());
        let (seen, gate) = (Arc::clone(&longest), Arc::clone(&requests));
        let load = Load::start(&world.client, usize::from(THREADS), move |thread| {
            let _request = gate.read().expect("nobody panics with it");
            let started = Instant::now();
            let client = family.client(u16::try_from(thread).expect("few threads"));
            let outcome = tcp::ask_from(client, vip(family)).map(drop);
            let mut longest = seen.lock().expect("nobody panics with it");
            *longest = longest.max(started.elapsed());
            outcome
        });
        Self { load, longest, requests }
    }

    /// Cuts off a cluster between two requests. A request that already has an endpoint there would wait for the link or be
    /// reset, with or without a load balancer.
    fn cut(&self, world: &World, cluster: u16) {
        let _none = self.requests.write().expect("nobody panics with it");
        world.cut(cluster);
    }
}

/// Waits until a series of requests is served by this cluster, none of which had to wait for a failed attempt.
fn expect_only(world: &World, family: Family, cluster: &str) {
    eventually_within(patience(60.0), &format!("{cluster} serves, and nobody waits"), || {
        for (answer, time) in ask_timed(world, family, vip(family), 3 * CLIENTS) {
            let answer = answer.map_err(|error| error.to_string())?;
            if cluster_of(&answer.name) != cluster || time >= CONNECT {
                return Err(format!("{} after {time:?}", answer.name));
            }
        }
        Ok(())
    });
}

fn a_cluster_that_is_cut_off_costs_nobody_more_than_the_attempts_and_comes_back(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let _servers = [0, 1].map(|cluster| serve(&world, family, cluster, ENDPOINTS, 9000));
    let _gateway = start(&world, &shop(family));
    let watched = WatchedLoad::start(&world, family);
    watched.load.wait_for(100);
    watched.cut(&world, 0);
    expect_only(&world, family, "m1");
    world.mend(0);
    eventually_within(patience(60.0), "both share again", || {
        let tally = tally(&world, family, vip(family), 40);
        let back = tally.get("m0").is_some_and(|&count| count >= 10);
        if back { Ok(()) } else { Err(format!("{tally:?}")) }
    });
    watched.load.wait_for(100);
    watched.load.expect_no_failure();
    let longest = *watched.longest.lock().unwrap();
    assert!(longest <= budget(), "a request took {longest:?}");
}

/// Refused connections cost no time, so only the gateway itself shows how long it kept trying.
fn a_cluster_that_refuses_fails_no_request_and_is_left_alone(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let servers = serve(&world, family, 0, ENDPOINTS, 9000);
    let _others = serve(&world, family, 1, ENDPOINTS, 9000);
    let gateway = start(&world, &shop(family));
    tally(&world, family, vip(family), 40);
    // Closing a listener resets connections that are not accepted yet, so there must be none.
    drop(servers);
    let load = WatchedLoad::start(&world, family).load;
    eventually_within(patience(30.0), "nobody is sent there first", || {
        let before = gateway.metric("sheave_tcp_connect_retries_total", &[]);
        let tally = tally(&world, family, vip(family), 3 * CLIENTS);
        let retries = gateway.metric("sheave_tcp_connect_retries_total", &[]) - before;
        if retries == 0.0 && !tally.contains_key("m0") {
            Ok(())
        } else {
            Err(format!("{retries}, {tally:?}"))
        }
    });
    let _back = serve(&world, family, 0, ENDPOINTS, 9000);
    eventually_within(patience(60.0), "both share again", || {
        let tally = tally(&world, family, vip(family), 40);
        let back = tally.get("m0").is_some_and(|&count| count >= 10);
        if back { Ok(()) } else { Err(format!("{tally:?}")) }
    });
    load.expect_no_failure();
}

fn when_every_cluster_is_cut_off_clients_are_told_within_the_attempts(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let _servers = [0, 1].map(|cluster| serve(&world, family, cluster, ENDPOINTS, 9000));
    let _gateway = start(&world, &shop(family));
    tally(&world, family, vip(family), CLIENTS);
    world.cut(0);
    world.cut(1);
    for (answer, time) in ask_timed(&world, family, vip(family), 4) {
        answer.expect_err("nobody is reached");
        assert!(time <= budget(), "a client waited {time:?}");
    }
    world.mend(1);
    expect_only(&world, family, "m1");
}

/// There is no traffic meanwhile, so the gateway must find out through checks.
fn a_silent_cluster_is_found_by_checks_before_a_client_meets_it(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let _servers = [0, 1].map(|cluster| serve(&world, family, cluster, ENDPOINTS, 9000));
    let checked = shop(family)
        .annotation("sheave.dev/cluster-priority", "m0>m1")
        .annotation("sheave.dev/health-check", "tcp interval=1s timeout=500ms failures=2 successes=1");
    let gateway = start(&world, &checked);
    expect_only(&world, family, "m0");
    world.cut(0);
    eventually_within(patience(30.0), "the gateway has found out", || unhealthy(&gateway, ENDPOINTS));
    for (answer, time) in ask_timed(&world, family, vip(family), 3 * CLIENTS) {
        assert_eq!(cluster_of(&answer.unwrap().name), "m1");
        assert!(time < CONNECT, "a client waited {time:?}");
    }
    world.mend(0);
    eventually_within(patience(30.0), "the gateway has found out", || unhealthy(&gateway, 0));
    expect_only(&world, family, "m0");
}

fn unhealthy(gateway: &Gateway<'_>, expected: u16) -> Result<(), String> {
    let now = gateway.metric("sheave_endpoints_unhealthy", &[]);
    if now == f64::from(expected) { Ok(()) } else { Err(format!("{now} endpoints are unhealthy")) }
}

/// Serves HTTP on every address of a cluster, with 200 while `well`.
fn pages(world: &World, family: Family, cluster: u16, well: &Arc<AtomicBool>) -> Vec<tcp::Server> {
    let page = |ip| {
        let well = Arc::clone(well);
        tcp::Server::start(world.backend(usize::from(cluster)), at(ip, 9100), move |mut stream| {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                std::io::Read::read_exact(&mut stream, &mut byte)?;
                request.extend(byte);
            }
            let wanted = request.starts_with(b"GET /healthz HTTP/1.");
            let status = if wanted && well.load(Ordering::SeqCst) { "200 OK" } else { "503 No" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            std::io::Write::write_all(&mut stream, answer.as_bytes())
        })
    };
    endpoints(family, cluster, ENDPOINTS).into_iter().map(page).collect()
}

fn an_endpoint_whose_page_says_no_gets_nothing_until_it_says_yes(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let first = serve(&world, family, 0, ENDPOINTS, 9000);
    let _second = serve(&world, family, 1, ENDPOINTS, 9000);
    let (ill, well) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let asked = pages(&world, family, 0, &ill);
    let _others = pages(&world, family, 1, &well);
    let checked = shop(family).annotation(
        "sheave.dev/health-check",
        "http:9100/healthz interval=1s timeout=1s failures=2 successes=2",
    );
    let _gateway = start(&world, &checked);
    // The third check is sent when the second answer has been counted.
    eventually("each was asked three times", || {
        let counts: Vec<usize> = asked.iter().map(tcp::Server::accepted).collect();
        if counts.iter().all(|&count| count >= 3) { Ok(()) } else { Err(format!("{counts:?}")) }
    });
    let all = tally(&world, family, vip(family), 100);
    assert_eq!(all.into_keys().collect::<Vec<_>>(), ["m1"]);
    assert!(first.iter().all(|server| server.accepted() == 0), "no client met it");
    ill.store(true, Ordering::SeqCst);
    eventually_within(patience(30.0), "it serves", || {
        let tally = tally(&world, family, vip(family), 20);
        if tally.contains_key("m0") { Ok(()) } else { Err(format!("{tally:?}")) }
    });
}

/// Lost datagrams get no answer, so only checks can detect this.
fn flows_leave_a_cluster_that_checks_find_silent(family: Family) {
    let world = World::with_addresses(2, ENDPOINTS);
    let serve = |cluster: u16| {
        let host = world.backend(usize::from(cluster));
        let udp = |ip| udp::Server::who_am_i(host, at(ip, 5300), &format!("m{cluster}"));
        let tcp = |ip| tcp::Server::echo(host, at(ip, 9100));
        let ips = endpoints(family, cluster, ENDPOINTS);
        let (udp, tcp) = (ips.iter().copied().map(udp), ips.iter().copied().map(tcp));
        (udp.collect::<Vec<_>>(), tcp.collect::<Vec<_>>())
    };
    let _servers = [serve(0), serve(1)];
    let names = Exposure::new("names", &[family.vip(0)])
        .udp(53, 5300)
        .annotation("sheave.dev/cluster-priority", "m0>m1")
        .annotation("sheave.dev/health-check", "tcp:9100 interval=1s timeout=500ms failures=2 successes=1")
        .ready("m0", endpoints(family, 0, ENDPOINTS))
        .ready("m1", endpoints(family, 1, ENDPOINTS));
    let gateway = start(&world, &names);
    let client = || udp::Client::new(&world.client, family.client(0), at(family.vip(0), 53));
    let open = client();
    assert_eq!(open.ask().unwrap().name, "m0");
    world.cut(0);
    eventually_within(patience(30.0), "the gateway has found out", || unhealthy(&gateway, ENDPOINTS));
    assert_eq!(client().ask().unwrap().name, "m1", "a new flow");
    assert_eq!(open.ask().unwrap().name, "m1", "a flow that was open");
    world.mend(0);
    eventually_within(patience(30.0), "the gateway has found out", || unhealthy(&gateway, 0));
    assert_eq!(client().ask().unwrap().name, "m0");
}
