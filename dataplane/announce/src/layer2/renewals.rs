//! Renews the lifetimes of addresses on a thread of its own.
//!
//! The kernel changes addresses under a lock of the whole machine, for all network namespaces (`rtnl_lock` in net/core/rtnetlink.c). Where
//! Pods come and go, a request waits for it for a tenth of a second and more, and heartbeats must not wait with it. What is put on or
//! taken off waits on another thread (`kernel_changes`), so that the lifetime of the others does not end meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::announcement::Lifetime;
use super::netlink::Requests;

/// How many addresses are renewed until that is told, while more are due.
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
    renewed: Renewed,
    /// Whether the kernel is asked now.
    under_way: bool,
    /// How many wait until it is not; the thread does not go on before them.
    waiting: usize,
    ended: bool,
}

struct Renewal {
    /// One for each link.
    additions: Vec<RouteNetlinkMessage>,
    lifetime: Lifetime,
    /// When the kernel removes the address otherwise.
    ends: Instant,
}

/// What has been renewed.
#[derive(Debug, Default)]
pub(super) struct Renewed {
    /// The addresses, and what they were given.
    pub(super) lifetimes: BTreeMap<IpAddr, Lifetime>,
    /// Changes that the kernel has made, and how long they took, one after the other.
    pub(super) changes: usize,
    pub(super) took: Duration,
}

impl Queue {
    fn take_next(&mut self) -> Option<(IpAddr, Renewal)> {
        // What was given less time, since the kernel was quick then, does not wait for all others. So all have their turn, however long a round takes.
        let next = self.due.iter().min_by_key(|(_, renewal)| renewal.ends);
        let ip = next.map(|(ip, _)| *ip)?;
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
    fn next(&self) -> Option<(IpAddr, Renewal)> {
        let idle = |queue: &mut Queue| !queue.ended && (queue.waiting > 0 || queue.due.is_empty());
        let mut queue = self.wait_while(self.queue(), idle);
        let next = if queue.ended { None } else { queue.take_next() };
        queue.under_way = next.is_some();
        next
    }

    /// Renews one address. The next one is taken only then: had several been taken, the last of them would be too late where the kernel is slow,
    /// although they have been asked for again since.
    fn renew(&self, ip: IpAddr, renewal: Renewal, requests: &mut Requests) {
        let Renewal { additions, lifetime, ends: _ } = renewal;
        let (began, changes) = (Instant::now(), additions.len());
        let result = if lifetime.asked.elapsed() >= LATEST {
            None
        } else {
            Some(requests.change_all(additions, NLM_F_CREATE | NLM_F_REPLACE))
        };
        let mut queue = self.queue();
        match result {
            None => {}
            Some(Ok(failed)) => {
                // The link or the address is gone, which a notification reports as well.
                failed.iter().for_each(|(_, error)| debug!(%ip, %error, "an address cannot be renewed"));
                queue.renewed.lifetimes.insert(ip, lifetime);
                queue.renewed.changes += changes;
                queue.renewed.took += began.elapsed();
            }
            Some(Err(error)) => warn!(%ip, %error, "an address cannot be renewed"),
        }
        queue.under_way = false;
        let told = queue.due.is_empty() || queue.renewed.lifetimes.len() >= TOGETHER;
        drop(queue);
        self.changed.notify_all();
        if told {
            self.renewed.notify_one();
        }
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
            while let Some((ip, renewal)) = of_thread.next() {
                of_thread.renew(ip, renewal, &mut requests);
            }
        })?;
        Ok(Self { shared })
    }

    /// Has an address that `ends` then renewed soon for this lifetime, by these additions for its links, of which there is at least one.
    pub(super) fn ask(
        &self,
        ip: IpAddr,
        additions: Vec<RouteNetlinkMessage>,
        lifetime: Lifetime,
        ends: Instant,
    ) {
        self.shared.queue().due.insert(ip, Renewal { additions, lifetime, ends });
        self.shared.changed.notify_all();
    }

    /// What has been renewed since the last call.
    pub(super) fn take(&self) -> Renewed {
        std::mem::take(&mut self.shared.queue().renewed)
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

    fn lifetime() -> Lifetime {
        Lifetime { asked: Instant::now(), time: Duration::from_secs(3) }
    }

    #[test]
    fn all_have_their_turn_although_those_before_are_due_again() {
        let (mut queue, start, second) = (Queue::default(), Instant::now(), Duration::from_secs(1));
        // The fourth was given less time than the others.
        let mut ends: BTreeMap<u8, Instant> = (1..=5).map(|number| (number, start + 3 * second)).collect();
        ends.insert(4, start + 2 * second);
        let mut turns = Vec::new();
        for round in 1..=5 {
            for (&number, &ends) in &ends {
                queue.due.insert(ip(number), Renewal { additions: Vec::new(), lifetime: lifetime(), ends });
            }
            // A round takes longer than the time until all are due again.
            for (next, _) in (0..2).filter_map(|_| queue.take_next()).collect::<Vec<_>>() {
                let number = (1..=5).find(|number| ip(*number) == next).unwrap();
                ends.insert(number, start + (3 + round) * second);
                turns.push(number);
            }
        }
        assert_eq!(turns, [4, 1, 2, 3, 5, 1, 4, 2, 3, 1]);
    }

    #[test]
    fn the_thread_waits_for_whoever_forgets_and_ends_with_its_handle() {
        let shared = Arc::<Renewing>::default();
        let renewals = Renewals { shared: Arc::clone(&shared) };
        renewals.ask(ip(1), Vec::new(), lifetime(), Instant::now());
        renewals.ask(ip(2), Vec::new(), lifetime(), Instant::now());
        let (first, _) = shared.next().unwrap();
        assert_eq!(first, ip(1));
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
