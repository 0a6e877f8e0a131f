//! Cost of choosing an endpoint for a new connection, from the lookup of its frontend to the count of its end: warm, with few
//! frontends, and cold, with more than the caches hold.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use ipnet::IpNet;
use sheave_dataplane::balance::hash::mix;
use sheave_dataplane::select::affinity::{AffinityTable, Scope};
use sheave_dataplane::select::{ActiveTable, EndpointHealth, PickRequest};
use sheave_dataplane::{ClientHelloParser, ParsedClientHello};
use sheave_model::{
    AddressSet, Affinity, AffinityScope, Algorithm, Backend, Candidate, ClientAddr, Endpoint, Failover,
    Frontend, FrontendAddr, Protocol, Route, Spread, Weight,
};

#[path = "support/frontends.rs"]
mod frontends;

use frontends::{endpoint_addr, frontend, frontend_addr, named_frontend, split_frontend, table};

const STICKY: Affinity =
    Affinity::ClientIp { timeout: Duration::from_secs(10_800), scope: AffinityScope::Port };

/// A table of `frontends`. With 1,000 endpoints, only the first ten have as many, and only they are used.
fn active(algorithm: Algorithm, affinity: Affinity, frontends: u32, endpoints: u32) -> ActiveTable {
    let size = |number| if number < 10 { endpoints } else { 10 };
    let all = (0..frontends).map(|number| frontend(number, algorithm, affinity, size(number)));
    ActiveTable::compile(table(all), &ActiveTable::default())
}

fn client(number: u32) -> ClientAddr {
    let port = 1024 + (number % 60_000) as u16;
    ClientAddr(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0xac10_0000u32.wrapping_add(number))), port))
}

/// Client number `number` connects. As in the data plane, it is looked up and admitted when it is accepted, and looked up again when
/// an endpoint is picked. The end of the connection is counted as well.
fn ask(active: &ActiveTable, asked: u32, clients: u32, number: u32, now: Instant, affinity: &AffinityTable) {
    ask_over(Protocol::Tcp, active, asked, clients, number, now, affinity);
}

fn ask_over(
    protocol: Protocol,
    active: &ActiveTable,
    asked: u32,
    clients: u32,
    number: u32,
    now: Instant,
    affinity: &AffinityTable,
) {
    let random = mix(u64::from(number));
    let addr = FrontendAddr { protocol, ..frontend_addr((random >> 32) as u32 % asked) };
    let client = client((random as u32) % clients);
    if let Some(frontend) = active.get(addr) {
        let proxied = frontend.proxied_by().is_some_and(|proxies| proxies.contains(client.ip()));
        let refused = frontend.refusal(active.origin(addr, client), client).is_some();
        black_box((proxied, refused, frontend.limiter().is_some(), frontend.timeouts()));
    }
    if let Some(frontend) = active.get(addr) {
        let origin = active.origin(addr, client);
        let mut request = PickRequest { client, origin, random, now, tried: &[], part: None };
        request.part = frontend.part(&request, affinity);
        let pick = frontend.pick(black_box(&request), affinity);
        drop(black_box((pick, frontend.client_source(origin))));
    }
}

fn balancing(criterion: &mut Criterion) {
    let affinity = AffinityTable::default();
    let now = Instant::now();
    for algorithm in
        [Algorithm::LeastConnections, Algorithm::Maglev, Algorithm::RoundRobin, Algorithm::Random]
    {
        for (frontends, endpoints) in [(10, 10), (10, 1_000), (10_000, 10), (10_000, 1_000)] {
            let active = active(algorithm, Affinity::None, frontends, endpoints);
            let asked = if endpoints == 10 { frontends } else { 10 };
            (0..asked * 32).for_each(|number| ask(&active, asked, 100_000, number, now, &affinity));
            let mut number = 0;
            criterion.bench_function(
                &format!("pick/{algorithm:?}/{frontends} frontends/{endpoints} endpoints"),
                |bencher| {
                    bencher.iter(|| {
                        number += 1;
                        ask(&active, asked, 100_000, number, now, &affinity);
                    });
                },
            );
        }
    }
}

/// 1,000 frontends of 20 clusters with ten endpoints each, every tenth of which is unhealthy.
fn across_clusters(algorithm: Algorithm) -> ActiveTable {
    let frontend = |number| {
        let whole = frontend(number, algorithm, Affinity::None, 200);
        let backend = |(cluster, endpoints): (u32, &[Endpoint])| Backend {
            cluster: format!("member{cluster}").into(),
            weight: Weight(1 + cluster as u16 % 3),
            priority: cluster / 10,
            endpoints: endpoints.to_vec(),
            ..whole.backends[0].clone()
        };
        let all: Arc<[Candidate]> =
            (0..200).map(|place| Candidate { backend: place / 10, endpoint: place % 10 }).collect();
        Frontend {
            backends: (0..).zip(whole.backends[0].endpoints.chunks(10)).map(backend).collect(),
            node_local: false,
            external: Route::Forward(all),
            failover: Some(Failover { spread: Spread::Backends, overprovisioning: 140 }),
            ..whole
        }
    };
    let table = table((0..1_000).map(frontend));
    let mut unhealthy = EndpointHealth::default();
    for frontend in table.frontends() {
        for endpoint in frontend.backends.iter().flat_map(|backend| &backend.endpoints).step_by(10) {
            unhealthy.set_unhealthy(&frontend.service, endpoint.addr, "connection refused".into());
        }
    }
    ActiveTable::compile(table, &ActiveTable::default()).with_health(unhealthy)
}

fn clusters(criterion: &mut Criterion) {
    let now = Instant::now();
    for algorithm in
        [Algorithm::LeastConnections, Algorithm::Maglev, Algorithm::RoundRobin, Algorithm::Random]
    {
        let active = across_clusters(algorithm);
        let records = AffinityTable::default();
        for asked in [10, 1_000] {
            (0..asked * 64).for_each(|number| ask(&active, asked, 10_000, number, now, &records));
            let mut number = 0;
            criterion.bench_function(
                &format!("pick/clusters/{algorithm:?}/{asked} frontends/20 clusters of 10 endpoints"),
                |bencher| {
                    bencher.iter(|| {
                        number += 1;
                        ask(&active, asked, 10_000, number, now, &records);
                    });
                },
            );
        }
    }
}

/// Frontends split evenly over two parts with half of the endpoints each; `part` is what one of them costs alone.
fn splits(criterion: &mut Criterion) {
    let (records, now) = (AffinityTable::default(), Instant::now());
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for (algorithm, affinity) in [
            (Algorithm::LeastConnections, Affinity::None),
            (Algorithm::Maglev, Affinity::None),
            (Algorithm::LeastConnections, STICKY),
        ] {
            for frontends in [10, 10_000] {
                let whole = |number| split_frontend(number, protocol, algorithm, affinity, 10);
                let alone = |number| {
                    let whole = whole(number);
                    let pool = whole.pools().next().cloned();
                    pool.unwrap_or(whole)
                };
                let tables =
                    [("part", table((0..frontends).map(alone))), ("split", table((0..frontends).map(whole)))];
                for (name, table) in tables {
                    let active = ActiveTable::compile(table, &ActiveTable::default());
                    let ask = |number| ask_over(protocol, &active, frontends, 10_000, number, now, &records);
                    (0..frontends * 32).for_each(ask);
                    let sticky = if affinity == Affinity::None { "" } else { " with affinity" };
                    let mut number = 0;
                    criterion.bench_function(
                        &format!("pick/split/{protocol}/{algorithm:?}{sticky}/{frontends} frontends/{name}"),
                        |bencher| {
                            bencher.iter(|| {
                                number += 1;
                                ask(number);
                            });
                        },
                    );
                }
            }
        }
    }
}

/// Cost that server names add before a pick: parsing the ClientHello, and looking up the name in it.
fn server_names(criterion: &mut Criterion) {
    let browser = include_bytes!("../tests/fuzz/corpus/client_hello/chromium");
    let curl = include_bytes!("../tests/fuzz/corpus/client_hello/curl");
    for (client, bytes) in [("Chromium", &browser[..]), ("curl", curl)] {
        criterion.bench_function(&format!("server name/ClientHello of {client}"), |bencher| {
            bencher.iter(|| ClientHelloParser::default().parse(black_box(bytes)));
        });
    }
    // As much as a hostile client can send, in records and segments of a byte.
    let hostile = [&[1, 0, 40, 0, 3, 3][..], &[0; 32], &[0, 0x20, 0], &[0; 11_000]].concat();
    let hostile: Vec<u8> = hostile.iter().flat_map(|byte| [22, 3, 3, 0, 1, *byte]).collect();
    criterion.bench_function("server name/64 KiB byte by byte", |bencher| {
        bencher.iter(|| {
            let mut parser = ClientHelloParser::default();
            let mut results = hostile.iter().map(|byte| parser.parse(&[*byte]));
            results.find(|result| !matches!(result, ParsedClientHello::Incomplete))
        });
    });
    let whole = named_frontend(1, 10_000);
    let addr = whole.addr;
    let active = ActiveTable::compile(table([whole]), &ActiveTable::default());
    let Some(frontend) = active.get(addr) else { return };
    let ask = |name: String| frontend.target(black_box(&name)).is_some();
    for (kind, suffix) in [("exact", ""), ("wildcard", ".below"), ("unknown", ".org")] {
        let mut number = 0u64;
        criterion.bench_function(&format!("server name/one of 10,000/{kind}"), |bencher| {
            let name = |number: u64| match suffix {
                ".below" => format!("a.b.n{}.example", mix(number) % 10_000),
                suffix => format!("n{}.example{suffix}", mix(number) % 10_000),
            };
            bencher.iter_batched(
                || {
                    number += 1;
                    name(number)
                },
                ask,
                criterion::BatchSize::SmallInput,
            );
        });
    }
}

fn sticking(criterion: &mut Criterion) {
    for (frontends, endpoints) in [(10, 10), (10, 1_000), (10_000, 10)] {
        let active = active(Algorithm::LeastConnections, STICKY, frontends, endpoints);
        for records in [0, 100_000u32] {
            let affinity = AffinityTable::default();
            let now = Instant::now();
            // Records of other ports: only the size of the table matters.
            for number in 0..records {
                let scope = active
                    .get(frontend_addr(number % frontends))
                    .map(|any| Scope::of(&any.spec().service, AffinityScope::Port));
                let (client, endpoint) = (client(1_000_000 + number).ip(), endpoint_addr(number));
                scope
                    .into_iter()
                    .for_each(|scope| affinity.record(scope, client, endpoint, Duration::MAX, now));
            }
            (0..100_000).for_each(|number| ask(&active, frontends.min(100), 10, number, now, &affinity));
            let mut number = 0;
            criterion.bench_function(
                &format!("pick/affinity/{frontends} frontends/{endpoints} endpoints/{records} other records"),
                |bencher| {
                    bencher.iter(|| {
                        number += 1;
                        ask(&active, frontends.min(100), 10, number, now, &affinity);
                    });
                },
            );
        }
    }
}

/// Many clients, each with an existing record, or each evicting another record.
fn returning(criterion: &mut Criterion) {
    let active = active(Algorithm::LeastConnections, STICKY, 10, 10);
    let (affinity, now) = (AffinityTable::default(), Instant::now());
    (0..1_000_000).for_each(|number| ask(&active, 10, 10_000, number, now, &affinity));
    let mut number = 0;
    criterion.bench_function("pick/affinity/100,000 clients return at random", |bencher| {
        bencher.iter(|| {
            number += 1;
            ask(&active, 10, 10_000, number, now, &affinity);
        });
    });
    for full in [10_000, 1_000_000] {
        let (affinity, mut number) = (AffinityTable::with_capacity(full), 0);
        (0..2 * full as u32).for_each(|number| ask(&active, 10, u32::MAX, number, now, &affinity));
        criterion.bench_function(
            &format!("pick/affinity/every client is new, {full} records are full"),
            |bencher| {
                bencher.iter(|| {
                    number += 1;
                    ask(&active, 10, u32::MAX, u32::MAX - number, now, &affinity);
                });
            },
        );
    }
}

/// Source filter with 10,000 disjoint CIDRs, which is checked for each accept and each new flow.
fn source_lists(criterion: &mut Criterion) {
    const CIDRS: u64 = 10_000;
    let v4 = |number: u64| IpAddr::V4(Ipv4Addr::from((mix(number) as u32) & !0xff));
    let v6 = |number: u64| IpAddr::V6(Ipv6Addr::from(u128::from(mix(number)) << 64));
    for (family, length, address) in
        [("IPv4", 24, &v4 as &dyn Fn(u64) -> IpAddr), ("IPv6", 64, &v6 as &dyn Fn(u64) -> IpAddr)]
    {
        let cidrs: Vec<IpNet> =
            (0..CIDRS).filter_map(|number| IpNet::new(address(number), length).ok()).collect();
        let set = AddressSet::from_cidrs(&cidrs);
        // In an order that no cache or branch predictor has seen.
        for (outcome, numbers) in [("listed", 0..CIDRS), ("unlisted", CIDRS..CIDRS + 4 * CIDRS)] {
            let clients: Vec<IpAddr> =
                numbers.map(address).filter(|&ip| set.contains(ip) == (outcome == "listed")).collect();
            let mut clients = clients.iter().cycle();
            criterion.bench_function(&format!("source list/10,000 CIDRs/{family}/{outcome}"), |bencher| {
                bencher.iter(|| clients.next().map(|&ip| set.contains(black_box(ip))));
            });
        }
    }
}

fn config() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
}

criterion_group! {name = benches; config = config(); targets = balancing, clusters, splits, server_names, sticking, returning, source_lists}
criterion_main!(benches);
