//! Kinds that a Karmada control plane adds to an API server, as far as Sheave uses them. The schemas follow the reference
//! of Karmada's API, reduced to what the tests need.

/// Definition of MultiClusterServices.
pub const MULTI_CLUSTER_SERVICE: &str = include_str!("karmada/multi_cluster_service.json");
/// Definition of Works.
pub const WORK: &str = include_str!("karmada/work.json");
/// Definition of ResourceBindings.
pub const RESOURCE_BINDING: &str = include_str!("karmada/resource_binding.json");
/// Definition of Clusters, for API servers without Karmada, where they are not an aggregated kind.
pub const CLUSTER: &str = include_str!("karmada/cluster.json");
/// Definition of ServiceExports.
pub const SERVICE_EXPORT: &str = include_str!("karmada/service_export.json");
/// Definition of PropagationPolicies.
pub const PROPAGATION_POLICY: &str = include_str!("karmada/propagation_policy.json");
