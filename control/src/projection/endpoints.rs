//! From EndpointSlices to the endpoints of one Service port and family, as kube-proxy's EndpointSliceCache does it
//! (pkg/proxy/endpointslicecache.go). Must not know which of them a client may get.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint as SliceEndpoint, EndpointPort, EndpointSlice};
use sheave_dataplane::model::{Endpoint, EndpointAddr, EndpointState, Weight};

use super::facts::Facts;
use super::names::Names;
use super::ports::{self, PlannedPort, protocol_name};
use super::topology::{Facet, Hint, Hints};
use crate::ip::{self, Family};
use crate::problem::{ObjectRef, Problem};
use crate::report::Report;

/// Endpoints of one port and family that still serve, sorted by address and port; both vectors have the same order.
#[derive(Debug, Default)]
pub(super) struct Serving {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) facets: Vec<Facet>,
    /// Endpoints that are the gateway itself, and were left out.
    pub(super) loops: Vec<EndpointAddr>,
}

/// An endpoint as one slice has it. The order of the fields after `addr` says which of several entries for one address
/// counts: the first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'a> {
    addr: EndpointAddr,
    terminating: bool,
    unready: bool,
    unserving: bool,
    remote: bool,
    node: &'a str,
    zone: &'a str,
    hints: Hints,
}

impl Entry<'_> {
    fn state(&self) -> Option<EndpointState> {
        if !self.unready {
            Some(EndpointState::Ready)
        } else if self.terminating && !self.unserving {
            Some(EndpointState::Terminating)
        } else {
            None
        }
    }
}

/// Reads the endpoints of one port. Slices of another family are left to the other family's turn.
pub(super) fn collect<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    family: Family,
    port: &PlannedPort,
    facts: &Facts,
    is_own_frontend: impl Fn(EndpointAddr) -> bool,
    names: &mut Names,
    problems: &mut Vec<Problem>,
) -> Serving {
    let mut entries = Vec::new();
    for slice in slices.filter(|slice| Family::named(&slice.address_type) == Some(family)) {
        let mut report = Report::about(slice_ref(slice));
        read_slice(slice, family, port, facts, &mut entries, &mut report);
        problems.extend(report.into_problems());
    }
    entries.sort_unstable();
    // A pod network may give a terminating Pod's address to a new Pod before the old one is gone: of two entries
    // the one that does not terminate counts, whatever the order of the slices.
    entries.dedup_by_key(|entry| entry.addr);
    serving(&entries, is_own_frontend, names)
}

fn serving(
    entries: &[Entry<'_>],
    is_own_frontend: impl Fn(EndpointAddr) -> bool,
    names: &mut Names,
) -> Serving {
    let mut serving = Serving::default();
    serving.endpoints.reserve_exact(entries.len());
    serving.facets.reserve_exact(entries.len());
    for entry in entries {
        let Some(state) = entry.state() else { continue };
        if is_own_frontend(entry.addr) {
            serving.loops.push(entry.addr);
            continue;
        }
        let local = !entry.remote;
        serving.facets.push(Facet { state, local, hints: entry.hints });
        serving.endpoints.push(Endpoint {
            addr: entry.addr,
            node: names.share(entry.node),
            zone: names.share(entry.zone),
            local,
            state,
            weight: Weight::default(),
        });
    }
    serving
}

fn read_slice<'a>(
    slice: &'a EndpointSlice,
    family: Family,
    port: &PlannedPort,
    facts: &Facts,
    entries: &mut Vec<Entry<'a>>,
    report: &mut Report,
) {
    let endpoints = slice.endpoints.as_deref().unwrap_or_default();
    for (index, slice_port) in slice.ports.as_deref().unwrap_or_default().iter().enumerate() {
        let Some(number) = port_number(slice_port, port, index, report) else { continue };
        entries.reserve(endpoints.len());
        for (index, endpoint) in endpoints.iter().enumerate() {
            // Addresses after the first have no meaning that consumers agree on.
            let Some(text) = endpoint.addresses.first() else {
                report.invalid(
                    format!("endpoints[{index}].addresses"),
                    "the list is empty; the endpoint is left out",
                );
                continue;
            };
            let ip = ip::parse(text);
            match ip {
                Ok(ip) if Family::of(ip) == family => {
                    entries.push(entry(endpoint, EndpointAddr { ip, port: number }, facts));
                }
                Ok(_) => report.invalid(
                    format!("endpoints[{index}].addresses[0]"),
                    format!("{text:?} is not of the slice's family {family}; the endpoint is left out"),
                ),
                Err(why) => report.invalid(
                    format!("endpoints[{index}].addresses[0]"),
                    format!("{text:?} {why}; the endpoint is left out"),
                ),
            }
        }
    }
}

/// The number under which `wanted` is served by this slice, if the slice port is the one: by name and protocol alone.
///
/// kube-proxy skips ports without a name; the API server fills in "", so in a manifest both mean the same.
fn port_number(
    slice_port: &EndpointPort,
    wanted: &PlannedPort,
    index: usize,
    report: &mut Report,
) -> Option<u16> {
    let protocol = match slice_port.protocol.as_deref().unwrap_or_default() {
        "" => "TCP",
        other => other,
    };
    if slice_port.name.as_deref().unwrap_or_default() != &*wanted.name
        || protocol != protocol_name(wanted.protocol)
    {
        return None;
    }
    // nil would mean all ports, which no producer writes for Services; kube-proxy skips nil and 0.
    let asked = slice_port.port.filter(|port| *port != 0)?;
    let number = ports::number(asked);
    if number.is_none() {
        let message = format!("{asked} is not a port (1 to 65535); its endpoints are left out");
        report.invalid(format!("ports[{index}].port"), message);
    }
    number
}

fn entry<'a>(endpoint: &'a SliceEndpoint, addr: EndpointAddr, facts: &Facts) -> Entry<'a> {
    let node = endpoint.node_name.as_deref().unwrap_or_default();
    let conditions = endpoint.conditions.as_ref();
    let condition = |read: fn(&_) -> Option<bool>, default| conditions.and_then(read).unwrap_or(default);
    Entry {
        addr,
        terminating: condition(
            |all: &k8s_openapi::api::discovery::v1::EndpointConditions| all.terminating,
            false,
        ),
        unready: !condition(|all| all.ready, true),
        unserving: !condition(|all| all.serving, true),
        remote: node.is_empty() || node != facts.node,
        node,
        zone: endpoint.zone.as_deref().unwrap_or_default(),
        hints: hints(endpoint, facts),
    }
}

fn hints(endpoint: &SliceEndpoint, facts: &Facts) -> Hints {
    let Some(hints) = &endpoint.hints else { return Hints::default() };
    let zones = hints.for_zones.iter().flatten().map(|zone| zone.name.as_str());
    let nodes = hints.for_nodes.iter().flatten().map(|node| node.name.as_str());
    Hints { zone: hint(zones, &facts.zone), node: hint(nodes, &facts.node) }
}

fn hint<'a>(mut named: impl Iterator<Item = &'a str>, here: &str) -> Hint {
    let Some(first) = named.next() else { return Hint::Absent };
    if !here.is_empty() && (first == here || named.any(|name| name == here)) {
        Hint::Here
    } else {
        Hint::Elsewhere
    }
}

/// Slices that no family's turn would read.
pub(super) fn unreadable<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    problems: &mut Vec<Problem>,
) {
    for slice in slices.filter(|slice| Family::named(&slice.address_type).is_none()) {
        let mut report = Report::about(slice_ref(slice));
        let message = match slice.address_type.as_str() {
            "FQDN" => "slices of host names are not served; the slice is left out".to_owned(),
            other => format!("{other:?} is not IPv4 or IPv6; the slice is left out"),
        };
        report.invalid("addressType", message);
        problems.extend(report.into_problems());
    }
}

fn slice_ref(slice: &EndpointSlice) -> ObjectRef {
    ObjectRef {
        kind: "EndpointSlice",
        namespace: slice.metadata.namespace.as_deref().unwrap_or_default().into(),
        name: slice.metadata.name.as_deref().unwrap_or_default().into(),
    }
}
