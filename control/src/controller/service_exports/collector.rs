//! Whether Karmada collects the endpoints of exported Services, according to the Lease of karmada-controller-manager. No I/O.
//!
//! A karmada-controller-manager that has just started ignores existing Works: it watches the endpoints of a member only after a
//! Work with a ServiceExport for that member has *changed*. Until then every endpoint stays as its predecessor collected it. So
//! each export names the term of the leader in an annotation, and is written once for each new term. The annotation itself
//! records which exports have had their change.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use crate::controller::api_writer::ApiAnswer;

/// Namespace and name of karmada-controller-manager's Lease (`--leader-elect-resource-namespace` and its own name).
pub(super) const LEASE: (&str, &str) = ("karmada-system", "karmada-controller-manager");
/// Interval between reads of the Lease.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// How long a term must be known before exports are written for it: the new leader lists its objects first, and does not notice a
/// change that precedes its list.
const SETTLE: Duration = Duration::from_secs(10);
/// A leader that has not renewed for this long is gone and has no successor. The Lease itself expires after 15 s.
const AWAY: Duration = Duration::from_secs(60);

/// The Lease, or the answer if reading it failed.
pub(in crate::controller) type LeaseRead = Result<Option<Lease>, ApiAnswer>;

/// Reason why the endpoints of an export may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdated {
    /// No process holds the Lease of karmada-controller-manager.
    CollectorAway,
    /// karmada-controller-manager has restarted, and the API server rejects the write that would make it continue.
    WriteRefused,
}

/// Known state of Karmada's leader.
#[derive(Debug, Default)]
pub(in crate::controller) struct Collector {
    /// Time of the next read; `None` before the first, which is due at once.
    read_at: Option<Instant>,
    reading: bool,
    seen: Option<SeenLease>,
    /// The term that exports must name.
    term: Option<String>,
    away: bool,
}

#[derive(Debug)]
struct SeenLease {
    spec: LeaseSpec,
    /// When its spec was first seen as it is.
    since: Instant,
    term: Option<String>,
    term_since: Instant,
}

impl Collector {
    /// Time of the next read; `None` before the first and while one is in progress.
    pub(in crate::controller) fn wakes_at(&self) -> Option<Instant> {
        self.read_at.filter(|_| !self.reading)
    }

    /// Whether to read the Lease now. If so, the caller must pass the answer to [`Self::on_read`].
    pub(in crate::controller) fn start_read(&mut self, now: Instant) -> bool {
        let start = !self.reading && self.read_at.is_none_or(|at| at <= now);
        self.reading |= start;
        start
    }

    /// Processes the answer to a read.
    pub(in crate::controller) fn on_read(&mut self, read: &LeaseRead, now: Instant) {
        self.reading = false;
        self.read_at = Some(now + READ_AGAIN);
        match read {
            Ok(Some(lease)) => self.observe(lease, now),
            // Karmada runs without leader election, or its Lease has another name: the leader is unknown.
            Ok(None) => (self.seen, self.away) = (None, false),
            // The Lease may have changed unseen, so its age starts again.
            Err(_) => {
                if let Some(seen) = &mut self.seen {
                    seen.since = now;
                }
            }
        }
    }

    fn observe(&mut self, lease: &Lease, now: Instant) {
        let spec = lease.spec.clone().unwrap_or_default();
        let term = term(lease.metadata.uid.as_deref(), &spec);
        let before = self.seen.take();
        let since = before.as_ref().filter(|it| it.spec == spec).map_or(now, |it| it.since);
        let term_since = before.as_ref().filter(|it| it.term == term).map_or(now, |it| it.term_since);
        self.away = now.duration_since(since) >= AWAY;
        if term.is_some() && now.duration_since(term_since) >= SETTLE {
            self.term.clone_from(&term);
        }
        self.seen = Some(SeenLease { spec, since, term, term_since });
    }

    /// The term that exports must name; `None` while it is unknown.
    pub(in crate::controller) fn term(&self) -> Option<&str> {
        self.term.as_deref()
    }

    /// Whether no process collects endpoints.
    pub(in crate::controller) fn is_away(&self) -> bool {
        self.away
    }
}

/// A unique name of the leader's term: client-go counts each change of the holder, and a Lease that was created again, whose
/// count restarts, has another uid.
fn term(uid: Option<&str>, spec: &LeaseSpec) -> Option<String> {
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let count = spec.lease_transitions.map_or_else(|| holder.to_owned(), |count| count.to_string());
    Some(format!("{}/{count}", uid.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease(uid: &str, holder: &str, transitions: Option<i32>, renewed: u32) -> LeaseRead {
        let lease = json!({"metadata": {"uid": uid}, "spec": {"holderIdentity": holder, "leaseTransitions": transitions,
            "renewTime": format!("2026-01-01T00:{:02}:{:02}.000000Z", renewed / 60, renewed % 60)}});
        let unreadable = |error: serde_json::Error| ApiAnswer::Unreachable { reason: error.to_string() };
        serde_json::from_value(lease).map(Some).map_err(unreadable)
    }

    /// Passes one answer after the other to the collector, 5 s apart, from `now` on.
    fn show(collector: &mut Collector, now: &mut Instant, reads: impl IntoIterator<Item = LeaseRead>) {
        for read in reads {
            assert!(collector.start_read(*now) && !collector.start_read(*now), "once at a time");
            collector.on_read(&read, *now);
            *now += READ_AGAIN;
        }
    }

    #[test]
    fn a_term_counts_once_its_leader_has_had_time_to_list() {
        let (mut collector, mut now) = (Collector::default(), Instant::now());
        show(&mut collector, &mut now, [lease("u", "a", Some(3), 0), lease("u", "a", Some(3), 5)]);
        assert_eq!(collector.term(), None);
        show(&mut collector, &mut now, [lease("u", "a", Some(3), 10)]);
        assert_eq!(collector.term(), Some("u/3"));
        show(&mut collector, &mut now, [lease("u", "", Some(3), 11), lease("u", "b", Some(4), 15)]);
        assert_eq!(collector.term(), Some("u/3"), "it has just come");
        show(&mut collector, &mut now, [lease("u", "b", Some(4), 20), lease("u", "b", Some(4), 25)]);
        assert_eq!(collector.term(), Some("u/4"));
    }

    #[test]
    fn a_lease_that_is_made_anew_and_one_without_a_count_name_other_terms() {
        for (first, second, term) in [
            (lease("u", "a", Some(0), 0), lease("w", "b", Some(0), 0), "w/0"),
            (lease("u", "a", None, 0), lease("u", "b", None, 0), "u/b"),
        ] {
            let (mut collector, mut now) = (Collector::default(), Instant::now());
            show(&mut collector, &mut now, vec![first; 3]);
            show(&mut collector, &mut now, vec![second; 3]);
            assert_eq!(collector.term(), Some(term));
        }
    }

    #[test]
    fn a_leader_that_renews_nothing_is_away_after_a_minute() {
        let (mut collector, mut now) = (Collector::default(), Instant::now());
        let same = || lease("u", "a", Some(3), 0);
        show(&mut collector, &mut now, vec![same(); 12]);
        assert!(!collector.is_away());
        show(&mut collector, &mut now, [same()]);
        assert!(collector.is_away());
        show(&mut collector, &mut now, [lease("u", "b", Some(4), 65)]);
        assert!(!collector.is_away());
    }

    /// In an outage neither Karmada nor this controller can renew or read the Lease.
    #[test]
    fn an_outage_of_the_api_server_is_no_absence_of_the_leader() {
        let (mut collector, mut now) = (Collector::default(), Instant::now());
        let lost = || Err(ApiAnswer::Unreachable { reason: "no answer".to_owned() });
        show(&mut collector, &mut now, vec![lease("u", "a", Some(3), 0); 3]);
        show(&mut collector, &mut now, vec![lost(); 100]);
        show(&mut collector, &mut now, [lease("u", "a", Some(3), 0)]);
        assert!(!collector.is_away());
        assert_eq!(collector.term(), Some("u/3"));
    }

    #[test]
    fn without_a_lease_nothing_is_known() {
        let (mut collector, mut now) = (Collector::default(), Instant::now());
        show(&mut collector, &mut now, vec![lease("u", "a", Some(3), 0); 13]);
        assert!(collector.is_away());
        show(&mut collector, &mut now, vec![Ok(None); 20]);
        assert!(!collector.is_away());
        assert_eq!(collector.wakes_at(), Some(now));
    }
}
