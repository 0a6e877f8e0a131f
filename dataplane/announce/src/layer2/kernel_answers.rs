//! Keeps the kernel from answering questions about announced addresses: the process does that, so that one that is dead or stands still
//! answers nobody, although its kernel has the addresses for seconds yet.
//!
//! nftables commits one transaction of a network namespace at a time, and another program's may take seconds. So a thread of its own
//! commits ours, and heartbeats do not wait for it.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::libc;
use tokio::sync::Notify;
use tracing::debug;

use super::nftables::{Handle, Place, Table, Tables};

/// Lifetime of the kernel's silence after the end of the process: longer than it has the addresses, and not for good, because somebody
/// else may use them on this machine later.
const TIMEOUT: Duration = Duration::from_secs(90);
/// How often that begins anew, in any case within one and a half of these. Between, a process that is killed has at least the difference left.
const RENEWAL: Duration = Duration::from_secs(20);
/// Time that the end of the process leaves to a transaction that has not been committed.
const LAST_TRANSACTION: Duration = Duration::from_millis(500);
/// Errors of a kernel that has no nf_tables, lacks what a table consists of, or does not let this process use it.
const REFUSALS: [i32; 6] =
    [libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT, libc::ENOENT, libc::EINVAL, libc::EPERM];

/// Places for which the kernel does not answer, those of IPv4 first.
pub(super) type Silenced = [BTreeSet<Place>; 2];

/// Handle of the thread that keeps the kernel silent.
pub(super) struct KernelAnswers {
    shared: Arc<Shared>,
    /// Wakes the thread, which ends with it.
    wake: Option<SyncSender<()>>,
    /// Next renewal.
    due: Option<Instant>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Set with `State::outcome`.
    changed: Notify,
    /// Set with `State::ended`.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The last request, until the thread takes it. Those before it are out of date.
    wanted: Option<Silenced>,
    outcome: Option<Option<io::Error>>,
    /// The thread has come to its end.
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelAnswers {
    /// Starts the thread. With the first request it removes the tables of a process before this one.
    ///
    /// # Errors
    /// Errors of pthread_create(3).
    pub(super) fn start<T: Tables>(
        open: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        // One wake-up is enough for all requests before it.
        let (wake, woken) = sync_channel(1);
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("nftables".to_owned()).spawn(move || {
            if woken.recv().is_ok() {
                Worker::new(open()).run(&of_thread, &woken);
            }
            of_thread.lock().ended = true;
            of_thread.ended.notify_one();
        })?;
        Ok(Self { shared, wake: Some(wake), due: None })
    }

    /// Keeps the kernel from answering for these alone, soon.
    pub(super) fn suppress(&mut self, wanted: Silenced, now: Instant) {
        // A request for a change is none for a renewal.
        let due = self.due.filter(|due| now < *due).unwrap_or(now + RENEWAL);
        self.due = wanted.iter().any(|places| !places.is_empty()).then_some(due);
        self.shared.lock().wanted = Some(wanted);
        if let Some(wake) = &self.wake {
            // It is full where the thread has not taken the last request yet.
            wake.try_send(()).ok();
        }
    }

    /// Has the kernel answer for everything, and ends the thread. Waits for that, unless somebody else holds up transactions.
    pub(super) fn restore(&mut self) {
        self.suppress(Silenced::default(), Instant::now());
        self.end();
    }

    /// When `suppress` has something to do although nothing has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the kernel has begun to answer in spite of it, with the reason, or has ceased to.
    pub(super) fn take_outcome(&self) -> Option<Option<io::Error>> {
        self.shared.lock().outcome.take()
    }

    /// Waits until there may be another outcome. Cancel safe.
    pub(super) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    fn end(&mut self) {
        if self.wake.take().is_some() {
            let running = |state: &mut State| !state.ended;
            let ended = self.shared.ended.wait_timeout_while(self.shared.lock(), LAST_TRANSACTION, running);
            drop(ended);
        }
    }
}

impl Drop for KernelAnswers {
    fn drop(&mut self) {
        self.end();
    }
}

/// State of the thread.
struct Worker<T> {
    tables: io::Result<T>,
    kept: [Kept; 2],
}

/// One table, as far as known.
struct Kept {
    table: Table,
    places: BTreeSet<Place>,
    /// The table that this process has made. Another one of the name is its successor's.
    made: Option<Handle>,
    /// Last renewal, tried or done.
    renewed: Instant,
    /// Error of a kernel that cannot have the table.
    refused: Option<i32>,
}

impl<T: Tables> Worker<T> {
    fn new(mut tables: io::Result<T>) -> Self {
        let kept = [Table::Arp, Table::NeighbourDiscovery].map(|table| {
            let removed = tables.as_mut().map(|tables| tables.remove(table, None));
            if let Ok(Err(error)) = removed {
                debug!(%error, ?table, "a table cannot be removed");
            }
            Kept { table, places: BTreeSet::new(), made: None, renewed: Instant::now(), refused: None }
        });
        Self { tables, kept }
    }

    fn run(mut self, shared: &Shared, woken: &Receiver<()>) {
        let mut fails = false;
        loop {
            let wanted = shared.lock().wanted.take();
            if let Some(error) = wanted.map(|wanted| self.follow(wanted).err())
                && fails != error.is_some()
            {
                fails = error.is_some();
                shared.lock().outcome = Some(error);
                shared.changed.notify_one();
            }
            if woken.recv().is_err() {
                return;
            }
        }
    }

    fn follow(&mut self, wanted: Silenced) -> io::Result<()> {
        let tables = match &mut self.tables {
            Ok(tables) => tables,
            Err(error) => return Err(error.kind().into()),
        };
        let outcomes = self.kept.iter_mut().zip(wanted).map(|(kept, wanted)| kept.follow(tables, wanted));
        outcomes.fold(Ok(()), io::Result::and)
    }
}

impl Kept {
    fn follow(&mut self, tables: &mut impl Tables, wanted: BTreeSet<Place>) -> io::Result<()> {
        let before = std::mem::replace(&mut self.places, wanted);
        if let Some(code) = self.refused {
            return Err(io::Error::from_raw_os_error(code));
        }
        if self.places.is_empty() {
            let made = self.made.take();
            return made.map_or(Ok(()), |handle| tables.remove(self.table, Some(handle)));
        }
        let all: Vec<Place> = self.places.iter().copied().collect();
        let now = Instant::now();
        if self.made.is_some() && now < self.renewed + RENEWAL / 2 {
            let gone: Vec<Place> = before.difference(&self.places).copied().collect();
            let new: Vec<Place> = self.places.difference(&before).copied().collect();
            match tables.change(self.table, &gone, &new) {
                Ok(()) => return Ok(()),
                // Somebody has removed it, with all tables for instance.
                Err(error) => debug!(%error, table = ?self.table, "a table is made anew"),
            }
        }
        self.renewed = now;
        let created = tables.create(self.table, &all, TIMEOUT);
        self.made = created.as_ref().ok().copied();
        self.refused = created.as_ref().err().and_then(io::Error::raw_os_error);
        self.refused = self.refused.filter(|code| REFUSALS.contains(code));
        created.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Tables that note each transaction, which waits for its turn.
    struct Noted {
        notes: Sender<String>,
        turns: Receiver<()>,
        refuse: Option<i32>,
    }

    impl Noted {
        fn note(&mut self, what: String) {
            self.turns.recv().ok();
            self.notes.send(what).ok();
        }
    }

    impl Tables for Noted {
        fn create(&mut self, table: Table, places: &[Place], _: Duration) -> io::Result<Handle> {
            self.note(format!("create {table:?} {}", links(places)));
            self.refuse.map_or(Ok(7), |code| Err(io::Error::from_raw_os_error(code)))
        }

        fn change(&mut self, table: Table, gone: &[Place], new: &[Place]) -> io::Result<()> {
            self.note(format!("change {table:?} -{} +{}", links(gone), links(new)));
            Ok(())
        }

        fn remove(&mut self, table: Table, only: Option<Handle>) -> io::Result<()> {
            let handle = only.map(|handle| format!(" {handle}")).unwrap_or_default();
            self.note(format!("remove {table:?}{handle}"));
            Ok(())
        }
    }

    fn links(places: &[Place]) -> String {
        places.iter().map(|(_, link)| link.to_string()).collect::<Vec<_>>().join(",")
    }

    fn arp(links: &[u32]) -> Silenced {
        [links.iter().map(|&link| ([192, 0, 2, 1].into(), link)).collect(), BTreeSet::new()]
    }

    fn start(refuse: Option<i32>) -> (KernelAnswers, Sender<()>, Receiver<String>) {
        let ((notes, noted), (turn, turns)) = (channel(), channel());
        let answers = KernelAnswers::start(move || Ok(Noted { notes, turns, refuse })).unwrap();
        (answers, turn, noted)
    }

    #[test]
    fn a_transaction_that_waits_for_another_program_holds_up_nobody_and_what_is_wanted_last_follows_it() {
        let (mut answers, turn, noted) = start(None);
        // None of these can be committed yet.
        for links in [&[1][..], &[1, 2], &[], &[2, 3]] {
            answers.suppress(arp(links), Instant::now());
        }
        let next = || {
            turn.send(()).unwrap();
            noted.recv().unwrap()
        };
        assert_eq!([next(), next()], ["remove Arp", "remove NeighbourDiscovery"]);
        assert_eq!(next(), "create Arp 2,3");
        answers.suppress(arp(&[3, 4]), Instant::now());
        assert_eq!(next(), "change Arp -2 +4");
        // A transaction that takes for ever does not keep the process.
        answers.restore();
        assert_eq!(next(), "remove Arp 7");
        assert!(noted.recv().is_err() && answers.take_outcome().is_none());
    }

    #[tokio::test]
    async fn a_kernel_without_nftables_is_asked_once_and_that_is_reported_once() {
        let (mut answers, turn, noted) = start(Some(libc::EOPNOTSUPP));
        drop(turn);
        answers.suppress(arp(&[1]), Instant::now());
        answers.changed().await;
        let outcome = answers.take_outcome().flatten().unwrap();
        assert_eq!(outcome.raw_os_error(), Some(libc::EOPNOTSUPP));
        for links in [&[][..], &[2], &[2, 3]] {
            answers.suppress(arp(links), Instant::now());
        }
        answers.end();
        assert!(answers.take_outcome().is_none());
        let noted: Vec<String> = noted.iter().collect();
        assert_eq!(noted, ["remove Arp", "remove NeighbourDiscovery", "create Arp 1"]);
    }

    #[tokio::test]
    async fn a_transaction_that_failed_is_tried_again_with_the_next_change() {
        let (mut answers, turn, noted) = start(Some(libc::ENOMEM));
        drop(turn);
        answers.suppress(arp(&[1]), Instant::now());
        answers.changed().await;
        answers.suppress(arp(&[1, 2]), Instant::now());
        answers.end();
        assert_eq!(noted.iter().skip(2).collect::<Vec<_>>(), ["create Arp 1", "create Arp 1,2"]);
    }
}
