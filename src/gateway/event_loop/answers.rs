//! Answers to the admin server, from what is in force: probes, status, routes and explanations.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sheave_model::FrontendAddr;

use super::lame_duck::Phase;
use super::{EventLoop, WORKER_PATIENCE};
use crate::gateway::problems;
use crate::http::metrics::LoopFacts;
use crate::http::query::{ObjectFacts, Overview, ProbeResult, Query};
use crate::views::View as _;
use crate::views::explain::{self, Answer, Basis, Question};
use crate::views::problem::{LISTED, ProblemView};
use crate::views::routes::RoutesView;
use crate::views::services::{self, ServiceFacts};
use crate::views::status::{AnnouncingView, ProcessView, UnhealthyView, collect, table_hash};

impl EventLoop {
    /// Everything that is known to be wrong with the objects and with what becomes of them here.
    pub(super) fn problems(&self) -> Vec<ProblemView> {
        let mut problems = self.sources.problems();
        if self.projection.is_none() {
            return problems;
        }
        problems.extend(self.projector.problems().map(|problem| self.sources.place(problem)));
        problems.extend(self.failures.all().iter().map(|failure| self.sources.place(&failure.problem)));
        problems.extend(self.overload.problems().iter().map(|problem| self.sources.place(problem)));
        problems
    }

    pub(super) fn answer(&self, query: Query) {
        // Who asked may have gone away; that is no concern of ours.
        match query {
            Query::Live(reply) => {
                reply.send(self.live()).ok();
            }
            Query::Ready(reply) => match self.missing() {
                Some(missing) => drop(reply.send(Err(missing))),
                None => {
                    let answers = self.dataplane.answers(WORKER_PATIENCE);
                    // Apart from the loop, which must go on while a worker takes its time.
                    tokio::spawn(async move {
                        let ready = if answers.await { Ok(()) } else { Err("a worker does not answer") };
                        reply.send(ready).ok();
                    });
                }
            },
            Query::Metrics(reply) => {
                reply.send(self.facts()).ok();
            }
            Query::Status(reply) => {
                let status = ProcessView {
                    first_problems: self.first_problems(),
                    first_unhealthy: self
                        .dataplane
                        .unhealthy()
                        .take(LISTED)
                        .map(UnhealthyView::from)
                        .collect(),
                    ..self.status()
                };
                let answers = self.dataplane.answers(WORKER_PATIENCE);
                let table = self.projection.as_ref().map(|projection| Arc::clone(&projection.table));
                let (problems, closed) = (self.problems(), problems::closed(&self.dataplane));
                let (active, announcements) = (self.dataplane.table(), self.announcing.status());
                // What grows with the number of Services is done apart from the loop.
                let status = tokio::task::spawn_blocking(move || {
                    let facts = ServiceFacts {
                        active: &active,
                        problems: &problems,
                        closed: &closed,
                        announcements: announcements.as_deref(),
                    };
                    let table_hash = table.as_deref().map(table_hash::of);
                    ProcessView { table_hash, ..status.serving(&services::rows(facts)) }
                });
                tokio::spawn(async move {
                    let Ok(status) = status.await else { return };
                    let status = ProcessView { worker_stuck: !answers.await, ..status };
                    reply.send(status.to_json()).ok();
                });
            }
            Query::Routes(reply) => {
                reply.send(self.routes()).ok();
            }
            Query::Gateways(reply) => {
                reply.send(self.gateways()).ok();
            }
            Query::Overview(known, reply) => {
                // Pages are to open their stream again, at the process that serves.
                if !self.handed_over {
                    reply.send(self.overview(known)).ok();
                }
            }
            Query::Explain(question, reply) => {
                reply.send(self.explain(&question)).ok();
            }
        }
    }

    /// A thread does not come back, so only a restart helps. A slow one is no reason to cut its connections.
    pub(super) fn live(&self) -> ProbeResult {
        match (self.dataplane.runs(), self.source_ended) {
            (true, false) => Ok(()),
            (false, _) => Err("a worker has ended"),
            (true, true) => Err("the object sources have ended"),
        }
    }

    /// Why the process is not ready, if so, apart from the workers' answers.
    pub(super) fn missing(&self) -> Option<&'static str> {
        self.phase.not_ready().or_else(|| self.sources.missing())
    }

    pub(super) fn status(&self) -> ProcessView {
        let active = self.dataplane.table();
        ProcessView {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: self.role.to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            generation: active.table().generation(),
            table_age_seconds: self.applied.map(|applied| applied.elapsed().as_secs()),
            frontends: active.table().frontends().len(),
            source: self.sources.view(&self.store),
            karmada: self.sources.karmada_view(&self.store),
            guard: self.sources.held_lists(),
            problems: self.problem_log.count(),
            unhealthy_endpoints: active.health().unhealthy().count(),
            controller: self.controller.as_ref().map(|status| collect::of_controller(&status.borrow())),
            steering: Some(self.dataplane.steering().into()),
            announcing: self.announcing.status().as_deref().map(AnnouncingView::from),
            takeover: Some(self.takeovers.view()),
            lame_duck: self.phase == Phase::LameDuck,
            draining: self.phase == Phase::Draining,
            not_ready: self.missing().map(str::to_owned),
            ..ProcessView::default()
        }
    }

    /// What a scrape shows besides what can be read off the data plane on any thread.
    fn facts(&self) -> LoopFacts {
        LoopFacts {
            status: self.status(),
            all_problems: self.problems(),
            closed: problems::closed(&self.dataplane),
            problems: self.problem_log.by_reason().clone(),
            pages: self.health.pages().clone(),
            worker_restarts: self.dataplane.worker_restarts(),
            health: self.dataplane.health_counts(),
            announcements: self.announcing.status().unwrap_or_default(),
            connection_log: self.connection_log.counts(),
            series: self.series,
        }
    }

    fn overview(&self, known: Option<u64>) -> Overview {
        let objects = || ObjectFacts {
            problems: self.problems(),
            not_served: self.not_served(),
            closed: problems::closed(&self.dataplane),
            policies: self.projector.announce_policies().clone(),
        };
        Overview {
            status: self.status(),
            announcements: self.announcing.status(),
            revision: self.revision,
            objects: (known != Some(self.revision)).then(objects),
        }
    }

    fn first_problems(&self) -> Vec<ProblemView> {
        let mut problems = self.problems();
        problems.sort_unstable();
        problems.truncate(LISTED);
        problems
    }

    /// From what is really in force, so that it shows where that is not what the objects come to.
    fn explain(&self, question: &Question) -> Answer {
        let lost = self.dataplane.client_addresses().err().map(ToString::to_string);
        let announcements = self.announcing.status();
        let basis = Basis {
            projector: &self.projector,
            objects: self.store.objects(),
            active: &self.dataplane.table(),
            affinity: Some(self.dataplane.affinity()),
            problems: &self.problems(),
            closed: &problems::closed(&self.dataplane),
            obstacle: self.missing(),
            no_client_addresses: lost.as_deref(),
            announcements: announcements.as_deref(),
            now: Instant::now(),
        };
        explain::explain(question, basis)
    }

    /// The load balancers that do not ask for this gateway.
    fn not_served(&self) -> Vec<ProblemView> {
        let unserved = self.projector.unserved(self.store.objects());
        unserved.iter().map(|note| self.sources.place(note)).collect()
    }

    fn routes(&self) -> String {
        let not_ready = self.missing().map(|what| format!("the gateway is not ready: {what}"));
        let view = RoutesView::new(self.dataplane.table().table(), &self.node, self.problems())
            .reached(self.dataplane.steering().into())
            .closing(&problems::closed(&self.dataplane))
            .noting(self.not_served(), not_ready.into_iter().collect());
        let Some(projection) = &self.projection else { return view.to_json() };
        let failed: BTreeSet<FrontendAddr> =
            self.dataplane.failures().map(|failure| failure.frontend.addr).collect();
        view.publishing(self.projector.statuses(), &projection.health_checks, |addr| failed.contains(&addr))
            .to_json()
    }
}
