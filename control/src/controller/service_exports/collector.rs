//! Whether Karmada collects the endpoints of what is exported, judged by the Lease of karmada-controller-manager. Pure.
//!
//! A karmada-controller-manager that has just started ignores the Works that exist: it follows the endpoints of a member only after
//! a Work with a ServiceExport for that member has *changed*. Until then every endpoint is as its predecessor collected it. So
//! each export names the term of the leader in an annotation, and is written once for each new one. Nobody has to remember
//! which exports had their change: the annotation shows it.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use crate::controller::api_writer::ApiAnswer;

/// Where karmada-controller-manager keeps its Lease (`--leader-elect-resource-namespace` and its own name).
pub(super) const LEASE: (&str, &str) = ("karmada-system", "karmada-controller-manager");
/// How often the Lease is read.
const READ_AGAIN: Duration = Duration::from_secs(5);
/// How long a term must have been seen before exports are written for it: the new leader lists its objects first, and takes no
/// change for one that comes before its list.
const SETTLE: Duration = Duration::from_secs(10);
/// A leader that has renewed nothing for so long is gone, and no other one has come. The Lease itself runs out after 15 s.
const AWAY: Duration = Duration::from_secs(60);

/// The Lease, or the answer in place of it.
pub(in crate::controller) type LeaseRead = Result<Option<Lease>, ApiAnswer>;

/// Why the endpoints of an export may be out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdated {
    /// Nobody holds the Lease of karmada-controller-manager.
    CollectorAway,
    /// It has restarted, and the API server refuses the write that makes it go on.
    WriteRefused,
}

/// What is known of Karmada's leader.
#[derive(Debug, Default)]
pub(in crate::controller) struct Collector {
    /// When to read the Lease the next time; at once before the first.
    read_at: Option<Instant>,
    reading: bool,
    seen: Option<SeenLease>,
    /// The term that exports have to name.
    term: Option<String>,
    away: bool,
}

#[derive(Debug)]
struct SeenLease {
    spec: LeaseSpec,
    /// Since when the spec has been seen as it is.
    since: Instant,
    term: Option<String>,
    term_since: Instant,
}

impl Collector {
    /// When the Lease is to be read again; none before the first time and while that is under way.
    pub(in crate::controller) fn wakes_at(&self) -> Option<Instant> {
        self.read_at.filter(|_| !self.reading)
    }

    /// Whether to read it now. Then [`Self::on_read`] is to be called with the answer.
    pub(in crate::controller) fn start_read(&mut self, now: Instant) -> bool {
        let start = !self.reading && self.read_at.is_none_or(|at| at <= now);
        self.reading |= start;
        start
    }

    /// Takes the Lease as it is.
    pub(in crate::controller) fn on_read(&mut self, read: &LeaseRead, now: Instant) {
        self.reading = false;
        self.read_at = Some(now + READ_AGAIN);
        match read {
            Ok(Some(lease)) => self.observe(lease, now),
            // Karmada runs without leader election, or its Lease has another name: nothing is known.
            Ok(None) => (self.seen, self.away) = (None, false),
            // What cannot be seen may have changed meanwhile.
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

    /// The term that exports have to name; none while it is not known.
    pub(in crate::controller) fn term(&self) -> Option<&str> {
        self.term.as_deref()
    }

    /// Whether nobody collects endpoints.
    pub(in crate::controller) fn is_away(&self) -> bool {
        self.away
    }
}

/// What no other leader's term is called: client-go counts each change of the holder, and a Lease that was made anew, where the
/// count begins again, has another uid.
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

    /// Shows the collector one Lease after the other, 5 s apart, from `now` on.
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

    /// Neither Karmada nor this controller can renew or see anything then.
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
