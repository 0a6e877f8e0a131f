//! Passes the desired status of Services, MultiClusterServices and pools to the status writers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sheave_model::FrontendSource;

use super::startup_hold::StartupHold;
use super::{LeaderTerm, ProblemSource};
use crate::api::address_pool;
use crate::api::problem::{ObjectRef, Problem};
use crate::api::store::ServiceKey;
use crate::controller::desired_status::{Desired, DesiredStatus};
use crate::controller::pool_status;
use crate::controller::service_object::ServiceObject;
use crate::projection::LoadBalancerStatus;

impl LeaderTerm {
    /// Publishes the desired status of these objects and their Problems, once enough is known.
    pub(super) fn publish(&mut self, touched: BTreeSet<ServiceKey>) {
        let awaited = self.awaited_addresses();
        let (first, ready) = (!matches!(self.hold, StartupHold::Over), self.asked_all() && awaited.is_none());
        let Some(touched) = self.hold.pass(touched, ready, Instant::now()) else { return };
        if let Some(awaited) = awaited.filter(|_| first) {
            tracing::warn!("{}", awaited.warning());
        }
        for key in &touched {
            self.set_desired(key);
            self.term_events.assigned(key, self.pipeline.projector.status(key), self.pipeline.objects());
        }
        self.publish_gateways(&touched);
        if awaited.is_none() {
            self.publish_pools();
        }
        self.publish_problems();
        for key in &touched {
            let object = key.object();
            self.term_events.offer(&object, self.problems.about(&object), self.pipeline.objects());
        }
    }

    /// Records Events for new Problems.
    pub(super) fn publish_problems(&mut self) {
        let refused: Vec<Problem> = self.term_events.refused().collect();
        self.problems.set(ProblemSource::Events, &refused);
        let waiting = self.waiting();
        self.problems.set(ProblemSource::Awaited, &waiting);
        self.term_events.problems(&self.problems.take_changes(), self.pipeline.objects());
    }

    fn set_desired(&mut self, key: &ServiceKey) {
        let object = ServiceObject::find(self.pipeline.objects(), key);
        let desired = object.as_ref().and_then(|object| self.desired(key, object));
        let karmada = self.karmada.as_mut().and_then(|karmada| karmada.writer.as_mut());
        let writer = match (key.source, karmada) {
            (FrontendSource::Service, _) => &mut self.writer,
            (FrontendSource::MultiClusterService, Some(karmada)) => {
                karmada.export(key, self.pipeline.objects(), desired.as_ref());
                &mut karmada.status
            }
            (FrontendSource::MultiClusterService, None) | (FrontendSource::Gateway, _) => return,
        };
        match (object, desired) {
            (Some(object), Some(desired)) => {
                if matches!(desired, Desired::Published(_)) {
                    self.term_events.locked(key, &object, self.pipeline.objects());
                }
                writer.set_desired(key, object, desired);
            }
            // What was decided before may not be written either.
            (_, None) | (None, _) => writer.forget(key),
        }
    }

    /// The desired state of the object; `None` if it cannot be decided yet.
    fn desired(&self, key: &ServiceKey, object: &ServiceObject) -> Option<Desired> {
        let fleet = match object {
            ServiceObject::Service(_) => None,
            ServiceObject::MultiClusterService(_) => self.pipeline.projector.fleet_status(key),
        };
        let nothing = LoadBalancerStatus::empty(key);
        let status = match (self.pipeline.projector.status(key), fleet) {
            (Some(status), _) => status,
            // The object is managed by this installation, but its references do not resolve.
            (None, Some(_)) if object.is_load_balancer() => &nothing,
            (None, _) if self.pipeline.projector.leaves_alone(key, self.pipeline.objects()) => return None,
            (None, _) => return Some(Desired::Released),
        };
        let problems = self.pipeline.projector.problems_of(key);
        let desired_status = DesiredStatus {
            fleet: fleet.cloned().map(Box::new),
            outdated: self.outdated.get(key).copied(),
            // Most Services have no address of a gateway node and need no condition about it.
            node_families: (status.node_families.name().is_some() || object.shows_origin())
                .then_some(status.node_families),
            faults: self.pipeline.projector.faults(key),
            announcement: self.announcements.of(key),
            ..self.gateway_failures.desired_status(key, status, problems, object.is_programmed())
        };
        if let Some(awaited) = self.awaited_addresses() {
            return awaited.desired(object, status, desired_status);
        }
        Some(Desired::Published(desired_status))
    }

    /// Problems of the Services that get no address until those of other objects are known.
    fn waiting(&self) -> Vec<Problem> {
        let Some(awaited) = self.awaited_addresses() else { return Vec::new() };
        let objects = self.pipeline.objects();
        let waits = |status: &&LoadBalancerStatus| {
            ServiceObject::find(objects, &status.service).is_some_and(|it| !it.has_addresses(status))
        };
        self.pipeline
            .projector
            .statuses()
            .filter(waits)
            .map(|status| awaited.problem(&status.service))
            .collect()
    }

    fn publish_pools(&mut self) {
        let there = &self.pipeline.objects().pools;
        for gone in self.pools.extract_if(.., |name| !there.contains_key(name)) {
            self.writer.forget_pool(&gone);
        }
        for (name, used, free) in self.pipeline.projector.pool_usage() {
            let Some(pool) = self.pipeline.objects().pools.get(name) else { continue };
            let object = ObjectRef { kind: address_pool::KIND, namespace: "".into(), name: Arc::clone(name) };
            // A rejected status cannot report its own rejection.
            let refused = self.write_failures.of(&object);
            let problems = self.problems.about(&object).map(|problem| &**problem);
            let problems: Vec<Problem> =
                problems.filter(|problem| Some(*problem) != refused).cloned().collect();
            let (used, free) = (i64::try_from(used), i64::try_from(free));
            let (used, free) = (used.unwrap_or(i64::MAX), free.unwrap_or(i64::MAX));
            let status = pool_status::pool_status(pool, used, free, &problems, Timestamp::now());
            self.writer.set_pool(pool, status);
            self.pools.insert(Arc::clone(name));
        }
    }
}
