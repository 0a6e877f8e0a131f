//! Which of a Service port's endpoints are used from this node: the decision of kube-proxy's `CategorizeEndpoints`
//! (pkg/proxy/topology.go). Pure; must not know what becomes of the sets.

use sheave_dataplane::model::EndpointState;

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

/// All that the decision needs to know of an endpoint that still serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facet {
    pub(super) state: EndpointState,
    pub(super) local: bool,
    pub(super) hints: Hints,
}

impl Facet {
    fn ready(&self) -> bool {
        self.state == EndpointState::Ready
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
    let mode = mode(endpoints);
    let ready = |facet: &Facet| facet.ready() && mode.admits(facet.hints);
    Sets {
        cluster: ready_or_terminating(endpoints, ready, |_| true),
        local: ready_or_terminating(endpoints, Facet::ready, |facet| facet.local),
    }
}

fn ready_or_terminating(
    endpoints: &[Facet],
    ready: impl Fn(&Facet) -> bool,
    within: impl Fn(&Facet) -> bool,
) -> Vec<u32> {
    let select = |wanted: &dyn Fn(&Facet) -> bool| -> Vec<u32> {
        (0..)
            .zip(endpoints)
            .filter(|(_, facet)| within(facet) && wanted(facet))
            .map(|(index, _)| index)
            .collect()
    };
    let first_choice = select(&ready);
    if first_choice.is_empty() { select(&|facet| !facet.ready()) } else { first_choice }
}

/// How far ready endpoints are narrowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Everywhere,
    SameZone,
    SameNode,
}

impl Mode {
    fn admits(self, hints: Hints) -> bool {
        match self {
            Self::Everywhere => true,
            Self::SameZone => hints.zone == Hint::Here,
            Self::SameNode => hints.node == Hint::Here,
        }
    }
}

/// Hints count only if every ready endpoint has one and some name this node or zone: all or nothing.
fn mode(endpoints: &[Facet]) -> Mode {
    let counts = |hint: fn(Hints) -> Hint| {
        let mut hints = endpoints.iter().filter(|facet| facet.ready()).map(|facet| hint(facet.hints));
        let mut here = false;
        hints.all(|hint| {
            here |= hint == Hint::Here;
            hint != Hint::Absent
        }) && here
    };
    if counts(|hints| hints.node) {
        Mode::SameNode
    } else if counts(|hints| hints.zone) {
        Mode::SameZone
    } else {
        Mode::Everywhere
    }
}

#[cfg(test)]
mod tests;
