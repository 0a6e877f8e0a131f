//! Puts addresses on interfaces and takes them off, on a thread of its own.
//!
//! Each change waits for a lock of the whole machine, as renewals do (`renewals`): a tenth of a second and more where Pods come and go. A gateway that
//! gains or loses many addresses would wait so many times, and heartbeats must not wait with it. Addresses that are taken off come first: they may
//! be another gateway's by now.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::announcement::Lifetime;
use super::kernel_address::{identity, message};
use super::netlink::{BATCH, Requests};
use super::renewals::Forgetting;

/// How long whoever asks waits altogether within a window. The kernel is usually done by then, with hundreds of addresses.
const PATIENCE: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_millis(100);
/// Time that the end of the process leaves to what is still to be taken off. The rest ends with its lifetime.
const LAST_REMOVALS: Duration = Duration::from_secs(1);

/// Pause after a removal that the kernel has not answered.
const AGAIN: Duration = Duration::from_millis(100);

/// How an address is put on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Where it is not.
    New,
    /// Where it is ours already, for another lifetime.
    Again,
    /// Where it is ours already, behind all others.
    Last,
}

/// One address to be put on one link.
pub(super) struct Addition {
    pub(super) ip: IpAddr,
    pub(super) link: u32,
    /// Tells it from others of the same address and link.
    pub(super) ticket: u64,
    /// The link's name.
    pub(super) interface: Arc<str>,
    pub(super) how: How,
    /// Too late after this.
    pub(super) until: Option<Instant>,
}

/// Result of an addition.
pub(super) struct Outcome {
    pub(super) ip: IpAddr,
    pub(super) link: u32,
    pub(super) ticket: u64,
    pub(super) lifetime: Lifetime,
    /// How long the kernel took.
    pub(super) took: Duration,
    pub(super) result: io::Result<()>,
}

/// Handle of the thread, which ends with it.
pub(super) struct KernelChanges {
    shared: Arc<SharedChanges>,
    tickets: u64,
    /// Something was asked for that nobody has waited for.
    unsettled: bool,
    /// Beginning of the window, and how much of it was waited for.
    window: Instant,
    waited: Duration,
}

#[derive(Default)]
struct SharedChanges {
    queue: Mutex<ChangeQueue>,
    /// The queue has changed.
    changed: Condvar,
    /// Something was done.
    done: Notify,
}

#[derive(Default)]
struct ChangeQueue {
    removals: BTreeSet<(IpAddr, u32)>,
    additions: VecDeque<Addition>,
    /// Addresses that the kernel is taking off now.
    removing: BTreeSet<(IpAddr, u32)>,
    /// Whether the kernel is putting one on now.
    adding: bool,
    outcomes: Vec<Outcome>,
    /// Something was taken off since somebody asked.
    removed: bool,
    /// The latest time for additions; unknown where it was never set.
    trusted_until: Option<Instant>,
    /// What additions are given.
    lifetime: Duration,
    ended: bool,
}

enum Work {
    Remove(Vec<(IpAddr, u32)>),
    /// For this time.
    Add(Addition, Duration),
}

impl ChangeQueue {
    fn is_busy(&mut self) -> bool {
        self.adding || !self.removing.is_empty() || !self.removals.is_empty() || !self.additions.is_empty()
    }

    fn take_next(&mut self, now: Instant) -> Option<Work> {
        while self.removing.len() < BATCH
            && let Some(next) = self.removals.pop_first()
        {
            self.removing.insert(next);
        }
        if !self.removing.is_empty() {
            return Some(Work::Remove(self.removing.iter().copied().collect()));
        }
        // A process that stood still may put on what is another's by now.
        if self.trusted_until.is_some_and(|until| until <= now) {
            return None;
        }
        let next = self.additions.pop_front()?;
        self.adding = true;
        Some(Work::Add(next, self.lifetime))
    }
}

impl SharedChanges {
    fn queue(&self) -> MutexGuard<'_, ChangeQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to do; `None` once the handle is gone.
    fn next(&self) -> Option<Work> {
        let mut queue = self.queue();
        loop {
            if let Some(work) = queue.take_next(Instant::now()) {
                return Some(work);
            }
            if queue.ended {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes that addresses were taken off. Where the kernel has not answered (`sent`), it may have them yet, and they are asked for again in a moment:
    /// meanwhile they count as [still on](KernelChanges::still_on).
    fn taken_off(&self, sent: bool) {
        let mut queue = self.queue();
        let addresses = std::mem::take(&mut queue.removing);
        if sent || queue.ended {
            queue.removed = true;
            return;
        }
        queue.removals.extend(addresses);
        drop(self.changed.wait_timeout_while(queue, AGAIN, |queue| !queue.ended));
    }

    fn work(&self, requests: &mut Requests, renewals: &Forgetting) {
        while let Some(work) = self.next() {
            match work {
                Work::Remove(addresses) => {
                    renewals.forget(addresses.iter().map(|(ip, _)| *ip));
                    let sent = take_off(&addresses, requests);
                    self.taken_off(sent);
                }
                Work::Add(addition, time) => {
                    let outcome = put_on(addition, time, requests);
                    let mut queue = self.queue();
                    queue.adding = false;
                    queue.outcomes.push(outcome);
                }
            }
            self.changed.notify_all();
            self.done.notify_one();
        }
    }
}

/// Returns whether the kernel has answered. One that is not there is no error.
fn take_off(addresses: &[(IpAddr, u32)], requests: &mut Requests) -> bool {
    match requests.change_all(addresses.iter().map(|&(ip, link)| removal(ip, link)).collect(), 0) {
        // The link or the address is gone, which a notification reports as well.
        Ok(failed) => failed.iter().for_each(|(_, error)| debug!(%error, "an address cannot be taken off")),
        Err(error) => {
            warn!(%error, "addresses cannot be taken off; trying again");
            return false;
        }
    }
    true
}

fn put_on(addition: Addition, time: Duration, requests: &mut Requests) -> Outcome {
    let Addition { ip, link, ticket, interface, how, until } = addition;
    let begun = Instant::now();
    let message = RouteNetlinkMessage::NewAddress(message(ip, link, &interface, time));
    let result = match how {
        _ if until.is_some_and(|until| until <= begun) => Err(io::ErrorKind::TimedOut.into()),
        How::New => requests.change(message, NLM_F_CREATE | NLM_F_EXCL),
        How::Again => requests.change(message, NLM_F_CREATE | NLM_F_REPLACE),
        // The flags of an addition that excludes mean something else to a removal (NLM_F_BULK in linux/netlink.h).
        How::Last => match requests.change_all(vec![removal(ip, link), message], NLM_F_CREATE) {
            // That it was not there is no error.
            Ok(failed) => {
                failed.into_iter().find(|(place, _)| *place == 1).map_or(Ok(()), |(_, error)| Err(error))
            }
            Err(error) => Err(error),
        },
    };
    Outcome { ip, link, ticket, lifetime: Lifetime { asked: begun, time }, took: begun.elapsed(), result }
}

impl KernelChanges {
    /// Starts the thread, in the network namespace of the caller.
    ///
    /// # Errors
    /// Errors of socket(2) and pthread_create(3).
    pub(super) fn start(renewals: Forgetting) -> io::Result<Self> {
        let (shared, mut requests) = (Arc::<SharedChanges>::default(), Requests::open()?);
        let of_thread = Arc::clone(&shared);
        let work = move || of_thread.work(&mut requests, &renewals);
        std::thread::Builder::new().name("addresses".to_owned()).spawn(work)?;
        Ok(Self::of(shared))
    }

    fn of(shared: Arc<SharedChanges>) -> Self {
        Self { shared, tickets: 0, unsettled: false, window: Instant::now(), waited: Duration::ZERO }
    }

    /// A number that no other addition has.
    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Has the kernel put an address on a link soon.
    pub(super) fn put_on(&mut self, addition: Addition) {
        self.unsettled = true;
        self.shared.queue().additions.push_back(addition);
        self.shared.changed.notify_all();
    }

    /// Does not have addresses put on that were to be.
    pub(super) fn cancel(&self, addresses: &[(IpAddr, u32)]) {
        let addresses: BTreeSet<(IpAddr, u32)> = addresses.iter().copied().collect();
        let mut queue = self.shared.queue();
        queue.additions.retain(|addition| !addresses.contains(&(addition.ip, addition.link)));
    }

    /// Has the kernel take addresses off soon, and renew none of them.
    pub(super) fn take_off(&mut self, addresses: Vec<(IpAddr, u32)>) {
        if addresses.is_empty() {
            return;
        }
        self.unsettled = true;
        self.shared.queue().removals.extend(addresses);
        self.shared.changed.notify_all();
    }

    /// Waits a moment at most until all that was asked for is done: the kernel is usually quick.
    pub(super) fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        let now = Instant::now();
        if now >= self.window + WINDOW {
            (self.window, self.waited) = (now, Duration::ZERO);
        }
        let left = PATIENCE.saturating_sub(self.waited);
        let waited = self.shared.changed.wait_timeout_while(self.shared.queue(), left, ChangeQueue::is_busy);
        drop(waited);
        self.waited += now.elapsed();
    }

    /// Results of additions since the last call.
    pub(super) fn take_outcomes(&self) -> Vec<Outcome> {
        std::mem::take(&mut self.shared.queue().outcomes)
    }

    /// Whether something was taken off since the last call.
    pub(super) fn take_removed(&self) -> bool {
        std::mem::take(&mut self.shared.queue().removed)
    }

    /// The addresses that the kernel is still to take off. One that was among them before notifications are read, and is not now, is
    /// gone by what these say.
    pub(super) fn still_on(&self) -> BTreeSet<(IpAddr, u32)> {
        let queue = self.shared.queue();
        queue.removals.union(&queue.removing).copied().collect()
    }

    /// Sets how long the kernel keeps what is put on from now on, asked for before or not.
    pub(super) fn set_lifetime(&self, lifetime: Duration) {
        self.shared.queue().lifetime = lifetime;
    }

    /// Says until when addresses may be put on.
    pub(super) fn trust_until(&self, until: Instant) {
        let mut queue = self.shared.queue();
        queue.trusted_until = Some(until);
        let waits = !queue.additions.is_empty();
        drop(queue);
        if waits {
            self.shared.changed.notify_all();
        }
    }

    /// Waits until something was done. Cancel safe.
    pub(super) async fn changed(&self) {
        self.shared.done.notified().await;
    }

    /// Begins nothing any more.
    pub(super) fn abandon(&self) {
        let mut queue = self.shared.queue();
        queue.removals.clear();
        queue.additions.clear();
        queue.ended = true;
        self.shared.changed.notify_all();
    }

    /// Puts nothing on any more, and waits until all is taken off that is to be, unless the kernel takes long.
    pub(super) fn end(&self) {
        let mut queue = self.shared.queue();
        queue.additions.clear();
        queue.ended = true;
        self.shared.changed.notify_all();
        drop(self.shared.changed.wait_timeout_while(queue, LAST_REMOVALS, ChangeQueue::is_busy));
    }
}

impl Drop for KernelChanges {
    fn drop(&mut self) {
        self.end();
    }
}

fn removal(ip: IpAddr, link: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelAddress(identity(ip, link))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn addition(number: u8, ticket: u64) -> Addition {
        Addition { ip: ip(number), link: 1, ticket, interface: "eth0".into(), how: How::New, until: None }
    }

    fn next(changes: &KernelChanges) -> Option<String> {
        let mut queue = changes.shared.queue();
        let work = queue.take_next(Instant::now())?;
        (queue.adding, queue.removed) = (false, false);
        queue.removing.clear();
        Some(match work {
            Work::Remove(addresses) => format!("remove {}", addresses.len()),
            Work::Add(addition, _) => format!("add {} {}", addition.ip, addition.ticket),
        })
    }

    #[test]
    fn what_is_taken_off_comes_first_and_is_not_put_on() {
        let mut changes = KernelChanges::of(Arc::default());
        (1..=3).for_each(|number| changes.put_on(addition(number, number.into())));
        changes.cancel(&[(ip(2), 1), (ip(9), 1)]);
        changes.take_off(vec![(ip(2), 1), (ip(9), 1)]);
        changes.put_on(addition(2, 4));
        let done: Vec<String> = std::iter::from_fn(|| next(&changes)).collect();
        assert_eq!(done, ["remove 2", "add 192.0.2.1 1", "add 192.0.2.3 3", "add 192.0.2.2 4"]);
    }

    #[test]
    fn what_could_not_be_taken_off_stays_to_be() {
        let mut changes = KernelChanges::of(Arc::default());
        changes.take_off(vec![(ip(1), 1), (ip(2), 1)]);
        let taken = |sent: bool| {
            assert!(
                matches!(changes.shared.queue().take_next(Instant::now()), Some(Work::Remove(all)) if all.len() == 2)
            );
            changes.shared.taken_off(sent);
            (changes.still_on().len(), changes.take_removed())
        };
        assert_eq!(taken(false), (2, false));
        assert_eq!(taken(true), (0, true));
    }

    #[test]
    fn nothing_is_put_on_while_it_is_not_sure_whose_it_is() {
        let mut changes = KernelChanges::of(Arc::default());
        changes.trust_until(Instant::now());
        changes.put_on(addition(1, 1));
        changes.take_off(vec![(ip(2), 1)]);
        assert_eq!(next(&changes).as_deref(), Some("remove 1"));
        assert_eq!(next(&changes), None);
        changes.trust_until(Instant::now() + Duration::from_hours(1));
        assert_eq!(next(&changes).as_deref(), Some("add 192.0.2.1 1"));
    }

    #[test]
    fn whoever_asks_a_slow_kernel_again_and_again_waits_no_longer_than_once() {
        // Without a thread.
        let mut changes = KernelChanges::of(Arc::default());
        let began = Instant::now();
        for number in 0..100 {
            changes.put_on(addition(number, number.into()));
            changes.settle();
        }
        let waited = began.elapsed();
        assert!((PATIENCE..PATIENCE * 50).contains(&waited), "{waited:?}");
    }
}
