//! JSON of how traffic is distributed over clusters.

use serde::{Deserialize, Serialize};
use sheave_model::{Frontend, Spread};

use super::health::CheckView;

/// Failover rules between the clusters of one frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailoverView {
    /// `endpoints`: every endpoint gets the same share; `clusters`: clusters get shares by weight, regardless
    /// of their size.
    pub spread: String,
    /// Overprovisioning factor in percent.
    pub overprovisioning: u16,
    /// Same as in `health`.
    pub panic_threshold: u8,
    /// Same as in `health`.
    pub check: Option<CheckView>,
}

impl FailoverView {
    pub(super) fn of(frontend: &Frontend) -> Option<Self> {
        let (failover, health) = (frontend.failover?, &frontend.health);
        let spread = match failover.spread {
            Spread::Endpoints => "endpoints",
            Spread::Backends => "clusters",
        };
        Some(Self {
            spread: spread.to_owned(),
            overprovisioning: failover.overprovisioning,
            panic_threshold: health.panic_threshold,
            check: health.check.as_ref().map(CheckView::from),
        })
    }
}
