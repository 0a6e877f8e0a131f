//! View of a replay's counts.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use sheave_dataplane::select::ActiveTable;

use super::chooser::{Refusal, frontend_addr};
use super::client_records::ClientCountsOfService;
use super::names::{EndpointId, FastMap, LoggedNames, ServiceId, ServiceName};
use super::tally::{EndpointLoads, Load, RefusedLoad, ServiceTally, Tally};
use crate::views::replay::{
    LoadView, RefusalView, ReplayCountsView, ReplayView, ReplayedAffinityView, ReplayedClusterView,
    ReplayedEndpointView, ReplayedServiceView,
};
use crate::views::routes::source_name;

/// What the view is made of.
pub(super) struct Report<'a> {
    pub(super) names: &'a LoggedNames,
    pub(super) active: &'a ActiveTable,
    pub(super) node: &'a str,
}

impl Report<'_> {
    /// The view of Services and clusters, without what was read and noted.
    pub(super) fn view(
        &self,
        tally: &Tally,
        clients: &HashMap<ServiceId, ClientCountsOfService>,
    ) -> ReplayView {
        let none = ClientCountsOfService::default();
        let mut services: Vec<ReplayedServiceView> = tally
            .services
            .iter()
            .map(|(id, tally)| {
                self.service(self.names.service_of(*id), tally, clients.get(id).unwrap_or(&none))
            })
            .collect();
        let affected = |view: &ReplayedServiceView| {
            let ReplayCountsView { moved, refused, newly_served, .. } = view.connections;
            moved + refused + newly_served
        };
        services.sort_by(|a, b| {
            let name =
                |it: &ReplayedServiceView| (it.service.clone(), it.port_name.clone(), it.source.clone());
            affected(b).cmp(&affected(a)).then_with(|| name(a).cmp(&name(b)))
        });
        let mut connections = ReplayCountsView::default();
        services.iter().for_each(|service| connections.add(&service.connections));
        let (from, to) = tally.span.unwrap_or_default();
        let mut view = ReplayView {
            node: self.node.to_owned(),
            connections,
            clusters: self.clusters(tally),
            services,
            ..ReplayView::default()
        };
        (view.log.from, view.log.to) = (time(from), time(to));
        view
    }

    fn service(
        &self,
        name: &ServiceName,
        tally: &ServiceTally,
        clients: &ClientCountsOfService,
    ) -> ReplayedServiceView {
        let refusals: Vec<RefusalView> =
            tally.refused.iter().map(|(refusal, load)| self.refusal(name, *refusal, load)).collect();
        // Without affinity, a client with one connection has nothing to lose.
        let lost = match (tally.sticky, clients.look_sticky()) {
            (true, _) => clients.lost,
            (false, true) => clients.lost_returning,
            (false, false) => 0,
        };
        ReplayedServiceView {
            source: source_name(name.source).to_owned(),
            service: name.service.to_string(),
            port_name: name.port_name.to_string(),
            connections: ReplayCountsView {
                total: tally.total.connections,
                moved: tally.moved(),
                refused: refusals.iter().map(|refusal| refusal.connections).sum(),
                newly_served: tally.newly_served,
                still_refused: tally.still_refused,
                undecided: tally.undecided,
                unasked: tally.unasked,
                clients_moved: lost,
            },
            exact: tally.exact,
            endpoints: self.endpoints(&tally.endpoints),
            refusals,
            affinity: ReplayedAffinityView {
                enabled: tally.sticky,
                clients: clients.clients,
                returning: clients.returning,
                kept: clients.kept,
                lost,
                lost_clients: match lost {
                    0 => Vec::new(),
                    _ => clients.examples.iter().map(ToString::to_string).collect(),
                },
            },
        }
    }

    fn endpoints(&self, endpoints: &FastMap<EndpointId, EndpointLoads>) -> Vec<ReplayedEndpointView> {
        let total =
            |load: fn(&EndpointLoads) -> Load| endpoints.values().map(|it| load(it).connections).sum();
        let (before, after) = (total(|it| it.before), total(|it| it.after));
        let view = |(id, loads): (&EndpointId, &EndpointLoads)| {
            let (name, node) = self.names.endpoint_of(*id);
            (
                name.addr,
                ReplayedEndpointView {
                    endpoint: name.addr.to_string(),
                    cluster: name.cluster.to_string(),
                    node: node.to_owned(),
                    before: load_view(loads.before, before),
                    after: load_view(loads.after, after),
                },
            )
        };
        let mut views: Vec<_> = endpoints.iter().map(view).collect();
        views.sort_by(|(a, left), (b, right)| a.cmp(b).then_with(|| left.cluster.cmp(&right.cluster)));
        views.into_iter().map(|(_, view)| view).collect()
    }

    fn clusters(&self, tally: &Tally) -> Vec<ReplayedClusterView> {
        let mut clusters: BTreeMap<&str, [Load; 2]> = BTreeMap::new();
        let mut total = [0; 2];
        for (id, loads) in tally.services.values().flat_map(|service| &service.endpoints) {
            let (name, _) = self.names.endpoint_of(*id);
            let of_cluster = clusters.entry(&name.cluster).or_default();
            for (side, load) in [loads.before, loads.after].into_iter().enumerate() {
                of_cluster[side].add(load);
                total[side] += load.connections;
            }
        }
        let view = |(cluster, [before, after]): (&str, [Load; 2])| ReplayedClusterView {
            cluster: cluster.to_owned(),
            before: load_view(before, total[0]),
            after: load_view(after, total[1]),
        };
        clusters.into_iter().map(view).collect()
    }

    fn refusal(&self, service: &ServiceName, refusal: Refusal, load: &RefusedLoad) -> RefusalView {
        let (reason, message) = match refusal {
            Refusal::NoFrontend => ("noFrontend", self.no_frontend(service, load)),
            Refusal::OtherService => ("otherService", self.other_service(load)),
            Refusal::SourceRanges => ("sourceRanges", "the source ranges exclude the client".to_owned()),
            Refusal::NoEndpoint => ("noEndpoint", "no endpoint is ready for these clients".to_owned()),
            Refusal::NoLocalEndpoint => {
                let node = if self.node.is_empty() { String::new() } else { format!(", {}", self.node) };
                let why = format!(
                    "there are endpoints, but the traffic policy allows none of them on this node{node}"
                );
                ("noLocalEndpoint", why)
            }
            Refusal::InvalidBackend => (
                "invalidBackend",
                "the backend of the route that has their share cannot be served".to_owned(),
            ),
        };
        RefusalView {
            reason: reason.to_owned(),
            message,
            connections: load.load.connections,
            bytes: load.load.bytes(),
            clients: load.clients.iter().map(ToString::to_string).collect(),
        }
    }

    /// Sentence about a frontend that another Service has.
    fn other_service(&self, load: &RefusedLoad) -> String {
        let frontend = load.frontend.map(frontend_addr);
        let owner = frontend.and_then(|addr| self.active.get(addr)).map(|it| it.spec().service.to_string());
        let at = frontend.map(|addr| addr.socket_addr().to_string()).unwrap_or_default();
        format!("{at} belongs to {}", owner.unwrap_or_default())
    }

    /// Sentence about a frontend that is gone: where its Service port is now.
    fn no_frontend(&self, service: &ServiceName, load: &RefusedLoad) -> String {
        let at = load.frontend.map(|frontend| frontend.to_string()).unwrap_or_default();
        let (namespace, name) = service.parts();
        let frontends = self.active.table().frontends().iter();
        let of_service = frontends.filter(|frontend| {
            let port = &frontend.service;
            port.source == service.source && *port.namespace == *namespace && *port.name == *name
        });
        let elsewhere: Vec<String> = of_service.take(3).map(|frontend| frontend.addr.to_string()).collect();
        match elsewhere.is_empty() {
            true => format!("nothing listens on {at} any more, and {} has no frontend", service.service),
            false => format!(
                "nothing listens on {at} any more; {} is at {}",
                service.service,
                elsewhere.join(", ")
            ),
        }
    }
}

fn load_view(load: Load, total: u64) -> LoadView {
    let Load { connections, client_bytes, endpoint_bytes } = load;
    let share = if total == 0 { 0.0 } else { connections as f64 / total as f64 };
    LoadView { connections, share, client_bytes, endpoint_bytes }
}

/// A time of the log; empty if there is none.
fn time(nanoseconds: i64) -> String {
    Timestamp::from_nanosecond(nanoseconds.into()).map(|time| time.to_string()).unwrap_or_default()
}
