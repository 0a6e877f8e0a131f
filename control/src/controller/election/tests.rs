//! Single decisions, and whole elections in simulated time against a Lease whose server fails in every way.

mod decisions;
mod memory_lock;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::{advance, sleep, timeout};

use self::memory_lock::{Faults, MemoryLeaseLock};
use super::*;
use crate::controller::election::elector::Elector;

fn name() -> ServiceKey {
    ServiceKey::new("sheave-system", "sheave-controller")
}

fn candidate(lock: &MemoryLeaseLock, identity: &str) -> Election {
    let elector = Elector::new(lock.clone(), name(), identity.to_owned(), LeaseTiming::default());
    Election::run(elector)
}

async fn within<T>(seconds: u64, what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(seconds), what).await.expect("in simulated time")
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_and_the_second_waits() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let mut second = candidate(&lock, "b");
    assert!(timeout(Duration::from_secs(600), second.won()).await.is_err());
    assert!(first.leadership().holds() && !second.leadership().holds());
    assert_eq!((first.leader().as_deref(), second.leader().as_deref()), (Some("a"), Some("a")));
    assert_eq!(lock.spec().unwrap().lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn the_leader_writes_once_per_renewal_and_candidates_only_read() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let _second = candidate(&lock, "b");
    sleep(Duration::from_secs(1)).await;
    let before = lock.writes();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(lock.writes() - before, 30);
}

#[tokio::test(start_paused = true)]
async fn who_resigns_makes_room_at_once() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let right = first.leadership();
    let mut second = candidate(&lock, "b");
    sleep(Duration::from_secs(5)).await;
    first.resign().await;
    assert!(!right.holds());
    let spec = lock.spec().unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(""), Some(1)));
    within(4, second.won()).await.unwrap();
    let spec = lock.spec().unwrap();
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_resignation_right_after_a_lost_answer_still_makes_room() {
    let lock = MemoryLeaseLock::default();
    lock.set(Faults::LOST_ANSWERS);
    let first = candidate(&lock, "a");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lock.spec().unwrap().holder_identity.as_deref(), Some("a"));
    lock.set(Faults::NONE);
    first.resign().await;
    assert_eq!(lock.spec().unwrap().holder_identity.as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn who_vanishes_is_followed_once_the_lease_has_run_out() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let right = first.leadership();
    let mut second = candidate(&lock, "b");
    sleep(Duration::from_secs(5)).await;
    drop(first);
    sleep(Duration::from_millis(1)).await;
    assert!(!right.holds());
    assert!(timeout(Duration::from_secs(11), second.won()).await.is_err());
    within(10, second.won()).await.unwrap();
    assert_eq!(second.leader().as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_requests_hang_stops_before_others_may_start() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let right = first.leadership();
    lock.set(Faults::HANGS);
    within(10, first.lost()).await.unwrap();
    assert!(!right.holds());
    lock.set(Faults::NONE);
    within(10, first.won()).await.unwrap();
    assert!(!right.holds(), "a right of a former term stays lost");
    assert!(first.leadership().holds());
}

#[tokio::test(start_paused = true)]
async fn nobody_leads_for_one_whose_own_lease_has_run_out() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let second = candidate(&lock, "b");
    sleep(Duration::from_secs(5)).await;
    lock.set(Faults::HANGS);
    within(10, first.lost()).await.unwrap();
    assert_eq!(first.leader(), None);
    assert_eq!(second.leader().as_deref(), Some("a"), "as last seen");
    // It would lead itself in some runs.
    drop(second);
    lock.set(Faults::NONE);
    within(10, first.won()).await.unwrap();
    assert_eq!(first.leader().as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_process_that_wakes_up_late_may_not_write() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let right = first.leadership();
    // The elector does not run meanwhile, as after SIGSTOP.
    advance(Duration::from_secs(11)).await;
    assert!(!right.holds());
}

#[tokio::test(start_paused = true)]
async fn a_leader_makes_a_deleted_lease_again_and_candidates_who_knew_it_wait() {
    let lock = MemoryLeaseLock::default();
    let mut first = candidate(&lock, "a");
    within(1, first.won()).await.unwrap();
    let right = first.leadership();
    let mut second = candidate(&lock, "b");
    sleep(Duration::from_secs(5)).await;
    lock.delete();
    assert!(timeout(Duration::from_secs(60), second.won()).await.is_err());
    assert!(right.holds());
    assert_eq!(lock.spec().unwrap().holder_identity.as_deref(), Some("a"));
}

/// Three candidates, a server that delays, fails, loses answers and applies writes late, and clocks that jump: there are never
/// two leaders, and in the end there is one.
#[tokio::test(start_paused = true)]
async fn two_never_lead_at_once() {
    let mut terms = 0;
    for seed in 0..12 {
        fastrand::seed(seed);
        let lock = MemoryLeaseLock::default();
        let mut candidates = Vec::new();
        for identity in ["a", "b", "c"] {
            let elector = Elector::new(lock.clone(), name(), identity.to_owned(), LeaseTiming::default());
            candidates.push(Election::run(elector.with_clock(a_clock_that_jumps)));
        }
        for _ in 0..60 {
            lock.set(Faults::any());
            let phase = fastrand::u32(1..600);
            for _ in 0..phase {
                sleep(Duration::from_millis(fastrand::u64(1..200))).await;
                let leading: Vec<_> = candidates.iter().filter(|it| leads(it)).collect();
                assert!(leading.len() <= 1, "seed {seed}: {leading:?}");
            }
        }
        lock.set(Faults::NONE);
        // Enough for requests that hang, for the Lease to expire, and for one more read.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(candidates.iter().filter(|it| leads(it)).count(), 1, "seed {seed}");
        terms += candidates.iter().map(|it| it.standing.borrow().term).sum::<u64>();
    }
    assert!(terms > 100, "the faults move leadership about: {terms}");
}

fn a_clock_that_stands_still() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

/// A clock that jumps by hours at each read.
fn a_clock_that_is_set() -> Timestamp {
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    let hours = Duration::from_hours(fastrand::u64(0..12));
    a_clock_that_stands_still() + hours + Duration::from_secs(LOOKS.fetch_add(1, Relaxed))
}

#[tokio::test(start_paused = true)]
async fn no_wall_clock_ends_a_leadership_or_prolongs_it() {
    let clocks: [fn() -> Timestamp; 3] = [a_clock_that_stands_still, a_clock_that_is_set, a_clock_that_jumps];
    for (number, clock) in clocks.into_iter().enumerate() {
        fastrand::seed(7);
        let lock = MemoryLeaseLock::default();
        let elector = Elector::new(lock.clone(), name(), "a".to_owned(), LeaseTiming::default());
        let mut first = Election::run(elector.with_clock(clock));
        within(1, first.won()).await.unwrap();
        let mut second = candidate(&lock, "b");
        let hours = timeout(Duration::from_hours(2), second.won()).await;
        assert!(hours.is_err() && leads(&first), "clock {number}: a leader that renews was taken for dead");
        drop(first);
        within(20, second.won()).await.unwrap();
    }
}

fn leads(election: &Election) -> bool {
    election.standing.borrow().leads(Instant::now())
}

fn a_clock_that_jumps() -> Timestamp {
    Timestamp::from_microsecond(fastrand::i64(0..4_000_000_000_000_000)).unwrap()
}

/// A lock that grants one Lease, and panics at the renewal as a bug would.
struct Deadly;

impl lease_lock::LeaseLock for Deadly {
    async fn get(&self) -> Result<Option<k8s_openapi::api::coordination::v1::Lease>, String> {
        Ok(None)
    }

    async fn create(&self, lease: &k8s_openapi::api::coordination::v1::Lease) -> lease_lock::LeaseWrite {
        lease_lock::LeaseWrite::Yes(Box::new(lease.clone()))
    }

    async fn replace(&self, _: &k8s_openapi::api::coordination::v1::Lease) -> lease_lock::LeaseWrite {
        panic!("as a bug would")
    }
}

#[tokio::test(start_paused = true)]
async fn a_campaign_that_has_died_is_no_secret() {
    let mut election = Election::run(Elector::new(Deadly, name(), "a".to_owned(), LeaseTiming::default()));
    within(1, election.won()).await.unwrap();
    let right = election.leadership();
    assert_eq!(within(60, election.lost()).await, Err(ElectionEnded));
    assert!(right.remaining().unwrap() < LeaseTiming::default().deadline, "the term lasts as long as it did");
    sleep(LeaseTiming::default().deadline).await;
    assert_eq!(right.remaining(), None);
    assert_eq!(within(60, election.won()).await, Err(ElectionEnded));
}
