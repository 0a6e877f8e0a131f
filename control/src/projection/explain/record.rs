//! Listens to the projection's pass over the slices and writes down what becomes of each address.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use sheave_model::{EndpointAddr, EndpointState, Path};

use super::view::{EndpointFact, EndpointFactState, Verdict};
use crate::net;
use crate::net::Family;
use crate::projection::eligibility::Eligibility;
use crate::projection::endpoints;
use crate::projection::endpoints::Conditions;
use crate::projection::endpoints::observer::{EndpointObserver, EntryId, Exclusion, PortMismatch};
use crate::projection::nodes::ClusterContext;
use crate::projection::plan::{ClusterMember, UncountedSlice};
use crate::projection::ports::PlannedPort;

/// What was heard so far.
pub(super) struct EndpointRecorder<'a> {
    context: &'a ClusterContext,
    port: &'a PlannedPort,
    family: Family,
    /// The cluster that is read, and why it gets nothing new, if so.
    cluster: String,
    own: bool,
    path: Path,
    closed: Option<String>,
    entries: Vec<RecordedEndpoint>,
    /// Which entries serve, in the order of the endpoints.
    serving: Vec<usize>,
}

struct RecordedEndpoint {
    fact: EndpointFact,
    terminating: bool,
    /// Why its cluster gets nothing new, if so.
    closed: Option<String>,
    /// What its hints name.
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

    /// The slices of this cluster are next.
    pub(super) fn enter(&mut self, member: &ClusterMember, closed: Option<String>) {
        self.cluster = member.cluster.to_string();
        self.own = member.own;
        self.path = member.path;
        self.closed = closed;
    }

    /// A slice that is not read at all.
    pub(super) fn leave(&mut self, left: &UncountedSlice) {
        self.cluster = left.cluster.to_string();
        (self.own, self.path, self.closed) = (false, Path::DEFAULT, None);
        for endpoint in left.slice.endpoints.iter().flatten() {
            let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
            let index = self.add(&left.slice, endpoint, text, None);
            self.judge(index, Verdict::NotCounted(left.why.clone()));
        }
    }

    /// Adds what the rules for clients outside and inside say about each endpoint that serves.
    pub(super) fn finish(mut self, fits: &[[Eligibility; 2]], fallback: [bool; 2]) -> Vec<EndpointFact> {
        for (&index, &[external, internal]) in self.serving.iter().zip(fits) {
            if let Some(entry) = self.entries.get_mut(index) {
                entry.fact.external = verdict(external, fallback[0], entry, self.context);
                entry.fact.internal = verdict(internal, fallback[1], entry, self.context);
            }
        }
        let mut context: Vec<EndpointFact> = self.entries.into_iter().map(|entry| entry.fact).collect();
        context.sort_by(|a, b| {
            let order = |fact: &EndpointFact| (fact.addr.is_none(), fact.addr);
            order(a)
                .cmp(&order(b))
                .then_with(|| (&a.address, &a.cluster, &a.slice).cmp(&(&b.address, &b.cluster, &b.slice)))
        });
        context
    }

    fn add(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, text: &str, port: Option<u16>) -> usize {
        let ip = net::parse_ip(text).ok().filter(|ip| Family::of(*ip) == self.family);
        let addr = ip.zip(port).map(|(ip, port)| EndpointAddr { ip, port, path: self.path });
        let conditions = Conditions::of(endpoint);
        let state = match conditions.state() {
            Some(EndpointState::Ready) => EndpointFactState::Ready,
            Some(EndpointState::Terminating) => EndpointFactState::Terminating,
            None => EndpointFactState::NotReady,
        };
        let hints = endpoint.hints.as_ref();
        let zones = hints.and_then(|hints| hints.for_zones.as_deref()).unwrap_or_default();
        let nodes = hints.and_then(|hints| hints.for_nodes.as_deref()).unwrap_or_default();
        self.entries.push(RecordedEndpoint {
            fact: EndpointFact {
                address: addr.map_or_else(|| text.to_owned(), |addr| addr.to_string()),
                addr,
                cluster: self.cluster.clone(),
                slice: slice.metadata.name.clone().unwrap_or_default(),
                node: endpoint.node_name.clone().unwrap_or_default(),
                zone: endpoint.zone.clone().unwrap_or_default(),
                state,
                local: self.own && endpoints::is_local(endpoint, self.context),
                external: Verdict::Used,
                internal: Verdict::Used,
            },
            terminating: conditions.terminating,
            closed: self.closed.clone(),
            zones: zones.iter().map(|zone| zone.name.clone()).collect(),
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
        });
        self.entries.len() - 1
    }

    fn judge(&mut self, index: usize, verdict: Verdict) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.fact.external = verdict.clone();
            entry.fact.internal = verdict;
        }
    }
}

impl EndpointObserver for EndpointRecorder<'_> {
    fn unmatched(&mut self, slice: &EndpointSlice, why: PortMismatch) {
        let verdict = match why {
            PortMismatch::Absent => Verdict::NoSuchPort {
                name: self.port.name.as_ref().to_owned(),
                protocol: self.port.protocol.name(),
            },
            PortMismatch::Unnumbered => Verdict::Unnumbered,
            PortMismatch::Invalid(number) => Verdict::InvalidPort(number),
        };
        for endpoint in slice.endpoints.iter().flatten() {
            let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
            let index = self.add(slice, endpoint, text, None);
            self.judge(index, verdict.clone());
        }
    }

    fn reads(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, port: u16) -> EntryId {
        for text in endpoint.addresses.iter().skip(1) {
            let index = self.add(slice, endpoint, text, Some(port));
            self.judge(index, Verdict::NotFirst);
        }
        let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
        let index = self.add(slice, endpoint, text, Some(port));
        // More endpoints than marks would not fit into memory.
        EntryId::try_from(index).unwrap_or(EntryId::MAX)
    }

    fn left_out(&mut self, mark: EntryId, why: Exclusion) {
        let index = mark as usize;
        let stopped = || {
            let entry = self.entries.get(index);
            entry.is_some_and(|entry| entry.terminating)
        };
        let verdict = match why {
            Exclusion::NoAddress => Verdict::NoAddress,
            Exclusion::InvalidAddress(why) => Verdict::InvalidAddress(why),
            Exclusion::OtherFamily => Verdict::OtherFamily,
            Exclusion::NotReady if stopped() => Verdict::Stopped,
            Exclusion::NotReady => Verdict::NotReady,
            Exclusion::Duplicate(kept) => {
                let kept = self.entries.get(kept as usize);
                Verdict::Duplicate { slice: kept.map(|entry| entry.fact.slice.clone()).unwrap_or_default() }
            }
            Exclusion::OwnFrontend => Verdict::OwnFrontend,
        };
        self.judge(index, verdict);
    }

    fn serves(&mut self, mark: EntryId) {
        self.serving.push(mark as usize);
    }
}

fn verdict(fit: Eligibility, fallback: bool, entry: &RecordedEndpoint, context: &ClusterContext) -> Verdict {
    match fit {
        Eligibility::Used if fallback => Verdict::LastResort,
        Eligibility::Used => Verdict::Used,
        Eligibility::Closed => Verdict::ClusterClosed {
            cluster: entry.fact.cluster.clone(),
            why: entry.closed.clone().unwrap_or_default(),
        },
        Eligibility::Terminates => Verdict::Terminates,
        Eligibility::NotHere => Verdict::NotHere { here: context.node.clone() },
        Eligibility::OtherZone => {
            Verdict::OtherZone { hinted: entry.zones.clone(), here: context.zone.clone() }
        }
        Eligibility::OtherNode => {
            Verdict::OtherNode { hinted: entry.nodes.clone(), here: context.node.clone() }
        }
    }
}
