//! `GatewayClass`: the controller that implements a Gateway.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Names the controller that implements the Gateways of this class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayClass {
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The controller, and its parameters.
    #[serde(default)]
    pub spec: GatewayClassSpec,
    /// Whether the controller accepts the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<GatewayClassStatus>,
}

/// The controller of a class, and its parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    /// Name of the controller, such as `sheave.dev/gateway`. Immutable.
    pub controller_name: String,
    /// An object with parameters, which Sheave does not support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<Value>,
}

/// Status of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassStatus {
    /// `Accepted`, and conditions of others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Features of the Gateway API that the controller supports, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supported_features: Vec<SupportedFeature>,
}

/// Name of a feature, as the conformance tests of the Gateway API define it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupportedFeature {
    /// The name.
    pub name: String,
}

crate::api::resource::resource!(
    GatewayClass,
    "gateway.networking.k8s.io",
    "v1",
    "gatewayclasses",
    ClusterResourceScope
);
