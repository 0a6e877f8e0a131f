//! What the allocator was told of AddressPools, so that it is told again only when they say something else.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::address_pool::AddressPool;
use crate::api::problem::Problem;
use crate::api::store::Objects;

/// What the allocator was told of pools.
#[derive(Clone, Debug)]
pub(super) struct ReadPools {
    pub(super) pools: BTreeMap<Arc<str>, Arc<AddressPool>>,
    /// Where none is, only their names can be selected.
    pub(super) namespaces_known: bool,
    pub(super) problems: Vec<Problem>,
}

impl ReadPools {
    /// Whether they still say what they said then.
    pub(super) fn hold_for(&self, objects: &Objects) -> bool {
        let same = |(old, new): (&Arc<AddressPool>, &Arc<AddressPool>)| {
            Arc::ptr_eq(old, new) || old.spec == new.spec
        };
        self.namespaces_known != objects.namespaces.is_empty()
            && self.pools.keys().eq(objects.pools.keys())
            && self.pools.values().zip(objects.pools.values()).all(same)
    }
}
