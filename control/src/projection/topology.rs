//! Which of a Service port's endpoints are used from this node: the decision of kube-proxy's `CategorizeEndpoints`
//! (pkg/proxy/topology.go), as a rule that can be asked about each endpoint. Pure; must not know what becomes of the
//! sets.

use sheave_model::EndpointState;

use super::policy::TrafficPolicy;

/// What the hints of one kind say about this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hint {
    /// There are none.
    #[default]
    Absent,
    /// They name other zones or nodes only.
    Elsewhere,
    /// They name this one.
    Here,
}

/// An endpoint's hints as seen from this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hints {
    pub(super) zone: Hint,
    pub(super) node: Hint,
}

/// Which cluster an endpoint is in, as far as the decision goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scope {
    /// The gateway's own.
    #[default]
    Own,
    /// Another one: hints have no say, for their zones and nodes are not ours.
    Other,
    /// One that gets nothing new.
    Closed,
}

/// All that the decision needs to know of an endpoint that still serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facet {
    pub(super) state: EndpointState,
    pub(super) local: bool,
    pub(super) hints: Hints,
    pub(super) scope: Scope,
}

impl Facet {
    fn ready(&self) -> bool {
        self.state == EndpointState::Ready
    }

    /// Whether hints are asked about it.
    fn hinted(&self) -> bool {
        self.ready() && self.scope == Scope::Own
    }
}

/// Indexes of the endpoints for either policy. Whether there is any endpoint at all is whether the input was empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sets {
    /// For policy Cluster, after topology.
    pub(super) cluster: Vec<u32>,
    /// For policy Local; topology has no say.
    pub(super) local: Vec<u32>,
}

/// The ready endpoints for each policy; where there is none, those that terminate but still serve.
pub(super) fn categorize(endpoints: &[Facet]) -> Sets {
    Sets {
        cluster: Rule::decide(TrafficPolicy::Cluster, endpoints).select(endpoints),
        local: Rule::decide(TrafficPolicy::Local, endpoints).select(endpoints),
    }
}

/// What a policy comes to over some endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) policy: TrafficPolicy,
    /// Everywhere under policy Local.
    pub(super) mode: Mode,
    /// No ready endpoint may be used, so those that terminate but still serve are.
    pub(super) fallback: bool,
}

/// Whether a rule lets an endpoint be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Fit {
    Used,
    /// It terminates, and others are ready.
    Terminates,
    /// Not on this node.
    NotHere,
    /// Its hints name other zones.
    OtherZone,
    /// Its hints name other nodes.
    OtherNode,
    /// Its cluster gets nothing new.
    Closed,
}

impl Rule {
    pub(super) fn decide(policy: TrafficPolicy, endpoints: &[Facet]) -> Self {
        let mode = match policy {
            TrafficPolicy::Cluster => mode(endpoints),
            TrafficPolicy::Local => Mode::Everywhere,
        };
        let ready = Self { policy, mode, fallback: false };
        Self { fallback: !endpoints.iter().any(|facet| ready.judge(facet) == Fit::Used), ..ready }
    }

    /// Whether the endpoint, one of those decided over, may be used.
    pub(super) fn judge(&self, facet: &Facet) -> Fit {
        if facet.scope == Scope::Closed {
            return Fit::Closed;
        }
        if self.policy == TrafficPolicy::Local && !facet.local {
            return Fit::NotHere;
        }
        match self.mode {
            _ if !facet.ready() => {
                if self.fallback {
                    Fit::Used
                } else {
                    Fit::Terminates
                }
            }
            _ if facet.scope == Scope::Other => Fit::Used,
            Mode::SameZone if facet.hints.zone != Hint::Here => Fit::OtherZone,
            Mode::SameNode if facet.hints.node != Hint::Here => Fit::OtherNode,
            Mode::Everywhere | Mode::SameZone | Mode::SameNode => Fit::Used,
        }
    }

    fn select(&self, endpoints: &[Facet]) -> Vec<u32> {
        let used = (0..).zip(endpoints).filter(|(_, facet)| self.judge(facet) == Fit::Used);
        used.map(|(index, _)| index).collect()
    }
}

/// How far ready endpoints are narrowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Everywhere,
    SameZone,
    SameNode,
}

fn mode(endpoints: &[Facet]) -> Mode {
    if weigh(endpoints, |hints| hints.node) == Weighed::Count {
        Mode::SameNode
    } else if weigh(endpoints, |hints| hints.zone) == Weighed::Count {
        Mode::SameZone
    } else {
        Mode::Everywhere
    }
}

/// Whether the hints of one kind count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Weighed {
    Count,
    /// A ready endpoint, the one at this index, has none.
    MissingAt(usize),
    /// Every ready endpoint has some, but none names this zone or node.
    NobodyHere,
}

/// Hints count only if every ready endpoint has one and some name this node or zone: all or nothing.
pub(super) fn weigh(endpoints: &[Facet], hint: fn(Hints) -> Hint) -> Weighed {
    let mut here = false;
    for (index, facet) in endpoints.iter().enumerate().filter(|(_, facet)| facet.hinted()) {
        match hint(facet.hints) {
            Hint::Absent => return Weighed::MissingAt(index),
            Hint::Elsewhere => {}
            Hint::Here => here = true,
        }
    }
    if here { Weighed::Count } else { Weighed::NobodyHere }
}

#[cfg(test)]
mod tests;
