//! Listens to the projection's pass over the slices and writes down what becomes of each address.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use sheave_model::{EndpointAddr, EndpointState, Path};

use super::super::endpoints::witness::{LeftOut, Mark, Mismatch, Witness};
use super::super::endpoints::{self, Conditions};
use super::super::facts::Facts;
use super::super::members::Member;
use super::super::multi_cluster::Left;
use super::super::ports::PlannedPort;
use super::super::topology::Fit;
use super::verdict::{EndpointFact, EndpointFactState, Verdict};
use crate::net::{self, Family};

/// What was heard so far.
pub(super) struct Record<'a> {
    facts: &'a Facts,
    port: &'a PlannedPort,
    family: Family,
    /// The cluster that is read, and why it gets nothing new, if so.
    cluster: String,
    own: bool,
    path: Path,
    closed: Option<String>,
    entries: Vec<Entry>,
    /// Which entries serve, in the order of the endpoints.
    serving: Vec<usize>,
}

struct Entry {
    fact: EndpointFact,
    terminating: bool,
    /// Why its cluster gets nothing new, if so.
    closed: Option<String>,
    /// What its hints name.
    zones: Vec<String>,
    nodes: Vec<String>,
}

impl<'a> Record<'a> {
    pub(super) fn new(facts: &'a Facts, port: &'a PlannedPort, family: Family) -> Self {
        Self {
            facts,
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
    pub(super) fn enter(&mut self, member: &Member, closed: Option<String>) {
        self.cluster = member.cluster.to_string();
        self.own = member.own;
        self.path = member.path;
        self.closed = closed;
    }

    /// A slice that is not read at all.
    pub(super) fn leave(&mut self, left: &Left) {
        self.cluster = left.cluster.to_string();
        (self.own, self.path, self.closed) = (false, Path::DEFAULT, None);
        for endpoint in left.slice.endpoints.iter().flatten() {
            let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
            let index = self.add(&left.slice, endpoint, text, None);
            self.judge(index, Verdict::NotCounted(left.why.clone()));
        }
    }

    /// Adds what the rules for clients outside and inside say about each endpoint that serves.
    pub(super) fn finish(mut self, fits: &[[Fit; 2]], fallback: [bool; 2]) -> Vec<EndpointFact> {
        for (&index, &[external, internal]) in self.serving.iter().zip(fits) {
            if let Some(entry) = self.entries.get_mut(index) {
                entry.fact.external = verdict(external, fallback[0], entry, self.facts);
                entry.fact.internal = verdict(internal, fallback[1], entry, self.facts);
            }
        }
        let mut facts: Vec<EndpointFact> = self.entries.into_iter().map(|entry| entry.fact).collect();
        facts.sort_by(|a, b| {
            let order = |fact: &EndpointFact| (fact.addr.is_none(), fact.addr);
            order(a)
                .cmp(&order(b))
                .then_with(|| (&a.address, &a.cluster, &a.slice).cmp(&(&b.address, &b.cluster, &b.slice)))
        });
        facts
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
        self.entries.push(Entry {
            fact: EndpointFact {
                address: addr.map_or_else(|| text.to_owned(), |addr| addr.to_string()),
                addr,
                cluster: self.cluster.clone(),
                slice: slice.metadata.name.clone().unwrap_or_default(),
                node: endpoint.node_name.clone().unwrap_or_default(),
                zone: endpoint.zone.clone().unwrap_or_default(),
                state,
                local: self.own && endpoints::is_local(endpoint, self.facts),
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

impl Witness for Record<'_> {
    fn unmatched(&mut self, slice: &EndpointSlice, why: Mismatch) {
        let verdict = match why {
            Mismatch::Absent => Verdict::NoSuchPort {
                name: self.port.name.as_ref().to_owned(),
                protocol: self.port.protocol.name(),
            },
            Mismatch::Unnumbered => Verdict::Unnumbered,
            Mismatch::Invalid(number) => Verdict::InvalidPort(number),
        };
        for endpoint in slice.endpoints.iter().flatten() {
            let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
            let index = self.add(slice, endpoint, text, None);
            self.judge(index, verdict.clone());
        }
    }

    fn reads(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, port: u16) -> Mark {
        for text in endpoint.addresses.iter().skip(1) {
            let index = self.add(slice, endpoint, text, Some(port));
            self.judge(index, Verdict::NotFirst);
        }
        let text = endpoint.addresses.first().map(String::as_str).unwrap_or_default();
        let index = self.add(slice, endpoint, text, Some(port));
        // More endpoints than marks would not fit into memory.
        Mark::try_from(index).unwrap_or(Mark::MAX)
    }

    fn left_out(&mut self, mark: Mark, why: LeftOut) {
        let index = mark as usize;
        let stopped = || {
            let entry = self.entries.get(index);
            entry.is_some_and(|entry| entry.terminating)
        };
        let verdict = match why {
            LeftOut::NoAddress => Verdict::NoAddress,
            LeftOut::InvalidAddress(why) => Verdict::InvalidAddress(why),
            LeftOut::OtherFamily => Verdict::OtherFamily,
            LeftOut::NotReady if stopped() => Verdict::Stopped,
            LeftOut::NotReady => Verdict::NotReady,
            LeftOut::Duplicate(kept) => {
                let kept = self.entries.get(kept as usize);
                Verdict::Duplicate { slice: kept.map(|entry| entry.fact.slice.clone()).unwrap_or_default() }
            }
            LeftOut::OwnFrontend => Verdict::OwnFrontend,
        };
        self.judge(index, verdict);
    }

    fn serves(&mut self, mark: Mark) {
        self.serving.push(mark as usize);
    }
}

fn verdict(fit: Fit, fallback: bool, entry: &Entry, facts: &Facts) -> Verdict {
    match fit {
        Fit::Used if fallback => Verdict::LastResort,
        Fit::Used => Verdict::Used,
        Fit::Closed => Verdict::ClusterClosed {
            cluster: entry.fact.cluster.clone(),
            why: entry.closed.clone().unwrap_or_default(),
        },
        Fit::Terminates => Verdict::Terminates,
        Fit::NotHere => Verdict::NotHere { here: facts.node.clone() },
        Fit::OtherZone => Verdict::OtherZone { hinted: entry.zones.clone(), here: facts.zone.clone() },
        Fit::OtherNode => Verdict::OtherNode { hinted: entry.nodes.clone(), here: facts.node.clone() },
    }
}
