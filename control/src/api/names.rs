//! The names that the controller leaves in other people's objects. Users and tools match on them: they are never changed.
//!
//! An installation is known by its `loadBalancerClass`: [`OUR_CLASS`] has the plain names, any other class has names that end in
//! a suffix of its own. So of two installations with different classes in one cluster neither takes what the other left on
//! a Service for its own: the finalizer says whose the Service is, the field manager whose the status. Both write
//! conditions of the same names, which is why conditions go only with the finalizer beside them.

use serde_json::Value;

/// The class of an installation that was not given another.
pub const OUR_CLASS: &str = "sheave.dev/l4";
/// Who an installation of [`OUR_CLASS`] is in `metadata.managedFields`; who all are in those of Leases and Events.
pub const FIELD_MANAGER: &str = "sheave";
/// Keeps a Service of [`OUR_CLASS`] until its addresses are free again.
pub const FINALIZER: &str = "sheave.dev/load-balancer-cleanup";
/// The cloud controllers' own (`servicehelper.LoadBalancerCleanupFinalizer`), for tools that wait for it.
pub const SHARED_FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The MultiClusterService is ours, and what it asks for can be done.
pub const ACCEPTED: &str = "sheave.dev/Accepted";
/// The Service, clusters and ports that the MultiClusterService names exist.
pub const RESOLVED_REFS: &str = "sheave.dev/ResolvedRefs";
/// The MultiClusterService is served, but not by every cluster that should serve it.
pub const DEGRADED: &str = "sheave.dev/Degraded";
/// A new client from outside gets an answer on every port.
pub const READY: &str = "sheave.dev/Ready";
/// Every type of condition that is ours.
pub const CONDITIONS: [&str; 8] =
    [ACCEPTED, RESOLVED_REFS, ALLOCATED, PROGRAMMED, READY, DEGRADED, FROM_GATEWAY_NODES, ANNOUNCED];
/// A ready gateway that answers the controller forwards the traffic.
pub const PROGRAMMED: &str = "sheave.dev/Programmed";
/// The object has the addresses that it should have.
pub const ALLOCATED: &str = "sheave.dev/Allocated";
/// The addresses of the families in its reason are those of gateway nodes. A new leader reads it.
pub const FROM_GATEWAY_NODES: &str = "sheave.dev/FromGatewayNodes";
/// Each address that is not a gateway node's own is announced by one gateway, or by BGP by each that can serve it; absent where no gateway announces by itself.
pub const ANNOUNCED: &str = "sheave.dev/Announced";
/// Label of objects that we made ourselves: the value is the installation's field manager.
pub const MANAGED_BY: &str = "sheave.dev/managed-by";

/// Annotation of our ServiceExports: the term of the leader of karmada-controller-manager for which they were last written.
pub const COLLECTOR_TERM: &str = "sheave.dev/collector-term";

/// The finalizer of the installation with this class.
pub fn finalizer(class: &str) -> String {
    of_class(FINALIZER, class)
}

/// Whether it is the finalizer of an installation, of whatever class.
pub fn is_finalizer(finalizer: &str) -> bool {
    finalizer.strip_prefix(FINALIZER).is_some_and(|suffix| suffix.is_empty() || suffix.starts_with('-'))
}

/// How the record of owners names the shared finalizer (structured-merge-diff, `PathElement`).
pub(crate) fn shared_finalizer_key() -> String {
    format!("v:\"{SHARED_FINALIZER}\"")
}

/// Whether these fields of an owner (`fieldsV1` of an entry of `metadata.managedFields`) have the shared finalizer.
pub(crate) fn sets_shared_finalizer(fields: &Value) -> bool {
    !fields["f:metadata"]["f:finalizers"][shared_finalizer_key()].is_null()
}

/// What the installation with this class has in place of a plain name.
pub fn of_class(plain: &str, class: &str) -> String {
    if class == OUR_CLASS {
        return plain.to_owned();
    }
    // At most 30 bytes after the slash of the finalizer, where names may have 63; managers may have 128.
    format!("{plain}-{:08x}", fnv1a(class))
}

/// FNV-1a, 32 bits: what it makes of a class is written in objects, so it must never be another function.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_class_has_names_that_never_change() {
        // FNV's own test vectors.
        assert_eq!((fnv1a(""), fnv1a("a"), fnv1a("foobar")), (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968));
        assert_eq!(finalizer("foobar"), "sheave.dev/load-balancer-cleanup-bf9cf968");
        assert_eq!(finalizer(OUR_CLASS), FINALIZER);
        assert!([FINALIZER, "sheave.dev/load-balancer-cleanup-bf9cf968"].into_iter().all(is_finalizer));
        assert!(![SHARED_FINALIZER, "sheave.dev/load-balancer-cleanups"].into_iter().any(is_finalizer));
    }
}
