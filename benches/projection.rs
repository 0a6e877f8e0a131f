//! Cost of objects on their way to the table in force: from scratch, and one changed endpoint at a time.
#![allow(missing_docs, reason = "criterion's macros make undocumented functions")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sheave_control::api::kinds::{Namespaces, TcpRoutes};
use sheave_control::api::store::{Dirty, Objects, Store};
use sheave_control::projection::{Options, Projection, Projector};
use sheave_control::sources::manifests;
use sheave_dataplane::select::ActiveTable;
use sheave_model::diff;

/// Number of changes that are timed individually, since criterion gives no percentiles.
const CHANGES: usize = 2_000;
/// Time after which fewer are enough.
const LONGEST: Duration = Duration::from_secs(5);

/// Service `bench/<number>` with an address of its own, and its slices of up to 100 endpoints, as the EndpointSlice
/// controller creates them.
fn service(number: u32, endpoints: u32) -> String {
    let [_, high, middle, low] = number.to_be_bytes();
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{namespace: bench, name: s{number}}}\n\
         spec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ipFamilies: [IPv4], \
         ports: [{{name: http, port: 80}}]}}\n\
         status: {{loadBalancer: {{ingress: [{{ip: 198.{high}.{middle}.{low}}}]}}}}\n"
    );
    for first in (0..endpoints).step_by(100) {
        let last = endpoints.min(first + 100);
        text += &slice(number, first, first..last);
    }
    text
}

fn slice(number: u32, part: u32, endpoints: std::ops::Range<u32>) -> String {
    let mut text = format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{namespace: bench, name: s{number}-{part}, labels: {{kubernetes.io/service-name: s{number}}}}}\n\
         ports: [{{name: http, port: 8080}}]\nendpoints:\n"
    );
    for endpoint in endpoints {
        let address = number.wrapping_mul(1_009).wrapping_add(endpoint);
        let [_, high, middle, low] = address.to_be_bytes();
        // Writing to a String cannot fail.
        writeln!(
            text,
            "- {{addresses: [10.{high}.{middle}.{low}], nodeName: n{}, zone: a}}",
            address % 1_000
        )
        .ok();
    }
    text
}

/// Objects of these manifests.
fn read(manifests: &str) -> Objects {
    let folder = tempfile::tempdir().and_then(|folder| {
        std::fs::write(folder.path().join("all.yaml"), manifests)?;
        Ok(folder)
    });
    folder.map(|folder| manifests::load(folder.path()).objects).unwrap_or_default()
}

fn projector() -> Projector {
    Projector::new(Options { node: "n1".to_owned(), ..Options::default() })
}

/// Objects with their projection, for a sequence of changes.
struct Followed {
    store: Store,
    projector: Projector,
    active: ActiveTable,
}

impl Followed {
    fn new(objects: &Objects) -> Self {
        let mut followed =
            Self { store: Store::default(), projector: projector(), active: ActiveTable::default() };
        followed.store.replace(objects);
        followed.follow();
        followed
    }

    /// All steps between an event and the swap of the table, except system calls.
    fn follow(&mut self) -> Projection {
        let dirty = self.store.take_dirty();
        let projection = self.projector.project(self.store.objects(), &dirty);
        black_box(diff(self.active.table(), &projection.table));
        self.active = ActiveTable::compile(Arc::clone(&projection.table), &self.active);
        projection
    }
}

/// A slice with one more endpoint, and as it was.
fn versions(number: u32, endpoints: u32) -> [Objects; 2] {
    [endpoints + 1, endpoints].map(|endpoints| read(&slice(number, 0, 0..endpoints)))
}

fn change(followed: &mut Followed, version: &Objects) {
    let slices = version.slices.values().flat_map(|slices| slices.values());
    slices.for_each(|slice| followed.store.put::<sheave_control::api::kinds::Slices>((**slice).clone()));
    black_box(followed.follow());
}

fn one_service(criterion: &mut Criterion) {
    let objects = read(&service(1, 1_000));
    criterion.bench_function("projection/1 Service with 1,000 endpoints", |bencher| {
        bencher.iter_batched(
            projector,
            |mut projector| projector.project(&objects, &Dirty::Everything),
            BatchSize::LargeInput,
        );
    });
}

fn many_services(criterion: &mut Criterion) {
    let manifests: String = (0..10_000).map(|number| service(number, 10)).collect();
    let objects = read(&manifests);
    criterion.bench_function("projection/10,000 Services with 100,000 endpoints, from nothing", |bencher| {
        bencher.iter_batched(|| objects.clone(), |objects| Followed::new(&objects), BatchSize::PerIteration);
    });
    let mut followed = Followed::new(&objects);
    let versions = versions(5_000, 10);
    let mut turn = 0;
    criterion.bench_function("projection/10,000 Services, one endpoint changed", |bencher| {
        bencher.iter(|| {
            change(&mut followed, &versions[turn % 2]);
            turn += 1;
        });
    });
    percentiles("10,000 Services, one endpoint changed", |turn| change(&mut followed, &versions[turn % 2]));
}

/// Number of listeners of each Gateway, the most that the API allows.
const LISTENERS: u32 = 64;

/// A backend `bench/s<number>` for TCPRoutes, with its slices.
fn backend(number: u32, endpoints: u32) -> String {
    let service = service(number, endpoints);
    // A Service of type ClusterIP, without an address of its own.
    let (_, slices) = service.split_once("}]}}\n").unwrap_or_default();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{namespace: bench, name: s{number}}}\n\
         spec: {{ports: [{{name: http, port: 80}}]}}\n{slices}"
    )
}

/// TCPRoute `bench/r<number>` on a listener of its own.
fn tcp_route(number: u32, backend: u32, weight: u32) -> String {
    let (gateway, listener) = (number / LISTENERS, number % LISTENERS);
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {{namespace: bench, name: r{number}}}\n\
         spec: {{parentRefs: [{{name: g{gateway}, sectionName: l{listener}}}], \
         rules: [{{backendRefs: [{{name: s{backend}, port: 80, weight: {weight}}}]}}]}}\n"
    )
}

/// Gateways with listeners for this many routes, and their class.
fn gateways(routes: u32) -> String {
    let listeners: Vec<String> =
        (0..LISTENERS).map(|it| format!("{{name: l{it}, port: {}, protocol: TCP}}", 9_000 + it)).collect();
    let mut text =
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: sheave}\n\
                    spec: {controllerName: sheave.dev/gateway}\n"
            .to_owned();
    for number in 0..routes.div_ceil(LISTENERS) {
        let [_, high, middle, low] = number.to_be_bytes();
        text += &format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{namespace: bench, name: g{number}}}\n\
             spec: {{gatewayClassName: sheave, listeners: [{}]}}\n\
             status: {{addresses: [{{value: 198.{high}.{middle}.{low}}}]}}\n",
            listeners.join(", ")
        );
    }
    text
}

/// The same number of frontends and endpoints as in [`many_services`], by TCPRoutes of 157 Gateways.
fn many_routes(criterion: &mut Criterion) {
    let backends: String = (0..10_000).map(|number| backend(number, 10)).collect();
    let routes: String = (0..10_000).map(|number| tcp_route(number, number, 1)).collect();
    let objects = read(&(gateways(10_000) + &backends + &routes));
    criterion.bench_function("projection/10,000 TCPRoutes with 100,000 endpoints, from nothing", |bencher| {
        bencher.iter_batched(|| objects.clone(), |objects| Followed::new(&objects), BatchSize::PerIteration);
    });
    let mut followed = Followed::new(&objects);
    let versions = versions(5_000, 10);
    percentiles("10,000 TCPRoutes, one endpoint changed", |turn| change(&mut followed, &versions[turn % 2]));
    let routes = [1, 2].map(|weight| read(&tcp_route(5_000, 5_000, weight)));
    percentiles("10,000 TCPRoutes, one route changed", |turn| {
        let changed = routes[turn % 2].gateway_api.tcp_routes.values();
        changed.for_each(|route| followed.store.put::<TcpRoutes>(Arc::clone(route)));
        black_box(followed.follow());
    });
}

/// Changes of objects that 10,000 routes share: the Service behind all of them, and the Namespace by whose labels Gateways permit them.
fn what_many_routes_share(_: &mut Criterion) {
    let routes: String = (0..10_000).map(|number| tcp_route(number, 1, 1)).collect();
    let mut followed = Followed::new(&read(&(gateways(10_000) + &backend(1, 10) + &routes)));
    let versions = versions(1, 10);
    percentiles("10,000 TCPRoutes to one Service, one endpoint changed", |turn| {
        change(&mut followed, &versions[turn % 2]);
    });

    let permitted = |text: &str| {
        let by_label = "allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}";
        text.replace("protocol: TCP}", &format!("protocol: TCP, {by_label}}}"))
    };
    let namespace = |team: &str| {
        format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: bench, labels: {{team: {team}}}}}\n")
    };
    let objects = permitted(&gateways(10_000)) + &namespace("a") + &backend(1, 10) + &routes;
    let mut followed = Followed::new(&read(&objects));
    let labelled = ["b", "a"].map(|team| read(&namespace(team)));
    percentiles("10,000 TCPRoutes, the label of their Namespace changed", |turn| {
        let changed = labelled[turn % 2].namespaces.values();
        changed.for_each(|namespace| followed.store.put::<Namespaces>(Arc::clone(namespace)));
        black_box(followed.follow());
    });
}

/// Requirement for the largest clusters: an event that affects no frontend costs next to nothing.
fn a_large_cluster(_: &mut Criterion) {
    let rows =
        ["50,000 Services, one endpoint changed", "50,000 Services, a label of one of 1,000 Nodes changed"];
    if !rows.into_iter().any(is_selected) {
        return;
    }
    let manifests: String = (0..50_000).map(|number| service(number, 4)).collect();
    let nodes: String = (0..1_000).map(|number| node(number, "a")).collect();
    let mut followed = Followed::new(&read(&(manifests + &nodes)));
    let versions = versions(25_000, 4);
    percentiles(rows[0], |turn| change(&mut followed, &versions[turn % 2]));
    let relabelled = ["a", "b"].map(|rack| read(&node(500, rack)));
    percentiles(rows[1], |turn| {
        relabelled[turn % 2]
            .nodes
            .values()
            .for_each(|node| followed.store.put::<sheave_control::api::kinds::Nodes>(Arc::clone(node)));
        let dirty = followed.store.take_dirty();
        black_box(followed.projector.project(followed.store.objects(), &dirty));
    });
}

/// Node `n<number>` with a Pod network and an address.
fn node(number: u32, rack: &str) -> String {
    let [_, _, high, low] = number.to_be_bytes();
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: n{number}, labels: {{rack: {rack}}}}}\n\
         spec: {{podCIDRs: [172.{}.{low}.0/24]}}\n\
         status: {{addresses: [{{type: InternalIP, address: 192.168.{high}.{low}}}]}}\n",
        16 + high
    )
}

/// Whether the first argument of the command line that is no option, if any, is a part of the row's name.
fn is_selected(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    filters.next().is_none_or(|filter| name.contains(&filter))
}

/// Repeats an operation, and prints percentiles of its duration.
fn percentiles(name: &str, mut timed: impl FnMut(usize)) {
    if !is_selected(name) {
        return;
    }
    let begun = Instant::now();
    let mut took = Vec::new();
    while took.len() < CHANGES && begun.elapsed() < LONGEST {
        let started = Instant::now();
        timed(took.len());
        took.push(started.elapsed());
    }
    took.sort_unstable();
    let percentile = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!("projection/{name}: p50 {:?}, p99 {:?}, of {}", percentile(50), percentile(99), took.len());
}

fn config() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
}

criterion_group! {name = benches; config = config(); targets = one_service, many_services, many_routes, what_many_routes_share, a_large_cluster}
criterion_main!(benches);
