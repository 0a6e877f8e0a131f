//! A queue, a lagging cache and a server, to produce every failure between them without a network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::store::ServiceKey;
use crate::controller::api_writer::ApiAnswer;
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::ownership::Ownership;
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::queue::tests::api_server::ModelServer;
use crate::controller::status_writer::queue::{Now, WriteJob, WriteQueue};
use crate::controller::status_writer::sent::{LANDS_WITHIN, NextSend, SentStatuses, WriteId};
use crate::controller::status_writer::target::{WriteSubject, WriteTarget};
use crate::controller::status_writer::write_notice::WriteNotice;
use crate::controller::tests::objects::{at, ingress};

/// Fate of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WriteFate {
    Answered,
    /// The write succeeds, but the answer is lost.
    AnswerLost,
    /// The write arrives after the client has given up, any time before the server does.
    Late,
    /// The write never arrives.
    Lost,
    /// The server is busy.
    Rejected,
}

pub(super) struct Harness {
    pub(super) server: ModelServer,
    pub(super) queue: WriteQueue,
    sent: SentStatuses,
    /// Identities of the writes, with their fingerprints.
    ids: Vec<(u64, Option<WriteId>)>,
    /// Writes that are still to arrive, and until when.
    late: Vec<(Duration, WriteJob)>,
    /// How much of the server's history the cache has received.
    cached: usize,
    pub(super) wanted: DesiredStatus,
    start: Instant,
    pub(super) elapsed: Duration,
    pub(super) jobs: usize,
    pub(super) notices: Vec<WriteNotice>,
}

impl Harness {
    /// A harness whose cache has the Service and whose queue has written nothing.
    pub(super) fn new() -> Self {
        let mut harness = Self {
            server: ModelServer::new(),
            queue: WriteQueue::new(Ownership::default()),
            sent: SentStatuses::default(),
            ids: Vec::new(),
            late: Vec::new(),
            cached: 0,
            wanted: DesiredStatus {
                ingress: vec![ingress("203.0.113.7", None)],
                gateways: 1,
                ..DesiredStatus::default()
            },
            start: Instant::now(),
            elapsed: Duration::ZERO,
            jobs: 0,
            notices: Vec::new(),
        };
        harness.deliver();
        harness
    }

    /// A harness with a published Service and a cache that is up to date.
    pub(super) fn settled() -> Self {
        let mut harness = Self::new();
        harness.settle();
        harness.jobs = 0;
        harness.notices.clear();
        harness
    }

    pub(super) fn now(&self) -> Now {
        let seconds = i64::try_from(self.elapsed.as_secs()).unwrap();
        Now { instant: self.start + self.elapsed, time: at(seconds) }
    }

    pub(super) fn target() -> WriteTarget {
        WriteTarget::Service(ServiceKey::new("shop", "web"))
    }

    /// Delivers the next event of the watch. Returns whether there was one.
    pub(super) fn deliver(&mut self) -> bool {
        let more = self.cached + 1 < self.server.history.len();
        if more {
            self.cached += 1;
            self.decide();
        }
        more
    }

    /// Lists again: the cache skips all events in between.
    pub(super) fn relist(&mut self) {
        self.cached = self.server.history.len() - 1;
        self.decide();
    }

    /// Sets the desired state from the cache, as the control loop does.
    pub(super) fn decide(&mut self) {
        let now = self.now();
        let Some(service) = &self.server.history[self.cached] else {
            self.queue.forget(&Self::target());
            return;
        };
        let spec = service.spec.as_ref().unwrap();
        let ours = spec.type_.as_deref() == Some("LoadBalancer")
            && spec.load_balancer_class.as_deref() == Some("sheave.dev/l4")
            && service.metadata.deletion_timestamp.is_none();
        let desired = if ours { Desired::Published(self.wanted.clone()) } else { Desired::Released };
        let subject =
            WriteSubject::Service(ServiceObject::from(&Arc::new(service.clone())), Arc::new(desired));
        self.queue.set_desired(Self::target(), subject, now);
    }

    /// Restarts the process: it lists and has no memory.
    pub(super) fn crash(&mut self) {
        self.queue = WriteQueue::new(Ownership::default());
        self.sent = SentStatuses::default();
        // The next process knows only the server.
        self.late.clear();
        self.relist();
    }

    pub(super) fn send(&mut self) -> Option<WriteJob> {
        loop {
            let (now, queue) = (self.now(), &mut self.queue);
            match self.sent.send(now.instant, || queue.next(now))? {
                NextSend::Write(job, id) => {
                    self.jobs += 1;
                    self.ids.push((job.fingerprint, id));
                    return Some(job);
                }
                NextSend::Wait(job, until) => self.queue.postpone(&job, until, now),
            }
        }
    }

    pub(super) fn arrive(&mut self, job: &WriteJob, fate: WriteFate) {
        let lost = |reason: &str| ApiAnswer::Unreachable { reason: reason.into() };
        let answer = match fate {
            WriteFate::Answered => self.server.answer(job),
            WriteFate::AnswerLost => {
                let _answer = self.server.answer(job);
                lost("no answer")
            }
            WriteFate::Late => {
                self.late.push((self.elapsed + LANDS_WITHIN, job.clone()));
                lost("no answer")
            }
            WriteFate::Lost => lost("connection refused"),
            WriteFate::Rejected => {
                ApiAnswer::Busy { reason: "busy".into(), retry_after: Some(Duration::from_secs(3)) }
            }
        };
        let id = self.ids.iter().rev().find(|(fingerprint, _)| *fingerprint == job.fingerprint);
        self.sent.answered(id.and_then(|(_, id)| *id), &job.target, &answer);
        self.queue.finished(job, answer, self.now());
        self.notices.append(&mut self.queue.take_notices());
    }

    /// Sends one write if one is due. Returns whether it did.
    pub(super) fn write(&mut self, fate: WriteFate) -> bool {
        match self.send() {
            Some(job) => {
                self.arrive(&job, fate);
                true
            }
            None => false,
        }
    }

    /// Lets every write succeed until nothing more happens.
    pub(super) fn settle(&mut self) {
        self.settle_until(|_| false);
    }

    /// Like [`settle`](Self::settle), but stops once `enough` is true.
    pub(super) fn settle_until(&mut self, enough: impl Fn(&Self) -> bool) {
        for _ in 0..200 {
            if enough(self) {
                return;
            }
            if self.write(WriteFate::Answered) || self.deliver() {
                continue;
            }
            if self.queue.wakes_at().is_none() {
                if self.land() {
                    continue;
                }
                return;
            }
            self.sleep();
        }
        panic!("it never comes to rest: {:?}", self.server.object);
    }

    /// Advances the time until the queue is due.
    pub(super) fn sleep(&mut self) {
        if let Some(at) = self.queue.wakes_at() {
            self.advance(at - self.start);
        }
    }

    /// Advances the time. Late writes arrive at the last moment.
    pub(super) fn advance(&mut self, elapsed: Duration) {
        for (_, job) in self.late.extract_if(.., |(until, _)| *until <= elapsed) {
            let _answer = self.server.answer(&job);
        }
        self.elapsed = self.elapsed.max(elapsed);
    }

    /// Has the first late write arrive. Returns whether there was one.
    pub(super) fn land(&mut self) -> bool {
        let there = !self.late.is_empty();
        if there {
            let (_, job) = self.late.remove(0);
            let _answer = self.server.answer(&job);
        }
        there
    }

    pub(super) fn wait_for_job(&mut self) -> WriteJob {
        for _ in 0..10 {
            if let Some(job) = self.send() {
                return job;
            }
            self.sleep();
        }
        panic!("nothing is to be written");
    }

    /// Checks that the server has the desired state, that other managers lost nothing, and that no write is left.
    pub(super) fn check(&mut self) {
        if let Some(object) = &self.server.object {
            let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let ours = finalizers.iter().any(|held| *held == "sheave.dev/load-balancer-cleanup");
            let served = self.server.kind() == Some("LoadBalancer")
                && object["spec"]["loadBalancerClass"] == "sheave.dev/l4"
                && object["metadata"]["deletionTimestamp"].is_null();
            assert_eq!(ours, served, "{object}");
            if served {
                assert_eq!(
                    self.server.field("ingress"),
                    json!([{"ip": self.wanted.ingress[0].ip, "ipMode": "Proxy",
                            "ports": [{"port": 80, "protocol": "TCP"}]}])
                );
            }
            let conditions = ["sheave.dev/Programmed", "sheave.dev/Allocated"];
            for kind in conditions.into_iter().filter(|_| served || !self.server.stripped) {
                assert_eq!(!self.server.field(kind).is_null(), served, "{kind} of {object}");
                assert_eq!(self.server.owns("sheave", kind), served, "{kind}");
            }
            if served || !self.server.stripped {
                assert_eq!(self.server.owns("sheave", "ingress"), served, "{object}");
            }
        }
        let jobs = self.jobs;
        for _ in 0..10 {
            self.decide();
            self.relist();
            self.settle();
        }
        self.crash();
        self.settle();
        assert_eq!(self.jobs, jobs, "writes at rest: {:?}", self.server.object);
    }
}
