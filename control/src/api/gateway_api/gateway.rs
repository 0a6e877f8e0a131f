//! `Gateway`: listeners on addresses, to which routes attach.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::names::READY;

use super::listener::{Listener, ListenerStatus, NamespacesFrom};

/// Listeners on addresses, to which routes attach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Listeners and addresses.
    #[serde(default)]
    pub spec: GatewaySpec,
    /// Addresses, and the state of each listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<GatewayStatus>,
}

/// Listeners and addresses of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    /// Name of the GatewayClass.
    pub gateway_class_name: String,
    /// 1 to 64 listeners with distinct names.
    pub listeners: Vec<Listener>,
    /// Requested addresses, at most 16; empty requests one for each family.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewayAddress>,
    /// Labels and annotations of what stands behind the Gateway; here of its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<GatewayInfrastructure>,
    /// ListenerSets that may add listeners; `None` means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_listeners: Option<AllowedListeners>,
}

/// A requested or assigned address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GatewayAddress {
    /// `IPAddress` if absent. Sheave supports no other type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The address; absent in a spec to request any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Gateway {
    /// The condition of this type in its status.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// Whether a Sheave wrote its status and has not removed it.
    pub fn is_marked(&self) -> bool {
        self.condition(READY).is_some()
    }
}

impl GatewayAddress {
    /// The only type of addresses that Sheave supports.
    pub const IP_ADDRESS: &str = "IPAddress";

    /// The address as a status has it.
    pub fn of(ip: IpAddr) -> Self {
        Self { type_: Some(Self::IP_ADDRESS.to_owned()), value: Some(ip.to_string()) }
    }
}

/// Implementation details behind a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayInfrastructure {
    /// Labels, which selectors of AddressPools read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations about addresses.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// An object with parameters, which Sheave does not support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<Value>,
}

/// ListenerSets that may add listeners to a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllowedListeners {
    /// Namespaces of the ListenerSets. `from` is `None` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespacesFrom>,
}

/// Status of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayStatus {
    /// Assigned addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewayAddress>,
    /// `Accepted`, `Programmed`, and conditions of others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// State of each listener of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
    /// Number of ListenerSets that are attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_listener_sets: Option<i32>,
}

crate::api::resource::resource!(
    Gateway,
    "gateway.networking.k8s.io",
    "v1",
    "gateways",
    NamespaceResourceScope
);
