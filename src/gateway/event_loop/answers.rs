//! Answers to the admin server from the current state: probes, status, routes and explanations.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sheave_control::api::store::ControlPlane;
use sheave_model::FrontendAddr;
use tokio::sync::oneshot;

use super::{EventLoop, Phase, WORKER_PATIENCE};
use crate::gateway::{dataplane_failures, sources};
use sheave_console::http::metrics::LoopFacts;
use sheave_console::http::query::{ObjectFacts, Overview, ProbeResult, Query};
use sheave_console::views::View as _;
use sheave_console::views::explain::{self, Answer, Basis, Question};
use sheave_console::views::gateways::GatewaysView;
use sheave_console::views::problem::{LISTED, ProblemView};
use sheave_console::views::routes::RoutesView;
use sheave_console::views::services::{self, ServiceFacts};
use sheave_console::views::status::{AnnouncingView, ProcessView, UnhealthyView, collect, table_hash};

impl EventLoop {
    /// All known Problems of objects and of serving them here.
    pub(super) fn problems(&self) -> Vec<ProblemView> {
        self.problems.all(&self.pipeline, self.projection.is_some())
    }

    pub(super) fn answer(&self, query: Query) {
        // The client may have gone, so failed replies are ignored.
        match query {
            Query::Live(reply) => {
                reply.send(self.live()).ok();
            }
            Query::Ready(reply) => match self.missing() {
                Some(missing) => drop(reply.send(Err(missing))),
                None => {
                    let answers = self.dataplane.answers(WORKER_PATIENCE);
                    // Spawned, since the loop must go on while a worker is slow.
                    tokio::spawn(async move {
                        let ready = if answers.await { Ok(()) } else { Err("a worker does not answer") };
                        reply.send(ready).ok();
                    });
                }
            },
            Query::Metrics(reply) => {
                reply.send(self.facts()).ok();
            }
            Query::Status(reply) => self.answer_status(reply),
            Query::Routes(reply) => {
                reply.send(self.routes()).ok();
            }
            Query::Gateways(reply) => {
                reply.send(self.gateways()).ok();
            }
            Query::Overview(known, reply) => {
                // Without an answer, pages reopen their stream at the process that serves now.
                if !self.takeovers.handed_over {
                    reply.send(self.overview(known)).ok();
                }
            }
            Query::Explain(question, reply) => {
                reply.send(self.explain(&question)).ok();
            }
        }
    }

    /// Answers with the whole status once the workers have answered.
    fn answer_status(&self, reply: oneshot::Sender<String>) {
        let status = ProcessView {
            first_problems: self.first_problems(),
            first_unhealthy: self.dataplane.unhealthy().take(LISTED).map(UnhealthyView::from).collect(),
            ..self.status()
        };
        let answers = self.dataplane.answers(WORKER_PATIENCE);
        let table = self.projection.as_ref().map(|projection| Arc::clone(&projection.table));
        let (problems, obstacles) = (self.problems(), dataplane_failures::obstacles(&self.dataplane));
        let (active, announcements) = (self.dataplane.table(), self.announcing.status());
        // Work that grows with the number of Services runs outside the loop.
        let status = tokio::task::spawn_blocking(move || {
            let facts = ServiceFacts {
                active: &active,
                problems: &problems,
                obstacles: &obstacles,
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

    /// Fails only if a restart helps: a thread that has ended does not come back. A slow thread is no reason
    /// to cut its connections.
    pub(super) fn live(&self) -> ProbeResult {
        match (self.dataplane.runs(), self.source_ended) {
            (true, false) => Ok(()),
            (false, _) => Err("a worker has ended"),
            (true, true) => Err("the object sources have ended"),
        }
    }

    /// Reason why the process is not ready, regardless of the workers.
    pub(super) fn missing(&self) -> Option<&'static str> {
        let settling =
            || self.dataplane.is_settling().then_some("nftables does not have the rules of Services yet");
        self.phase.not_ready().or_else(|| self.pipeline.sources.missing()).or_else(settling)
    }

    pub(super) fn status(&self) -> ProcessView {
        let active = self.dataplane.table();
        let (objects, karmada) = (self.pipeline.objects(), self.pipeline.sources.karmada.as_ref());
        ProcessView {
            node: self.identity.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: self.identity.role.to_owned(),
            uptime_seconds: self.identity.started.elapsed().as_secs(),
            generation: self.dataplane.generation(),
            table_age_seconds: self.applied.map(|applied| applied.elapsed().as_secs()),
            frontends: active.table().frontends().len(),
            source: sources::view(&self.pipeline.sources.local, ControlPlane::Local, objects),
            karmada: karmada.map(|source| sources::view(source, ControlPlane::Karmada, objects)),
            guard: collect::of_guard(&self.pipeline.sources.held_lists()),
            problems: self.problems.count(),
            unhealthy_endpoints: active.health().unhealthy().count(),
            controller: self
                .identity
                .controller
                .as_ref()
                .map(|status| collect::of_controller(&status.borrow())),
            steering: Some(self.dataplane.steering().into()),
            announcing: self.announcing.status().as_deref().map(AnnouncingView::from),
            takeover: Some(self.takeovers.view()),
            lame_duck: self.phase == Phase::LameDuck,
            draining: self.phase == Phase::Draining,
            not_ready: self.missing().map(str::to_owned),
            ..ProcessView::default()
        }
    }

    /// Facts that a scrape needs from the loop. It reads the others from the data plane, on its own thread.
    fn facts(&self) -> LoopFacts {
        LoopFacts {
            status: self.status(),
            all_problems: self.problems(),
            obstacles: dataplane_failures::obstacles(&self.dataplane),
            problems: self.problems.by_reason().clone(),
            pages: self.health.pages().clone(),
            worker_restarts: self.dataplane.worker_restarts(),
            health: self.dataplane.health_counts(),
            announcements: self.announcing.status().unwrap_or_default(),
            connection_log: self.connection_log.counts(),
            dropped_log_lines: crate::logging::dropped_lines(),
            series: self.settings.series,
        }
    }

    fn overview(&self, known: Option<u64>) -> Overview {
        let objects = || ObjectFacts {
            problems: self.problems(),
            not_served: self.not_served(),
            obstacles: dataplane_failures::obstacles(&self.dataplane),
            policies: self.pipeline.projector.announce_policies().clone(),
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

    /// Explains by the active table, so that differences to the objects show.
    fn explain(&self, question: &Question) -> Answer {
        let lost = self.dataplane.client_addresses().err().map(ToString::to_string);
        let announcements = self.announcing.status();
        let basis = Basis {
            projector: &self.pipeline.projector,
            objects: self.pipeline.objects(),
            active: &self.dataplane.table(),
            affinity: Some(self.dataplane.affinity()),
            problems: &self.problems(),
            closed: &dataplane_failures::closed(&self.dataplane),
            obstacle: self.missing(),
            no_client_addresses: lost.as_deref(),
            no_kernel_path: self.dataplane.kernel_path_errors(),
            announcements: announcements.as_deref(),
            now: Instant::now(),
        };
        explain::explain(question, basis)
    }

    /// Load balancers that do not ask for this gateway.
    fn not_served(&self) -> Vec<ProblemView> {
        let unserved = self.pipeline.projector.unserved(self.pipeline.objects());
        unserved.iter().map(|note| sources::place(&self.pipeline.sources, note)).collect()
    }

    fn routes(&self) -> String {
        let not_ready = self.missing().map(|what| format!("the gateway is not ready: {what}"));
        let view = RoutesView::new(self.dataplane.table().table(), &self.identity.node, self.problems())
            .reached(self.dataplane.steering().into())
            .closing(&dataplane_failures::closed(&self.dataplane))
            .without_kernel(self.dataplane.kernel_path_errors())
            .noting(self.not_served(), not_ready.into_iter().collect());
        let Some(projection) = &self.projection else { return view.to_json() };
        let failed: BTreeSet<FrontendAddr> =
            self.dataplane.failures().map(|failure| failure.frontend.addr).collect();
        view.publishing(self.pipeline.projector.statuses(), &projection.health_checks, |addr| {
            failed.contains(&addr)
        })
        .with_gateways(&self.pipeline.projector, self.pipeline.objects(), &failed)
        .to_json()
    }

    fn gateways(&self) -> String {
        let view = match self.announcing.status() {
            Some(status) => GatewaysView::new(&status, self.pipeline.projector.announce_policies()),
            None => GatewaysView { node: self.identity.node.clone(), ..GatewaysView::default() },
        };
        view.to_json()
    }
}
