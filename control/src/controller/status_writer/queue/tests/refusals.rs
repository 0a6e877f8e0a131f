//! Writes that are rejected permanently: their notices, and when they appear.

use super::*;

#[test]
fn a_missing_right_is_told_once() {
    let mut harness = Harness::new();
    for _ in 0..2 {
        let job = harness.wait_for_job();
        harness.queue.finished(&job, ApiAnswer::Forbidden("no".into()), harness.now());
    }
    let expected = WriteNotice::Forbidden { verb: "patch", resource: "services", message: "no".into() };
    assert_eq!(harness.queue.take_notices(), [expected]);
    harness.settle();
    harness.check();
}

/// A Service whose status should change, after `times` writes with this answer.
fn refused(times: usize, answer: &ApiAnswer) -> Harness {
    let mut harness = Harness::settled();
    harness.wanted.gateways = 0;
    harness.decide();
    for _ in 0..times {
        let job = harness.wait_for_job();
        harness.queue.finished(&job, answer.clone(), harness.now());
    }
    harness
}

fn told(message: &str) -> WriteNotice {
    WriteNotice::Refused { object: Harness::target().object(), what: "status", message: message.into() }
}

fn recovered() -> WriteNotice {
    WriteNotice::Recovered { object: Harness::target().object() }
}

#[test]
fn what_stays_refused_is_told_once_and_so_is_its_end() {
    let mut harness = refused(6, &ApiAnswer::Refused("a webhook says no".into()));
    assert_eq!(harness.queue.take_notices(), [told("a webhook says no")]);
    harness.settle();
    assert_eq!(std::mem::take(&mut harness.notices), [recovered()]);
    harness.check();
}

#[test]
fn no_answer_but_success_stays_untold_for_ever() {
    let unreachable = ApiAnswer::Unreachable { reason: "a webhook is silent".into() };
    for (answer, message) in [
        (ApiAnswer::Gone, "it has no such object"),
        (ApiAnswer::Stale, "the object has changed, and no watch shows how"),
        (unreachable, "a webhook is silent"),
    ] {
        assert_eq!(refused(5, &answer).queue.take_notices(), [], "{message}: a race is no news");
        assert_eq!(refused(9, &answer).queue.take_notices(), [told(message)]);
    }
    let notices = refused(9, &ApiAnswer::Forbidden("no".into())).queue.take_notices();
    let forbidden =
        WriteNotice::Forbidden { verb: "patch", resource: "services/status", message: "no".into() };
    assert_eq!(notices, [forbidden, told("no")]);
}

#[test]
fn a_refused_write_that_is_no_longer_wanted_is_over() {
    let no = ApiAnswer::Refused("a webhook says no".into());
    let mut harness = refused(3, &no);
    harness.queue.take_notices();
    harness.wanted.gateways = 1;
    harness.decide();
    harness.settle();
    assert_eq!(std::mem::take(&mut harness.notices), [], "the answers came without the harness");
    assert_eq!(harness.queue.take_notices(), [recovered()], "nothing is to be written");
    let mut harness = refused(3, &no);
    harness.queue.take_notices();
    harness.queue.forget(&Harness::target());
    assert_eq!(harness.queue.take_notices(), [recovered()], "the object has gone");
}
