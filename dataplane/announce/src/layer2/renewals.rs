//! Renews the lifetimes of addresses on a thread of its own.
//!
//! The kernel changes addresses under a lock of the whole machine, for all network namespaces (`rtnl_lock` in net/core/rtnetlink.c). Where
//! Pods come and go, a request waits for it for a tenth of a second and more, and heartbeats must not wait with it. What is put on or
//! taken off waits on another thread (`kernel_changes`), so that the lifetime of the others does not end meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::netlink::Requests;

/// How many addresses are renewed together: whoever withdraws one waits for those that are under way.
const TOGETHER: usize = 4;
/// A renewal that was asked for longer ago is not made: the process may have stood still, and the address may be another gateway's.
const LATEST: Duration = Duration::from_secs(1);

/// Handle of the thread, which ends with it.
pub(super) struct Renewals {
    shared: Arc<Renewing>,
}

/// Part of the handle for whoever takes addresses off.
pub(super) struct Forgetting {
    shared: Arc<Renewing>,
}

#[derive(Default)]
struct Renewing {
    queue: Mutex<Queue>,
    /// The queue has changed.
    changed: Condvar,
    /// Something was renewed.
    renewed: Notify,
}

#[derive(Default)]
struct Queue {
    due: BTreeMap<IpAddr, Renewal>,
    /// The last that was renewed: all have their turn, however long a round takes.
    last: Option<IpAddr>,
    /// When the addresses were asked for that have been renewed.
    renewed: BTreeMap<IpAddr, Instant>,
    /// Whether the kernel is asked now.
    under_way: bool,
    /// How many wait until it is not; the thread does not go on before them.
    waiting: usize,
    ended: bool,
}

struct Renewal {
    /// One for each link.
    additions: Vec<RouteNetlinkMessage>,
    asked: Instant,
}

impl Queue {
    fn take_next(&mut self) -> Option<(IpAddr, Renewal)> {
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.due.range((behind, Bound::Unbounded)).next().or_else(|| self.due.iter().next());
        let ip = next.map(|(ip, _)| *ip)?;
        self.last = Some(ip);
        self.due.remove(&ip).map(|renewal| (ip, renewal))
    }
}

impl Renewing {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for as long as this holds.
    fn wait_while<'a>(
        &self,
        queue: MutexGuard<'a, Queue>,
        holds: impl FnMut(&mut Queue) -> bool,
    ) -> MutexGuard<'a, Queue> {
        self.changed.wait_while(queue, holds).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something that is due; `None` once the handle is gone.
    fn next(&self) -> Option<Vec<(IpAddr, Renewal)>> {
        let idle = |queue: &mut Queue| !queue.ended && (queue.waiting > 0 || queue.due.is_empty());
        let mut queue = self.wait_while(self.queue(), idle);
        if queue.ended {
            return None;
        }
        queue.under_way = true;
        Some((0..TOGETHER).map_while(|_| queue.take_next()).collect())
    }

    fn renew(&self, some: Vec<(IpAddr, Renewal)>, requests: &mut Requests) {
        let mut renewed = BTreeMap::new();
        for (ip, Renewal { additions, asked }) in some {
            if asked.elapsed() >= LATEST {
                continue;
            }
            match requests.change_all(additions, NLM_F_CREATE | NLM_F_REPLACE) {
                Ok(failed) => {
                    // The link or the address is gone, which a notification reports as well.
                    failed.iter().for_each(|(_, error)| debug!(%ip, %error, "an address cannot be renewed"));
                    renewed.insert(ip, asked);
                }
                Err(error) => warn!(%ip, %error, "an address cannot be renewed"),
            }
        }
        let mut queue = self.queue();
        queue.renewed.extend(renewed);
        queue.under_way = false;
        drop(queue);
        self.changed.notify_all();
        self.renewed.notify_one();
    }

    /// Waits until nothing is under way.
    fn settle(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.waiting += 1;
        self.changed.notify_all();
        let mut queue = self.wait_while(queue, |queue| queue.under_way);
        queue.waiting -= 1;
        drop(queue);
        self.changed.notify_all();
    }
}

impl Renewals {
    /// Starts the thread, in the network namespace of the caller.
    ///
    /// # Errors
    /// Errors of socket(2) and pthread_create(3).
    pub(super) fn start() -> io::Result<Self> {
        let (shared, mut requests) = (Arc::<Renewing>::default(), Requests::open()?);
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("renewals".to_owned()).spawn(move || {
            while let Some(some) = of_thread.next() {
                of_thread.renew(some, &mut requests);
            }
        })?;
        Ok(Self { shared })
    }

    /// Has an address renewed soon, by these additions for its links, of which there is at least one.
    pub(super) fn ask(&self, ip: IpAddr, additions: Vec<RouteNetlinkMessage>, now: Instant) {
        self.shared.queue().due.insert(ip, Renewal { additions, asked: now });
        self.shared.changed.notify_all();
    }

    /// When those were asked for that have been renewed since the last call, and whether nothing else is to be renewed.
    pub(super) fn take(&self) -> (BTreeMap<IpAddr, Instant>, bool) {
        let mut queue = self.shared.queue();
        let all = queue.due.is_empty() && !queue.under_way;
        (std::mem::take(&mut queue.renewed), all)
    }

    /// Waits until there may be something to take. Cancel safe.
    pub(super) async fn changed(&self) {
        self.shared.renewed.notified().await;
    }

    /// For whoever takes addresses off.
    pub(super) fn forgetting(&self) -> Forgetting {
        Forgetting { shared: Arc::clone(&self.shared) }
    }

    /// Begins nothing any more.
    pub(super) fn stop(&self) {
        let mut queue = self.shared.queue();
        queue.due.clear();
        queue.ended = true;
        drop(queue);
        self.shared.changed.notify_all();
    }
}

impl Forgetting {
    /// Does not renew these addresses until that is asked for again. None is renewed any more when this returns, so they may be taken off.
    pub(super) fn forget(&self, ips: impl IntoIterator<Item = IpAddr>) {
        let mut queue = self.shared.queue();
        for ip in ips {
            queue.due.remove(&ip);
        }
        self.shared.settle(queue);
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        self.stop();
        self.shared.settle(self.shared.queue());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn ip(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    #[test]
    fn all_have_their_turn_although_those_before_are_due_again() {
        let mut queue = Queue::default();
        let mut turns = Vec::new();
        for _ in 0..5 {
            for number in 1..=5 {
                let asked = Instant::now();
                queue.due.insert(ip(number), Renewal { additions: Vec::new(), asked });
            }
            // A round takes longer than the time until all are due again.
            turns.extend((0..2).filter_map(|_| queue.take_next()).map(|(ip, _)| ip));
        }
        assert_eq!(turns, [1, 2, 3, 4, 5, 1, 2, 3, 4, 5].map(ip));
    }

    #[test]
    fn the_thread_waits_for_whoever_forgets_and_ends_with_its_handle() {
        let shared = Arc::<Renewing>::default();
        let renewals = Renewals { shared: Arc::clone(&shared) };
        renewals.ask(ip(1), Vec::new(), Instant::now());
        renewals.ask(ip(2), Vec::new(), Instant::now());
        let some = shared.next().unwrap();
        assert_eq!(some.len(), 2);
        let (began, begins) = std::sync::mpsc::channel();
        let forgetting = std::thread::spawn(move || {
            began.send(()).unwrap();
            renewals.forgetting().forget([ip(3)]);
            renewals
        });
        begins.recv().unwrap();
        let waits = |queue: &mut Queue| queue.waiting == 0;
        drop(shared.wait_while(shared.queue(), waits));
        assert!(!forgetting.is_finished());
        shared.queue().under_way = false;
        shared.changed.notify_all();
        drop(forgetting.join().unwrap());
        assert!(shared.next().is_none());
    }
}
