//! What one scrape of `/metrics` shows: the data plane's counters, frontend by frontend, and the control loop's
//! own.
//!
//! It must not know HTTP.

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;
use sheave_control::controller::ControllerStatus;
use sheave_dataplane::Dataplane;
use sheave_dataplane::counters::FrontendCounters;
use sheave_dataplane::model::{Frontend, FrontendKind, Protocol, Route};
use sheave_dataplane::shed::ShedReason;
use sheave_dataplane::table::RoutingTable;
use sheave_dataplane::tcp::counters::{CloseReason, TcpCounters};
use sheave_dataplane::udp::{DropReason, UdpCounters};

use crate::exposition::{self as names, Exposition, Family};
use crate::health::{Page, Pages};
use crate::logging;
use crate::routes::algorithm_name;
use crate::status::{GuardView, KindView, ProcessView};

/// One frontend's labels, with the counters of each worker.
struct Counted<C> {
    frontend: String,
    service: String,
    workers: Vec<Arc<C>>,
}

/// Everything that a controller knows about itself, as Prometheus text.
pub(crate) fn of_controller(
    status: &ProcessView,
    controller: &ControllerStatus,
    own: &PrometheusHandle,
) -> String {
    let mut text = Exposition::default();
    text.family(&names::BUILD_INFO).add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(&names::CONTROLLER_LEADING).add(&[], u64::from(controller.leading));
    text.family(&names::CONTROLLER_SERVICES).add(&[], controller.services as u64);
    text.family(&names::CONTROLLER_GATEWAYS).add(&[], controller.gateways as u64);
    text.family(&names::CONTROLLER_WRITE_FAILURES).add(&[], controller.write_failures as u64);
    text.family(&names::CONTROLLER_EVENTS_DROPPED).add(&[], controller.events_dropped);
    text.family(&names::PROBLEMS).add(&[], status.problems as u64);
    write_source(&mut text, status);
    write_guard(&mut text, status);
    text.family(&names::LOG_LINES_DROPPED).add(&[], logging::dropped_lines());
    own.run_upkeep();
    text.finish() + &own.render()
}

/// Everything that the gateway knows about itself, as Prometheus text.
pub(crate) fn text(
    dataplane: &Dataplane,
    status: &ProcessView,
    pages: &Pages,
    own: &PrometheusHandle,
) -> String {
    let active = dataplane.table();
    let table = active.table();
    let mut text = Exposition::default();
    text.family(&names::BUILD_INFO).add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(&names::TABLE_GENERATION).add(&[], table.generation());
    text.family(&names::TABLE_FRONTENDS).add(&[], table.frontends().len() as u64);
    let steering = dataplane.steering();
    text.family(&names::FRONTENDS_OPEN)
        .add(&[("by", "sockets")], steering.sockets as u64)
        .add(&[("by", "steering")], steering.steered as u64);
    write_info(&mut text, table);
    write_without_local(&mut text, table);
    write_page(&mut text, &names::HEALTHZ_REQUESTS, &pages.healthz);
    write_page(&mut text, &names::LIVEZ_REQUESTS, &pages.livez);
    text.family(&names::PROBLEMS).add(&[], status.problems as u64);
    write_source(&mut text, status);
    write_guard(&mut text, status);
    text.family(&names::LOG_LINES_DROPPED).add(&[], logging::dropped_lines());
    text.family(&names::WORKER_RESTARTS).add(&[], dataplane.worker_restarts());
    text.family(&names::AFFINITY_RECORDS).add(&[], dataplane.affinity().len() as u64);
    write_health(&mut text, dataplane);

    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    for frontend in table.frontends() {
        let workers = dataplane.counters(frontend.addr);
        tcp.extend(counted(frontend, workers.iter().filter_map(FrontendCounters::tcp).collect()));
        udp.extend(counted(frontend, workers.iter().filter_map(FrontendCounters::udp).collect()));
    }
    write_shed(&mut text, dataplane, table);
    write_tcp(&mut text, &tcp);
    write_udp(&mut text, &udp);
    own.run_upkeep();
    text.finish() + &own.render()
}

fn write_info(text: &mut Exposition, table: &RoutingTable) {
    let mut samples = text.family(&names::FRONTEND_INFO);
    for frontend in table.frontends() {
        let labels = [
            ("frontend", frontend.addr.to_string()),
            ("service", frontend.service.to_string()),
            ("kind", frontend.kind.to_string()),
            ("port_name", frontend.service.port_name.to_string()),
            ("app_protocol", frontend.app_protocol.as_deref().unwrap_or_default().to_owned()),
            ("balance", algorithm_name(frontend.algorithm).to_owned()),
        ];
        let labels = labels.each_ref().map(|(name, value)| (*name, value.as_str()));
        samples.add(&labels, 1);
    }
}

/// Only a `Local` policy drops: without any endpoint, connections are refused. Of a cluster address the internal policy
/// decides, of all others the external one.
fn write_without_local(text: &mut Exposition, table: &RoutingTable) {
    let drops = |frontend: &Frontend| [&frontend.external, &frontend.internal].contains(&&Route::Drop);
    let (internal, external): (Vec<_>, Vec<_>) = table
        .frontends()
        .iter()
        .filter(|frontend| drops(frontend))
        .partition(|frontend| frontend.kind == FrontendKind::ClusterIp);
    text.family(&names::FRONTENDS_WITHOUT_LOCAL)
        .add(&[("traffic_policy", "external")], external.len() as u64)
        .add(&[("traffic_policy", "internal")], internal.len() as u64);
}

/// How fresh the objects are. A kind that nothing was ever heard of, and manifests, have no age.
fn write_source(text: &mut Exposition, status: &ProcessView) {
    let mut samples = text.family(&names::SOURCE_FROM_SNAPSHOT);
    samples.add(&[], u64::from(status.source.from_snapshot));
    if let Some(karmada) = &status.karmada {
        samples.add(&[OF_KARMADA], u64::from(karmada.from_snapshot));
    }
    let mut samples = text.family(&names::SOURCE_LAST_HEARD);
    for (kind, labels) in labelled(status) {
        if let Some(seconds) = kind.last_heard_seconds {
            samples.add(&labels, seconds);
        }
    }
}

/// What is held back, by each kind of the sources: 0 for those whose lists are believed, so that alerts have a series.
fn write_guard(text: &mut Exposition, status: &ProcessView) {
    let mut samples = text.family(&names::GUARD_HELD_OBJECTS);
    for (kind, labels) in labelled(status) {
        let of_karmada = labels.contains(&OF_KARMADA);
        let held = status.guard.iter().filter(|held| is_of(held, &kind.kind, of_karmada));
        samples.add(&labels, held.map(|held| held.kept as u64).sum());
    }
}

/// Marks what is of the Karmada control plane: kinds of the same names are in both.
const OF_KARMADA: (&str, &str) = ("source", "karmada");

/// Every kind of the sources, with the labels of its series.
fn labelled(status: &ProcessView) -> impl Iterator<Item = (&KindView, Vec<(&'static str, &str)>)> {
    let local = status.source.kinds.iter().map(|kind| (kind, vec![("kind", &*kind.kind)]));
    let karmada = status.karmada.iter().flat_map(|source| &source.kinds);
    local.chain(karmada.map(|kind| (kind, vec![("kind", &*kind.kind), OF_KARMADA])))
}

/// Whether a doubted list is of that kind and source. Names of kinds that both sources have say in the guard which of them it
/// is, and those of the Karmada control plane alone, of which of its lists.
fn is_of(held: &GuardView, kind: &str, of_karmada: bool) -> bool {
    match (kind, of_karmada) {
        ("Service", true) => held.kind == "template Service",
        // Not doubted there.
        ("EndpointSlice", true) => false,
        ("Work", true) => held.kind == "Work" || held.kind == "collected Work",
        _ => held.kind == kind,
    }
}

/// What is known of endpoints' health, and how.
fn write_health(text: &mut Exposition, dataplane: &Dataplane) {
    let mut samples = text.family(&names::ENDPOINTS_UNHEALTHY);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let count = dataplane.unhealthy().filter(|endpoint| endpoint.protocol == protocol).count();
        samples.add(&[("protocol", protocol.name())], count as u64);
    }
    let counts = dataplane.health_counts();
    text.family(&names::ENDPOINT_EJECTIONS).add(&[], counts.ejections);
    text.family(&names::HEALTH_CHECKS)
        .add(&[("result", "passed")], counts.checks_passed)
        .add(&[("result", "failed")], counts.checks_failed);
}

/// Of each frontend only the reasons that there were: mostly there are none, and frontends may be many.
fn write_shed(text: &mut Exposition, dataplane: &Dataplane, table: &RoutingTable) {
    let mut samples = text.family(&names::SHED);
    for frontend in table.frontends() {
        let Some(counters) = dataplane.counters(frontend.addr).first() else { continue };
        for reason in ShedReason::ALL {
            let count = counters.usage().shed(reason);
            if count > 0 {
                let (addr, service) = (frontend.addr.to_string(), frontend.service.to_string());
                let labels = [("frontend", &*addr), ("service", &*service), ("reason", reason.label())];
                samples.add(&labels, count);
            }
        }
    }
}

fn write_page(text: &mut Exposition, family: &Family, page: &Page) {
    let mut samples = text.family(family);
    for (code, answers) in page.by_code() {
        samples.add(&[("code", code)], answers);
    }
}

fn counted<C>(frontend: &Frontend, workers: Vec<Arc<C>>) -> Option<Counted<C>> {
    (!workers.is_empty()).then(|| Counted {
        frontend: frontend.addr.to_string(),
        service: frontend.service.to_string(),
        workers,
    })
}

fn write_tcp(text: &mut Exposition, frontends: &[Counted<TcpCounters>]) {
    write(text, &names::CONNECTIONS_OPENED, frontends, TcpCounters::accepted);
    write(text, &names::CONNECTIONS, frontends, |counters| {
        let closed: u64 = CloseReason::ALL.iter().map(|reason| counters.closed(*reason)).sum();
        counters.accepted().saturating_sub(closed)
    });
    write_by(
        text,
        &names::CONNECTIONS_CLOSED,
        frontends,
        "reason",
        &CloseReason::ALL
            .map(|reason| (reason.label(), move |counters: &TcpCounters| counters.closed(reason))),
    );
    write_by(
        text,
        &names::TCP_BYTES,
        frontends,
        "from",
        &[
            ("client", TcpCounters::client_bytes as fn(&TcpCounters) -> u64),
            ("endpoint", TcpCounters::endpoint_bytes),
        ],
    );
    write(text, &names::CONNECT_RETRIES, frontends, TcpCounters::connect_retries);
    write(text, &names::TCP_SOURCE_LOST, frontends, TcpCounters::source_lost);
}

fn write_udp(text: &mut Exposition, frontends: &[Counted<UdpCounters>]) {
    write(text, &names::FLOWS_OPENED, frontends, |counters| counters.flows_opened.get());
    write(text, &names::FLOWS, frontends, |counters| counters.flows_active.get());
    write(text, &names::FLOWS_EVICTED, frontends, |counters| counters.flows_evicted.get());
    write(text, &names::FLOWS_REPICKED, frontends, |counters| counters.flows_repicked.get());
    write(text, &names::UDP_ENDPOINT_ERRORS, frontends, |counters| counters.endpoint_errors.get());
    write(text, &names::UDP_SOURCE_LOST, frontends, |counters| counters.source_lost.get());
    write_by(
        text,
        &names::DATAGRAMS,
        frontends,
        "from",
        &[
            ("client", (|counters| counters.to_endpoints.datagrams.get()) as fn(&UdpCounters) -> u64),
            ("endpoint", |counters| counters.to_clients.datagrams.get()),
        ],
    );
    write_by(
        text,
        &names::UDP_BYTES,
        frontends,
        "from",
        &[
            ("client", (|counters| counters.to_endpoints.bytes.get()) as fn(&UdpCounters) -> u64),
            ("endpoint", |counters| counters.to_clients.bytes.get()),
        ],
    );
    write_by(
        text,
        &names::DATAGRAMS_DROPPED,
        frontends,
        "reason",
        &DropReason::ALL
            .map(|reason| (reason.as_str(), move |counters: &UdpCounters| counters.dropped(reason))),
    );
}

/// One series per frontend, summed over the workers.
fn write<C>(text: &mut Exposition, family: &Family, frontends: &[Counted<C>], value: impl Fn(&C) -> u64) {
    let mut samples = text.family(family);
    for Counted { frontend, service, workers } in frontends {
        let sum = workers.iter().map(|counters| value(counters)).sum();
        samples.add(&[("frontend", frontend), ("service", service)], sum);
    }
}

/// One series per frontend and value of `label`, summed over the workers.
fn write_by<C, F: Fn(&C) -> u64>(
    text: &mut Exposition,
    family: &Family,
    frontends: &[Counted<C>],
    label: &str,
    values: &[(&str, F)],
) {
    let mut samples = text.family(family);
    for Counted { frontend, service, workers } in frontends {
        for (name, value) in values {
            let sum = workers.iter().map(|counters| value(counters)).sum();
            samples.add(&[("frontend", frontend), ("service", service), (label, name)], sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use sheave_control::projection::{Options, Projector};
    use sheave_control::source::files;
    use sheave_control::store::Store;

    use super::*;
    use crate::status::{GuardView, KindView, SourceView};

    /// A Service under both Local policies, with its one endpoint on `node`.
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

    fn without_local(node: &str, kinds: &[FrontendKind]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("web.yaml"), manifest(node)).unwrap();
        let mut store = Store::default();
        store.replace(files::load(folder.path()).objects);
        let frontends = BTreeSet::from_iter(kinds.iter().copied());
        let dirty = store.take_dirty();
        let options = Options { node: "here".to_owned(), frontends, ..Options::default() };
        let projection = Projector::new(options).project(store.objects(), &dirty);
        let mut text = Exposition::default();
        write_without_local(&mut text, &projection.table);
        text.finish().lines().skip(2).map(str::to_owned).collect()
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
    fn the_age_of_the_objects_and_what_is_held_back_are_told_by_kind() {
        let kind = |kind: &str, last_heard_seconds| KindView {
            kind: kind.to_owned(),
            last_heard_seconds,
            ..KindView::default()
        };
        let kinds = vec![kind("Service", Some(7)), kind("Node", None)];
        let held = |kind: &str, kept| GuardView { kind: kind.to_owned(), kept, ..GuardView::default() };
        let guard =
            vec![held("Node", 49), held("template Service", 3), held("Work", 5), held("collected Work", 7)];
        let of_karmada = vec![kind("Service", Some(9)), kind("EndpointSlice", None), kind("Work", Some(1))];
        let status = ProcessView {
            source: SourceView { from_snapshot: true, kinds, ..SourceView::default() },
            karmada: Some(SourceView { kinds: of_karmada, ..SourceView::default() }),
            guard,
            ..ProcessView::default()
        };
        let mut text = Exposition::default();
        write_source(&mut text, &status);
        write_guard(&mut text, &status);
        let text = text.finish();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "sheave_source_from_snapshot 1",
            "sheave_source_from_snapshot{source=\"karmada\"} 0",
            "sheave_source_last_heard_seconds{kind=\"Service\"} 7",
            "sheave_source_last_heard_seconds{kind=\"Service\",source=\"karmada\"} 9",
            "sheave_source_last_heard_seconds{kind=\"Work\",source=\"karmada\"} 1",
            "sheave_guard_held_objects{kind=\"Service\"} 0",
            "sheave_guard_held_objects{kind=\"Node\"} 49",
            "sheave_guard_held_objects{kind=\"Service\",source=\"karmada\"} 3",
            "sheave_guard_held_objects{kind=\"EndpointSlice\",source=\"karmada\"} 0",
            "sheave_guard_held_objects{kind=\"Work\",source=\"karmada\"} 12",
        ];
        assert_eq!(samples, expected);
    }
}
