//! The endpoints that new traffic avoids, as an immutable value.

use std::sync::Arc;

use sheave_model::{EndpointAddr, Protocol};

/// The unhealthy endpoints, by protocol: a port may answer over TCP and not over UDP. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unhealthy(Arc<[(Protocol, EndpointAddr)]>);

impl Unhealthy {
    /// Whether this endpoint is one of them.
    pub fn contains(&self, protocol: Protocol, endpoint: EndpointAddr) -> bool {
        self.0.binary_search(&(protocol, endpoint)).is_ok()
    }

    /// All of them, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (Protocol, EndpointAddr)> {
        self.0.iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The endpoints in only one of the two.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let only = |one: &Self, other: &Self| -> Vec<_> {
            one.iter().filter(|&(protocol, endpoint)| !other.contains(protocol, endpoint)).collect()
        };
        only(self, other).into_iter().chain(only(other, self)).collect()
    }
}

impl FromIterator<(Protocol, EndpointAddr)> for Unhealthy {
    fn from_iter<I: IntoIterator<Item = (Protocol, EndpointAddr)>>(endpoints: I) -> Self {
        let mut endpoints: Vec<_> = endpoints.into_iter().collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        Self(endpoints.into())
    }
}
