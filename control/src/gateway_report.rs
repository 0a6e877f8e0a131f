//! What a gateway tells the controller about itself: that it forwards, and what it could not do. Gateways have no right to
//! write to the API, so the controller asks each of them over HTTP, at the port that the headless Service of the gateways
//! calls `report`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The path that a gateway answers on.
pub const PATH: &str = "/api/report";
/// The name of the port in the gateways' Service.
pub const PORT_NAME: &str = "report";

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
