//! Renews the lifetimes of addresses on a thread of its own.
//!
//! The kernel changes addresses under a lock of the whole machine, for all network namespaces (`rtnl_lock` in net/core/rtnetlink.c). Where
//! Pods come and go, a request waits for it for a tenth of a second and more, and heartbeats must not wait with it. What is put on or
//! taken off is rare, and whoever does that waits.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
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

#[derive(Default)]
struct Renewing {
    queue: Mutex<Queue>,
    /// Something is due, or the handle is gone.
    wanted: Condvar,
    /// Held while the kernel is asked.
    under_way: Mutex<()>,
    /// Something was renewed.
    renewed: Notify,
}

#[derive(Default)]
struct Queue {
    due: BTreeMap<IpAddr, Renewal>,
    /// When the addresses were asked for that have been renewed.
    renewed: BTreeMap<IpAddr, Instant>,
    ended: bool,
}

struct Renewal {
    /// One for each link.
    additions: Vec<RouteNetlinkMessage>,
    asked: Instant,
}

impl Renewing {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing is under way, and keeps it so.
    fn wait(&self) -> MutexGuard<'_, ()> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is due; whether the handle is still there.
    fn is_wanted(&self) -> bool {
        let idle = |queue: &mut Queue| queue.due.is_empty() && !queue.ended;
        let queue = self.wanted.wait_while(self.queue(), idle).unwrap_or_else(PoisonError::into_inner);
        !queue.ended
    }

    /// Renews some of what is due.
    fn renew(&self, requests: &mut Requests) {
        let _under_way = self.wait();
        let mut some = Vec::new();
        {
            let mut queue = self.queue();
            while some.len() < TOGETHER
                && let Some((ip, renewal)) = queue.due.pop_first()
            {
                if renewal.asked.elapsed() < LATEST {
                    some.push((ip, renewal));
                }
            }
        }
        for (ip, Renewal { additions, asked }) in some {
            match requests.change_all(additions, NLM_F_CREATE | NLM_F_REPLACE) {
                Ok(failed) => {
                    // The link or the address is gone, which a notification reports as well.
                    failed.iter().for_each(|(_, error)| debug!(%ip, %error, "an address cannot be renewed"));
                    self.queue().renewed.insert(ip, asked);
                }
                Err(error) => warn!(%ip, %error, "an address cannot be renewed"),
            }
        }
        self.renewed.notify_one();
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
            while of_thread.is_wanted() {
                of_thread.renew(&mut requests);
            }
        })?;
        Ok(Self { shared })
    }

    /// Has an address renewed soon, by these additions for its links.
    pub(super) fn ask(&self, ip: IpAddr, additions: Vec<RouteNetlinkMessage>, now: Instant) {
        self.shared.queue().due.insert(ip, Renewal { additions, asked: now });
        self.shared.wanted.notify_one();
    }

    /// When those were asked for that have been renewed since the last call.
    pub(super) fn take(&self) -> BTreeMap<IpAddr, Instant> {
        std::mem::take(&mut self.shared.queue().renewed)
    }

    /// Waits until there may be something to take. Cancel safe.
    pub(super) async fn changed(&self) {
        self.shared.renewed.notified().await;
    }

    /// Does not renew these addresses until that is asked for again. None is renewed any more when this returns, so they may be taken off.
    pub(super) fn forget(&self, ips: impl IntoIterator<Item = IpAddr>) {
        let mut queue = self.shared.queue();
        for ip in ips {
            queue.due.remove(&ip);
        }
        drop(queue);
        drop(self.shared.wait());
    }

    /// Renews nothing any more, from when this returns.
    pub(super) fn end(&self) {
        let mut queue = self.shared.queue();
        queue.due.clear();
        queue.ended = true;
        drop(queue);
        self.shared.wanted.notify_one();
        drop(self.shared.wait());
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        self.end();
    }
}
