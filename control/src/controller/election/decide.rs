//! Decision of a candidate about the Lease as last seen, without I/O.
//!
//! Follows client-go's `leaderelection.go`: whether a Lease has expired depends on how long ago *this* process saw it change, on
//! the monotonic clock. The times in the Lease are for users; clocks of other machines are never trusted. Unlike client-go, the
//! duration in the Lease is clamped, so that editing a Lease by hand can neither make two leaders nor prevent any.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::LeaseTiming;
use crate::api::store::ServiceKey;

/// Longest duration that is respected. A leader writes its own with the next renewal, so a longer one persists only if there is
/// no leader.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// If the wall clock is behind the last renewal by fewer microseconds than this, the renewal time is incremented instead of set
/// from the clock.
const COUNTED_ON: i64 = 1_000_000;

/// The Lease as last seen.
#[derive(Clone, Debug)]
pub(super) struct ObservedLease {
    lease: Lease,
    /// When its spec was first seen as it is.
    since: Instant,
    /// Whether it has been deleted since then.
    gone: bool,
}

/// Next action of a candidate.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub(super) enum Action {
    /// There is no Lease: create one that names this process.
    Create(Box<Lease>),
    /// The Lease is free, ours or expired: replace it with this one.
    Replace(Box<Lease>),
    /// Another process leads.
    Wait,
}

impl ObservedLease {
    /// The Lease as read or written at `now`; `before` is the previous observation.
    pub(super) fn new(lease: Lease, before: Option<&Self>, now: Instant) -> Self {
        // The resource version does not count: annotating a Lease does not renew it.
        let since = match before {
            Some(before) if before.lease.spec == lease.spec => before.since,
            _ => now,
        };
        Self { lease, since, gone: false }
    }

    /// Records that the Lease was deleted. Its holder may not have noticed yet.
    pub(super) fn deleted(self) -> Self {
        Self { gone: true, ..self }
    }

    /// The holder, if it names one.
    pub(super) fn holder(&self) -> Option<&str> {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty())
    }

    /// Its uid.
    pub(super) fn uid(&self) -> Option<&str> {
        self.lease.metadata.uid.as_deref()
    }

    /// Whether the Lease exists and `identity` holds it.
    pub(super) fn is_held_by(&self, identity: &str) -> bool {
        !self.gone && self.holder() == Some(identity)
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }

    /// Whether another process may still lead at `now`. A holder that has not yet noticed a shortened duration leads for its own
    /// [`LeaseTiming::deadline`], which is less than our `timing.lease`.
    fn is_held_against(&self, identity: &str, now: Instant, timing: &LeaseTiming) -> bool {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let named = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let lasts = named.min(LONGEST).max(timing.lease);
        self.holder().is_some_and(|holder| holder != identity) && now.duration_since(self.since) < lasts
    }
}

/// The action of `identity` at `now`; `wall` is the same time on the wall clock.
pub(super) fn decide(
    name: &ServiceKey,
    identity: &str,
    observed: Option<&ObservedLease>,
    now: Instant,
    wall: Timestamp,
    timing: &LeaseTiming,
) -> Action {
    match observed {
        Some(observed) if observed.is_held_against(identity, now, timing) => Action::Wait,
        Some(observed) if !observed.gone => Action::Replace(Box::new(held(observed, identity, wall, timing))),
        _ => Action::Create(Box::new(first(name, identity, wall, timing))),
    }
}

/// The Lease as its holder releases it: without a holder and with the shortest duration (client-go's `release`).
pub(super) fn released(observed: &ObservedLease, wall: Timestamp) -> Lease {
    let mut lease = writable(observed);
    let spec = lease.spec.get_or_insert_default();
    let time = after(spec.renew_time.as_ref(), wall);
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(time.clone());
    spec.renew_time = Some(time);
    lease
}

fn first(name: &ServiceKey, identity: &str, wall: Timestamp, timing: &LeaseTiming) -> Lease {
    Lease {
        metadata: ObjectMeta {
            namespace: Some(name.namespace.to_string()),
            name: Some(name.name.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(identity.to_owned()),
            lease_duration_seconds: Some(timing.lease_seconds()),
            acquire_time: Some(MicroTime(wall)),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        }),
    }
}

/// The Lease as taken over or renewed. Uid and resource version stay, so the write fails if another process wrote in between, and
/// does not bring back a deleted Lease.
fn held(observed: &ObservedLease, identity: &str, wall: Timestamp, timing: &LeaseTiming) -> Lease {
    let mut lease = writable(observed);
    let spec = lease.spec.get_or_insert_default();
    let time = after(spec.renew_time.as_ref(), wall);
    if spec.holder_identity.as_deref() != Some(identity) {
        spec.holder_identity = Some(identity.to_owned());
        spec.acquire_time = Some(time.clone());
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1).max(0));
    }
    spec.lease_duration_seconds = Some(timing.lease_seconds());
    spec.renew_time = Some(time);
    lease
}

/// The Lease without fields that the server maintains itself.
fn writable(observed: &ObservedLease) -> Lease {
    let mut lease = observed.lease.clone();
    lease.metadata.managed_fields = None;
    lease
}

/// `wall`, but always later than `last` if the two are close. With a stopped clock, renewals could look alike to candidates that
/// miss some of them, and they would consider the holder dead.
fn after(last: Option<&MicroTime>, wall: Timestamp) -> MicroTime {
    let ahead = |last: Timestamp| last.as_microsecond() - wall.as_microsecond();
    match last {
        Some(MicroTime(last)) if (0..COUNTED_ON).contains(&ahead(*last)) => {
            MicroTime(last.saturating_add(SignedDuration::from_micros(1)).unwrap_or(Timestamp::UNIX_EPOCH))
        }
        _ => MicroTime(wall),
    }
}
