//! The kinds that a Karmada control plane adds to an API server, as far as Sheave meets them. The schemas are written after
//! the reference of Karmada's API, and say no more than what the tests need.

/// The definition of MultiClusterServices.
pub const MULTI_CLUSTER_SERVICE: &str = include_str!("karmada/multi_cluster_service.json");
/// The definition of Works.
pub const WORK: &str = include_str!("karmada/work.json");
/// The definition of ResourceBindings.
pub const RESOURCE_BINDING: &str = include_str!("karmada/resource_binding.json");
/// A definition of Clusters, for API servers that have no Karmada behind them: Karmada's own are aggregated.
pub const CLUSTER: &str = include_str!("karmada/cluster.json");
/// The definition of ServiceExports.
pub const SERVICE_EXPORT: &str = include_str!("karmada/service_export.json");
/// The definition of PropagationPolicies.
pub const PROPAGATION_POLICY: &str = include_str!("karmada/propagation_policy.json");
