//! JSON of how a listener's traffic is split over the backends of its route.

use serde::{Deserialize, Serialize};
use sheave_model::{Frontend, PartTarget, Share, Split, SplitPart};

use super::algorithm_name;
use super::{AffinityView, BackendView, EndpointView, FailoverView, FrontendView, HealthView, RouteView};
use crate::views::numbers::counted;

/// Part of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartView {
    /// The backend as the route names it: `Service shop/web:80`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// 0 to 1,000,000; 0 = no new connections.
    pub weight: u32,
    /// Why its share is refused, for example `BackendNotFound`; missing if it may be served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Missing if the share is refused.
    #[serde(flatten)]
    pub pool: Option<PoolView>,
}

/// What a part forwards to. The keys are those of a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// `appProtocol` of the backend's port.
    #[serde(default)]
    pub app_protocol: Option<String>,
    /// Algorithm that chooses endpoints.
    pub balance: String,
    /// Session affinity; null if there is none.
    pub affinity: Option<AffinityView>,
    /// Health settings of endpoints.
    pub health: HealthView,
    /// Distribution of traffic over clusters; null if there is only one.
    pub failover: Option<FailoverView>,
    /// Endpoints by cluster.
    pub backends: Vec<BackendView>,
}

impl From<&SplitPart> for PartView {
    fn from(part: &SplitPart) -> Self {
        let (refused, pool) = match &part.target {
            PartTarget::Refused(reason) => (Some(reason.name().to_owned()), None),
            PartTarget::Pool(pool) => (None, Some(PoolView::from(pool.as_ref()))),
        };
        Self { reference: part.name.as_ref().to_owned(), weight: part.weight, refused, pool }
    }
}

/// The parts of a split.
pub(super) fn parts_of(split: &Split) -> Vec<PartView> {
    split.parts.iter().map(PartView::from).collect()
}

impl From<&Frontend> for PoolView {
    fn from(pool: &Frontend) -> Self {
        Self {
            app_protocol: pool.app_protocol.as_deref().map(str::to_owned),
            balance: algorithm_name(pool.algorithm).to_owned(),
            affinity: AffinityView::of(pool.affinity),
            health: HealthView::from(pool.health.as_ref()),
            failover: FailoverView::of(pool),
            backends: pool.backends.iter().map(BackendView::from).collect(),
        }
    }
}

impl PartView {
    /// Endpoints by cluster; empty if the share is refused.
    pub(crate) fn backends(&self) -> &[BackendView] {
        self.pool.as_ref().map(|pool| pool.backends.as_slice()).unwrap_or_default()
    }

    /// The endpoints that a route may choose.
    pub(super) fn chosen<'a>(&'a self, route: &'a RouteView) -> impl Iterator<Item = &'a EndpointView> {
        let endpoints = self.backends().iter().flat_map(|backend| &backend.endpoints);
        endpoints.filter(|endpoint| route.endpoints.contains(&endpoint.address))
    }

    /// What happens to the part's share.
    pub(super) fn outcome(&self, route: &RouteView) -> String {
        match &self.refused {
            Some(reason) => format!("refused: {reason}"),
            None if self.weight == 0 => "nothing new".to_owned(),
            None => match self.chosen(route).count() {
                0 => "refused: no endpoints".to_owned(),
                endpoints => counted(endpoints, "endpoint"),
            },
        }
    }
}

impl FrontendView {
    /// The parts of its split; empty without one.
    pub(crate) fn parts(&self) -> &[PartView] {
        self.split.as_deref().unwrap_or_default()
    }

    /// Share of these parts among all.
    pub(super) fn share<'a>(&self, parts: impl Iterator<Item = &'a PartView>) -> Share {
        let sum = |weight: u64, part: &PartView| weight + u64::from(part.weight);
        Share { part: parts.fold(0, sum), whole: self.parts().iter().fold(0, sum) }
    }

    /// Share of new connections that a route refuses.
    pub(super) fn refused_share(&self, route: &RouteView) -> Share {
        self.share(self.parts().iter().filter(|part| part.chosen(route).next().is_none()))
    }

    /// The backends of the frontend, or those of its parts with the name of each.
    pub(crate) fn all_backends(&self) -> impl Iterator<Item = (Option<&str>, &BackendView)> {
        let own = self.backends.iter().map(|backend| (None, backend));
        own.chain(
            self.parts().iter().flat_map(|part| {
                part.backends().iter().map(|backend| (Some(part.reference.as_str()), backend))
            }),
        )
    }
}
