//! State that the server's thread and the test share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::access::Access;
use super::faults::Faults;
use super::kind::registry::Registry;
use super::record::Request;
use super::store::Store;
use super::write::Allocations;

/// Interval of bookmarks in idle watches, as on a real server.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Kinds, objects and allocations of Services.
pub(super) struct World {
    pub registry: Registry,
    pub store: Store,
    pub allocations: Allocations,
    /// Interval of bookmarks.
    pub bookmark_every: Duration,
    /// Whether Karmada's webhook is enabled for MultiClusterServices.
    pub karmada_webhook: bool,
}

/// State of a server, which outlives stops.
pub(super) struct Shared {
    world: Mutex<World>,
    access: Mutex<Access>,
    faults: Mutex<Faults>,
    requests: Mutex<Vec<Request>>,
    connections: Mutex<Vec<Weak<Connection>>>,
}

/// Client connection.
#[derive(Default)]
pub(super) struct Connection {
    /// Wakes the connection's task, which then resets the connection.
    pub cut: Notify,
    /// Number of its watches.
    pub watches: AtomicUsize,
}

impl Shared {
    pub(super) fn new() -> Self {
        let world = World {
            registry: Registry::new(),
            store: Store::new(),
            allocations: Allocations::default(),
            bookmark_every: BOOKMARK_EVERY,
            karmada_webhook: false,
        };
        Self {
            world: Mutex::new(world),
            access: Mutex::default(),
            faults: Mutex::default(),
            requests: Mutex::default(),
            connections: Mutex::default(),
        }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        locked(&self.world)
    }

    pub(super) fn access(&self) -> MutexGuard<'_, Access> {
        locked(&self.access)
    }

    pub(super) fn faults(&self) -> MutexGuard<'_, Faults> {
        locked(&self.faults)
    }

    pub(super) fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        locked(&self.requests)
    }

    /// Registers a new connection.
    pub(super) fn connection(&self) -> Arc<Connection> {
        let connection = Arc::new(Connection::default());
        let mut connections = locked(&self.connections);
        connections.retain(|known| known.strong_count() > 0);
        connections.push(Arc::downgrade(&connection));
        connection
    }

    /// Resets all connections with watches, and returns the number of watches.
    pub(super) fn cut_watches(&self) -> usize {
        let connections = locked(&self.connections);
        let cut = connections.iter().filter_map(Weak::upgrade).map(|connection| {
            let watches = connection.watches.load(Ordering::SeqCst);
            if watches > 0 {
                connection.cut.notify_one();
            }
            watches
        });
        cut.sum()
    }

    /// Number of open watches.
    pub(super) fn watches(&self) -> usize {
        let connections = locked(&self.connections);
        let open = connections.iter().filter_map(Weak::upgrade);
        open.map(|connection| connection.watches.load(Ordering::SeqCst)).sum()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Current time in the format of `metav1.Time`.
pub(super) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
