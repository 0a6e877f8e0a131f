//! Manifests, and logs of traffic that a gateway with these manifests would have had.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sheave_control::projection::AbsentEndpoints;
use sheave_dataplane::LoggedEndpoint;
use sheave_dataplane::balance::hash::mix;
use sheave_dataplane::select::affinity::AffinityTable;
use sheave_dataplane::select::{ActiveTable, Pick, PickRequest, Picked};
use sheave_model::{ClientAddr, FrontendAddr};

use crate::arguments::Folders;
use crate::exit::Exit;
use crate::options::Options;
use crate::replay::TrafficReplay;
use crate::replay::log_reader::LogReader;
use crate::replay::merged_logs::MergedLogs;
use crate::replay::new_table::NewTable;
use crate::views::replay::ReplayView;

/// What is changed beside the manifests.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    pub(super) node: &'static str,
    pub(super) nodes: Vec<&'static str>,
    pub(super) zones: Vec<&'static str>,
    pub(super) clusters: Vec<&'static str>,
}

/// A load balancer of the namespace `shop` at 203.0.113.10:80.
pub(super) fn service(name: &str, spec: &str, balance: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Service, metadata: {{namespace: shop, name: {name}, annotations: {{sheave.dev/balance: {balance}}}}}, \
         spec: {{type: LoadBalancer, loadBalancerClass: sheave.dev/l4, ports: [{{name: http, port: 80}}], {spec}}}, \
         status: {{loadBalancer: {{ingress: [{{ip: 203.0.113.10}}]}}}}}}\n"
    )
}

/// Endpoints 10.1.0.1 and so on, each on its own node and in its own zone.
pub(super) fn slice(service: &str, numbers: impl IntoIterator<Item = u8>) -> String {
    let endpoint = |number: u8| {
        format!(
            "{{addresses: [10.1.0.{number}], nodeName: n{number}, zone: z{number}, conditions: {{ready: true}}}}"
        )
    };
    let endpoints: Vec<String> = numbers.into_iter().map(endpoint).collect();
    slice_of(service, &endpoints.join(", "))
}

fn slice_of(service: &str, endpoints: &str) -> String {
    format!(
        "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{namespace: shop, name: {service}-1, \
         labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, ports: [{{name: http, port: 8080}}], endpoints: [{endpoints}]}}\n"
    )
}

/// A TCPRoute at 203.0.113.20:9300 over two Services, with two endpoints each.
pub(super) fn gateway_route(weights: [(&str, u32); 2], balance: &str) -> String {
    let [(first, one), (second, two)] = weights;
    let mut text = format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {{name: sheave}}, spec: {{controllerName: sheave.dev/gateway}}}}\n---\n\
         {{apiVersion: sheave.dev/v1alpha1, kind: AddressPool, metadata: {{name: main}}, spec: {{addresses: [203.0.113.20/32]}}}}\n---\n\
         {{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{namespace: shop, name: gw}}, \
         spec: {{gatewayClassName: sheave, listeners: [{{name: tcp, port: 9300, protocol: TCP}}]}}}}\n---\n\
         {{apiVersion: gateway.networking.k8s.io/v1, kind: TCPRoute, metadata: {{namespace: shop, name: a}}, spec: {{parentRefs: [{{name: gw}}], \
         rules: [{{backendRefs: [{{name: {first}, port: 80, weight: {one}}}, {{name: {second}, port: 80, weight: {two}}}]}}]}}}}\n"
    );
    for (number, name) in [first, second].into_iter().enumerate() {
        let endpoints = format!("{{addresses: [10.1.{0}.1]}}, {{addresses: [10.1.{0}.2]}}", number + 1);
        write!(
            text,
            "---\n{{apiVersion: v1, kind: Service, metadata: {{namespace: shop, name: {name}, annotations: {{sheave.dev/balance: {balance}}}}}, \
             spec: {{ports: [{{name: http, port: 80}}]}}}}\n{}",
            slice_of(name, &endpoints)
        )
        .unwrap();
    }
    text
}

/// The table of manifests with what a change takes out of it.
pub(super) fn new_table(manifests: &str, change: &Change) -> Result<NewTable, Exit> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("all.yaml"), manifests).unwrap();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let absent = AbsentEndpoints {
        nodes: names(&change.nodes),
        zones: names(&change.zones),
        clusters: names(&change.clusters),
    };
    let folders = Folders { local: Some(folder.path()), karmada: None };
    NewTable::read(folders, absent, &Options::of_node(change.node))
}

/// The compiled table of manifests.
pub(super) fn table(manifests: &str) -> ActiveTable {
    let table = new_table(manifests, &Change::default()).unwrap();
    ActiveTable::compile(Arc::clone(table.projected().unwrap().table()), &ActiveTable::default())
}

/// Replays a log.
pub(super) fn replayed(manifests: &str, change: &Change, log: &str) -> ReplayView {
    let table = new_table(manifests, change).unwrap();
    let reader = LogReader::of("log".to_owned(), Box::new(Cursor::new(log.to_owned())), None).unwrap();
    let mut logs = MergedLogs::of(vec![reader]);
    let mut replay = TrafficReplay::new(table, 1 << 18);
    replay.run(&mut logs).unwrap();
    replay.view(change.node)
}

/// Connections that a gateway has picked endpoints for.
pub(super) struct Traffic {
    frontend: FrontendAddr,
    service: String,
    source: &'static str,
    /// Client, start and end in milliseconds, and the endpoint with its cluster and node, in the order of starts.
    connections: Vec<(SocketAddr, u64, u64, LoggedEndpoint)>,
}

/// Times of the picks: connections begin every 25 ms and last up to 4 s.
fn spans(count: u64) -> impl Iterator<Item = (u64, SocketAddr, u64, u64)> {
    (0..count).map(|number| {
        let random = mix(number ^ 0x5eed);
        let client = SocketAddr::from(([192, 0, 2, (random % 200) as u8], 20_000 + (number % 40_000) as u16));
        let start = 1_767_225_600_000 + number * 25;
        (number, client, start, start + (random >> 32) % 4_000)
    })
}

impl Traffic {
    /// Picks endpoints as a gateway does, with its own clock and random numbers.
    pub(super) fn generate(active: &ActiveTable, frontend: FrontendAddr, count: u64) -> Self {
        let port = active.get(frontend).unwrap().spec().service.clone();
        let source = crate::views::routes::source_name(port.source);
        let mut traffic = Self { frontend, service: port.to_string(), source, connections: Vec::new() };
        traffic.pick(active, spans(count), |traffic, client, span, picked, spec| {
            let endpoint = LoggedEndpoint::of(picked.addr(), Some(spec));
            traffic.connections.push((client, span.0, span.1, endpoint));
        });
        traffic
    }

    /// The endpoint of each client under another table.
    pub(super) fn picked_again(&self, active: &ActiveTable) -> HashMap<SocketAddr, String> {
        let mut endpoints = HashMap::new();
        let count = self.connections.len() as u64;
        let mut same = Self { connections: Vec::new(), service: String::new(), ..*self };
        same.pick(active, spans(count), |_, client, _, picked, _| {
            endpoints.insert(client, picked.addr().socket_addr().to_string());
        });
        endpoints
    }

    fn pick(
        &mut self,
        active: &ActiveTable,
        spans: impl Iterator<Item = (u64, SocketAddr, u64, u64)>,
        mut add: impl FnMut(&mut Self, SocketAddr, (u64, u64), &Picked, &sheave_model::Frontend),
    ) {
        let (affinity, began) = (AffinityTable::default(), Instant::now());
        let frontend = active.get(self.frontend).unwrap();
        let mut open: Vec<(u64, Picked)> = Vec::new();
        for (number, client, start, end) in spans {
            open.retain(|(end, _)| *end > start);
            let (client, now) = (ClientAddr(client), began + Duration::from_millis(number * 25));
            let origin = active.origin(self.frontend, client);
            let mut request =
                PickRequest { client, origin, random: mix(mix(number)), now, tried: &[], part: None };
            request.part = frontend.part(&request, &affinity);
            let Pick::Forward(picked) = frontend.pick(&request, &affinity) else { panic!("no endpoint") };
            add(self, client.0, (start, end), &picked, frontend.spec());
            open.push((end, picked));
        }
    }

    /// Clients and their endpoints.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = (SocketAddr, String)> {
        self.connections
            .iter()
            .map(|(client, _, _, endpoint)| (*client, endpoint.addr.socket_addr().to_string()))
    }

    /// The log, in the order of ends.
    pub(super) fn log(&self) -> String {
        let mut ended: Vec<_> = self.connections.iter().collect();
        ended.sort_by_key(|(_, _, end, _)| *end);
        let line = |(client, start, end, endpoint): &(SocketAddr, u64, u64, LoggedEndpoint)| {
            let (cluster, node) = endpoint.place.clone().unwrap();
            let time = Timestamp::from_millisecond(*end as i64).unwrap();
            let seconds = (end - start) as f64 / 1000.0;
            format!(
                "{{\"time\":\"{time}\",\"service\":\"{}\",\"portName\":\"http\",\"source\":\"{}\",\"frontend\":\"{}\",\"client\":\"{client}\",\
                 \"endpoint\":\"{}\",\"cluster\":\"{cluster}\",\"node\":\"{node}\",\"durationSeconds\":{seconds},\"clientBytes\":100,\"endpointBytes\":1000,\
                 \"reason\":\"finished\"}}\n",
                self.service,
                self.source,
                self.frontend.socket_addr(),
                endpoint.addr.socket_addr()
            )
        };
        ended.into_iter().map(line).collect()
    }
}
