//! Known state of a gateway: its Services with their states, and the traffic of the selected rows in the last
//! second.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::fit::wide;
use super::messages::{
    FindingsMessage, LiveClient, LiveEndpoint, LiveMessage, LiveProcess, LiveService, LiveState,
    ServicesMessage, StateCounts, StatusMessage,
};
use super::table::{Item, ItemLabel, Severity};
use super::tracked::{Total, Tracked, TrackedRow};
use crate::arguments::TopRows;
use crate::views::escape::visible;
use crate::views::numbers::count;
use crate::views::top::{
    TopClient, TopCluster, TopEndpoint, TopOtherClients, TopService, TopTraffic, TopView,
};

/// Known state of a gateway.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) process: LiveProcess,
    /// Problems of the process.
    pub(super) wrong: Vec<String>,
    pub(super) states: StateCounts,
    pub(super) total: Total,
    known: HashMap<LiveService, LiveState>,
    /// Services without frontends, which have no counters.
    uncounted: Vec<(LiveService, Rc<ItemLabel>)>,
    /// Number of Services that are still to come.
    more: usize,
    services: Tracked<LiveService>,
    endpoints: Tracked<LiveEndpoint>,
    clients: Tracked<LiveClient>,
    /// Number of Services, ready endpoints and endpoints of each cluster.
    clusters: BTreeMap<String, Rc<ItemLabel>>,
}

impl Model {
    /// Applies an event. Returns whether it completes what the gateway sends each second.
    pub(super) fn take(&mut self, message: LiveMessage) -> bool {
        match message {
            LiveMessage::Status(StatusMessage { status, wrong }) => {
                (self.process, self.wrong) = (status, wrong);
            }
            LiveMessage::Findings(FindingsMessage { services }) => self.states = services,
            LiveMessage::Services(message) => self.take_services(message),
            LiveMessage::Traffic(traffic) => {
                self.total.take(traffic.uptime_milliseconds, traffic.total.into());
            }
            LiveMessage::ServiceTraffic(message) => {
                let known = &self.known;
                if self.services.take(message, |name| service_label(name, known.get(name))) {
                    self.list_uncounted();
                }
                return true;
            }
            LiveMessage::EndpointTraffic(message) => {
                if self.endpoints.take(message, endpoint_label) {
                    self.list_clusters();
                }
                return true;
            }
            LiveMessage::ClientTraffic(message) => {
                self.clients.take(message, client_label);
                return true;
            }
            LiveMessage::Stuck(why) => self.wrong = vec![why],
        }
        false
    }

    /// Forgets all rows and their counters. The gateway sends all of them again to a new stream.
    pub(super) fn forget_traffic(&mut self) {
        (self.services, self.endpoints, self.clients) = Default::default();
        self.uncounted.clear();
        self.clusters.clear();
    }

    fn take_services(&mut self, message: ServicesMessage) {
        let ServicesMessage { reset, rows, removed, more } = message;
        if reset {
            self.known.clear();
        }
        removed.iter().for_each(|gone| {
            self.known.remove(gone);
        });
        for state in rows {
            if let Some(row) = self.services.get_mut(&state.name) {
                row.shown = Rc::new(service_label(&state.name, Some(&state)));
            }
            self.known.insert(state.name.clone(), state);
        }
        self.more = more;
        self.list_uncounted();
    }

    fn list_uncounted(&mut self) {
        let uncounted = self.known.values().filter(|state| !self.services.contains(&state.name));
        self.uncounted = uncounted
            .map(|state| (state.name.clone(), Rc::new(service_label(&state.name, Some(state)))))
            .collect();
    }

    fn list_clusters(&mut self) {
        let mut clusters = BTreeMap::<&str, (HashSet<&LiveService>, usize, usize)>::new();
        for row in self.endpoints.rows() {
            let (services, ready, of) = clusters.entry(&row.label.cluster).or_default();
            services.insert(&row.label.of);
            *ready += usize::from(row.label.state == "Ready");
            *of += 1;
        }
        let labels = clusters.into_iter().map(|(cluster, (services, ready, of))| {
            (cluster.to_owned(), Rc::new(cluster_label(cluster, services.len(), (ready, of))))
        });
        self.clusters = labels.collect();
    }

    /// Interval of the rates of these rows, in seconds; `None` before the second count.
    pub(super) fn seconds(&self, rows: TopRows) -> Option<f64> {
        let clock = match rows {
            TopRows::Services => self.services.clock(),
            TopRows::Endpoints | TopRows::Clusters => self.endpoints.clock(),
            TopRows::Clients => self.clients.clock(),
        };
        clock.seconds.filter(|_| self.more == 0)
    }

    /// All rows, ordered by their text.
    pub(super) fn items(&self, rows: TopRows) -> Vec<Item> {
        match rows {
            TopRows::Services => {
                let counted = self.services.numbered().map(numbered);
                let uncounted = self.uncounted.iter().map(|(_, label)| item(label, TopTraffic::default()));
                let mut items: Vec<Item> = counted.chain(uncounted).collect();
                if !self.uncounted.is_empty() {
                    items.sort_by(|one, other| one.label.texts.cmp(&other.label.texts));
                }
                items
            }
            TopRows::Endpoints => self.endpoints.numbered().map(numbered).collect(),
            TopRows::Clusters => {
                let clusters = self.traffic_of_clusters();
                let all: f64 = clusters.values().map(|traffic| traffic.opened_per_second).sum();
                let items = self.clusters.iter().map(|(cluster, label)| {
                    let traffic = clusters.get(cluster.as_str()).copied().unwrap_or_default();
                    let share = (all > 0.0).then(|| 100.0 * traffic.opened_per_second / all);
                    Item { share, ..item(label, traffic) }
                });
                items.collect()
            }
            TopRows::Clients => {
                let rows = self.clients.numbered().filter(|(_, row)| row.shown.stands_for == 0);
                rows.map(numbered).collect()
            }
        }
    }

    /// Bars of what a row has opened recently.
    pub(super) fn bars(&self, rows: TopRows, item: &Item, width: usize) -> String {
        let bars = item.number.and_then(|number| match rows {
            TopRows::Services => self.services.bars(number, width),
            TopRows::Endpoints => self.endpoints.bars(number, width),
            TopRows::Clients => self.clients.bars(number, width),
            TopRows::Clusters => None,
        });
        bars.unwrap_or_default()
    }

    /// Row that sums up the clients without a row of their own.
    pub(super) fn without_row(&self, rows: TopRows) -> Option<Item> {
        let others = || self.clients.rows().find(|row| row.shown.stands_for > 0);
        (rows == TopRows::Clients).then(others)?.map(|row| item(&row.shown, row.traffic))
    }

    fn traffic_of_clusters(&self) -> HashMap<&str, TopTraffic> {
        let mut clusters = HashMap::<&str, TopTraffic>::new();
        for row in self.endpoints.rows() {
            let traffic = clusters.entry(&row.label.cluster).or_default();
            traffic.open += row.traffic.open;
            traffic.opened_per_second += row.traffic.opened_per_second;
            traffic.client_bytes_per_second += row.traffic.client_bytes_per_second;
            traffic.endpoint_bytes_per_second += row.traffic.endpoint_bytes_per_second;
        }
        clusters
    }

    /// JSON view of the rows that pass `fits`, by name.
    pub(super) fn view(&self, rows: TopRows, fits: impl Fn(&ItemLabel) -> bool) -> TopView {
        let mut view = TopView {
            node: visible(&self.process.node).into_owned(),
            seconds: self.seconds(rows).unwrap_or_default(),
            total: self.total.traffic,
            ..TopView::default()
        };
        match rows {
            TopRows::Services => view.services = Some(self.top_services(fits)),
            TopRows::Endpoints => view.endpoints = Some(self.top_endpoints(fits)),
            TopRows::Clusters => {
                let items = self.items(TopRows::Clusters);
                let labelled = items.iter().zip(&self.clusters).filter(|(item, _)| fits(&item.label));
                view.clusters =
                    Some(labelled.map(|(item, (cluster, _))| top_cluster(cluster, item)).collect());
            }
            TopRows::Clients => {
                let clients = self.clients.rows();
                let clients = clients.filter(|row| row.shown.stands_for == 0 && fits(&row.shown));
                view.clients = Some(clients.map(|row| top_client(&row.label, row.traffic)).collect());
                view.other_clients = self.without_row(rows).map(|item| TopOtherClients {
                    prefixes: item.label.stands_for,
                    traffic: item.traffic.into(),
                });
            }
        }
        view
    }

    fn top_services(&self, fits: impl Fn(&ItemLabel) -> bool) -> Vec<TopService> {
        let counted = self.services.rows().filter(|row| fits(&row.shown));
        let counted = counted.map(|row| (&*row.label, row.traffic));
        let uncounted = self.uncounted.iter().filter(|(_, label)| fits(label));
        let uncounted = uncounted.map(|(name, _)| (name, TopTraffic::default()));
        let service = |(name, traffic): (&LiveService, TopTraffic)| {
            let state = self.known.get(name).cloned().unwrap_or_default();
            let (ready_endpoints, endpoints) = state.endpoints();
            let LiveService { service, source } = name.clone();
            let LiveState { state, why, .. } = state;
            TopService { service, source, state, why, ready_endpoints, endpoints, traffic }
        };
        let mut services: Vec<TopService> = counted.chain(uncounted).map(service).collect();
        services.sort_by(|one, other| (&one.service, &one.source).cmp(&(&other.service, &other.source)));
        services
    }

    fn top_endpoints(&self, fits: impl Fn(&ItemLabel) -> bool) -> Vec<TopEndpoint> {
        let rows = self.endpoints.rows().filter(|row| fits(&row.shown));
        let endpoint = rows.map(|row| {
            let LiveEndpoint { of, cluster, endpoint, state, why, node } = (*row.label).clone();
            let LiveService { service, source } = of;
            let traffic = row.traffic.into();
            TopEndpoint { endpoint, service, source, cluster, node, state, why, traffic }
        });
        let mut endpoints: Vec<TopEndpoint> = endpoint.collect();
        endpoints.sort_by(|one, other| {
            let key =
                |it: &TopEndpoint| [&it.service, &it.source, &it.cluster, &it.endpoint].map(String::clone);
            key(one).cmp(&key(other))
        });
        endpoints
    }
}

fn item(label: &Rc<ItemLabel>, traffic: TopTraffic) -> Item {
    Item { label: Rc::clone(label), traffic, share: None, number: None }
}

fn numbered<L>((number, row): (u32, &TrackedRow<L>)) -> Item {
    Item { number: Some(number), ..item(&row.shown, row.traffic) }
}

fn top_cluster(cluster: &str, item: &Item) -> TopCluster {
    let (ready_endpoints, endpoints) = item.label.ready.unwrap_or_default();
    TopCluster {
        cluster: cluster.to_owned(),
        services: item.label.services,
        ready_endpoints,
        endpoints,
        traffic: item.traffic.into(),
        share: item.share,
    }
}

fn top_client(client: &LiveClient, traffic: TopTraffic) -> TopClient {
    let LiveService { service, source } = client.uses.clone();
    TopClient { prefix: client.prefix.clone(), service, source, traffic: traffic.into() }
}

/// Name of a Service for display. A MultiClusterService may have the same name as a Service, so it is marked.
pub(super) fn shown_name(name: &LiveService) -> String {
    match name.source.as_str() {
        "Service" => visible(&name.service).into_owned(),
        "Gateway" => format!("gateway/{}", visible(&name.service)),
        _ => format!("mcs/{}", visible(&name.service)),
    }
}

fn service_label(name: &LiveService, state: Option<&LiveState>) -> ItemLabel {
    let state = state.cloned().unwrap_or_default();
    let severity = match state.state.as_str() {
        "broken" => Severity::Bad,
        "degraded" => Severity::Warning,
        _ => Severity::Fine,
    };
    let ready = Some(state.endpoints());
    let texts = vec![shown_name(name), visible(&state.state).into_owned()];
    let label = labelled(texts, severity, ready, &state.why);
    ItemLabel { of: Some(name.clone()), why_width: width(&label.note), why: label.note.clone(), ..label }
}

fn endpoint_label(endpoint: &LiveEndpoint) -> ItemLabel {
    let LiveEndpoint { of, cluster, endpoint, state, why, node } = endpoint;
    let severity = match state.as_str() {
        "Unhealthy" => Severity::Bad,
        "Ready" => Severity::Fine,
        _ => Severity::Warning,
    };
    let shown = |text: &str| visible(text).into_owned();
    let texts = vec![shown(endpoint), shown_name(of), shown(cluster), shown(state), shown(node)];
    let on = if node.is_empty() { String::new() } else { format!("on Node {node}") };
    let parts: Vec<&str> = [on.as_str(), why].into_iter().filter(|part| !part.is_empty()).collect();
    let label = labelled(texts, severity, None, &parts.join(": "));
    let why = shown(why);
    ItemLabel { of: Some(of.clone()), why_width: width(&why), why, ..label }
}

fn cluster_label(cluster: &str, services: usize, ready: (usize, usize)) -> ItemLabel {
    let severity = match ready {
        (0, _) => Severity::Bad,
        (ready, of) if ready < of => Severity::Warning,
        _ => Severity::Fine,
    };
    let label = labelled(vec![visible(cluster).into_owned()], severity, Some(ready), "");
    ItemLabel { services, ..label }
}

fn client_label(client: &LiveClient) -> ItemLabel {
    let LiveClient { prefix, uses, others } = client;
    let name = match others {
        0 => visible(prefix).into_owned(),
        others => format!("and {} more", count(*others as f64)),
    };
    let service = if uses.service.is_empty() { String::new() } else { shown_name(uses) };
    let label = labelled(vec![name, service], Severity::Fine, None, "");
    ItemLabel { stands_for: *others, of: Some(uses.clone()).filter(|uses| !uses.service.is_empty()), ..label }
}

fn width(text: &str) -> u16 {
    u16::try_from(wide(text)).unwrap_or(u16::MAX)
}

fn labelled(texts: Vec<String>, severity: Severity, ready: Option<(usize, usize)>, note: &str) -> ItemLabel {
    let note = visible(note).into_owned();
    let words = format!("{}\n{note}", texts.join("\n")).to_lowercase();
    let widths = texts.iter().map(|text| width(text)).collect();
    ItemLabel { texts, widths, severity, ready, note, words, ..ItemLabel::default() }
}
