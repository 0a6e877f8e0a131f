//! Whether an object that came again is another than before, as far as anything is decided by it. It must not
//! know what follows from that.

use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::address_pool::AddressPool;

pub(super) fn service_differs(old: &Service, new: &Service) -> bool {
    old.spec != new.spec || old.status != new.status || metadata_differs(&old.metadata, &new.metadata)
}

pub(super) fn slice_differs(old: &EndpointSlice, new: &EndpointSlice) -> bool {
    old.endpoints != new.endpoints
        || old.ports != new.ports
        || old.address_type != new.address_type
        || metadata_differs(&old.metadata, &new.metadata)
}

/// Of the status only the addresses count: conditions, images and the like change with every heartbeat of a kubelet
/// (by default each 5 minutes, and with every image pulled), and each change here projects every Service again.
pub(super) fn node_differs(old: &Node, new: &Node) -> bool {
    let addresses = |node: &Node| node.status.as_ref().and_then(|status| status.addresses.clone());
    old.spec != new.spec || addresses(old) != addresses(new) || metadata_differs(&old.metadata, &new.metadata)
}

/// Only labels are asked for, by the selectors of pools.
pub(super) fn namespace_differs(old: &Namespace, new: &Namespace) -> bool {
    old.metadata.labels != new.metadata.labels
}

pub(super) fn pool_differs(old: &AddressPool, new: &AddressPool) -> bool {
    old.spec != new.spec || metadata_differs(&old.metadata, &new.metadata)
}

/// Leaves out what every write changes and nothing is decided by: versions and field managers.
pub(super) fn metadata_differs(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    old.labels != new.labels
        || old.annotations != new.annotations
        || old.deletion_timestamp != new.deletion_timestamp
        || old.creation_timestamp != new.creation_timestamp
        || old.finalizers != new.finalizers
        || old.uid != new.uid
        || old.name != new.name
        || old.namespace != new.namespace
}
