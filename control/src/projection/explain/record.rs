//! Recorder of a pass over the slices: observes what happens to each address.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use sheave_model::{EndpointAddr, EndpointState, Path};

use super::view::ExplainedEndpoint;
use crate::net;
use crate::net::Family;
use crate::projection::eligibility::Eligibility;
use crate::projection::endpoints;
use crate::projection::endpoints::Conditions;
use crate::projection::endpoints::observer::{
    EndpointLoop, EndpointObserver, EntryId, Exclusion, PortMismatch,
};
use crate::projection::nodes::ClusterContext;
use crate::projection::plan::{ClusterMember, UncountedSlice};
use crate::projection::ports::PlannedPort;

/// Observations so far.
pub(super) struct EndpointRecorder<'a> {
    context: &'a ClusterContext,
    port: &'a PlannedPort,
    family: Family,
    /// The cluster whose slices are read, and why it gets no new connections, if it gets none.
    cluster: String,
    own: bool,
    path: Path,
    closed: Option<String>,
    entries: Vec<RecordedEndpoint>,
    /// Indexes of the entries that serve, in the order of the endpoints.
    serving: Vec<usize>,
}

struct RecordedEndpoint {
    view: ExplainedEndpoint,
    terminating: bool,
    /// Why its cluster gets no new connections, if it gets none.
    closed: Option<String>,
    /// Zones and nodes that its hints name.
    zones: Vec<String>,
    nodes: Vec<String>,
}

impl<'a> EndpointRecorder<'a> {
    pub(super) fn new(context: &'a ClusterContext, port: &'a PlannedPort, family: Family) -> Self {
        Self {
            context,
            port,
            family,
            cluster: String::new(),
            own: true,
            path: Path::DEFAULT,
            closed: None,
            entries: Vec::new(),
            serving: Vec::new(),
        }
    }

    /// Switches to the slices of this cluster.
    pub(super) fn enter(&mut self, member: &ClusterMember, closed: Option<String>) {
        self.cluster = member.cluster.to_string();
        self.own = member.own;
        self.path = member.path;
        self.closed = closed;
    }

    /// Records a slice that is not read at all.
    pub(super) fn leave(&mut self, left: &UncountedSlice) {
        self.cluster = left.cluster.to_string();
        (self.own, self.path, self.closed) = (false, Path::DEFAULT, None);
        self.exclude_slice(&left.slice, &left.why.to_string());
    }

    /// Adds the rule's decision about each serving endpoint.
    pub(super) fn finish(mut self, fits: &[Eligibility], fallback: bool) -> Vec<ExplainedEndpoint> {
        for (&index, fit) in self.serving.iter().zip(fits) {
            if let Some(entry) = self.entries.get_mut(index) {
                entry.view.used = *fit == Eligibility::Used;
                entry.view.reason = eligibility_reason(*fit, fallback, entry, self.context);
            }
        }
        let mut views: Vec<ExplainedEndpoint> = self.entries.into_iter().map(|entry| entry.view).collect();
        views.sort_by(|a, b| {
            let order = |view: &ExplainedEndpoint| (view.addr.is_none(), view.addr);
            order(a)
                .cmp(&order(b))
                .then_with(|| (&a.address, &a.cluster, &a.slice).cmp(&(&b.address, &b.cluster, &b.slice)))
        });
        views
    }

    fn add(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, text: &str, port: Option<u16>) -> usize {
        let ip = net::parse_ip(text).ok().filter(|ip| Family::of(*ip) == self.family);
        let addr = ip.zip(port).map(|(ip, port)| EndpointAddr { ip, port, path: self.path });
        let conditions = Conditions::of(endpoint);
        let state = match conditions.state() {
            Some(EndpointState::Ready) => "Ready",
            Some(EndpointState::Terminating) => "Terminating",
            None => "NotReady",
        };
        let hints = endpoint.hints.as_ref();
        let zones = hints.and_then(|hints| hints.for_zones.as_deref()).unwrap_or_default();
        let nodes = hints.and_then(|hints| hints.for_nodes.as_deref()).unwrap_or_default();
        self.entries.push(RecordedEndpoint {
            view: ExplainedEndpoint {
                address: addr.map_or_else(|| text.to_owned(), |addr| addr.to_string()),
                addr,
                cluster: self.cluster.clone(),
                slice: slice.metadata.name.clone().unwrap_or_default(),
                node: endpoint.node_name.clone().unwrap_or_default(),
                zone: endpoint.zone.clone().unwrap_or_default(),
                state: state.to_owned(),
                unhealthy: None,
                local: self.own && endpoints::is_local(endpoint, self.context),
                used: false,
                weight: None,
                share: None,
                reason: String::new(),
            },
            terminating: conditions.terminating,
            closed: self.closed.clone(),
            zones: zones.iter().map(|zone| zone.name.clone()).collect(),
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
        });
        self.entries.len() - 1
    }

    fn exclude(&mut self, index: usize, reason: String) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.view.reason = reason;
        }
    }

    /// Records that no endpoint of the slice serves.
    fn exclude_slice(&mut self, slice: &EndpointSlice, reason: &str) {
        for endpoint in slice.endpoints.iter().flatten() {
            let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
            let index = self.add(slice, endpoint, text, None);
            self.exclude(index, reason.to_owned());
        }
    }
}

impl EndpointObserver for EndpointRecorder<'_> {
    fn unmatched(&mut self, slice: &EndpointSlice, why: PortMismatch) {
        let PlannedPort { name, protocol, .. } = self.port;
        let reason = match why {
            PortMismatch::Absent if name.is_empty() => {
                format!("its slice has no unnamed {} port", protocol.name())
            }
            PortMismatch::Absent => format!("its slice has no {} port named {name:?}", protocol.name()),
            PortMismatch::Unnumbered => "its slice gives the port no number".to_owned(),
            PortMismatch::Invalid(number) => format!("its slice's port {number} is none (1 to 65535)"),
        };
        self.exclude_slice(slice, &reason);
    }

    fn reads(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, port: u16) -> EntryId {
        for text in endpoint.addresses.iter().skip(1) {
            let index = self.add(slice, endpoint, text, Some(port));
            self.exclude(index, "only the first address of an endpoint counts".to_owned());
        }
        let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
        let index = self.add(slice, endpoint, text, Some(port));
        // More endpoints than ids would not fit into memory.
        EntryId::try_from(index).unwrap_or(EntryId::MAX)
    }

    fn left_out(&mut self, id: EntryId, why: Exclusion) {
        let terminating = self.entries.get(id as usize).is_some_and(|entry| entry.terminating);
        let reason = match why {
            Exclusion::NoAddress => "it has no address".to_owned(),
            Exclusion::InvalidAddress(why) => format!("its address {why}"),
            Exclusion::OtherFamily => "its address is not of its slice's addressType".to_owned(),
            Exclusion::NotReady if terminating => "it terminates and does not serve any more".to_owned(),
            Exclusion::NotReady => "not ready".to_owned(),
            Exclusion::Duplicate(kept) => {
                let kept = self.entries.get(kept as usize).map(|entry| entry.view.slice.as_str());
                format!("the entry of EndpointSlice {} for this address counts", kept.unwrap_or_default())
            }
            Exclusion::Loop(EndpointLoop::OwnFrontend) => {
                "the gateway itself accepts traffic there: it would go round in circles".to_owned()
            }
            Exclusion::Loop(EndpointLoop::OfService) => {
                "nodes forward to a Service there: traffic could go round in circles".to_owned()
            }
        };
        self.exclude(id as usize, reason);
    }

    fn serves(&mut self, id: EntryId) {
        self.serving.push(id as usize);
    }
}

fn eligibility_reason(
    fit: Eligibility,
    fallback: bool,
    entry: &RecordedEndpoint,
    context: &ClusterContext,
) -> String {
    match fit {
        Eligibility::Used if fallback => {
            "it may be chosen: it terminates but still serves, and none is ready".to_owned()
        }
        Eligibility::Used => "it may be chosen".to_owned(),
        Eligibility::Closed => {
            let why = entry.closed.as_deref().unwrap_or_default();
            format!("cluster {} gets nothing new: it is {why}", entry.view.cluster)
        }
        Eligibility::Terminates => "it terminates, and others are ready".to_owned(),
        Eligibility::NotHere if context.node.is_empty() => {
            "the policy is Local, and this gateway's node is not known".to_owned()
        }
        Eligibility::NotHere => {
            format!("the policy is Local, and it is not on this node, {}", context.node)
        }
        Eligibility::OtherZone => {
            format!(
                "its hints name zone {}, and this node is in zone {}",
                entry.zones.join(", "),
                context.zone
            )
        }
        Eligibility::OtherNode => {
            format!("its hints name node {}, and this node is {}", entry.nodes.join(", "), context.node)
        }
    }
}
