//! From EndpointSlices to the endpoints of one Service port and family, as kube-proxy's EndpointSliceCache does it
//! (pkg/proxy/endpointslicecache.go). Must not know which of them a client may get.

pub(super) mod witness;

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{
    Endpoint as SliceEndpoint, EndpointConditions, EndpointPort, EndpointSlice,
};
use sheave_dataplane::model::{Endpoint, EndpointAddr, EndpointState, Weight};

use self::witness::{LeftOut, Mark, Mismatch, Nobody, Witness};
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
    /// Endpoints that take nothing new, but still serve.
    pub(super) lingering: Vec<EndpointAddr>,
}

/// An endpoint as one slice has it. The order of the fields after `addr` says which of several entries for one address
/// counts: the first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<'a> {
    addr: EndpointAddr,
    conditions: Conditions,
    remote: bool,
    node: &'a str,
    zone: &'a str,
    hints: Hints,
    mark: Mark,
}

/// An endpoint's conditions with their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conditions {
    pub(super) terminating: bool,
    unready: bool,
    unserving: bool,
}

impl Conditions {
    pub(super) fn of(endpoint: &SliceEndpoint) -> Self {
        let conditions = endpoint.conditions.as_ref();
        let condition = |read: fn(&EndpointConditions) -> Option<bool>, default| {
            conditions.and_then(read).unwrap_or(default)
        };
        Self {
            terminating: condition(|all| all.terminating, false),
            unready: !condition(|all| all.ready, true),
            unserving: !condition(|all| all.serving, true),
        }
    }

    /// `None` = does not serve.
    pub(super) fn state(self) -> Option<EndpointState> {
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
    let mut reader = Reader { family, port, facts, names, problems, witness: &mut Nobody };
    reader.collect(slices, is_own_frontend)
}

/// As [`collect`], for someone who wants to hear what becomes of each endpoint.
pub(super) fn witness<'a>(
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    family: Family,
    port: &PlannedPort,
    facts: &Facts,
    is_own_frontend: impl Fn(EndpointAddr) -> bool,
    witness: &mut impl Witness,
) -> Serving {
    let (names, problems) = (&mut Names::default(), &mut Vec::new());
    Reader { family, port, facts, names, problems, witness }.collect(slices, is_own_frontend)
}

/// One pass over the slices of a Service, for one port and family.
struct Reader<'r, W> {
    family: Family,
    port: &'r PlannedPort,
    facts: &'r Facts,
    names: &'r mut Names,
    problems: &'r mut Vec<Problem>,
    witness: &'r mut W,
}

impl<W: Witness> Reader<'_, W> {
    fn collect<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
        is_own_frontend: impl Fn(EndpointAddr) -> bool,
    ) -> Serving {
        let mut entries = Vec::new();
        let family = self.family;
        for slice in slices.filter(|slice| Family::named(&slice.address_type) == Some(family)) {
            let mut report = Report::about(slice_ref(slice));
            self.read_slice(slice, &mut entries, &mut report);
            self.problems.extend(report.into_problems());
        }
        entries.sort_unstable();
        // A pod network may give a terminating Pod's address to a new Pod before the old one is gone: of two entries
        // the one that does not terminate counts, whatever the order of the slices.
        entries.dedup_by(|next, kept| {
            let same = next.addr == kept.addr;
            if same {
                self.witness.left_out(next.mark, LeftOut::Duplicate(kept.mark));
            }
            same
        });
        self.serving(&entries, is_own_frontend)
    }

    fn serving(&mut self, entries: &[Entry<'_>], is_own_frontend: impl Fn(EndpointAddr) -> bool) -> Serving {
        let mut serving = Serving::default();
        serving.endpoints.reserve_exact(entries.len());
        serving.facets.reserve_exact(entries.len());
        for entry in entries {
            let Some(state) = entry.conditions.state() else {
                self.witness.left_out(entry.mark, LeftOut::NotReady);
                if !entry.conditions.unserving {
                    serving.lingering.push(entry.addr);
                }
                continue;
            };
            if is_own_frontend(entry.addr) {
                self.witness.left_out(entry.mark, LeftOut::OwnFrontend);
                serving.loops.push(entry.addr);
                continue;
            }
            self.witness.serves(entry.mark);
            let local = !entry.remote;
            serving.facets.push(Facet { state, local, hints: entry.hints });
            serving.endpoints.push(Endpoint {
                addr: entry.addr,
                node: self.names.share(entry.node),
                zone: self.names.share(entry.zone),
                local,
                state,
                weight: Weight::default(),
            });
        }
        serving
    }

    fn read_slice<'a>(
        &mut self,
        slice: &'a EndpointSlice,
        entries: &mut Vec<Entry<'a>>,
        report: &mut Report,
    ) {
        let mut mismatch = Some(Mismatch::Absent);
        for (index, slice_port) in slice.ports.as_deref().unwrap_or_default().iter().enumerate() {
            match port_number(slice_port, self.port, index, report) {
                Ok(number) => {
                    mismatch = None;
                    self.read_endpoints(slice, number, entries, report);
                }
                // The one that came nearest says most.
                Err(why) => mismatch = mismatch.map(|known| known.max(why)),
            }
        }
        if let Some(why) = mismatch {
            self.witness.unmatched(slice, why);
        }
    }

    fn read_endpoints<'a>(
        &mut self,
        slice: &'a EndpointSlice,
        number: u16,
        entries: &mut Vec<Entry<'a>>,
        report: &mut Report,
    ) {
        let endpoints = slice.endpoints.as_deref().unwrap_or_default();
        entries.reserve(endpoints.len());
        for (index, endpoint) in endpoints.iter().enumerate() {
            let mark = self.witness.reads(slice, endpoint, number);
            // Addresses after the first have no meaning that consumers agree on.
            let Some(text) = endpoint.addresses.first() else {
                self.witness.left_out(mark, LeftOut::NoAddress);
                let field = format!("endpoints[{index}].addresses");
                report.invalid(field, "the list is empty; the endpoint is left out");
                continue;
            };
            let (left_out, why) = match ip::parse(text) {
                Ok(ip) if Family::of(ip) == self.family => {
                    entries.push(entry(endpoint, EndpointAddr::new(ip, number), self.facts, mark));
                    continue;
                }
                Ok(_) => (LeftOut::OtherFamily, format!("is not of the slice's family {}", self.family)),
                Err(why) => (LeftOut::InvalidAddress(why), why.to_owned()),
            };
            self.witness.left_out(mark, left_out);
            let field = format!("endpoints[{index}].addresses[0]");
            report.invalid(field, format!("{text:?} {why}; the endpoint is left out"));
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
) -> Result<u16, Mismatch> {
    let protocol = match slice_port.protocol.as_deref().unwrap_or_default() {
        "" => "TCP",
        other => other,
    };
    if slice_port.name.as_deref().unwrap_or_default() != &*wanted.name {
        return Err(Mismatch::Absent);
    }
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        let message =
            format!("{protocol:?} is not TCP or UDP; the slice's endpoints are left out on this port");
        report.invalid(format!("ports[{index}].protocol"), message);
    }
    if protocol != protocol_name(wanted.protocol) {
        return Err(Mismatch::Absent);
    }
    // nil would mean all ports, which no producer writes for Services; kube-proxy skips nil and 0.
    let asked = slice_port.port.filter(|port| *port != 0).ok_or(Mismatch::Unnumbered)?;
    ports::number(asked).ok_or_else(|| {
        let message = format!("{asked} is not a port (1 to 65535); its endpoints are left out");
        report.invalid(format!("ports[{index}].port"), message);
        Mismatch::Invalid(asked)
    })
}

fn entry<'a>(endpoint: &'a SliceEndpoint, addr: EndpointAddr, facts: &Facts, mark: Mark) -> Entry<'a> {
    let node = endpoint.node_name.as_deref().unwrap_or_default();
    Entry {
        addr,
        conditions: Conditions::of(endpoint),
        remote: !is_local(endpoint, facts),
        node,
        zone: endpoint.zone.as_deref().unwrap_or_default(),
        hints: hints(endpoint, facts),
        mark,
    }
}

/// Whether the endpoint runs on the gateway's node.
pub(super) fn is_local(endpoint: &SliceEndpoint, facts: &Facts) -> bool {
    endpoint.node_name.as_deref().is_some_and(|node| !node.is_empty() && node == facts.node)
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
