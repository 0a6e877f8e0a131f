//! Writes to a MultiClusterService, where they differ from those to a Service.

use super::*;
use crate::controller::tests::objects::{at, fleet_desired_status, multi_cluster_service};

/// A queue, and the only object of its server.
struct FleetHarness {
    queue: WriteQueue,
    object: Value,
    start: Instant,
    elapsed: Duration,
    version: u64,
}

impl FleetHarness {
    fn new() -> Self {
        let object = serde_json::to_value(multi_cluster_service(&json!({}))).unwrap();
        let queue = WriteQueue::new(Ownership::default());
        Self { queue, object, start: Instant::now(), elapsed: Duration::ZERO, version: 100 }
    }

    fn now(&self) -> Now {
        Now { instant: self.start + self.elapsed, time: at(0) }
    }

    fn set_desired(&mut self, desired_status: DesiredStatus) {
        let object = serde_json::from_value(self.object.clone()).unwrap();
        let subject = WriteSubject::Service(
            ServiceObject::MultiClusterService(Arc::new(object)),
            Arc::new(Desired::Published(desired_status)),
        );
        let target = WriteTarget::Service(ServiceKey::multi_cluster("shop", "web"));
        self.queue.set_desired(target, subject, self.now());
    }

    /// Executes all writes that are due, and returns their resources.
    fn write(&mut self) -> Vec<&'static str> {
        let mut resources = Vec::new();
        while let Some(job) = self.queue.next(self.now()) {
            let (WriteStep::AddFinalizer(body) | WriteStep::ApplyStatus(body)) = &job.step else {
                panic!("{:?}", job.step)
            };
            assert_eq!(body["metadata"]["resourceVersion"], self.version.to_string());
            resources.push(job.resource());
            json_patch::merge(&mut self.object, body);
            self.version += 1;
            self.object["metadata"]["resourceVersion"] = self.version.to_string().into();
            let answer = ApiAnswer::Done(self.object.to_string().into_bytes());
            self.queue.finished(&job, answer, self.now());
        }
        resources
    }
}

#[test]
fn it_takes_two_writes_and_none_at_rest() {
    let mut fleet = FleetHarness::new();
    fleet.set_desired(fleet_desired_status(7));
    assert_eq!(fleet.write(), ["multiclusterservices", "multiclusterservices/status"]);
    fleet.set_desired(fleet_desired_status(7));
    assert_eq!(fleet.write(), [""; 0]);
}

#[test]
fn endpoints_are_counted_anew_at_most_every_ten_seconds() {
    let mut fleet = FleetHarness::new();
    fleet.set_desired(fleet_desired_status(7));
    fleet.write();
    for second in 1..10 {
        fleet.elapsed = Duration::from_secs(second);
        fleet.set_desired(fleet_desired_status(if second % 2 == 0 { 6 } else { 5 }));
        assert_eq!(fleet.write(), [""; 0], "after {second} s");
    }
    assert_eq!(fleet.queue.wakes_at(), Some(fleet.start + Duration::from_secs(10)));
    fleet.elapsed = Duration::from_secs(10);
    assert_eq!(fleet.write(), ["multiclusterservices/status"]);
    assert!(fleet.object.to_string().contains("5 of 9 endpoints"));
}

#[test]
fn what_matters_is_written_at_once() {
    let mut fleet = FleetHarness::new();
    fleet.set_desired(fleet_desired_status(7));
    fleet.write();
    fleet.set_desired(fleet_desired_status(6));
    assert_eq!(fleet.write(), [""; 0]);
    fleet.set_desired(DesiredStatus {
        ingress: vec![ingress("203.0.113.9", None)],
        ..fleet_desired_status(6)
    });
    assert_eq!(fleet.write(), ["multiclusterservices/status"]);
    fleet.set_desired(fleet_desired_status(0));
    assert_eq!(fleet.write(), ["multiclusterservices/status"], "nothing serves any more");
}
