//! How many connections or flows each endpoint of a frontend has through this gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sheave_model::{EndpointAddr, Frontend};

/// Connections or flows that an endpoint has through this gateway. Shared by all workers and kept across tables.
#[derive(Debug, Default)]
pub struct EndpointLoad {
    active: AtomicU32,
    /// Next to `active`, which is written at the same time: no extra cache miss.
    picks: AtomicU64,
}

impl EndpointLoad {
    /// Open connections or flows.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// How often it was chosen since it serves the frontend.
    pub fn picks(&self) -> u64 {
        self.picks.load(Ordering::Relaxed)
    }
}

/// A chosen endpoint. Counts as one connection or flow of its endpoint until dropped.
#[derive(Debug)]
pub struct Picked {
    addr: EndpointAddr,
    load: Arc<EndpointLoad>,
}

impl Picked {
    pub(super) fn new(addr: EndpointAddr, load: &Arc<EndpointLoad>) -> Self {
        load.active.fetch_add(1, Ordering::Relaxed);
        load.picks.fetch_add(1, Ordering::Relaxed);
        Self { addr, load: Arc::clone(load) }
    }

    /// Where to connect.
    pub fn addr(&self) -> EndpointAddr {
        self.addr
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.load.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Every endpoint that still serves a frontend, whether or not it may be chosen, with its load. Sorted by address, no address
/// twice.
#[derive(Debug, Default)]
pub(super) struct ServingEndpoints(Box<[(EndpointAddr, Arc<EndpointLoad>)]>);

impl ServingEndpoints {
    /// The frontend's endpoints; those in `previous` keep their loads, or a change of the table would make a loaded endpoint
    /// look idle.
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
