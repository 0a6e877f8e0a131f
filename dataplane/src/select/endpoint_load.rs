//! Endpoints of a frontend in one slice, each with the number of its connections or flows through this gateway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use sheave_model::{EndpointAddr, Frontend};

/// Increment of one pick in an [`EndpointLoad`]. The bits below hold the number of open connections or flows: 16 million,
/// each with a descriptor or a port. The bits above suffice for 10^12 picks; then the count wraps around, as a Prometheus
/// counter may.
const PICK: u64 = 1 << 24;

/// Origin of the times of answers: a second before the first one, so that no answer has time 0.
static EPOCH: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
});

fn seconds(at: Instant) -> u64 {
    at.saturating_duration_since(*EPOCH).as_secs()
}

/// Number of connections or flows of an endpoint through this gateway. Shared by all workers and kept across tables.
///
/// Picks and open connections share one word, so that a pick writes once.
#[derive(Debug, Default)]
pub struct EndpointLoad {
    picks: AtomicU64,
    /// In the same format: connections that ended without a byte from the endpoint, and how many of those still count.
    unanswered: AtomicU64,
    client_bytes: AtomicU64,
    endpoint_bytes: AtomicU64,
    /// Time of the last answer to a flow, in seconds since `EPOCH`; 0 = never.
    answered: AtomicU64,
}

impl EndpointLoad {
    /// Number of open connections or flows.
    pub fn active(&self) -> u32 {
        (self.picks.load(Ordering::Relaxed) % PICK) as u32
    }

    /// Number of picks since it began to serve the frontend.
    pub fn picks(&self) -> u64 {
        self.picks.load(Ordering::Relaxed) / PICK
    }

    /// Number of connections that ended without a byte from it since it began to serve the frontend.
    pub fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed) / PICK
    }

    /// Counts picks of the kernel, whose open connections are not counted.
    pub(crate) fn add_picks(&self, picks: u64) {
        self.picks.fetch_add(picks.wrapping_mul(PICK), Ordering::Relaxed);
    }

    /// Load for balancing: open connections, and those that ended a moment ago without a byte from the endpoint.
    pub(crate) fn for_choice(&self) -> u32 {
        self.active().saturating_add((self.unanswered.load(Ordering::Relaxed) % PICK) as u32)
    }

    /// Whether it has answered a flow, but none since `then`.
    pub(super) fn is_silent_since(&self, then: Instant) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        answered > 0 && answered <= seconds(then)
    }

    /// Whether it has certainly answered a flow since `then`.
    pub(super) fn has_answered_since(&self, then: Instant) -> bool {
        self.answered.load(Ordering::Relaxed) > seconds(then)
    }

    /// Bytes sent to it while a [`TrafficWatch`](crate::TrafficWatch) was counting.
    pub fn client_bytes(&self) -> u64 {
        self.client_bytes.load(Ordering::Relaxed)
    }

    /// Bytes received from it while a watch was counting.
    pub fn endpoint_bytes(&self) -> u64 {
        self.endpoint_bytes.load(Ordering::Relaxed)
    }
}

/// An endpoint that serves a frontend. The load is stored next to the address, because a pick needs both.
#[derive(Debug)]
pub(super) struct ServingEndpoint {
    pub(super) addr: EndpointAddr,
    pub(super) load: EndpointLoad,
}

/// Reference to one endpoint, which keeps its load alive.
#[derive(Clone, Debug)]
pub(super) struct EndpointRef {
    slice: Arc<[ServingEndpoint]>,
    index: u32,
}

impl EndpointRef {
    fn get(&self) -> &ServingEndpoint {
        &self.slice[self.index as usize]
    }
}

/// A picked endpoint. Counts as one connection or flow of the endpoint until dropped.
#[derive(Debug)]
pub struct Picked(EndpointRef);

impl Picked {
    fn new(endpoint: EndpointRef) -> Self {
        endpoint.get().load.picks.fetch_add(PICK + 1, Ordering::Relaxed);
        Self(endpoint)
    }

    /// The endpoint's address.
    pub fn addr(&self) -> EndpointAddr {
        self.0.get().addr
    }

    /// Counts a connection that ended without a byte from its endpoint.
    pub(crate) fn unanswered(&self) -> Unanswered {
        self.0.get().load.unanswered.fetch_add(PICK + 1, Ordering::Relaxed);
        Unanswered(self.0.clone())
    }

    /// Records an answer to a flow. Written at most once a second, since all workers share it.
    pub(crate) fn note_answer(&self, now: Instant) {
        let (answered, now) = (&self.0.get().load.answered, seconds(now).max(1));
        if answered.load(Ordering::Relaxed) < now {
            answered.store(now, Ordering::Relaxed);
        }
    }

    /// Counts forwarded bytes.
    pub(crate) fn add_bytes(&self, from_client: u64, from_endpoint: u64) {
        let load = &self.0.get().load;
        for (counter, bytes) in [(&load.client_bytes, from_client), (&load.endpoint_bytes, from_endpoint)] {
            if bytes > 0 {
                counter.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Picked {
    fn drop(&mut self) {
        self.0.get().load.picks.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that ended without a byte from its endpoint. Adds to the endpoint's load until dropped.
#[derive(Debug)]
pub(crate) struct Unanswered(EndpointRef);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.get().load.unanswered.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Every endpoint that still serves a frontend, including those that must not be picked, with its load. Sorted by address,
/// without duplicates.
#[derive(Clone, Debug)]
pub(super) enum ServingEndpoints {
    /// All were added with one table.
    OneSlice(Arc<[ServingEndpoint]>),
    /// Some were kept while others were added or removed.
    Mixed(Arc<[EndpointRef]>),
}

impl ServingEndpoints {
    /// Collects the frontend's endpoints. Those in `previous` keep their loads, since otherwise a change of the table would
    /// make a loaded endpoint look idle.
    pub(super) fn new(frontend: &Frontend, previous: Option<&Self>) -> Self {
        let addresses = addresses_of(frontend);
        let Some(previous) = previous else { return Self::OneSlice(slice_of(addresses)) };
        if addresses.iter().copied().eq(previous.iter().map(|endpoint| endpoint.addr)) {
            return previous.clone();
        }
        let known: Vec<Option<EndpointRef>> = addresses
            .iter()
            .map(|&addr| previous.position(addr).and_then(|place| previous.endpoint_ref(place)))
            .collect();
        let new = addresses.into_iter().zip(&known).filter(|(_, known)| known.is_none());
        let slice = slice_of(new.map(|(addr, _)| addr));
        if slice.len() == known.len() {
            return Self::OneSlice(slice);
        }
        let mut new = (0..).map(|index| EndpointRef { slice: Arc::clone(&slice), index });
        Self::Mixed(known.into_iter().filter_map(|known| known.or_else(|| new.next())).collect())
    }

    /// The endpoints of one pool of the frontend, with the same loads.
    pub(super) fn of_pool(&self, pool: &Frontend) -> Self {
        let addresses = addresses_of(pool);
        if addresses.len() == self.len() {
            return self.clone();
        }
        let places = addresses.into_iter().filter_map(|addr| self.position(addr));
        Self::Mixed(places.filter_map(|place| self.endpoint_ref(place)).collect())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::OneSlice(slice) => slice.len(),
            Self::Mixed(endpoints) => endpoints.len(),
        }
    }

    pub(super) fn get(&self, place: usize) -> Option<&ServingEndpoint> {
        match self {
            Self::OneSlice(slice) => slice.get(place),
            Self::Mixed(endpoints) => endpoints.get(place).map(EndpointRef::get),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ServingEndpoint> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// Index of the endpoint with this address.
    pub(super) fn position(&self, addr: EndpointAddr) -> Option<usize> {
        match self {
            Self::OneSlice(slice) => slice.binary_search_by_key(&addr, |endpoint| endpoint.addr),
            Self::Mixed(endpoints) => endpoints.binary_search_by_key(&addr, |endpoint| endpoint.get().addr),
        }
        .ok()
    }

    /// Indices of all endpoints with the address and path of this one, on any port.
    pub(super) fn of_host(&self, addr: EndpointAddr) -> impl Iterator<Item = usize> {
        let first = match self {
            Self::OneSlice(slice) => slice.partition_point(|endpoint| endpoint.addr.ip < addr.ip),
            Self::Mixed(endpoints) => endpoints.partition_point(|endpoint| endpoint.get().addr.ip < addr.ip),
        };
        let places = (first..self.len()).map_while(|place| Some((place, self.get(place)?.addr)));
        let here = places.take_while(move |(_, other)| other.ip == addr.ip);
        here.filter(move |(_, other)| other.path == addr.path).map(|(place, _)| place)
    }

    /// Counts a connection or flow of the endpoint with this index.
    pub(super) fn pick(&self, place: usize) -> Option<Picked> {
        self.endpoint_ref(place).map(Picked::new)
    }

    fn endpoint_ref(&self, place: usize) -> Option<EndpointRef> {
        match self {
            Self::OneSlice(slice) => {
                (place < slice.len()).then(|| EndpointRef { slice: Arc::clone(slice), index: place as u32 })
            }
            Self::Mixed(endpoints) => endpoints.get(place).cloned(),
        }
    }
}

/// Addresses of the endpoints in all pools, sorted, without duplicates.
fn addresses_of(frontend: &Frontend) -> Vec<EndpointAddr> {
    let backends = || frontend.pools().flat_map(|pool| pool.backends.iter());
    let endpoints = backends().flat_map(|backend| &backend.endpoints).map(|endpoint| endpoint.addr);
    let lingering = backends().flat_map(|backend| &backend.lingering).copied();
    let mut addresses: Vec<EndpointAddr> = endpoints.chain(lingering).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn slice_of(addresses: impl IntoIterator<Item = EndpointAddr>) -> Arc<[ServingEndpoint]> {
    addresses.into_iter().map(|addr| ServingEndpoint { addr, load: EndpointLoad::default() }).collect()
}
