//! Exports: when they are listed, and what follows from each answer.

use super::*;
use crate::controller::karmada_export::{DesiredExport, Export, ExportObject, ExportStep};
use crate::controller::tests::objects::at;

/// A queue for which one export each is desired, before the first list.
struct ExportHarness {
    queue: WriteQueue,
    now: Now,
}

impl ExportHarness {
    fn new(names: &[&str]) -> Self {
        let mut queue = WriteQueue::new(Ownership::default());
        let now = Now { instant: Instant::now(), time: at(0) };
        assert!(!queue.start_list(now), "nothing is desired");
        for name in names {
            queue.set_export(key(name), DesiredExport::Kept(Export::default()));
        }
        Self { queue, now }
    }

    fn list(&mut self) {
        assert!(self.queue.start_list(self.now), "no list is due");
        self.queue.listed(Ok(Vec::new()), self.now);
    }

    fn write(&mut self, answer: ApiAnswer) -> WriteJob {
        let job = self.queue.next(self.now).expect("nothing is to be written");
        self.queue.finished(&job, answer, self.now);
        job
    }
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::multi_cluster("shop", name)
}

fn refused() -> ApiAnswer {
    ApiAnswer::Refused("no".to_owned())
}

#[test]
fn both_objects_are_written_after_a_list_and_then_there_is_rest() {
    let mut harness = ExportHarness::new(&["web"]);
    assert!(harness.queue.next(harness.now).is_none(), "a list comes first");
    harness.list();
    for part in ExportObject::ALL {
        let job = harness.queue.next(harness.now).unwrap();
        assert!(harness.queue.next(harness.now).is_none(), "both are written at once");
        assert!(!harness.queue.start_list(harness.now), "a list while a write is under way");
        let WriteStep::Export(ExportStep::Create(created, export)) = &job.step else {
            panic!("{:?}", job.step)
        };
        assert_eq!(*created, part);
        let body = part.body(&key("web"), export, "sheave").to_string().into_bytes();
        harness.queue.finished(&job, ApiAnswer::Done(body), harness.now);
    }
    assert!(harness.queue.next(harness.now).is_none());
    assert_eq!(harness.queue.wakes_at(), Some(harness.now.instant + Duration::from_secs(600)));
}

#[test]
fn what_is_refused_is_reported_once_and_tried_again_after_a_list() {
    let mut harness = ExportHarness::new(&["web"]);
    harness.list();
    harness.write(refused());
    let what = "ServiceExport web".to_owned();
    let notice = WriteNotice::ExportRefused { object: key("web").object(), what, message: "no".to_owned() };
    assert_eq!(harness.queue.take_notices(), [notice]);
    for _ in 0..3 {
        assert!(harness.queue.next(harness.now).is_none());
        harness.now.instant += Duration::from_secs(60);
        harness.list();
        harness.write(refused());
        assert_eq!(harness.queue.take_notices(), []);
    }
}

#[test]
fn one_that_always_fails_holds_nobody_up() {
    let mut harness = ExportHarness::new(&["api", "web"]);
    harness.list();
    let failed = harness.write(ApiAnswer::Failed("a webhook is down".to_owned()));
    let other = harness.write(refused());
    assert_ne!(failed.target, other.target);
    assert!(harness.queue.next(harness.now).is_none());
    harness.now.instant += Duration::from_secs(1);
    assert_eq!(harness.write(refused()).target, failed.target);
}

#[test]
fn a_list_that_fails_is_tried_again_and_a_missing_definition_is_reported_once() {
    let mut harness = ExportHarness::new(&["web"]);
    for attempt in 0..3 {
        assert!(harness.queue.start_list(harness.now));
        let missing = Err((ExportObject::Export, ApiAnswer::Undefined("404 page not found".to_owned())));
        harness.queue.listed(missing, harness.now);
        assert_eq!(harness.queue.take_notices().len(), usize::from(attempt == 0));
        assert!(harness.queue.next(harness.now).is_none());
        harness.now.instant = harness.queue.wakes_at().expect("it is tried again");
    }
    harness.list();
    harness.write(refused());
}

#[test]
fn without_the_lease_nothing_is_known_of_exports() {
    let mut harness = ExportHarness::new(&["web"]);
    harness.list();
    harness.queue.drop_everything();
    assert!(harness.queue.next(harness.now).is_none());
    assert_eq!(harness.queue.wakes_at(), None);
}
