//! UDP flows that the kernel has: which of them go on. Connection tracking outlives this process, so what is there is compared with the
//! table, too, and not only what changes.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use sheave_kernel::{Plan, TranslatedFlow};
use sheave_model::{FrontendAddr, Protocol, SourceRanges};

use super::ruleset::Ruleset;

/// Frontend of UDP: its clients, and the endpoints that serve it, whether they get new flows or not.
#[derive(Clone, Debug, Default)]
pub(super) struct CarriedUdpFrontend {
    pub(super) serving: BTreeSet<SocketAddr>,
    pub(super) sources: Arc<SourceRanges>,
}

impl CarriedUdpFrontend {
    /// Whether some client may use it no more.
    fn is_narrower_than(&self, before: &Self) -> bool {
        let [now, before] = [self, before].map(|it| it.sources.allowed());
        now != before && before.intersection(now) != *before
    }
}

/// The UDP flows of all frontends.
#[derive(Debug)]
pub(super) struct UdpFlows {
    /// Every frontend of UDP that the table has.
    frontends: HashMap<FrontendAddr, CarriedUdpFrontend>,
    /// Flows that are to end and have not.
    ended: BTreeSet<(FrontendAddr, SocketAddr)>,
    /// Whether all that is tracked is to be compared with the table.
    compare: bool,
}

impl UdpFlows {
    /// An earlier process may have left flows.
    pub(super) fn new() -> Self {
        Self { frontends: HashMap::new(), ended: BTreeSet::new(), compare: true }
    }

    /// Takes over frontends; `None` = it has left the table. Flows end whose endpoint serves no more, or whose client may not use it.
    pub(super) fn follow(&mut self, changes: Vec<(FrontendAddr, Option<CarriedUdpFrontend>)>) {
        for (addr, now) in changes {
            let before = self.frontends.remove(&addr);
            if let (Some(before), Some(now)) = (&before, &now) {
                self.compare |= now.is_narrower_than(before);
            }
            self.ended.extend(before.into_iter().flat_map(|it| it.serving).map(|endpoint| (addr, endpoint)));
            self.frontends.extend(now.map(|now| (addr, now)));
        }
    }

    /// Notes flows that are to end, except where the endpoint still serves them.
    pub(super) fn end(&mut self, flows: impl IntoIterator<Item = (FrontendAddr, SocketAddr)>) {
        self.ended.extend(flows.into_iter().filter(|(frontend, _)| frontend.protocol == Protocol::Udp));
    }

    /// Has everything that is tracked compared with the table, since that is complete now.
    pub(super) fn compare_all(&mut self) {
        self.compare = true;
    }

    /// Ends what is to end, also what could not be ended before. `complete`: the plan has every frontend. Returns whether the kernel ended as
    /// many as it does at a time, and there may be more.
    pub(super) fn tell(&mut self, ruleset: &mut dyn Ruleset, plan: &Plan, complete: bool) -> bool {
        let mut more = false;
        let ended = std::mem::take(&mut self.ended);
        let ended: Vec<_> =
            ended.into_iter().filter(|(frontend, endpoint)| !self.serves(*frontend, *endpoint)).collect();
        if !ended.is_empty() {
            let forgotten = ruleset.forget_flows(&ended).inspect_err(|error| {
                tracing::warn!(%error, "UDP flows to endpoints that are gone go on for now; trying again");
            });
            more |= matches!(forgotten, Ok(false));
            if !matches!(forgotten, Ok(true)) {
                self.ended.extend(ended);
            }
        }
        if self.compare {
            let compared = ruleset.end_flows(&|flow| !self.may_go_on(flow, plan, complete)).inspect_err(|error| {
                tracing::warn!(%error, "UDP flows of an earlier process, or of clients that may not use a Service any more, go on for now; trying again");
            });
            more |= matches!(compared, Ok(false));
            self.compare = !matches!(compared, Ok(true));
        }
        more
    }

    fn serves(&self, frontend: FrontendAddr, endpoint: SocketAddr) -> bool {
        self.frontends.get(&frontend).is_some_and(|it| it.serving.contains(&endpoint))
    }

    /// Flows at other addresses than those of frontends are none of ours, nor those at addresses of the machine.
    fn may_go_on(&self, flow: &TranslatedFlow, plan: &Plan, complete: bool) -> bool {
        if plan.is_machine(flow.frontend.ip) {
            return true;
        }
        match self.frontends.get(&flow.frontend) {
            Some(frontend) => {
                frontend.serving.contains(&flow.endpoint)
                    && frontend.sources.allowed().contains(flow.client.ip())
            }
            None => !(complete && plan.is_served(flow.frontend.ip)),
        }
    }
}
