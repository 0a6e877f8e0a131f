//! Writes that are refused for good: what is told of them, and when.

use super::*;

#[test]
fn a_missing_right_is_told_once() {
    let mut world = World::new();
    for _ in 0..2 {
        let job = world.wait_for_job();
        world.desk.finished(&job, Answer::Forbidden("no".into()), world.now());
    }
    let expected = WriteTrouble::Forbidden { verb: "patch", resource: "services", message: "no".into() };
    assert_eq!(world.desk.happened(), [expected]);
    world.settle();
    world.check();
}

/// A Service whose status is to change, and a server that answers each write so.
fn refused(times: usize, answer: &Answer) -> World {
    let mut world = World::settled();
    world.wanted.gateways = 0;
    world.decide();
    for _ in 0..times {
        let job = world.wait_for_job();
        world.desk.finished(&job, answer.clone(), world.now());
    }
    world
}

fn told(message: &str) -> WriteTrouble {
    WriteTrouble::Refused { object: World::target().object(), what: "status", message: message.into() }
}

fn recovered() -> WriteTrouble {
    WriteTrouble::Recovered { object: World::target().object() }
}

#[test]
fn what_stays_refused_is_told_once_and_so_is_its_end() {
    let mut world = refused(6, &Answer::Refused("a webhook says no".into()));
    assert_eq!(world.desk.happened(), [told("a webhook says no")]);
    world.settle();
    assert_eq!(std::mem::take(&mut world.troubles), [recovered()]);
    world.check();
}

#[test]
fn no_answer_but_success_stays_untold_for_ever() {
    let unreachable = Answer::Unreachable { reason: "a webhook is silent".into(), retry_after: None };
    for (answer, message) in [
        (Answer::Gone, "it has no such object"),
        (Answer::Stale, "the object has changed, and no watch shows how"),
        (unreachable, "a webhook is silent"),
    ] {
        assert_eq!(refused(5, &answer).desk.happened(), [], "{message}: a race is no news");
        assert_eq!(refused(9, &answer).desk.happened(), [told(message)]);
    }
    let troubles = refused(9, &Answer::Forbidden("no".into())).desk.happened();
    let forbidden =
        WriteTrouble::Forbidden { verb: "patch", resource: "services/status", message: "no".into() };
    assert_eq!(troubles, [forbidden, told("no")]);
}

#[test]
fn a_refused_write_that_is_no_longer_wanted_is_over() {
    let no = Answer::Refused("a webhook says no".into());
    let mut world = refused(3, &no);
    world.desk.happened();
    world.wanted.gateways = 1;
    world.decide();
    world.settle();
    assert_eq!(std::mem::take(&mut world.troubles), [], "the answers came without the world");
    assert_eq!(world.desk.happened(), [recovered()], "nothing is to be written");
    let mut world = refused(3, &no);
    world.desk.happened();
    world.desk.forget(&World::target());
    assert_eq!(world.desk.happened(), [recovered()], "the object has gone");
}
