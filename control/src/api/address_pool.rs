//! The `AddressPool` resource (`sheave.dev/v1alpha1`): addresses that LoadBalancer Services can get. Its definition is
//! `deploy/base/crd.yaml`; the tests compare it with these types.

use std::ops::RangeInclusive;

use k8s_openapi::Resource as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

/// API group and version of an AddressPool manifest.
pub const API_VERSION: &str = AddressPool::API_VERSION;
/// Kind of an AddressPool manifest.
pub const KIND: &str = AddressPool::KIND;
/// Allowed values of `spec.maxPerService`.
pub(crate) const PER_SERVICE: RangeInclusive<u32> = 1..=64;
/// Largest number of interfaces in `spec.announce.interfaces`.
pub(crate) const MAX_INTERFACES: usize = 16;

/// Addresses that may be given to Services of type LoadBalancer. The name is what annotations and Events refer to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct AddressPool {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Addresses, and the Services that may use them.
    pub spec: AddressPoolSpec,
    /// Usage and validity.
    #[serde(default)]
    pub status: Option<AddressPoolStatus>,
}

/// Writes `apiVersion` and `kind` too, which manifests and snapshots have.
impl Serialize for AddressPool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { metadata, spec, status } = self;
        let mut object = serializer.serialize_struct(KIND, 4 + usize::from(status.is_some()))?;
        object.serialize_field("apiVersion", API_VERSION)?;
        object.serialize_field("kind", KIND)?;
        object.serialize_field("metadata", metadata)?;
        object.serialize_field("spec", spec)?;
        match status {
            Some(status) => object.serialize_field("status", status)?,
            None => object.skip_field("status")?,
        }
        object.end()
    }
}

super::resource::resource!(AddressPool, "sheave.dev", "v1alpha1", "addresspools", ClusterResourceScope);

/// Addresses of the pool, and the Services that may use them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolSpec {
    /// CIDRs (`203.0.113.0/28`), ranges (`203.0.113.10-203.0.113.20`) or single addresses, of either family.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Use the gateway nodes' own addresses: ExternalIP, else InternalIP.
    #[serde(default)]
    pub from_gateway_nodes: bool,
    /// Pools with a lower priority are used first. 0, the default, is used last.
    #[serde(default)]
    pub priority: u32,
    /// Whether Services that name no pool may get addresses from it.
    #[serde(default = "yes")]
    pub auto_assign: bool,
    /// Leave out addresses that end in .0 or .255, which old equipment drops.
    #[serde(default, rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Which Services may share one address: those of the `Namespace` that got it first, or those of the whole `Cluster`.
    #[serde(default)]
    pub sharing: Sharing,
    /// How many addresses of this pool one Service may request by value (`sheave.dev/addresses`).
    #[serde(default = "eight")]
    pub max_per_service: u32,
    /// Only Services in namespaces with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// Only Services with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_selector: Option<LabelSelector>,
    /// Where gateways that announce addresses themselves (`announce` in their configuration) announce the addresses of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announce: Option<PoolAnnouncement>,
}

/// Which gateways announce the addresses of a pool, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolAnnouncement {
    /// Only gateways on Nodes with these labels. If no gateway is on such a Node, the addresses are not announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Only these network interfaces, such as `eth1`, in place of those in the gateways' configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// Number of addresses that Services have.
    #[serde(default)]
    pub used: i64,
    /// Number of addresses that are still free; the largest representable number if there are more (IPv6).
    #[serde(default)]
    pub free: i64,
    /// `Ready`: every entry of the spec is usable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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

#[cfg(test)]
mod tests;
