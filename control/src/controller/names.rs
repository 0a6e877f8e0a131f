//! The names that the controller leaves in other people's objects. Users and tools match on them: they are never changed.
//!
//! An installation is known by its `loadBalancerClass`: [`OUR_CLASS`] has the plain names, any other class has names that end in
//! a suffix of its own. So of two installations with different classes in one cluster neither takes what the other left on
//! a Service for its own: the finalizer says whose the Service is, the field manager whose the status. Both write
//! conditions of the same names, which is why conditions go only with the finalizer beside them.

/// The class of an installation that was not given another.
pub const OUR_CLASS: &str = "sheave.dev/l4";
/// Who an installation of [`OUR_CLASS`] is in `metadata.managedFields`; who all are in those of Leases and Events.
pub const FIELD_MANAGER: &str = "sheave";
/// Keeps a Service of [`OUR_CLASS`] until its addresses are free again.
pub const FINALIZER: &str = "sheave.dev/load-balancer-cleanup";
/// The cloud controllers' own (`servicehelper.LoadBalancerCleanupFinalizer`), for tools that wait for it.
pub const SHARED_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Condition of a MultiClusterService: it is ours, and what it asks for can be done.
pub const ACCEPTED: &str = "sheave.dev/Accepted";
/// Condition of a MultiClusterService: what it names is there.
pub const RESOLVED_REFS: &str = "sheave.dev/ResolvedRefs";
/// Condition of a MultiClusterService: it is served, but not by all that should.
pub const DEGRADED: &str = "sheave.dev/Degraded";
/// Every type of condition that is ours.
pub const CONDITIONS: [&str; 5] = [ACCEPTED, RESOLVED_REFS, ALLOCATED, PROGRAMMED, DEGRADED];
/// Condition: gateways forward the Service's traffic.
pub const PROGRAMMED: &str = "sheave.dev/Programmed";
/// Condition: the Service has the addresses that it should have.
pub const ALLOCATED: &str = "sheave.dev/Allocated";
/// Label of objects that we made ourselves: the value is the installation's field manager.
pub const MANAGED_BY: &str = "sheave.dev/managed-by";
