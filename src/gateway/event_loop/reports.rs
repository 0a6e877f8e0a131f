//! Logs and reports of the loop: Problems of objects, failures of the data plane, overload.

use std::sync::Arc;

use sheave_console::http::report;
use sheave_control::api::gateway_report::GatewayReport;
use sheave_control::api::problem::{Problem, ProblemChanges};
use sheave_model::ClientSource;

use super::EventLoop;
use super::lame_duck::Phase;
use crate::gateway::startup_log;

impl EventLoop {
    /// Logs and reports failures of the data plane when they change.
    pub(super) fn report_failures(&mut self) {
        let generation = self.dataplane.table().table().generation();
        let (announced, shared) = (self.announcing.announced(), self.announcing.is_shared());
        let (failed, disagreements) = (self.announcing.failed(), self.announcing.disagreements());
        if self.failures.refresh(&self.dataplane, &self.health, failed, disagreements) {
            self.revision += 1;
            let report = report::report(&self.node, generation, self.failures.all());
            let draining = self.phase != Phase::Serving;
            self.report.send_replace(GatewayReport { draining, announced, shared, ..report });
            self.problem_log
                .failures(self.failures.all().iter().map(|failure| self.sources.place(&failure.problem)));
        } else {
            self.report.send_if_modified(|last| {
                let differs =
                    (last.generation, &last.announced, last.shared) != (generation, &announced, shared);
                (last.generation, last.announced, last.shared) = (generation, announced, shared);
                differs
            });
        }
    }

    /// Logs overloaded frontends when they change.
    pub(super) fn report_overload(&mut self) {
        if self.overload.refresh(&self.dataplane) {
            self.revision += 1;
            self.problem_log
                .overload(self.overload.problems().iter().map(|problem| self.sources.place(problem)));
        }
    }

    /// Logs that the first objects are in force.
    pub(super) fn log_ready(&self) {
        let table = self.dataplane.table();
        let mut frontends = table.table().frontends().iter();
        let transparent = match self.dataplane.client_addresses() {
            Err(error) => error.to_string(),
            Ok(()) if frontends.any(|it| it.client_sources.any(ClientSource::Transparent)) => {
                "in use".to_owned()
            }
            Ok(()) => "not asked for".to_owned(),
        };
        startup_log::ready(&self.status(), &transparent);
    }

    /// Logs Problems of objects, after each change of them.
    pub(super) fn report_problems(&mut self) {
        self.problem_log.sources(self.sources.problems().into_iter());
        let Some(projection) = &self.projection else { return };
        if self.sources.reads_files() {
            // When a file changes, the same Problem may move to another line.
            self.problem_log.objects(self.projector.problems().map(|problem| self.sources.place(problem)));
        } else {
            let ProblemChanges { came, gone } = &projection.problem_changes;
            let views = |problems: &[Arc<Problem>]| {
                problems.iter().map(|problem| self.sources.place(problem)).collect()
            };
            self.problem_log.changed_objects(&views(came), &views(gone));
        }
    }
}
