//! Names that the controller leaves in other objects. Users and tools match on them, so they never change.
//!
//! The `loadBalancerClass` identifies an installation: [`OUR_CLASS`] uses the plain names, and any other class adds a suffix of
//! its own. So two installations with different classes in one cluster do not mistake each other's marks on a Service for their
//! own: the finalizer identifies the owner of the Service, and the field manager that of the status. Both write conditions with
//! the same names, which is why conditions are removed only together with the finalizer.

use serde_json::Value;

/// The default class of an installation.
pub const OUR_CLASS: &str = "sheave.dev/l4";
/// The default controller of GatewayClasses of an installation.
pub const OUR_GATEWAY_CONTROLLER: &str = "sheave.dev/gateway";
/// Field manager in `metadata.managedFields` of an installation with [`OUR_CLASS`]; for Leases and Events, of every installation.
pub const FIELD_MANAGER: &str = "sheave";
/// Finalizer that keeps a Service of [`OUR_CLASS`] until its addresses are released.
pub const FINALIZER: &str = "sheave.dev/load-balancer-cleanup";
/// Finalizer of cloud controllers (`servicehelper.LoadBalancerCleanupFinalizer`), for tools that wait for it.
pub const SHARED_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// True if this installation manages the MultiClusterService and can do what it requests.
pub const ACCEPTED: &str = "sheave.dev/Accepted";
/// True if the Service, clusters and ports that the MultiClusterService names exist.
pub const RESOLVED_REFS: &str = "sheave.dev/ResolvedRefs";
/// True if the MultiClusterService is served, but not by every cluster that should serve it.
pub const DEGRADED: &str = "sheave.dev/Degraded";
/// True if new external clients get an answer on every port.
pub const READY: &str = "sheave.dev/Ready";
/// Every condition type that the controller writes.
pub const CONDITIONS: [&str; 9] = [
    ACCEPTED,
    RESOLVED_REFS,
    ALLOCATED,
    PROGRAMMED,
    READY,
    DEGRADED,
    FROM_GATEWAY_NODES,
    ANNOUNCED,
    PORTS_PUBLISHED,
];
/// True if a ready gateway that answers the controller forwards the traffic.
pub const PROGRAMMED: &str = "sheave.dev/Programmed";
/// True if the object has the addresses that it should have.
pub const ALLOCATED: &str = "sheave.dev/Allocated";
/// True if the addresses of the families in its reason are those of gateway nodes. A new leader reads it.
pub const FROM_GATEWAY_NODES: &str = "sheave.dev/FromGatewayNodes";
/// True if each address that is not a gateway node's own is announced, by one gateway or with BGP by each that can serve it.
/// Absent if no gateway announces addresses itself.
pub const ANNOUNCED: &str = "sheave.dev/Announced";
/// True if a Gateway or MultiClusterService has ports at its addresses, which its message lists. They are its own until a write has
/// removed them from it. Every process reads it.
pub const PORTS_PUBLISHED: &str = "sheave.dev/PortsPublished";
/// Label of objects that the controller creates; its value is the installation's field manager.
pub const MANAGED_BY: &str = "sheave.dev/managed-by";

/// Annotation of our ServiceExports: the leader term of karmada-controller-manager in which they were last written.
pub const COLLECTOR_TERM: &str = "sheave.dev/collector-term";

/// The finalizer of the installation with this class.
pub fn finalizer(class: &str) -> String {
    of_class(FINALIZER, class)
}

/// Whether it is the finalizer of any installation, whatever its class.
pub fn is_finalizer(finalizer: &str) -> bool {
    finalizer.strip_prefix(FINALIZER).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
}

/// Key of the shared finalizer in `managedFields` (structured-merge-diff, `PathElement`).
pub(crate) fn shared_finalizer_key() -> String {
    format!("v:\"{SHARED_FINALIZER}\"")
}

/// Whether these fields of an owner (`fieldsV1` of an entry of `metadata.managedFields`) include the shared finalizer.
pub(crate) fn sets_shared_finalizer(fields: &Value) -> bool {
    !fields["f:metadata"]["f:finalizers"][shared_finalizer_key()].is_null()
}

/// The plain name with the suffix of the installation's class.
pub fn of_class(plain: &str, class: &str) -> String {
    with_suffix(plain, class, OUR_CLASS)
}

/// The plain name with the suffix of the installation with this controller of GatewayClasses.
pub fn of_gateway_controller(plain: &str, controller: &str) -> String {
    with_suffix(plain, controller, OUR_GATEWAY_CONTROLLER)
}

fn with_suffix(plain: &str, name: &str, default: &str) -> String {
    if name == default {
        return plain.to_owned();
    }
    // The result has at most 30 bytes after the finalizer's slash, where 63 are allowed; field managers may have 128.
    format!("{plain}-{:08x}", fnv1a(name))
}

/// FNV-1a, 32 bits. Objects store the hash of a class, so the function must never change.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_class_has_names_that_never_change() {
        // Test vectors of FNV itself.
        assert_eq!((fnv1a(""), fnv1a("a"), fnv1a("foobar")), (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968));
        assert_eq!(finalizer("foobar"), "sheave.dev/load-balancer-cleanup-bf9cf968");
        assert_eq!(finalizer(OUR_CLASS), FINALIZER);
        assert_eq!(of_gateway_controller(FIELD_MANAGER, "foobar"), "sheave-bf9cf968");
        assert_eq!(of_gateway_controller(FIELD_MANAGER, OUR_GATEWAY_CONTROLLER), FIELD_MANAGER);
        assert!([FINALIZER, "sheave.dev/load-balancer-cleanup-bf9cf968"].into_iter().all(is_finalizer));
        assert!(![SHARED_FINALIZER, "sheave.dev/load-balancer-cleanups"].into_iter().any(is_finalizer));
    }
}
