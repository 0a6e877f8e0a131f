//! The names that the controller leaves in other people's objects. Users and tools match on them: they are never changed.

/// Who we are in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "sheave";
/// Keeps a Service until its addresses are free again.
pub const FINALIZER: &str = "sheave.dev/load-balancer-cleanup";
/// The cloud controllers' own (`servicehelper.LoadBalancerCleanupFinalizer`), for tools that wait for it.
pub const SHARED_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Condition: gateways forward the Service's traffic.
pub const PROGRAMMED: &str = "sheave.dev/Programmed";
/// Condition: the Service has the addresses that it should have.
pub const ALLOCATED: &str = "sheave.dev/Allocated";
