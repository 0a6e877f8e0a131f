//! Evaluation of the gateways' reports, and the Services that they affect.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::announcements::{AnnounceMode, Announcer};
use super::gateway_failures::{self, GatewayFailures, Gateways};
use crate::api::gateway_report::GatewayReport;
use crate::api::store::ServiceKey;
use crate::controller::gateway_reports::{self, Liveness, ReportsByGateway};
use crate::controller::term::{LeaderTerm, ProblemSource};
use crate::net::Family;

/// The reports that were evaluated last.
#[derive(Default)]
pub(super) struct ReadReports {
    reports: Arc<ReportsByGateway>,
    own: Option<GatewayReport>,
    /// Services in these reports.
    named: BTreeSet<ServiceKey>,
}

impl LeaderTerm {
    /// Publishes the effects of new reports.
    pub(super) fn republish(&mut self) {
        if self.is_synced() {
            let touched = self.read_reports(&BTreeSet::new());
            self.publish(touched);
        }
    }

    pub(super) fn gateway_slices(&self) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        self.pipeline.objects().slices.get(&self.gateways).into_iter().flat_map(|slices| slices.values())
    }

    /// Returns the Services for which the reports' effects changed. Services in `touched` may have new ports and addresses.
    pub(super) fn read_reports(&mut self, touched: &BTreeSet<ServiceKey>) -> BTreeSet<ServiceKey> {
        // Get the count before the reports, so that the reports include the answers of all counted polls.
        let polls = self.reports.polls();
        let mut differing = self.refresh_gateway_failures(touched);
        for key in touched {
            self.announcements.set_addresses(key, self.addresses_to_announce(key));
        }
        let (mode, announcers) = self.announcers();
        differing.append(&mut self.announcements.observe(mode, announcers, polls));
        differing
    }

    /// The Service's addresses that gateways may announce. Addresses of gateway nodes are reachable without that.
    fn addresses_to_announce(&self, key: &ServiceKey) -> Vec<IpAddr> {
        let Some(status) = self.pipeline.projector.status(key) else { return Vec::new() };
        let addresses = status.ingress.iter().map(|ingress| ingress.ip);
        addresses.filter(|ip| !status.node_families.has(Family::of(*ip))).collect()
    }

    /// Reports of the ready gateways about announcements.
    fn announcers(&self) -> (AnnounceMode, Vec<Announcer>) {
        let announcer = |report: &GatewayReport, answers| Announcer {
            node: report.node.clone(),
            answers,
            shared: report.shared,
            addresses: report.announced.clone(),
        };
        let polled = self.read.reports.iter();
        let polled = polled.map(|(gateway, report)| announcer(report, self.reports.is_answering(gateway)));
        // A gateway in this process has nothing to report before its first table.
        let own = self.read.own.iter().filter(|own| own.generation > 0).map(|own| announcer(own, true));
        let announcers: Vec<Announcer> = polled.chain(own).collect();
        let mode = if self.gateway_failures.gateways().ready == 0 {
            AnnounceMode::Off
        } else if announcers.iter().any(|it| it.addresses.is_some()) {
            AnnounceMode::On
        } else if announcers.is_empty() && (self.read.own.is_some() || self.reports.any(Liveness::Late)) {
            AnnounceMode::Unknown
        } else {
            AnnounceMode::Off
        };
        (mode, announcers)
    }

    /// Returns the Services whose failures changed. Reports are evaluated again only if they changed or contain a Service in
    /// `touched`.
    fn refresh_gateway_failures(&mut self, touched: &BTreeSet<ServiceKey>) -> BTreeSet<ServiceKey> {
        let ready = gateway_reports::count(self.gateway_slices());
        let unasked = gateway_reports::any_without_port(self.gateway_slices());
        let own = self.own_gateway.as_mut().map(|own| own.borrow_and_update().clone());
        let reports = self.reports.now();
        let same = Arc::ptr_eq(&reports, &self.read.reports) && own == self.read.own;
        let stands = |standing| own.is_some() || unasked || self.reports.any(standing);
        let gateways = Gateways {
            ready: ready + usize::from(own.is_some()),
            answer: stands(Liveness::Answering),
            recent: stands(Liveness::Late),
        };
        if same && gateways == self.gateway_failures.gateways() && touched.is_disjoint(&self.read.named) {
            return BTreeSet::new();
        }
        let status = |key: &ServiceKey| self.pipeline.projector.status(key);
        let all = || reports.values().map(Arc::as_ref).chain(&own);
        let gateway_failures = GatewayFailures::read(gateways, all(), status);
        if !same {
            let named = gateway_failures::named(all());
            self.read = ReadReports { reports, own, named };
        }
        let before = std::mem::replace(&mut self.gateway_failures, gateway_failures);
        let mut differing: BTreeSet<ServiceKey> = self.gateway_failures.differing(&before).cloned().collect();
        for key in &differing {
            self.problems.set(ProblemSource::Gateways(key.clone()), self.gateway_failures.problems_of(key));
        }
        if self.gateway_failures.gateways().differs(before.gateways()) {
            return self.all_services();
        }
        if self.gateway_failures.unaware_of_gateways() != before.unaware_of_gateways() {
            differing.extend(self.pipeline.objects().gateway_api.gateways.keys().cloned());
        }
        differing
    }

    /// Whether each gateway had its time to answer, so that silence is meaningful. A gateway in this process reports nothing
    /// before its first table.
    pub(super) fn asked_all(&self) -> bool {
        let own = self.own_gateway.as_ref().is_none_or(|own| own.borrow().generation > 0);
        own && self.reports.asked_all()
    }
}
