//! Endpoints of one Service port and family from EndpointSlices, as in kube-proxy's EndpointSliceCache
//! (pkg/proxy/endpointslicecache.go). `eligibility` decides which of them a client may get.

pub(super) mod interner;
pub(super) mod merged;
pub(super) mod observer;

use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::{
    Endpoint as SliceEndpoint, EndpointConditions, EndpointPort, EndpointSlice,
};
use sheave_model::{Endpoint, EndpointAddr, EndpointState, Path, Weight};

use self::interner::NameInterner;
use self::observer::{EndpointLoop, EndpointObserver, EntryId, Exclusion, NoObserver, PortMismatch};
use super::eligibility::{EndpointTraits, Hint, TopologyHints};
use super::nodes::ClusterContext;
use super::plan::{ClusterMember, ListedSlice, SliceOrigin};
use super::ports;
use super::ports::PlannedPort;
use crate::api::problem::report::Report;
use crate::api::problem::{ObjectRef, Problem};
use crate::net;
use crate::net::Family;

/// Serving endpoints of one port and family, sorted by address and port; both vectors have the same order.
#[derive(Debug, Default)]
pub(super) struct PortEndpoints {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) traits: Vec<EndpointTraits>,
    /// Endpoints that were left out because they lead back to the gateway, or may.
    pub(super) loops: Vec<(EndpointAddr, EndpointLoop)>,
    /// Endpoints that take no new connections but still serve.
    pub(super) lingering: Vec<EndpointAddr>,
    /// Number of endpoints including those that currently do not serve, without terminating ones: these are being replaced, and a
    /// rollout is no failure.
    pub(super) capacity: u32,
}

impl PortEndpoints {
    pub(super) fn is_empty(&self) -> bool {
        self.endpoints.is_empty() && self.lingering.is_empty() && self.loops.is_empty() && self.capacity == 0
    }
}

/// An endpoint as one slice has it. The order of the fields after `addr` says which of several entries for one address
/// counts: the first, and on each gateway the same, or under `Local` each would take the address for its own node's. kube-proxy lets each
/// node with an entry have it, since no other one has to agree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SliceEntry<'a> {
    addr: EndpointAddr,
    copy: bool,
    conditions: Conditions,
    nameless: bool,
    node: &'a str,
    remote: bool,
    zone: &'a str,
    hints: TopologyHints,
    mark: EntryId,
}

/// Conditions of an endpoint, with defaults applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Conditions {
    pub(super) terminating: bool,
    unready: bool,
    unserving: bool,
}

impl Conditions {
    /// Conditions of an endpoint that a preview takes out.
    const ABSENT: Self = Self { terminating: false, unready: true, unserving: true };

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

    /// State of a serving endpoint; `None` if it does not serve.
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

/// Collects the endpoints of one cluster for a port. Slices of the other family are skipped.
pub(super) fn collect(
    member: &ClusterMember,
    family: Family,
    port: &PlannedPort,
    context: &ClusterContext,
    loop_at: impl Fn(EndpointAddr) -> Option<EndpointLoop>,
    names: &mut NameInterner,
    problems: &mut Vec<Problem>,
) -> PortEndpoints {
    SliceReader { member, family, port, context, names, problems, observer: &mut NoObserver }.collect(loop_at)
}

/// Like [`collect`], with an observer of the result for each endpoint.
pub(super) fn observe(
    member: &ClusterMember,
    family: Family,
    port: &PlannedPort,
    context: &ClusterContext,
    loop_at: impl Fn(EndpointAddr) -> Option<EndpointLoop>,
    observer: &mut impl EndpointObserver,
) -> PortEndpoints {
    let (names, problems) = (&mut NameInterner::default(), &mut Vec::new());
    SliceReader { member, family, port, context, names, problems, observer }.collect(loop_at)
}

/// A pass over the slices of a cluster, for one port and family.
struct SliceReader<'r, W> {
    member: &'r ClusterMember,
    family: Family,
    port: &'r PlannedPort,
    context: &'r ClusterContext,
    names: &'r mut NameInterner,
    problems: &'r mut Vec<Problem>,
    observer: &'r mut W,
}

impl<'r, W: EndpointObserver> SliceReader<'r, W> {
    fn collect(&mut self, loop_at: impl Fn(EndpointAddr) -> Option<EndpointLoop>) -> PortEndpoints {
        let mut entries = Vec::new();
        let family = self.family;
        for listed in
            self.member.slices.iter().filter(|it| Family::named(&it.slice.address_type) == Some(family))
        {
            let mut report = Report::about(object(listed));
            self.read_slice(listed, &mut entries, &mut report);
            self.problems.extend(problems_of(listed, report));
        }
        entries.sort_unstable();
        // A pod network can assign a terminating Pod's address to a new Pod before the old one is gone. Of two entries the one
        // that does not terminate counts, whatever the order of the slices.
        entries.dedup_by(|next, kept| {
            let same = next.addr == kept.addr;
            if same {
                self.observer.left_out(next.mark, Exclusion::Duplicate(kept.mark));
            }
            same
        });
        self.serving(&entries, loop_at)
    }

    fn serving(
        &mut self,
        entries: &[SliceEntry<'_>],
        loop_at: impl Fn(EndpointAddr) -> Option<EndpointLoop>,
    ) -> PortEndpoints {
        let mut serving = PortEndpoints::default();
        serving.endpoints.reserve_exact(entries.len());
        serving.traits.reserve_exact(entries.len());
        for entry in entries {
            serving.capacity += u32::from(!entry.conditions.terminating);
            let Some(state) = entry.conditions.state() else {
                self.observer.left_out(entry.mark, Exclusion::NotReady);
                if !entry.conditions.unserving {
                    serving.lingering.push(entry.addr);
                }
                continue;
            };
            // A path through an interface leaves this machine, even to an address that the machine itself has.
            let found = if entry.addr.path == Path::DEFAULT { loop_at(entry.addr) } else { None };
            if let Some(found) = found {
                serving.capacity -= u32::from(!entry.conditions.terminating);
                self.observer.left_out(entry.mark, Exclusion::Loop(found));
                serving.loops.push((entry.addr, found));
                continue;
            }
            self.observer.serves(entry.mark);
            let local = !entry.remote;
            serving.traits.push(EndpointTraits {
                state,
                local,
                hints: entry.hints,
                scope: self.member.scope,
            });
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

    fn read_slice(
        &mut self,
        listed: &'r ListedSlice,
        entries: &mut Vec<SliceEntry<'r>>,
        report: &mut Report,
    ) {
        let mut mismatch = Some(PortMismatch::Absent);
        for (index, slice_port) in listed.slice.ports.as_deref().unwrap_or_default().iter().enumerate() {
            match port_number(slice_port, self.port, index, report) {
                Ok(number) => {
                    mismatch = None;
                    self.read_endpoints(listed, number, entries, report);
                }
                // The closest match is the most useful reason.
                Err(why) => mismatch = mismatch.map(|known| known.max(why)),
            }
        }
        if let Some(why) = mismatch {
            self.observer.unmatched(&listed.slice, why);
        }
    }

    fn read_endpoints(
        &mut self,
        listed: &'r ListedSlice,
        number: u16,
        entries: &mut Vec<SliceEntry<'r>>,
        report: &mut Report,
    ) {
        let slice = &*listed.slice;
        let unchecked = matches!(listed.origin, SliceOrigin::Within(..)) && !self.context.by_hand;
        let endpoints = slice.endpoints.as_deref().unwrap_or_default();
        entries.reserve(endpoints.len());
        for (index, endpoint) in endpoints.iter().enumerate() {
            let mark = self.observer.reads(slice, endpoint, number);
            // Addresses after the first have no agreed meaning.
            let Some(text) = endpoint.addresses.first() else {
                self.observer.left_out(mark, Exclusion::NoAddress);
                let field = format!("endpoints[{index}].addresses");
                report.invalid(field, "the list is empty; the endpoint is left out");
                continue;
            };
            let (left_out, why) = match net::parse_ip(text) {
                Ok(ip) if unchecked && is_of_one_machine(ip) => {
                    let why = "means this machine or its own link, and the endpoint is in another cluster";
                    (Exclusion::InvalidAddress(why), why.to_owned())
                }
                Ok(ip) if Family::of(ip) == self.family => match self.refused(ip) {
                    None => {
                        let addr = EndpointAddr { ip, port: number, path: self.member.path };
                        entries.push(self.entry(endpoint, addr, listed, mark));
                        continue;
                    }
                    Some((why, remedy)) => (Exclusion::InvalidAddress(why), format!("{why} ({remedy})")),
                },
                Ok(_) => (Exclusion::OtherFamily, format!("is not of the slice's family {}", self.family)),
                Err(why) => (Exclusion::InvalidAddress(why), why.to_owned()),
            };
            self.observer.left_out(mark, left_out);
            let field = format!("endpoints[{index}].addresses[0]");
            report.invalid(field, format!("{text:?} {why}; the endpoint is left out"));
        }
    }

    /// Why an endpoint of another cluster is refused, and the key that permits it. The administrators of that cluster control its
    /// endpoints, while the gateway can reach everything that its node reaches.
    fn refused(&self, ip: IpAddr) -> Option<(&'static str, String)> {
        let ClusterMember { cluster, own, path, allowed, .. } = self.member;
        let remedy = format_args!("clusters.{cluster}.allow in the configuration");
        match allowed {
            _ if *own => None,
            Some(allowed) if allowed.contains(ip) => None,
            Some(_) => Some(("is not in the networks allowed for its cluster", remedy.to_string())),
            // Through a dedicated interface the same address is a different endpoint.
            None if *path != Path::DEFAULT || self.context.by_hand => None,
            None if self.context.own_networks.contains(ip) => Some((
                "is of a Pod or node of the gateways' own cluster, and the endpoint is in another cluster",
                format!("{remedy}; or cluster: {cluster}, if that is the gateways' own"),
            )),
            None if self.context.internal.contains(ip) => Some((
                "is in internalCIDRs, networks of the gateways' own cluster, and the endpoint is in another cluster",
                format!("{remedy}; or cluster: {cluster}, if that is the gateways' own"),
            )),
            None => None,
        }
    }

    /// Other clusters can have nodes and zones with the same names as ours, so theirs are ignored.
    fn entry(
        &self,
        endpoint: &'r SliceEndpoint,
        addr: EndpointAddr,
        listed: &ListedSlice,
        mark: EntryId,
    ) -> SliceEntry<'r> {
        let own = self.member.own;
        let node = endpoint.node_name.as_deref().unwrap_or_default();
        let zone = endpoint.zone.as_deref().unwrap_or_default();
        let conditions = match self.context.absent.has(&self.member.cluster, node, zone) {
            true => Conditions::ABSENT,
            false => Conditions::of(endpoint),
        };
        SliceEntry {
            addr,
            copy: matches!(listed.origin, SliceOrigin::Copy),
            conditions,
            nameless: node.is_empty(),
            node,
            remote: !(own && is_local(endpoint, self.context)),
            zone,
            hints: if own { hints(endpoint, self.context) } else { TopologyHints::default() },
            mark,
        }
    }
}

/// Whether the address has a meaning only on one machine. An API server rejects such addresses in slices (discovery/v1,
/// `ValidateEndpointIP`), but slices in a Work are not validated.
fn is_of_one_machine(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local(),
        // Other link-local addresses never get this far.
        IpAddr::V6(v6) => v6.is_loopback(),
    }
}

/// The port number in this slice that serves `wanted`, matched only by name and protocol.
///
/// kube-proxy skips ports without a name. The API server sets missing names to "", so in a manifest both are equivalent.
fn port_number(
    slice_port: &EndpointPort,
    wanted: &PlannedPort,
    index: usize,
    report: &mut Report,
) -> Result<u16, PortMismatch> {
    let protocol = match slice_port.protocol.as_deref().unwrap_or_default() {
        "" => "TCP",
        other => other,
    };
    if slice_port.name.as_deref().unwrap_or_default() != &*wanted.name {
        return Err(PortMismatch::Absent);
    }
    if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
        let message =
            format!("{protocol:?} is not TCP or UDP; the slice's endpoints are left out on this port");
        report.invalid(format!("ports[{index}].protocol"), message);
    }
    if protocol != wanted.protocol.name() {
        return Err(PortMismatch::Absent);
    }
    // nil would mean all ports, but no producer writes that for Services. kube-proxy skips nil and 0.
    let asked = slice_port.port.filter(|port| *port != 0).ok_or(PortMismatch::Unnumbered)?;
    ports::number(asked).ok_or_else(|| {
        let message = format!("{asked} is not a port (1 to 65535); its endpoints are left out");
        report.invalid(format!("ports[{index}].port"), message);
        PortMismatch::Invalid(asked)
    })
}

/// Whether the endpoint runs on the gateway's node.
pub(super) fn is_local(endpoint: &SliceEndpoint, context: &ClusterContext) -> bool {
    endpoint.node_name.as_deref().is_some_and(|node| !node.is_empty() && node == context.node)
}

fn hints(endpoint: &SliceEndpoint, context: &ClusterContext) -> TopologyHints {
    let Some(hints) = &endpoint.hints else { return TopologyHints::default() };
    let zones = hints.for_zones.iter().flatten().map(|zone| zone.name.as_str());
    let nodes = hints.for_nodes.iter().flatten().map(|node| node.name.as_str());
    TopologyHints { zone: hint(zones, &context.zone), node: hint(nodes, &context.node) }
}

fn hint<'a>(mut named: impl Iterator<Item = &'a str>, here: &str) -> Hint {
    let Some(first) = named.next() else { return Hint::Absent };
    if !here.is_empty() && (first == here || named.any(|name| name == here)) {
        Hint::Here
    } else {
        Hint::Elsewhere
    }
}

/// Reports slices of neither family, which no pass reads.
pub(super) fn unreadable(member: &ClusterMember, problems: &mut Vec<Problem>) {
    for listed in member.slices.iter().filter(|it| Family::named(&it.slice.address_type).is_none()) {
        let mut report = Report::about(object(listed));
        let message = match listed.slice.address_type.as_str() {
            "FQDN" => "slices of host names are not served; the slice is left out".to_owned(),
            other => format!("{other:?} is not IPv4 or IPv6; the slice is left out"),
        };
        report.invalid("addressType", message);
        problems.extend(problems_of(listed, report));
    }
}

fn object(listed: &ListedSlice) -> ObjectRef {
    match &listed.origin {
        SliceOrigin::Within(object, _) => object.clone(),
        SliceOrigin::Object | SliceOrigin::Copy => slice_ref(&listed.slice),
    }
}

/// The Problems of a slice, with fields relative to the object that contains it.
fn problems_of(listed: &ListedSlice, report: Report) -> Vec<Problem> {
    let mut problems = report.into_problems();
    if let SliceOrigin::Within(_, part) = &listed.origin {
        problems.iter_mut().for_each(|problem| problem.field = format!("{part}.{}", problem.field));
    }
    problems
}

pub(super) fn slice_ref(slice: &EndpointSlice) -> ObjectRef {
    ObjectRef {
        kind: "EndpointSlice",
        namespace: slice.metadata.namespace.as_deref().unwrap_or_default().into(),
        name: slice.metadata.name.as_deref().unwrap_or_default().into(),
    }
}
