//! Tests of which failures are consecutive, and of when a second opinion is requested.

use sheave_model::test_util;

use super::*;

const STEP: Duration = BURST;

/// A suspect, its watch as workers see it, and the time.
struct Rig {
    suspect: Suspect,
    now: Instant,
    published: bool,
}

impl Rig {
    fn new() -> Self {
        let now = Instant::now();
        Self { suspect: Suspect::new(1, now), now, published: false }
    }

    /// A failure at this time after the previous event.
    fn fails(&mut self, after: Duration) -> Transition {
        self.now += after;
        let watch = self.published.then(|| self.suspect.watch().state());
        self.suspect.failed(FailureMoment { at: self.now, watch }, self.now, 0)
    }

    fn ejects(&mut self, after: Duration) -> bool {
        self.fails(after) == Transition::Ejected
    }
}

#[test]
fn three_failures_in_a_row_eject_once_successes_would_be_known() {
    let mut rig = Rig::new();
    assert_eq!([(); 3].map(|()| rig.ejects(STEP)), [false; 3], "nobody would report a success");
    rig.published = true;
    assert_eq!([(); 3].map(|()| rig.ejects(STEP)), [false, false, true]);
}

#[test]
fn failures_with_a_success_between_two_are_no_row_though_nobody_has_heard_of_it_yet() {
    let mut rig = Rig::new();
    rig.published = true;
    for _ in 0..20 {
        assert!(!rig.ejects(STEP) && !rig.ejects(STEP));
        assert!(rig.suspect.watch().succeeded(), "the watch is armed by each failure");
    }
}

#[test]
fn failures_of_connections_that_began_together_count_as_one() {
    let mut rig = Rig::new();
    rig.published = true;
    for _ in 0..100 {
        assert!(!rig.ejects(Duration::ZERO));
    }
    assert!(!rig.ejects(STEP / 2), "since the first one");
    assert_eq!([STEP / 2, STEP].map(|after| rig.ejects(after)), [false, true]);
}

#[test]
fn after_enough_failures_that_may_be_no_row_the_health_task_finds_out() {
    let service = test_util::frontend(1, sheave_model::Algorithm::Random, &[]).service;
    assert_eq!(service.protocol, Protocol::Tcp);
    let mut rig = Rig::new();
    let asks = |rig: &mut Rig, after| rig.suspect.takes_opinion(&service, rig.now + after);
    for _ in 0..2 {
        assert!(!rig.ejects(Duration::ZERO));
    }
    assert!(!asks(&mut rig, Duration::from_secs(60)), "two are too few, in a row or not");
    assert!(!rig.ejects(Duration::ZERO));
    assert_eq!(rig.suspect.schedule(), Some(rig.now + OPINION_AFTER));
    assert_eq!(rig.suspect.schedule(), None, "that was said");
    rig.published = true;
    for ejects in [false, false, true] {
        assert!(!asks(&mut rig, OPINION_AFTER - STEP));
        assert!(asks(&mut rig, OPINION_AFTER) && !asks(&mut rig, OPINION_AFTER), "once");
        assert_eq!(rig.ejects(OPINION_AFTER), ejects);
    }
    assert!(!asks(&mut rig, Duration::from_secs(60)));

    let mut rig = Rig::new();
    rig.published = true;
    assert!((0..3).all(|_| !rig.ejects(Duration::ZERO)));
    assert_eq!(rig.suspect.succeeded(), Transition::Forgotten);
    assert!(!asks(&mut rig, OPINION_AFTER), "it is known");
    let udp = ServicePort { protocol: Protocol::Udp, ..service.clone() };
    assert!((0..3).all(|_| !rig.ejects(Duration::ZERO)));
    assert!(!rig.suspect.takes_opinion(&udp, rig.now + OPINION_AFTER), "a connection says nothing");
}

#[test]
fn the_failure_record_of_another_process_is_no_row_with_what_comes_but_its_trial_goes_on() {
    let mut former = Rig::new();
    former.published = true;
    assert!(!former.ejects(STEP) && !former.ejects(STEP));
    let handed = |former: &Rig, now| Suspect::restored(&former.suspect.record(now), 2, now);
    let mut next = Rig { suspect: handed(&former, former.now), published: true, ..former };
    assert!(next.suspect.watch().is_armed(), "its successes are reported");
    assert_eq!([(); 3].map(|()| next.ejects(STEP)), [false, false, true]);
    next.now += crate::health::outlier::FIRST_EJECTION;
    assert_eq!(next.suspect.expire(next.now), Transition::Trial);
    let mut last = Rig { suspect: handed(&next, next.now), published: true, ..next };
    assert_eq!(last.suspect.expire(last.now), Transition::Trial);
    last.suspect.set_silent(true);
    assert!(handed(&last, last.now).record(last.now).silent, "only an answer says that it is well");
    assert!(last.ejects(STEP));
}
