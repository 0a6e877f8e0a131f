//! Whoever watches, and what workers are asked for that: each has a place where the latest request waits for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counts::ClientTraffic;
use crate::worker::port::WorkerPorts;

/// Networks with their frontends that are kept apart when all workers are put together: four megabytes.
const MOST: usize = 57_344;

/// What a worker is asked for.
#[derive(Debug)]
pub(crate) enum WatchRequest {
    /// Walk over all that is open, and send what was collected since the last walk. Dropping it is an answer, too.
    Walk { watch: u64, reply: Sender<ClientTraffic> },
    /// The watch is over.
    End { watch: u64 },
}

/// The requests that wait, by worker. They outlast a worker that is started again.
#[derive(Debug)]
pub(crate) struct WatchRequests {
    places: Box<[Place]>,
    watches: AtomicU64,
}

#[derive(Debug, Default)]
struct Place {
    /// Workers look at this alone.
    waits: AtomicBool,
    request: Mutex<Option<WatchRequest>>,
}

impl Place {
    fn request(&self) -> MutexGuard<'_, Option<WatchRequest>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchRequests {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let places = std::iter::repeat_with(Place::default).take(workers).collect();
        Arc::new(Self { places, watches: AtomicU64::new(0) })
    }

    /// The request that waits for a worker.
    pub(crate) fn take(&self, worker: usize) -> Option<WatchRequest> {
        let place = &self.places[worker];
        // Unless there is one, nothing is written and nothing is locked.
        if !place.waits.load(Ordering::Relaxed) {
            return None;
        }
        let mut request = place.request();
        place.waits.store(false, Ordering::Relaxed);
        request.take()
    }

    /// Leaves a request in the place of the one that waits there.
    fn leave(&self, worker: usize, request: WatchRequest) {
        let place = &self.places[worker];
        let mut waiting = place.request();
        // A watch that begins ends the one before in any case.
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

/// Has workers collect what connections and flows have, by client network, and endpoints' bytes, until it is dropped. Of several, the
/// latest has all.
#[derive(Debug)]
pub struct TrafficWatch {
    watch: u64,
    ports: Arc<WorkerPorts>,
    requests: Arc<WatchRequests>,
    /// Answers that are still to come.
    walk: Option<Walk>,
}

#[derive(Debug)]
struct Walk {
    /// Ends when all workers have answered.
    replies: Receiver<ClientTraffic>,
    together: ClientTraffic,
}

impl TrafficWatch {
    pub(crate) fn new(ports: Arc<WorkerPorts>, requests: Arc<WatchRequests>) -> Self {
        let watch = requests.watches.fetch_add(1, Ordering::Relaxed);
        Self { watch, ports, requests, walk: None }
    }

    /// What clients have had since the last time, and have open. The first time it is only what they have open: what was before the
    /// watch is not counted. None if some worker does not answer within `patience`; then the next call gives the same answers. From then on each call
    /// gives what the one before has asked for, so that walks lie as far apart as calls.
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
