//! Explanations of all gateways: which gateway a client reaches, and what each would do. `sheave explain --fleet` and
//! `/api/fleet/explain`. JSON keys may be added, but are never renamed.

mod text;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use sheave_control::controller::all_gateways::KnownGateway;
use sheave_control::projection::explain::ExplainView;
use sheave_model::FrontendKind;

use crate::views::View;
use crate::views::explain::{Answer, keep_endpoints, shorten};

/// Number of groups that keep their endpoints; with `externalTrafficPolicy: Local` each gateway may be a group.
const WITH_ENDPOINTS: usize = 8;

/// Answer of one gateway, or why there is none.
pub(crate) type GatewayExplanation = Result<Answer, String>;

/// Answers of all gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplanationsView {
    /// Groups of gateways that do the same. Those that the client reaches come first.
    pub(crate) groups: Vec<ExplanationGroupView>,
    /// Gateways without an answer.
    pub(crate) silent: Vec<SilentGatewayView>,
    /// Gateways that the client reaches, by node; empty if unknown. Includes gateways without an answer that own the address.
    pub(crate) comes_to: Vec<String>,
    /// How this is known: `announced`, `nodeAddress`, or null if other means bring packets to the gateways.
    pub(crate) known_by: Option<String>,
    /// Owners of the address according to the gateways that answer; empty if several announce it at once.
    #[serde(default)]
    pub(crate) owners: Vec<String>,
}

/// Gateways that would do the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplanationGroupView {
    /// Nodes of the gateways.
    pub(crate) gateways: Vec<String>,
    /// Whether the Service and port exist on them.
    pub(crate) found: bool,
    /// Answer of the first gateway. Only a few groups keep `endpoints`; `allEndpoints` has their number.
    pub(crate) explanation: ExplainView,
    #[serde(skip)]
    arrivals: Arrivals,
}

/// Gateways of a group that packets for the address may arrive at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Arrivals {
    /// Whether gateways announce the address.
    is_announced: bool,
    /// Gateways that announce the address.
    announcing: Vec<String>,
    /// Gateways that own the address.
    owners: BTreeSet<String>,
    /// Gateways whose own address it is.
    at_node: Vec<String>,
}

/// Gateway without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SilentGatewayView {
    pub(crate) node: String,
    pub(crate) error: String,
    #[serde(skip)]
    addresses: Vec<IpAddr>,
}

impl SilentGatewayView {
    pub(super) fn new(KnownGateway { node, addresses, .. }: KnownGateway, error: String) -> Self {
        Self { node, error, addresses }
    }
}

impl View for ExplanationsView {}

impl ExplanationsView {
    /// Adds the answer of a gateway. A group keeps one explanation: that of a gateway that the client reaches, if there is one.
    pub(crate) fn add(&mut self, known: KnownGateway, answer: GatewayExplanation) {
        let (found, mut explanation) = match answer {
            Ok(Answer::Explained(view)) => (true, view),
            Ok(Answer::NotFound(view)) => (false, view),
            Err(error) => {
                self.silent.push(SilentGatewayView::new(known, error));
                return;
            }
        };
        let KnownGateway { node, addresses, .. } = known;
        shorten(&mut explanation);
        let alike = |group: &&mut ExplanationGroupView| {
            group.found == found && decision(&group.explanation) == decision(&explanation)
        };
        match self.groups.iter_mut().find(alike) {
            Some(group) => {
                let was_come_to = group.arrivals.any();
                let comes_here = group.arrivals.add(&node, &addresses, &explanation);
                if comes_here || (group.explanation.endpoints.is_empty() && !was_come_to) {
                    group.explanation = explanation;
                }
                group.gateways.push(node);
            }
            None => {
                let mut arrivals = Arrivals::default();
                arrivals.add(&node, &addresses, &explanation);
                self.groups.push(ExplanationGroupView { gateways: vec![node], found, explanation, arrivals });
            }
        }
        self.drop_endpoints(2 * WITH_ENDPOINTS);
    }

    /// Removes endpoints if more than `most` groups have some: only the first [`WITH_ENDPOINTS`] groups keep theirs.
    fn drop_endpoints(&mut self, most: usize) {
        let mut full: Vec<&mut ExplanationGroupView> =
            self.groups.iter_mut().filter(|group| !group.explanation.endpoints.is_empty()).collect();
        if full.len() > most {
            full.sort_by_cached_key(|group| group.place(group.arrivals.any()));
            full.into_iter().skip(WITH_ENDPOINTS).for_each(|group| keep_endpoints(&mut group.explanation, 0));
        }
    }

    /// Sorts the answers. Gateways that the client reaches come first.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        self.silent.sort_by(|one, other| one.node.cmp(&other.node));
        self.find_arrivals();
        self.drop_endpoints(WITH_ENDPOINTS);
        let Self { groups, comes_to, .. } = &mut self;
        let comes = |node: &String| comes_to.binary_search(node).is_ok();
        for group in &mut *groups {
            group.gateways.sort_by_cached_key(|node| (!comes(node), node.clone()));
        }
        let shown = asked_frontend(groups);
        groups.sort_by_cached_key(|group| {
            (group.explanation.frontend != shown, group.place(group.gateways.iter().any(comes)))
        });
        self
    }

    /// Finds the gateways that get packets for the frontend that most gateways answered for. Other frontends have other arrivals.
    fn find_arrivals(&mut self) {
        let Some(frontend) = asked_frontend(&self.groups) else { return };
        let ip = frontend.split('/').next().and_then(|it| Some(it.parse::<SocketAddr>().ok()?.ip()));
        let arrivals = || {
            let of_it =
                self.groups.iter().filter(|group| group.explanation.frontend.as_ref() == Some(&frontend));
            of_it.map(|group| &group.arrivals)
        };
        // Packets go to the gateway that announces the address, even if another node has it.
        let is_announced = arrivals().any(|it| it.is_announced);
        let owners: BTreeSet<String> = arrivals().flat_map(|it| it.owners.iter().cloned()).collect();
        let answering = |it: &Arrivals| if is_announced { it.announcing.clone() } else { it.at_node.clone() };
        let mut comes_to: Vec<String> = arrivals().flat_map(answering).collect();
        if comes_to.is_empty() {
            let is_theirs = |it: &&SilentGatewayView| match is_announced {
                true => owners.contains(&it.node),
                false => ip.is_some_and(|ip| it.addresses.contains(&ip)),
            };
            comes_to.extend(self.silent.iter().filter(is_theirs).map(|it| it.node.clone()));
        }
        comes_to.sort_unstable();
        self.known_by = match is_announced {
            true => Some(ANNOUNCED.to_owned()),
            false => (!comes_to.is_empty()).then(|| NODE_ADDRESS.to_owned()),
        };
        (self.comes_to, self.owners) = (comes_to, owners.into_iter().collect());
    }

    /// Whether any gateway knows the Service and port.
    pub(crate) fn is_found(&self) -> bool {
        self.groups.iter().any(|group| group.found)
    }

    /// Text for people, with a newline at the end.
    pub(crate) fn to_text(&self) -> String {
        text::render(self)
    }
}

impl Arrivals {
    /// Adds what a gateway knows. Returns whether the client reaches it.
    fn add(&mut self, node: &str, addresses: &[IpAddr], view: &ExplainView) -> bool {
        self.is_announced |= view.announced_here.is_some();
        self.owners.extend(view.announced_by.clone());
        let frontend =
            view.frontend.as_deref().and_then(|it| it.split('/').next()?.parse::<SocketAddr>().ok());
        let (announces, at_node) = (
            view.announced_here == Some(true),
            frontend.is_some_and(|frontend| addresses.contains(&frontend.ip())),
        );
        self.announcing.extend(announces.then(|| node.to_owned()));
        self.at_node.extend(at_node.then(|| node.to_owned()));
        if self.is_announced { announces } else { at_node }
    }

    /// Whether the client reaches any of them.
    fn any(&self) -> bool {
        !if self.is_announced { &self.announcing } else { &self.at_node }.is_empty()
    }
}

impl ExplanationGroupView {
    /// Sort key of groups.
    fn place(&self, is_come_to: bool) -> (bool, Reverse<usize>, Option<String>) {
        (!is_come_to, Reverse(self.gateways.len()), self.gateways.iter().min().cloned())
    }
}

/// Values of `known_by`.
const ANNOUNCED: &str = "announced";
const NODE_ADDRESS: &str = "nodeAddress";

/// Frontend that the answer is about: the one that most gateways answered for. While tables differ, each gateway may answer for another
/// one, and node ports have another address on each.
fn asked_frontend(groups: &[ExplanationGroupView]) -> Option<String> {
    let node_port = FrontendKind::NodePort.to_string();
    let mut gateways = BTreeMap::<&String, (bool, usize)>::new();
    for ExplanationGroupView { gateways: nodes, explanation, .. } in groups {
        if let Some(frontend) = &explanation.frontend {
            let (is_shared, count) = gateways.entry(frontend).or_default();
            *is_shared = explanation.kind.as_ref() != Some(&node_port);
            *count += nodes.len();
        }
    }
    gateways.into_iter().rev().max_by_key(|(_, rank)| *rank).map(|(frontend, _)| frontend.clone())
}

/// Part of a view that is equal on gateways that do the same.
fn decision(view: &ExplainView) -> impl PartialEq + use<'_> {
    let used = view.all_endpoints.as_ref().map(|it| &it.used_hash);
    let what =
        (&view.frontend, view.closed.is_some(), view.allowed, &view.action, &view.endpoint, &view.origin);
    (what, used, view.failing, view.refusing.is_some())
}

#[cfg(test)]
mod tests;
