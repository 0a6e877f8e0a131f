//! How traffic is spread over clusters, as the JSON shows it.

use serde::{Deserialize, Serialize};
use sheave_model::{Failover, Spread};

/// The rules between the clusters of one frontend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailoverView {
    /// `endpoints`: every endpoint gets the same; `clusters`: by weight, whatever their size.
    pub(crate) spread: String,
    /// In percent.
    pub(crate) overprovisioning: u16,
}

impl From<Failover> for FailoverView {
    fn from(failover: Failover) -> Self {
        let spread = match failover.spread {
            Spread::Endpoints => "endpoints",
            Spread::Backends => "clusters",
        };
        Self { spread: spread.to_owned(), overprovisioning: failover.overprovisioning }
    }
}
