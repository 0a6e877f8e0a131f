//! What a gateway tells the controller about itself: that it forwards, and what it could not do. Gateways have no right to
//! write to the API, so the controller asks each of them over HTTP, at the port that the headless Service of the gateways
//! calls `report`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::bounded::cut_end;
use crate::problem::reason;

/// The path that a gateway answers on.
pub const PATH: &str = "/api/report";
/// The name of the port in the gateways' Service.
pub const PORT_NAME: &str = "report";

/// So many troubles are told at most; whoever has more has one cause for most of them.
const MOST_TROUBLES: usize = 1000;
/// The length of a text in bytes, at most: two sentences, or a Node's name.
const LONGEST_TEXT: usize = 256;

/// What one gateway says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReport {
    /// The Node that it runs on.
    pub node: String,
    /// The generation of the routing table in force.
    pub generation: u64,
    /// What it could not do, sorted.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
}

impl GatewayReport {
    /// The same, but no larger than it may be: whoever answers on the port is believed so far and no farther.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        cut_end(&mut self.node, LONGEST_TEXT);
        self.troubles.truncate(MOST_TROUBLES);
        for trouble in &mut self.troubles {
            cut_end(&mut trouble.message, LONGEST_TEXT);
        }
        self
    }
}

/// The reason of this name, if gateways can have it. Others would let a gateway speak for the controller.
pub(crate) fn known_reason(name: &str) -> Option<&'static str> {
    let known =
        [reason::BIND_FAILED, reason::CLIENT_SOURCE_LOST, reason::FAILED_TO_START_SERVICE_HEALTHCHECK];
    known.into_iter().find(|known| *known == name)
}

/// One thing that a gateway could not do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// The kind of the object that is affected: `Service`, `MultiClusterService`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// One of [`crate::problem::reason`].
    pub reason: String,
    /// One sentence for the user.
    pub message: String,
    /// The frontend, if one alone is affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<TroubledFrontend>,
}

/// The frontend that a gateway could not open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TroubledFrontend {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// `TCP` or `UDP`.
    pub protocol: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(message: &str) -> Trouble {
        Trouble {
            kind: "Service".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            reason: reason::BIND_FAILED.to_owned(),
            message: message.to_owned(),
            frontend: None,
        }
    }

    #[test]
    fn a_report_has_its_limits() {
        let troubles = vec![trouble(&"\u{e4}".repeat(200)); MOST_TROUBLES + 1];
        let report = GatewayReport { troubles, ..GatewayReport::default() }.bounded();
        assert_eq!(report.troubles.len(), MOST_TROUBLES);
        // 253 bytes are left, and each letter has two.
        assert_eq!(report.troubles[0].message, "\u{e4}".repeat(126) + "...");
        let as_long_as_may_be = "x".repeat(LONGEST_TEXT);
        let report = GatewayReport { troubles: vec![trouble(&as_long_as_may_be)], ..report }.bounded();
        assert_eq!(report.troubles[0].message, as_long_as_may_be);
    }

    #[test]
    fn gateways_have_few_reasons() {
        assert_eq!(known_reason("BindFailed"), Some(reason::BIND_FAILED));
        assert_eq!(known_reason(reason::NOT_SERVED), None);
        assert_eq!(known_reason("x"), None);
    }
}
