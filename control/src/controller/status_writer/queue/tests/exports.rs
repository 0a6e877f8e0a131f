//! Exports: when they are listed, and the reaction to each answer.

use super::*;
use crate::controller::service_exports::{
    DesiredExport, Export, ExportObject, ExportStep, LeaseRead, Outdated,
};
use crate::controller::tests::objects::at;

/// A queue with one desired export for each name, before the first list.
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

/// The Lease of Karmada's controller after this many changes of its holder, renewed at this second.
fn lease(transitions: u32, renewed: u64) -> LeaseRead {
    let lease = serde_json::json!({"metadata": {"uid": "u"}, "spec": {
        "holderIdentity": "karmada-controller-manager-0_1", "leaseTransitions": transitions,
        "renewTime": format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", renewed / 3600, renewed / 60 % 60, renewed % 60)}});
    let unreadable = |error: serde_json::Error| ApiAnswer::Unreachable { reason: error.to_string() };
    serde_json::from_value(lease).map(Some).map_err(unreadable)
}

impl ExportHarness {
    /// A queue for which both objects of each export exist, as written before the leader of Karmada's controller was known.
    fn exported(names: &[&str]) -> Self {
        let mut harness = Self::new(names);
        assert!(harness.queue.start_list(harness.now));
        let object = |name: &&str, part: ExportObject| {
            let mut body = part.body(&key(name), &Export::default(), "sheave");
            body["metadata"]["uid"] = serde_json::json!("u1");
            (part, serde_json::from_value(body).unwrap())
        };
        let all = names.iter().flat_map(|name| ExportObject::ALL.map(|part| object(name, part))).collect();
        harness.queue.listed(Ok(all), harness.now);
        assert!(harness.queue.next(harness.now).is_none());
        harness
    }

    /// Reads the Lease for 15 s, with the last read now.
    fn read(&mut self, lease: impl Fn(u64) -> LeaseRead) {
        for second in [0, 5, 10, 15] {
            if second > 0 {
                self.now.instant += Duration::from_secs(5);
            }
            if self.queue.start_collector_read(self.now) {
                self.queue.on_collector(&lease(second), self.now);
            }
        }
    }

    /// Writes everything that is due now, and returns the bodies that the API server received.
    fn write_all(&mut self, answer: impl Fn(&WriteJob) -> ApiAnswer) -> Vec<serde_json::Value> {
        let mut bodies = Vec::new();
        while let Some(job) = self.queue.next(self.now) {
            bodies.push(serde_json::from_slice(&body(&job)).unwrap());
            self.queue.finished(&job, answer(&job), self.now);
        }
        bodies
    }
}

/// The object after a write.
fn body(job: &WriteJob) -> Vec<u8> {
    let (WriteTarget::Export(key), WriteStep::Export(ExportStep::Apply(part, export, uid))) =
        (&job.target, &job.step)
    else {
        panic!("{:?}", job.step)
    };
    let mut body = part.body(key, export, "sheave");
    body["metadata"]["uid"] = serde_json::json!(uid);
    body.to_string().into_bytes()
}

fn done(job: &WriteJob) -> ApiAnswer {
    ApiAnswer::Done(body(job))
}

#[test]
fn each_export_is_written_once_for_each_leader_of_karmadas_controller() {
    let mut harness = ExportHarness::exported(&["api", "web"]);
    for transitions in [3, 4] {
        harness.read(|second| lease(transitions, second));
        let written = harness.write_all(done);
        let terms: Vec<_> =
            written.iter().map(|it| &it["metadata"]["annotations"]["sheave.dev/collector-term"]).collect();
        let term = format!("u/{transitions}");
        assert_eq!(terms, [&term, &term]);
        assert!(written.iter().all(|it| it["kind"] == "ServiceExport"), "a policy is scheduled anew");
        harness.read(|second| lease(transitions, 20 + second));
        assert_eq!(harness.write_all(done), [serde_json::Value::Null; 0]);
    }
}

#[test]
fn ten_thousand_exports_are_written_for_a_new_leader_at_a_steady_rate() {
    let names: Vec<String> = (0..10_000).map(|index| format!("{index:05}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut harness = ExportHarness::exported(&names);
    harness.read(|second| lease(3, second));
    assert_eq!(harness.write_all(done).len(), 20);
    // A change of the desired state in the meantime does not wait for touches.
    harness.queue.set_export(key("09999"), DesiredExport::Nothing);
    let removed = harness.queue.next(harness.now).unwrap();
    assert_eq!(
        removed.step.clone(),
        WriteStep::Export(ExportStep::Delete(ExportObject::Export, "u1".to_owned()))
    );
    harness.queue.finished(&removed, refused(), harness.now);
    let start = harness.now.instant;
    let mut writes = 0;
    while harness.now.instant < start + Duration::from_secs(10) {
        harness.now.instant = harness.queue.wakes_at().expect("others wait");
        if harness.queue.start_collector_read(harness.now) {
            let renewed = harness.now.instant.duration_since(start).as_secs();
            harness.queue.on_collector(&lease(3, 20 + renewed), harness.now);
        }
        writes += harness.write_all(done).len();
    }
    assert!((95..=101).contains(&writes), "{writes} in 10 s");
}

#[test]
fn endpoints_are_outdated_while_karmadas_controller_is_away_or_the_write_for_it_is_refused() {
    let mut harness = ExportHarness::exported(&["web"]);
    let outdated = |outdated| WriteNotice::EndpointsOutdated { object: key("web").object(), outdated };
    harness.read(|second| lease(3, second));
    harness.write_all(|_| refused());
    let notices = harness.queue.take_notices();
    assert_eq!(notices.first(), Some(&outdated(Some(Outdated::WriteRefused))));
    harness.now.instant += Duration::from_secs(60);
    assert!(harness.queue.start_list(harness.now), "it is tried again");
    let mut body = ExportObject::Export.body(&key("web"), &Export::default(), "sheave");
    body["metadata"]["uid"] = serde_json::json!("u1");
    let policy = ExportObject::Policy.body(&key("web"), &Export::default(), "sheave");
    let all = vec![
        (ExportObject::Export, serde_json::from_value(body).unwrap()),
        (ExportObject::Policy, serde_json::from_value(policy).unwrap()),
    ];
    harness.queue.listed(Ok(all), harness.now);
    assert_eq!(harness.write_all(done).len(), 1);
    assert_eq!(harness.queue.take_notices(), [outdated(None)]);

    for _ in 0..5 {
        harness.read(|_| lease(3, 100));
    }
    assert_eq!(harness.queue.take_notices(), [outdated(Some(Outdated::CollectorAway))]);
    harness.read(|second| lease(4, 200 + second));
    assert_eq!(harness.queue.take_notices(), [outdated(None)]);
    assert_eq!(harness.write_all(done).len(), 1);
}

#[test]
fn where_the_lease_may_not_be_read_that_is_reported_once_and_nothing_else_changes() {
    let mut harness = ExportHarness::exported(&["web"]);
    let forbidden = || Err(ApiAnswer::Forbidden("no".to_owned()));
    harness.read(|_| forbidden());
    harness.read(|_| forbidden());
    let notice = WriteNotice::CollectorUnreadable { message: "no".to_owned() };
    assert_eq!(harness.queue.take_notices(), [notice]);
    assert!(harness.write_all(done).is_empty());
    harness.queue.set_export(key("web"), DesiredExport::Nothing);
    let delete = ExportStep::Delete(ExportObject::Export, "u1".to_owned());
    assert_eq!(harness.write(refused()).step, WriteStep::Export(delete));
}
