//! What a candidate does about the Lease as it last saw it. Pure.
//!
//! As client-go's `leaderelection.go`: whether a Lease has run out is judged by how long ago *this* process saw it change,
//! on the monotonic clock. The times inside are for people; clocks of other machines are never trusted. Unlike there, the
//! duration inside counts only within limits: whoever edits a Lease by hand neither makes two leaders nor stops them all.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Timing;
use crate::api::store::ServiceKey;

/// A Lease that names a longer duration runs out after this one. Whoever leads writes its own with the next renewal, so
/// another one stays only where nobody does.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// A clock that is behind the last renewal by fewer microseconds is not used: the last renewal is counted on.
const COUNTED_ON: i64 = 1_000_000;

/// The Lease as last seen.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    lease: Lease,
    /// When its spec was first seen as it is now.
    since: Instant,
    /// It has been deleted since then.
    gone: bool,
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub(super) enum Action {
    /// There is no Lease: make one that names us.
    Create(Box<Lease>),
    /// The Lease is free, ours or has run out: put this in its place.
    Replace(Box<Lease>),
    /// Someone else leads.
    Wait,
}

impl Observed {
    /// The Lease as it was read or written at `now`; `before` is what was known of it.
    pub(super) fn new(lease: Lease, before: Option<&Self>, now: Instant) -> Self {
        // The resource version alone does not count: whoever annotates a Lease does not renew it.
        let since = match before {
            Some(before) if before.lease.spec == lease.spec => before.since,
            _ => now,
        };
        Self { lease, since, gone: false }
    }

    /// The Lease is not there any more. Who held it may not have noticed yet.
    pub(super) fn deleted(self) -> Self {
        Self { gone: true, ..self }
    }

    /// The holder that it names.
    pub(super) fn holder(&self) -> Option<&str> {
        self.spec().and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty())
    }

    /// Its uid.
    pub(super) fn uid(&self) -> Option<&str> {
        self.lease.metadata.uid.as_deref()
    }

    /// `identity` holds it, and it is there.
    pub(super) fn is_held_by(&self, identity: &str) -> bool {
        !self.gone && self.holder() == Some(identity)
    }

    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }

    /// Someone else may still lead at `now`. A holder that has not noticed yet how short its Lease was made leads for its
    /// own [`Timing::deadline`], which is less than our `timing.lease`.
    fn is_held_against(&self, identity: &str, now: Instant, timing: &Timing) -> bool {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let named = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        let lasts = named.min(LONGEST).max(timing.lease);
        self.holder().is_some_and(|holder| holder != identity) && now.duration_since(self.since) < lasts
    }
}

/// What `identity` does at `now`, which the wall clock calls `wall`.
pub(super) fn decide(
    name: &ServiceKey,
    identity: &str,
    observed: Option<&Observed>,
    now: Instant,
    wall: Timestamp,
    timing: &Timing,
) -> Action {
    match observed {
        Some(observed) if observed.is_held_against(identity, now, timing) => Action::Wait,
        Some(observed) if !observed.gone => Action::Replace(Box::new(held(observed, identity, wall, timing))),
        _ => Action::Create(Box::new(first(name, identity, wall, timing))),
    }
}

/// `observed` given up by its holder: nobody holds it, and it runs out at once (client-go's `release`).
pub(super) fn released(observed: &Observed, wall: Timestamp) -> Lease {
    let mut lease = writable(observed);
    let spec = lease.spec.get_or_insert_default();
    let time = after(spec.renew_time.as_ref(), wall);
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = Some(time.clone());
    spec.renew_time = Some(time);
    lease
}

fn first(name: &ServiceKey, identity: &str, wall: Timestamp, timing: &Timing) -> Lease {
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

/// `observed` taken over or renewed. Uid and resource version stay: the write fails if anyone wrote in between, and does
/// not bring a deleted Lease back.
fn held(observed: &Observed, identity: &str, wall: Timestamp, timing: &Timing) -> Lease {
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

/// What may be sent back: the server keeps the field owners itself.
fn writable(observed: &Observed) -> Lease {
    let mut lease = observed.lease.clone();
    lease.metadata.managed_fields = None;
    lease
}

/// `wall`, but neither what is written already nor what was written shortly before: with a clock that stands still, renewals
/// could look alike to those whose looks at them fail now and then, and they would take the holder for dead.
fn after(last: Option<&MicroTime>, wall: Timestamp) -> MicroTime {
    let ahead = |last: Timestamp| last.as_microsecond() - wall.as_microsecond();
    match last {
        Some(MicroTime(last)) if (0..COUNTED_ON).contains(&ahead(*last)) => {
            MicroTime(last.saturating_add(SignedDuration::from_micros(1)).unwrap_or(Timestamp::UNIX_EPOCH))
        }
        _ => MicroTime(wall),
    }
}
