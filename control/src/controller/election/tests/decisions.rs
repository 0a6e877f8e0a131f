//! The action of a candidate in each state.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::*;
use crate::controller::election::decide::{Action, ObservedLease, decide, released};

fn lease(holder: &str, seconds: i32) -> Lease {
    let mut lease = Lease {
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(MicroTime(wall(0))),
            renew_time: Some(MicroTime(wall(0))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }),
        ..Lease::default()
    };
    lease.metadata.resource_version = Some("7".to_owned());
    lease.metadata.uid = Some("u".to_owned());
    lease
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn me(observed: Option<&ObservedLease>, now: Instant) -> Action {
    decide(&name(), "me", observed, now, wall(9), &LeaseTiming::default())
}

fn replaced(action: Action) -> Lease {
    let Action::Replace(lease) = action else { panic!("{action:?}") };
    *lease
}

#[test]
fn a_missing_lease_is_made() {
    let Action::Create(lease) = me(None, Instant::now()) else { panic!("create") };
    let spec = lease.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("me"));
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(0)));
}

#[test]
fn what_someone_else_holds_is_taken_only_after_its_own_duration_here() {
    let start = Instant::now();
    let observed = ObservedLease::new(lease("other", 20), None, start);
    assert_eq!(me(Some(&observed), start + Duration::from_millis(19_999)), Action::Wait);
    let taken = replaced(me(Some(&observed), start + Duration::from_secs(20)));
    assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(taken.metadata.uid.as_deref(), Some("u"));
    let spec = taken.spec.unwrap();
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(15), Some(4)));
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(MicroTime(wall(9))), Some(MicroTime(wall(9)))));
}

/// API servers reject 0 and less, but other tools can write any duration: a holder that does not know of it leads for its own
/// deadline.
#[test]
fn a_duration_that_somebody_else_wrote_makes_neither_two_leaders_nor_none() {
    let start = Instant::now();
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    for (seconds, lasts) in [
        (None, Duration::from_secs(15)),
        (Some(i32::MIN), Duration::from_secs(15)),
        (Some(0), Duration::from_secs(15)),
        (Some(1), Duration::from_secs(15)),
        (Some(300), minutes(5)),
        (Some(i32::MAX), minutes(10)),
    ] {
        let mut lease = lease("other", 15);
        lease.spec.as_mut().unwrap().lease_duration_seconds = seconds;
        let observed = ObservedLease::new(lease, None, start);
        let before = start + lasts.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(me(Some(&observed), before), Action::Wait, "{seconds:?}");
        let taken = replaced(me(Some(&observed), start + lasts)).spec.unwrap();
        assert_eq!(taken.lease_duration_seconds, Some(15), "{seconds:?}");
    }
}

#[test]
fn the_times_in_a_lease_are_never_compared_with_a_clock() {
    let start = Instant::now();
    for seconds in [-1_700_000_000, -86_400, -3600, 3600, 86_400, 200_000_000_000] {
        let mut lease = lease("other", 15);
        let spec = lease.spec.as_mut().unwrap();
        (spec.renew_time, spec.acquire_time) = (Some(MicroTime(wall(seconds))), None);
        let observed = ObservedLease::new(lease, None, start);
        assert_eq!(me(Some(&observed), start + Duration::from_millis(14_999)), Action::Wait, "{seconds}");
        let taken = replaced(me(Some(&observed), start + Duration::from_secs(15))).spec.unwrap();
        assert_eq!(taken.renew_time, Some(MicroTime(wall(9))), "{seconds}");
    }
}

#[test]
fn only_a_changed_spec_counts_as_renewal() {
    let start = Instant::now();
    let late = start + Duration::from_secs(14);
    let observed = ObservedLease::new(lease("other", 15), None, start);
    let mut touched = lease("other", 15);
    touched.metadata.resource_version = Some("8".to_owned());
    let annotated = ObservedLease::new(touched.clone(), Some(&observed), late);
    assert_eq!(
        replaced(me(Some(&annotated), start + Duration::from_secs(15))).metadata.resource_version.as_deref(),
        Some("8")
    );
    // A renewal time in the past counts like any other.
    touched.spec.as_mut().unwrap().renew_time = Some(MicroTime(wall(-86_400)));
    let renewed = ObservedLease::new(touched, Some(&observed), late);
    assert_eq!(me(Some(&renewed), start + Duration::from_secs(28)), Action::Wait);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let now = Instant::now();
    let observed = ObservedLease::new(lease("other", 15), None, now);
    let free = ObservedLease::new(released(&observed, wall(1)), Some(&observed), now);
    assert_eq!(free.holder(), None);
    assert_eq!(replaced(me(Some(&free), now)).spec.unwrap().lease_transitions, Some(4));
}

#[test]
fn a_renewal_keeps_when_it_was_acquired_and_always_changes_the_lease() {
    let now = Instant::now();
    let mut mine = lease("me", 15);
    mine.spec.as_mut().unwrap().renew_time = Some(MicroTime(wall(9)));
    let spec = replaced(me(Some(&ObservedLease::new(mine, None, now)), now)).spec.unwrap();
    assert_eq!((spec.acquire_time, spec.lease_transitions), (Some(MicroTime(wall(0))), Some(3)));
    assert_eq!(spec.renew_time.unwrap().0.as_microsecond(), wall(9).as_microsecond() + 1);
}

#[test]
fn renewals_by_a_clock_that_stands_still_all_differ() {
    let now = Instant::now();
    let mut lease = lease("me", 15);
    let mut times = std::collections::BTreeSet::new();
    for _ in 0..100 {
        lease = replaced(me(Some(&ObservedLease::new(lease, None, now)), now));
        times.insert(lease.spec.as_ref().unwrap().renew_time.as_ref().unwrap().0);
    }
    assert_eq!(times.len(), 100);
}

#[test]
fn a_deleted_lease_still_protects_who_held_it() {
    let start = Instant::now();
    let gone = |holder| ObservedLease::new(lease(holder, 15), None, start).deleted();
    assert_eq!(me(Some(&gone("other")), start), Action::Wait);
    assert!(matches!(me(Some(&gone("other")), start + Duration::from_secs(15)), Action::Create(_)));
    assert!(matches!(me(Some(&gone("me")), start), Action::Create(_)));
}

/// API servers reject any other number of digits: 400 on POST, 422 on PATCH.
#[test]
fn times_have_six_digits() {
    for (nanos, text) in
        [(0, ".000000Z"), (5_000, ".000005Z"), (120_000_000, ".120000Z"), (1_999, ".000001Z")]
    {
        let time = Timestamp::new(1_700_000_000, nanos).unwrap();
        let json = serde_json::to_string(&MicroTime(time)).unwrap();
        assert_eq!(json, format!("\"2023-11-14T22:13:20{text}\""));
    }
}
