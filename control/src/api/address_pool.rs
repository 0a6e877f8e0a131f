//! The `AddressPool` resource (`sheave.dev/v1alpha1`): addresses that LoadBalancer Services can get. The CustomResourceDefinition
//! is derived from these types, descriptions included.

mod cel;
mod meta;

use std::ops::RangeInclusive;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// API group and version of an AddressPool manifest.
pub const API_VERSION: &str = "sheave.dev/v1alpha1";
/// Kind of an AddressPool manifest.
pub const KIND: &str = "AddressPool";
/// Allowed values of `spec.maxPerService`.
pub(crate) const PER_SERVICE: RangeInclusive<u32> = 1..=64;
/// Largest number of interfaces in `spec.announce.interfaces`. The API server requires a limit for a list of type `set`, and no
/// pool needs more.
pub(crate) const MAX_INTERFACES: usize = 16;

/// Addresses of the pool, and the Services that may use them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "sheave.dev",
    version = "v1alpha1",
    kind = "AddressPool",
    plural = "addresspools",
    shortname = "sheavepool",
    category = "sheave",
    doc = "Addresses that may be given to Services of type LoadBalancer. The name is what annotations and Events refer to.",
    derive = "Default",
    derive = "PartialEq",
    status = "AddressPoolStatus",
    printcolumn = r#"{"name": "Addresses", "type": "string", "jsonPath": ".spec.addresses",
        "description": "CIDRs, ranges and addresses."}"#,
    printcolumn = r#"{"name": "Nodes", "type": "boolean", "jsonPath": ".spec.fromGatewayNodes", "priority": 1,
        "description": "Whether the gateway nodes' own addresses are used, too."}"#,
    printcolumn = r#"{"name": "Auto", "type": "boolean", "jsonPath": ".spec.autoAssign", "priority": 1,
        "description": "Whether Services that name no pool may get addresses from it."}"#,
    printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority", "priority": 1,
        "description": "Lower is asked first, and 0 last."}"#,
    printcolumn = r#"{"name": "Used", "type": "integer", "jsonPath": ".status.used",
        "description": "Addresses that Services have."}"#,
    printcolumn = r#"{"name": "Free", "type": "integer", "jsonPath": ".status.free",
        "description": "Addresses that can still be given."}"#,
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status",
        "description": "Whether every entry of the spec can be used."}"#,
    printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].message", "priority": 1,
        "description": "What is wrong with it."}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel::of_specs()))]
pub struct AddressPoolSpec {
    /// CIDRs (`203.0.113.0/28`), ranges (`203.0.113.10-203.0.113.20`) or single addresses, of either family.
    #[serde(default)]
    #[schemars(schema_with = "cel::addresses")]
    pub addresses: Vec<String>,
    /// Use the gateway nodes' own addresses: ExternalIP, else InternalIP.
    #[serde(default)]
    pub from_gateway_nodes: bool,
    /// Pools with a lower priority are used first. 0, the default, is used last.
    #[serde(default)]
    // The API knows no unsigned formats.
    #[schemars(range(min = 0, max = 4_294_967_295_u32), extend("format" = "int64"))]
    pub priority: u32,
    /// Whether Services that name no pool may get addresses from it.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Leave out addresses that end in .0 or .255, which old equipment drops.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Which Services may share one address: those of the `Namespace` that got it first, or those of the whole `Cluster`.
    #[serde(default)]
    #[schemars(schema_with = "cel::sharing")]
    pub sharing: Sharing,
    /// How many addresses of this pool one Service may request by value (`sheave.dev/addresses`).
    #[serde(default = "eight")]
    #[schemars(range(min = 1, max = 64), extend("format" = "int64"))]
    pub max_per_service: u32,
    /// Only Services in namespaces with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "meta::selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Only Services with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "meta::selector")]
    pub service_selector: Option<LabelSelector>,
    /// Where gateways that announce addresses themselves (`announce` in their configuration) announce the addresses of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<PoolAnnouncement>,
}

/// Which gateways announce the addresses of a pool, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolAnnouncement {
    /// Only gateways on Nodes with these labels. If no gateway is on such a Node, the addresses are not announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "meta::selector")]
    pub node_selector: Option<LabelSelector>,
    /// Only these network interfaces, such as `eth1`, in place of those in the gateways' configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "cel::interfaces")]
    pub interfaces: Vec<String>,
}

/// Which Services may share one address of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sharing {
    /// Services of one namespace.
    #[default]
    Namespace,
    /// Services of all namespaces.
    Cluster,
}

/// Usage and validity of the pool. The controller writes it and never reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// Number of addresses that Services have.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub used: i64,
    /// Number of addresses that are still free; the largest representable number if there are more (IPv6).
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub free: i64,
    /// `Ready`: every entry of the spec is usable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "meta::conditions")]
    pub conditions: Vec<Condition>,
}

impl Default for AddressPoolSpec {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            from_gateway_nodes: false,
            priority: 0,
            auto_assign: true,
            avoid_buggy_ips: false,
            sharing: Sharing::default(),
            max_per_service: eight(),
            namespace_selector: None,
            service_selector: None,
            announce: None,
        }
    }
}

fn yes() -> bool {
    true
}

fn eight() -> u32 {
    8
}

/// Whether a network interface can have this name (dev_valid_name() in net/core/dev.c). The API server rejects other names in a
/// pool; manifests are not checked by an API server.
pub fn is_interface_name(name: &str) -> bool {
    (1..16).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|letter: char| matches!(letter, '/' | ':') || letter.is_whitespace())
}

/// The CustomResourceDefinition of AddressPools.
pub fn definition() -> CustomResourceDefinition {
    AddressPool::crd()
}

#[cfg(test)]
mod tests;
