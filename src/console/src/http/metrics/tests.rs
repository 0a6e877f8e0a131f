//! Tests of the series of policies, sources, the guard and pools.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sheave_control::api::store::Store;
use sheave_control::projection::{Options, Projector};
use sheave_control::sources::manifests;
use sheave_dataplane::{CapacityLimits, Dataplane, Settings, SteeringMode, Timeouts};
use sheave_model::{Algorithm, EndpointAddr, FrontendAddr, test_util};

use super::*;
use crate::views::status::{GuardView, KindView, SnapshotView, SourceView};

mod series;

/// Data plane that closes what it accepts, since no endpoint answers.
pub(in crate::http) fn dataplane() -> Dataplane {
    let second = Duration::from_secs(1);
    let timeouts =
        Timeouts { connect: second, idle: second, udp_idle: second, udp_unanswered: second, drain: second };
    Dataplane::start(sheave_dataplane::Options {
        workers: 2,
        settings: Settings {
            timeouts,
            busy_poll: Duration::ZERO,
            capacity: CapacityLimits { descriptors: 1_000, connections: 100 },
            udp_flows: 1,
        },
        listening_sockets: 100,
        steering: SteeringMode::Never,
        paths: Arc::default(),
        connection_log: sheave_dataplane::ConnectionLog::new().0,
        kernel_path: sheave_dataplane::KernelPathOptions::default(),
        held: false,
    })
    .unwrap()
}

/// TCP frontend on a loopback address, with its endpoints in one cluster. Tests run in parallel, so each uses different
/// numbers.
pub(super) fn frontend(number: u32, endpoints: &[SocketAddr]) -> Frontend {
    let all: Vec<(u32, u16)> = (0..).take(endpoints.len()).map(|endpoint| (endpoint, 100)).collect();
    let mut frontend = test_util::frontend(number, Algorithm::LeastConnections, &all);
    let mut backend = test_util::backend("local", 100, &all);
    for (endpoint, addr) in backend.endpoints.iter_mut().zip(endpoints) {
        endpoint.addr = EndpointAddr::new(addr.ip(), addr.port());
    }
    let ip = IpAddr::V4((0x7f53_0000 + number).into());
    frontend.addr = FrontendAddr { ip, port: 8080, protocol: Protocol::Tcp };
    frontend.service.namespace = "d".into();
    frontend.backends = Arc::new([backend]);
    frontend
}

#[test]
fn takeovers_are_counted_from_the_start_on() {
    let written = |seconds, failures| {
        let mut text = Exposition::default();
        write_takeover(&mut text, Some(&TakeoverView { seconds, failures }));
        let text = text.finish().unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(written(None, 0), ["sheave_takeover_seconds 0", "sheave_takeover_failures_total 0"]);
    assert_eq!(written(Some(0.25), 2), ["sheave_takeover_seconds 0.25", "sheave_takeover_failures_total 2"]);
}

/// Service with both policies `Local`, with one endpoint on `node`.
fn manifest(node: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: d}}\nspec: {{type: LoadBalancer, \
         loadBalancerClass: sheave.dev/l4, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], ipFamilies: [IPv4], \
         externalTrafficPolicy: Local, internalTrafficPolicy: Local, ports: [{{name: p, port: 80}}, \
         {{name: q, port: 81}}]}}\nstatus: {{loadBalancer: {{ingress: [{{ip: 203.0.113.10}}]}}}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web-1, namespace: d, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\n\
         ports: [{{name: p, port: 8080}}, {{name: q, port: 8081}}]\n\
         endpoints: [{{addresses: [10.1.0.7], nodeName: {node}, conditions: {{ready: true}}}}]\n"
    )
}

fn projected(manifest: String, kinds: &[FrontendKind]) -> Arc<RoutingTable> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("web.yaml"), manifest).unwrap();
    let mut store = Store::default();
    store.replace(&manifests::load(folder.path()).objects);
    let frontends = BTreeSet::from_iter(kinds.iter().copied());
    let dirty = store.take_dirty();
    let options = Options { node: "here".to_owned(), frontends, ..Options::default() };
    Projector::new(options).project(store.objects(), &dirty).table
}

/// Series of this family for a table.
fn samples(table: &RoutingTable, name: &str) -> Vec<String> {
    let mut text = Exposition::default();
    write_without_endpoints(&mut text, table);
    let text = text.finish().unwrap();
    text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

fn without_local(node: &str, kinds: &[FrontendKind]) -> Vec<String> {
    samples(&projected(manifest(node), kinds), "sheave_frontends_without_local_endpoints")
}

#[test]
fn frontends_that_refuse_everybody_are_counted_apart_from_those_that_drop() {
    let all = [FrontendKind::ClusterIp, FrontendKind::LoadBalancer];
    let count = |manifest| samples(&projected(manifest, &all), "sheave_frontends_without_endpoints");
    assert_eq!(count(manifest("here")), ["sheave_frontends_without_endpoints 0"]);
    assert_eq!(count(manifest("elsewhere")), ["sheave_frontends_without_endpoints 0"]);
    let unready = manifest("here").replace("ready: true", "ready: false");
    assert_eq!(count(unready), ["sheave_frontends_without_endpoints 4"]);
}

#[test]
fn frontends_without_local_endpoints_are_counted_by_the_policy_that_drops() {
    use FrontendKind::{ClusterIp, LoadBalancer};
    let counts = |external: u64, internal: u64| {
        [("external", external), ("internal", internal)].map(|(policy, count)| {
            format!("sheave_frontends_without_local_endpoints{{traffic_policy=\"{policy}\"}} {count}")
        })
    };
    assert_eq!(without_local("elsewhere", &[LoadBalancer]), counts(2, 0));
    assert_eq!(without_local("elsewhere", &[ClusterIp]), counts(0, 2));
    assert_eq!(without_local("elsewhere", &[LoadBalancer, ClusterIp]), counts(2, 2));
    assert_eq!(without_local("here", &[LoadBalancer, ClusterIp]), counts(0, 0));
}

#[test]
fn a_controller_has_series_of_its_pools_and_of_each_reason() {
    let pool = |name: &str, used, free| PoolCounts { name: name.into(), used, free };
    let controller = ControllerStatus {
        problems_by_reason: BTreeMap::from([("NoAddress", 2)]),
        pools: vec![pool("lan", 3, 5), pool("a\"b\\c\nd", -1, 0)],
        ..ControllerStatus::default()
    };
    let mut text = Exposition::default();
    write_pools(&mut text, &controller);
    write_process(&mut text, &ProcessView::default(), 0, [("NoAddress", 2)].into_iter());
    let text = text.finish().unwrap();
    assert_eq!(names::misfits(&text), [""; 0]);
    for line in [
        "sheave_pool_addresses{pool=\"lan\",state=\"used\"} 3",
        "sheave_pool_addresses{pool=\"lan\",state=\"free\"} 5",
        r#"sheave_pool_addresses{pool="a\"b\\c\nd",state="used"} 0"#,
        "sheave_problems_by_reason{reason=\"NoAddress\"} 2",
        "sheave_ready 1",
    ] {
        assert!(text.lines().any(|it| it == line), "no {line}: {text}");
    }
}

#[test]
fn the_age_of_the_objects_and_what_is_held_back_are_told_by_kind() {
    let kind = |kind: &str, last_heard_seconds| KindView {
        kind: kind.to_owned(),
        last_heard_seconds,
        ..KindView::default()
    };
    let broken =
        KindView { restarts: 2, watches: 9, error: Some("403 Forbidden".to_owned()), ..kind("Node", None) };
    let kinds = vec![kind("Service", Some(7)), broken];
    let held = |kind: &str, kept| GuardView { kind: kind.to_owned(), kept, ..GuardView::default() };
    let guard =
        vec![held("Node", 49), held("template Service", 3), held("Work", 5), held("collected Work", 7)];
    let of_karmada = vec![kind("Service", Some(9)), kind("EndpointSlice", None), kind("Work", Some(1))];
    let snapshot = Some(SnapshotView { error: Some("no space".to_owned()), ..SnapshotView::default() });
    let status = ProcessView {
        source: SourceView { from_snapshot: true, kinds, snapshot, ..SourceView::default() },
        karmada: Some(SourceView { kinds: of_karmada, ..SourceView::default() }),
        guard,
        ..ProcessView::default()
    };
    let mut text = Exposition::default();
    write_source(&mut text, &status);
    write_guard(&mut text, &status);
    let text = text.finish().unwrap();
    assert_eq!(names::misfits(&text), [""; 0]);
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let expected = [
        "sheave_source_from_snapshot 1",
        "sheave_source_from_snapshot{source=\"karmada\"} 0",
        "sheave_source_last_heard_seconds{kind=\"Service\"} 7",
        "sheave_source_last_heard_seconds{kind=\"Service\",source=\"karmada\"} 9",
        "sheave_source_last_heard_seconds{kind=\"Work\",source=\"karmada\"} 1",
        "sheave_source_failing{kind=\"Service\"} 0",
        "sheave_source_failing{kind=\"Node\"} 1",
        "sheave_source_failing{kind=\"Service\",source=\"karmada\"} 0",
        "sheave_source_failing{kind=\"EndpointSlice\",source=\"karmada\"} 0",
        "sheave_source_failing{kind=\"Work\",source=\"karmada\"} 0",
        "sheave_source_watches_total{kind=\"Service\"} 0",
        "sheave_source_watches_total{kind=\"Node\"} 9",
        "sheave_source_watches_total{kind=\"Service\",source=\"karmada\"} 0",
        "sheave_source_watches_total{kind=\"EndpointSlice\",source=\"karmada\"} 0",
        "sheave_source_watches_total{kind=\"Work\",source=\"karmada\"} 0",
        "sheave_source_relists_total{kind=\"Service\"} 0",
        "sheave_source_relists_total{kind=\"Node\"} 2",
        "sheave_source_relists_total{kind=\"Service\",source=\"karmada\"} 0",
        "sheave_source_relists_total{kind=\"EndpointSlice\",source=\"karmada\"} 0",
        "sheave_source_relists_total{kind=\"Work\",source=\"karmada\"} 0",
        "sheave_snapshot_failing 1",
        "sheave_guard_held_objects{kind=\"Service\"} 0",
        "sheave_guard_held_objects{kind=\"Node\"} 49",
        "sheave_guard_held_objects{kind=\"Service\",source=\"karmada\"} 3",
        "sheave_guard_held_objects{kind=\"EndpointSlice\",source=\"karmada\"} 0",
        "sheave_guard_held_objects{kind=\"Work\",source=\"karmada\"} 12",
    ];
    assert_eq!(samples, expected);
}
