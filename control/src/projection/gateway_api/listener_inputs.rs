//! Inputs of a listener's plan.

use std::sync::Arc;

use super::backend_refs::ResolvedRef;
use crate::api::gateway_api::{Gateway, ListenerSet};
use crate::api::routes::AnyRoute;

/// Inputs of a listener's plan. An object that is the same `Arc` is the same.
#[derive(Debug)]
pub(in crate::projection) struct ListenerInputs {
    pub(super) name: Arc<str>,
    pub(super) index: usize,
    pub(super) gateway: Arc<Gateway>,
    pub(super) set: Option<Arc<ListenerSet>>,
    pub(super) route: Option<(AnyRoute, Vec<ResolvedRef>)>,
    pub(super) superseded: u32,
}

impl ListenerInputs {
    /// Whether a plan from these is one from the others.
    pub(super) fn hold(&self, other: &Self) -> bool {
        let same_set = match (&self.set, &other.set) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        let same_route = match (&self.route, &other.route) {
            (None, None) => true,
            (Some((one, refs)), Some((other, others))) => {
                one.is_same(other)
                    && refs.len() == others.len()
                    && refs.iter().zip(others).all(|(one, other)| one.is_same(other))
            }
            _ => false,
        };
        (self.index, &self.name, self.superseded) == (other.index, &other.name, other.superseded)
            && Arc::ptr_eq(&self.gateway, &other.gateway)
            && same_set
            && same_route
    }
}
