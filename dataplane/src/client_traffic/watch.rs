//! Traffic watches, and their requests to workers: each worker has a slot for the latest request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counts::ClientTraffic;
use crate::worker_port::WorkerPorts;

/// Maximum number of networks with their frontends that are kept separately after merging all workers: four megabytes.
const MOST: usize = 57_344;

/// Request of a watch to a worker.
#[derive(Debug)]
pub(crate) enum WatchRequest {
    /// Walk over all that is open, and send what was collected since the last walk. Dropping the sender is a reply, too.
    Walk { watch: u64, reply: Sender<ClientTraffic> },
    /// The watch has ended.
    End { watch: u64 },
}

/// Pending requests by worker. They survive the restart of a worker.
#[derive(Debug)]
pub(crate) struct WatchRequests {
    places: Box<[Place]>,
    watches: AtomicU64,
}

#[derive(Debug, Default)]
struct Place {
    /// Whether a request is pending: usually the only field that workers read.
    waits: AtomicBool,
    request: Mutex<Option<WatchRequest>>,
}

impl Place {
    fn request(&self) -> MutexGuard<'_, Option<WatchRequest>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchRequests {
    /// Creates slots for `workers` workers.
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let places = std::iter::repeat_with(Place::default).take(workers).collect();
        Arc::new(Self { places, watches: AtomicU64::new(0) })
    }

    /// Takes the pending request of a worker.
    pub(crate) fn take(&self, worker: usize) -> Option<WatchRequest> {
        let place = &self.places[worker];
        // Without a request nothing is written and no lock is taken.
        if !place.waits.load(Ordering::Relaxed) {
            return None;
        }
        let mut request = place.request();
        place.waits.store(false, Ordering::Relaxed);
        request.take()
    }

    /// Stores a request, replacing a pending one.
    fn leave(&self, worker: usize, request: WatchRequest) {
        let place = &self.places[worker];
        let mut waiting = place.request();
        // The beginning of a watch ends the previous one in any case.
        if let (WatchRequest::End { watch }, Some(WatchRequest::Walk { watch: other, .. })) =
            (&request, &*waiting)
            && watch != other
        {
            return;
        }
        *waiting = Some(request);
        place.waits.store(true, Ordering::Relaxed);
    }
}

/// Makes workers collect the traffic of connections and flows by client network, and the bytes of endpoints, until it is dropped. If there
/// are several watches, only the latest collects.
#[derive(Debug)]
pub struct TrafficWatch {
    watch: u64,
    ports: Arc<WorkerPorts>,
    requests: Arc<WatchRequests>,
    /// Walk whose replies are pending.
    walk: Option<Walk>,
}

#[derive(Debug)]
struct Walk {
    /// Disconnects when all workers have replied.
    replies: Receiver<ClientTraffic>,
    together: ClientTraffic,
}

impl TrafficWatch {
    pub(crate) fn new(ports: Arc<WorkerPorts>, requests: Arc<WatchRequests>) -> Self {
        let watch = requests.watches.fetch_add(1, Ordering::Relaxed);
        Self { watch, ports, requests, walk: None }
    }

    /// Traffic of clients since the last call, and what they have open. The first call only returns what is open: traffic before the watch
    /// is not counted. Returns `None` if a worker does not reply within `patience`; the next call then waits for the same replies. From
    /// then on each call returns the result of the walk that the previous call requested, so that walks are as far apart as calls.
    pub fn count(&mut self, patience: Duration) -> Option<ClientTraffic> {
        let until = Instant::now() + patience;
        let late = self.walk.take();
        let is_late = late.is_some();
        let mut walk = late.unwrap_or_else(|| self.ask());
        loop {
            match walk.replies.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(traffic) => walk.together.merge(&traffic),
                Err(RecvTimeoutError::Disconnected) => {
                    self.walk = is_late.then(|| self.ask());
                    return Some(walk.together);
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.walk = Some(walk);
                    return None;
                }
            }
        }
    }

    fn ask(&self) -> Walk {
        let (reply, replies) = channel();
        self.ask_all(|watch| WatchRequest::Walk { watch, reply: reply.clone() });
        Walk { replies, together: ClientTraffic::with_room(MOST) }
    }

    fn ask_all(&self, request: impl Fn(u64) -> WatchRequest) {
        for (worker, port) in self.ports.iter().enumerate() {
            self.requests.leave(worker, request(self.watch));
            port.waker.wake();
        }
    }
}

impl Drop for TrafficWatch {
    fn drop(&mut self) {
        self.ask_all(|watch| WatchRequest::End { watch });
    }
}
