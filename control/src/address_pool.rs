//! The `AddressPool` resource (`sheave.dev/v1alpha1`): addresses that may be given to LoadBalancer Services.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};

/// API group and version of an AddressPool manifest.
pub const API_VERSION: &str = "sheave.dev/v1alpha1";
/// Kind of an AddressPool manifest.
pub const KIND: &str = "AddressPool";

/// A cluster-scoped pool of addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AddressPool {
    /// Standard metadata; the name is what annotations and Problems refer to.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What the pool holds and who may use it.
    pub spec: AddressPoolSpec,
    /// What the controller makes of it; never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AddressPoolStatus>,
}

/// How much of the pool is given away, and whether it can be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// Addresses that Services have.
    #[serde(default)]
    pub used: i64,
    /// Addresses that can still be given; the largest number there is where there are more (IPv6).
    #[serde(default)]
    pub free: i64,
    /// `Ready`: every entry of the spec can be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What the pool holds and who may use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolSpec {
    /// CIDRs (`203.0.113.0/28`), ranges (`203.0.113.10-203.0.113.20`) or single addresses, of either family.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Use the gateway nodes' own addresses: ExternalIP, else InternalIP.
    #[serde(default)]
    pub from_gateway_nodes: bool,
    /// Lower is asked first; 0, the default, comes last.
    #[serde(default)]
    pub priority: u32,
    /// Whether Services that name no pool may get addresses from it.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Leave out addresses that end in .0 or .255, which old equipment drops.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Only Services in namespaces with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Only Services with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
}

impl Default for AddressPoolSpec {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            from_gateway_nodes: false,
            priority: 0,
            auto_assign: true,
            avoid_buggy_ips: false,
            namespace_selector: None,
            service_selector: None,
        }
    }
}

fn yes() -> bool {
    true
}
