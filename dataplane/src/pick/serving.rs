//! Every endpoint that still serves a frontend, whether or not it may be chosen, with its load.

use std::sync::Arc;

use sheave_model::{EndpointAddr, Frontend};

use super::EndpointLoad;

/// Sorted by address, no address twice.
#[derive(Debug, Default)]
pub(super) struct Serving(Box<[(EndpointAddr, Arc<EndpointLoad>)]>);

impl Serving {
    /// The frontend's endpoints; those that `previous` had keep their loads, or a change of the table would make a
    /// loaded endpoint look idle.
    pub(super) fn new(frontend: &Frontend, previous: &Self) -> Self {
        let endpoints = frontend.backends.iter().flat_map(|backend| &backend.endpoints);
        let lingering = frontend.backends.iter().flat_map(|backend| &backend.lingering).copied();
        let mut addresses: Vec<EndpointAddr> =
            endpoints.map(|endpoint| endpoint.addr).chain(lingering).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let with_load = |addr| (addr, previous.load(addr).cloned().unwrap_or_default());
        Self(addresses.into_iter().map(with_load).collect())
    }

    pub(super) fn load(&self, endpoint: EndpointAddr) -> Option<&Arc<EndpointLoad>> {
        let index = self.0.binary_search_by_key(&endpoint, |&(addr, _)| addr).ok()?;
        self.0.get(index).map(|(_, load)| load)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (EndpointAddr, &Arc<EndpointLoad>)> {
        self.0.iter().map(|(addr, load)| (*addr, load))
    }
}
