//! ingress-nginx: the ConfigMaps with which its controller forwards TCP and UDP ports, as Gateways.

mod controller;
mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;
use sheave_model::Protocol;

use self::controller::StreamMaps;
use self::entry::{ServiceIndex, StreamEntry};
use super::draft::{left, reference};
use super::gateway_api::names::ObjectNames;
use super::gateway_api::{GatewayDraft, ListenerDraft, ServicePortKey, addresses, source_ranges};
use crate::net::is_dns_label;
use crate::projection::{ACCEPT_PROXY, CLIENT_SOURCE, SOURCE_RANGES};
use crate::sources::manifests::{FileProblem, RawObject};
use crate::text::{MAX_MESSAGE_BYTES, cut_middle, first_few};

/// All peers: nginx requires the header of every one (`listen ... proxy_protocol`).
const EVERY_PEER: &str = "0.0.0.0/0,::/0";
/// Version of the header that nginx sends (`ngx_stream_proxy_module`, `proxy_protocol on`).
const PROXY_V1: &str = "proxy-v1";

/// A Gateway of an ingress controller, and the Service that its addresses come from.
#[derive(Debug)]
pub(super) struct IngressGateway<'a> {
    pub(super) draft: GatewayDraft,
    pub(super) service: Option<&'a RawObject>,
}

/// Result for the ingress controllers.
#[derive(Debug, Default)]
pub(super) struct IngressGateways<'a> {
    pub(super) gateways: Vec<IngressGateway<'a>>,
    pub(super) steps: Vec<String>,
    /// Open questions that belong to no Gateway.
    pub(super) left: Vec<FileProblem>,
    /// Ports of the controllers' Services that these Gateways serve.
    pub(super) served: BTreeSet<ServicePortKey>,
}

/// Translates the ConfigMaps. `pool_labels` are the keys of labels that AddressPools select by.
pub(super) fn translate<'a>(
    objects: &'a [RawObject],
    pool_labels: &BTreeSet<String>,
    names: &mut ObjectNames,
) -> IngressGateways<'a> {
    let mut found = IngressGateways::default();
    let services = ServiceIndex::of(objects);
    for maps in controller::find(objects, &mut found.left) {
        let groups = groups(&maps, &services, &mut found.left);
        finish(&maps, groups, (pool_labels, names), &mut found);
    }
    found
}

/// Key of a Gateway of one controller: its namespace, and whether it accepts PROXY headers.
type GroupKey = (String, bool);

/// Listeners of the entries, by the Gateway that they belong to.
fn groups(
    maps: &StreamMaps<'_>,
    services: &ServiceIndex<'_>,
    problems: &mut Vec<FileProblem>,
) -> BTreeMap<GroupKey, Vec<ListenerDraft>> {
    let mut groups: BTreeMap<GroupKey, Vec<ListenerDraft>> = BTreeMap::new();
    for (protocol, map) in [(Protocol::Tcp, maps.tcp), (Protocol::Udp, maps.udp)] {
        let Some(map) = map else { continue };
        let namespace = map.namespace();
        if !is_dns_label(namespace) {
            let message = format!("{namespace:?} is not the name of a Namespace; nothing is made of it");
            problems.push(left(map, "metadata.namespace", message));
            continue;
        }
        for entry in entry::read(map, protocol, &maps.reserved, services, problems) {
            let group = groups.entry((namespace.to_owned(), entry.decodes)).or_default();
            group.push(listener(map, entry));
        }
    }
    groups
}

fn finish<'a>(
    maps: &StreamMaps<'a>,
    groups: BTreeMap<GroupKey, Vec<ListenerDraft>>,
    (pool_labels, names): (&BTreeSet<String>, &mut ObjectNames),
    found: &mut IngressGateways<'a>,
) {
    let keys: Vec<GroupKey> = groups.keys().cloned().collect();
    let mut address = ServedAddress::read(maps);
    let mut drafts = Vec::new();
    for ((namespace, decodes), mut listeners) in groups {
        address.check_ports(&mut listeners, &mut found.served);
        let wanted = if decodes { format!("{}-proxy", maps.name) } else { maps.name.clone() };
        let mut draft = GatewayDraft::new(&namespace, &wanted, names);
        draft.comments.insert(0, format!("From {}", origins(maps, &namespace)));
        draft.listeners = listeners;
        if decodes {
            draft.annotations.insert(ACCEPT_PROXY.to_owned(), EVERY_PEER.to_owned());
        }
        if keys.contains(&(namespace, !decodes)) {
            let message = "Entries with and without PROXY headers from clients are in two Gateways: sheave.dev/accept-proxy is for all \
                           listeners of one.";
            draft.comments.push(message.to_owned());
        }
        address.apply(maps, pool_labels, &mut draft);
        drafts.push(draft);
    }
    found.steps.extend(steps(maps, &drafts, &address));
    found.gateways.extend(drafts.into_iter().map(|draft| IngressGateway { draft, service: maps.service }));
}

fn origins(maps: &StreamMaps<'_>, namespace: &str) -> String {
    let of_namespace = [maps.tcp, maps.udp].into_iter().flatten().filter(|it| it.namespace() == namespace);
    let mut origins: Vec<String> =
        of_namespace.map(|it| format!("{} ({})", reference(it), it.origin(""))).collect();
    origins.extend(maps.source.map(|it| format!("read by {}", reference(it))));
    origins.join(", ")
}

fn listener(map: &RawObject, entry: StreamEntry) -> ListenerDraft {
    let mut annotations = BTreeMap::new();
    if entry.encodes {
        annotations.insert(CLIENT_SOURCE.to_owned(), PROXY_V1.to_owned());
    }
    let comment = format!("From {}, {}: {:?}", reference(map), entry.field, entry.value);
    ListenerDraft {
        protocol: entry.protocol,
        port: entry.port,
        backend: entry.backend,
        annotations,
        comments: vec![cut_middle(comment, MAX_MESSAGE_BYTES)],
        left: entry.left,
    }
}

/// Address settings of the controller's Service.
struct ServedAddress<'a> {
    /// The Service, if it has an address.
    service: Option<&'a RawObject>,
    addresses: Vec<IpAddr>,
    source_ranges: Option<String>,
    left: Vec<FileProblem>,
}

impl<'a> ServedAddress<'a> {
    fn read(maps: &StreamMaps<'a>) -> Self {
        let mut left = Vec::new();
        let addresses =
            maps.service.map(|service| addresses::of_status(service, &mut left)).unwrap_or_default();
        let service = maps.service.filter(|_| !addresses.is_empty());
        let source_ranges = service.and_then(|service| source_ranges::read(service, &mut left));
        Self { service, addresses, source_ranges, left }
    }

    /// Notes which ports of the Service the listeners take over. A port that the Service does not have was not reachable at its
    /// address, and the listener would open it.
    fn check_ports(&self, listeners: &mut [ListenerDraft], served: &mut BTreeSet<ServicePortKey>) {
        let Some(service) = self.service else { return };
        for listener in listeners {
            let (protocol, port) = (listener.protocol, listener.port);
            if entry::has_port(service, protocol, port) {
                served.insert((service.namespace().to_owned(), service.name().to_owned(), protocol, port));
                continue;
            }
            let message = format!(
                "the Service of the controller has no port {port}/{protocol}, so clients do not reach the entry by it, and will reach the \
                 listener: remove the listener, or give it the port that they use"
            );
            listener.left.push(left(service, "spec.ports", message));
        }
    }

    /// Gives the Gateway the addresses of the Service, and who may use them.
    fn apply(&mut self, maps: &StreamMaps<'_>, pool_labels: &BTreeSet<String>, draft: &mut GatewayDraft) {
        draft.left.append(&mut self.left);
        let Some(service) = self.service else {
            let message = "no LoadBalancer Service of the controller with an address was read, so the Gateway gets an address of an \
                           AddressPool; write the one that clients use to its spec.addresses";
            draft.left.extend(maps.any().map(|it| left(it, "", message)));
            return;
        };
        draft.ask_for(self.addresses.clone(), service);
        draft.comments.push(format!("spec.addresses: those of {}", reference(service)));
        let ranges = self.source_ranges.iter().map(|ranges| (SOURCE_RANGES.to_owned(), ranges.clone()));
        draft.annotations.extend(ranges);
        draft.select_labels(service, pool_labels);
    }
}

/// Steps for the Gateways of a controller, in order.
fn steps(maps: &StreamMaps<'_>, drafts: &[GatewayDraft], address: &ServedAddress<'_>) -> Vec<String> {
    let mut steps = Vec::new();
    let name = |draft: &GatewayDraft| format!("{}/{}", draft.namespace, draft.name);
    for draft in drafts.iter().filter(|it| it.annotations.contains_key(ACCEPT_PROXY)) {
        steps.push(format!(
            "In the configuration of the gateways: acceptProxy: {{allow: [...]}}, with the CIDRs of the proxies in front of Gateway {}; \
             without it their headers reach the endpoints as data. ingress-nginx believes every peer, and so does {ACCEPT_PROXY} of this \
             Gateway: narrow it to the same CIDRs.",
            name(draft)
        ));
    }
    if drafts.is_empty() {
        return steps;
    }
    let names = drafts.iter().map(name).collect::<Vec<_>>().join(" and ");
    let (gateways, ask, serve) = match drafts {
        [_] => (format!("Gateway {names}"), "asks", "serves"),
        _ => (format!("Gateways {names}"), "ask", "serve"),
    };
    if let Some(service) = address.service {
        let listeners = drafts.iter().flat_map(|draft| &draft.listeners);
        let ports = first_few(listeners.map(|it| format!("{}/{}", it.port, it.protocol)), ", ", 8);
        let addresses = first_few(address.addresses.iter().map(ToString::to_string), ", ", 8);
        steps.push(format!(
            "{} has {addresses}, which {gateways} {ask} for, and both cannot hold the address on one port: remove {ports} from the \
             Service when you apply this file. A load balancer other than Sheave announces the address for as long as the Service \
             has it: move the Service to Sheave, too, or make it ClusterIP.",
            reference(service)
        ));
    }
    if let Some(source) = maps.source {
        steps.push(format!(
            "Once {gateways} {serve}: remove --tcp-services-configmap and --udp-services-configmap from the arguments of {}.",
            reference(source)
        ));
    }
    steps
}

/// The text at a path of an object.
fn text<'a>(object: &'a RawObject, path: &[&str]) -> Option<&'a str> {
    object.at(path).and_then(Value::as_str)
}
