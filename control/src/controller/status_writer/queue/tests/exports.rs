//! Exports: when they are listed, and what follows from each answer.

use super::*;
use crate::controller::service_exports::{DesiredExport, Export, ExportObject, ExportStep};
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
    assert!(harness.queue.next(harness.now).is_none(), "thousands would knock at the webhook at once");
    harness.now.instant = harness.queue.wakes_at().unwrap();
    let other = harness.write(refused());
    assert_ne!(failed.target, other.target);
    assert_eq!(harness.write(refused()).target, failed.target);
}

#[test]
fn failures_that_were_under_way_together_pause_once_and_as_long_as_the_server_asks() {
    let mut harness = ExportHarness::new(&["api", "web"]);
    harness.list();
    let jobs: Vec<_> = std::iter::from_fn(|| harness.queue.next(harness.now)).collect();
    assert_eq!(jobs.len(), 2);
    let busy = || ApiAnswer::Busy { reason: "busy".to_owned(), retry_after: Some(Duration::from_secs(7)) };
    harness.queue.finished(&jobs[0], busy(), harness.now);
    let until = harness.queue.wakes_at().unwrap();
    assert!(until >= harness.now.instant + Duration::from_secs(7));
    harness.queue.finished(&jobs[1], busy(), harness.now);
    assert_eq!(harness.queue.wakes_at(), Some(until));
    assert!(harness.queue.next(harness.now).is_none());
    harness.now.instant = until;
    assert!(harness.queue.next(harness.now).is_some());
}

#[test]
fn what_is_desired_during_a_write_is_not_lost_with_its_failure() {
    for answer in [refused(), ApiAnswer::Stale, ApiAnswer::Forbidden("no".to_owned())] {
        let mut harness = ExportHarness::new(&["web"]);
        harness.list();
        let created = harness.queue.next(harness.now).unwrap();
        let mut body = ExportObject::Export.body(&key("web"), &Export::default(), "sheave");
        body["metadata"]["uid"] = serde_json::json!("u1");
        harness.queue.finished(&created, ApiAnswer::Done(body.to_string().into_bytes()), harness.now);
        let policy = harness.queue.next(harness.now).unwrap();
        harness.queue.set_export(key("web"), DesiredExport::Nothing);
        assert!(harness.queue.next(harness.now).is_none(), "one write at a time for each");
        harness.queue.finished(&policy, answer, harness.now);
        let removed = harness.queue.next(harness.now).expect("the export stays for ever");
        let delete = ExportStep::Delete(ExportObject::Export, "u1".to_owned());
        assert_eq!(removed.step, WriteStep::Export(delete));
    }
}

#[test]
fn neither_a_flood_of_exports_nor_their_failures_delay_a_status() {
    let names: Vec<String> = (0..1000).map(|index| index.to_string()).collect();
    let mut harness = ExportHarness::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    harness.list();
    let jobs: Vec<_> = std::iter::from_fn(|| harness.queue.next(harness.now)).collect();
    assert!((1..MOST).contains(&jobs.len()), "{} exports at a time", jobs.len());
    let pool =
        serde_json::json!({"metadata": {"name": "lan", "uid": "p1", "resourceVersion": "5"}, "spec": {}});
    let subject = WriteSubject::Pool(Arc::new(serde_json::from_value(pool).unwrap()), Arc::default());
    let status = WriteTarget::Pool("lan".into());
    harness.queue.set_desired(status.clone(), subject, harness.now);
    let lost = || ApiAnswer::Unreachable { reason: "no answer".to_owned() };
    harness.queue.finished(&jobs[0], lost(), harness.now);
    let job = harness.queue.next(harness.now).expect("it waits for exports");
    assert_eq!(job.target, status);
    harness.queue.finished(&job, lost(), harness.now);
    let until = harness.queue.paused.expect("the server is away");
    harness.queue.finished(&jobs[1], refused(), harness.now);
    assert_eq!(harness.queue.paused, Some(until), "an answer about an export shortens the pause");
    harness.now.instant += Duration::from_secs(2);
    let next = harness.queue.next(harness.now).unwrap();
    assert_eq!(next.target, status, "a status goes first");
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
