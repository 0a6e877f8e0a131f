//! What is traced: a frontend and a client, with what the gateway decides about them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sheave_control::projection::explain::ExplainView;
use sheave_dataplane::Observer;
use sheave_dataplane::select::Origin;
use sheave_model::{ClientSource, EndpointAddr, Frontend, FrontendAddr, Path, Protocol};

use crate::http::query::Overview;
use crate::views::explain::{Answer, Client};
use crate::views::gateways::{AddressView, GatewaysView};
use crate::views::status::ProcessView;
use crate::views::traffic::TrafficCounts;

/// A frontend and a client, as the gateway sees them.
pub(super) struct Subject {
    /// Whether the Service and the port exist.
    pub(super) exists: bool,
    pub(super) view: ExplainView,
    pub(super) status: ProcessView,
    pub(super) client: Option<Client>,
    /// The frontend of the table; `None` if there is none for the question.
    pub(super) frontend: Option<Arc<Frontend>>,
    /// Gateways that announce addresses, if they do: whether each announces what it can serve, and the state of this address.
    pub(super) announced: Option<(bool, Option<AddressView>)>,
    /// Whether the kernel carries its connections.
    pub(super) by_kernel: bool,
    /// Traffic of the frontend since it was added.
    pub(super) counts: TrafficCounts,
    /// Endpoints that the client may get, in order and each once, on the default network path.
    pub(super) endpoints: Vec<SocketAddr>,
    /// Number of those on other network paths, which cannot be probed.
    pub(super) out_of_reach: usize,
}

impl Subject {
    pub(super) fn new(
        answer: Answer,
        overview: Overview,
        observer: &Observer,
        client: Option<Client>,
    ) -> Self {
        let (exists, view) = match answer {
            Answer::Explained(view) => (true, view),
            Answer::NotFound(view) => (false, view),
        };
        let objects = overview.objects.unwrap_or_default();
        let addr = view.frontend.as_deref().and_then(parse_frontend);
        let active = observer.table();
        let frontend = addr.and_then(|addr| active.table().get(addr).cloned());
        let announced = overview.announcements.as_deref().map(|status| {
            let gateways = GatewaysView::new(status, &objects.policies);
            let ip = addr.map(|addr| addr.ip.to_string());
            let row = gateways.addresses.into_iter().find(|row| Some(&row.address) == ip.as_ref());
            (gateways.shared, row)
        });
        let by_kernel = frontend.as_ref().is_some_and(|it| objects.obstacles.no_kernel_path.allow(it));
        let mut counts = TrafficCounts::default();
        if let Some(workers) = addr.and_then(|addr| observer.counters(addr)).and_then(|it| it.upgrade()) {
            counts.add_frontend(&workers);
        }
        let (endpoints, out_of_reach) = endpoints(&view, frontend.as_deref());
        let status = overview.status;
        Self { exists, view, status, client, frontend, announced, by_kernel, counts, endpoints, out_of_reach }
    }

    /// A command that asks the same of a gateway; none is this one.
    pub(super) fn command(&self, name: &str, gateway: Option<&str>) -> String {
        let kind = match self.view.source.as_str() {
            "" | "Service" => String::new(),
            "MultiClusterService" => "mcs ".to_owned(),
            kind => format!("{} ", kind.to_lowercase()),
        };
        let client = self.client.map(|client| format!(" --client {client}")).unwrap_or_default();
        let gateway = gateway.map(|node| format!(" --gateway {node}")).unwrap_or_default();
        format!("sheave {name} {kind}{}{client}{gateway}", self.view.service)
    }

    /// Address, port and protocol of the frontend.
    pub(super) fn addr(&self) -> Option<FrontendAddr> {
        self.frontend.as_ref().map(|frontend| frontend.addr)
    }

    /// The client's address, if there is a client of the frontend's family.
    pub(super) fn client_ip(&self) -> Option<IpAddr> {
        let ip = self.client?.ip;
        self.addr().is_none_or(|addr| addr.ip.is_ipv4() == ip.is_ipv4()).then_some(ip)
    }

    /// Source that endpoints see of this client.
    pub(super) fn client_source(&self) -> ClientSource {
        let sources = self.frontend.as_ref().map(|it| it.client_sources).unwrap_or_default();
        match self.origin() {
            Origin::Internal => sources.internal,
            Origin::External => sources.external,
        }
    }

    fn origin(&self) -> Origin {
        if self.view.origin.as_deref() == Some("internal") { Origin::Internal } else { Origin::External }
    }
}

/// Endpoints that the client may get, in order and each once: those on the default network path, and the number of those on others.
fn endpoints(view: &ExplainView, frontend: Option<&Frontend>) -> (Vec<SocketAddr>, usize) {
    let parts = view.split.iter().flat_map(|part| &part.endpoints);
    let used = view.endpoints.iter().chain(parts).filter(|endpoint| endpoint.used);
    let used: BTreeSet<&str> = used.map(|endpoint| endpoint.address.as_str()).collect();
    let backends = frontend.into_iter().flat_map(Frontend::pools).flat_map(|pool| pool.backends.iter());
    let addrs = backends.flat_map(|backend| &backend.endpoints).map(|endpoint| endpoint.addr);
    let all: BTreeSet<EndpointAddr> = addrs.filter(|addr| used.contains(addr.to_string().as_str())).collect();
    let here = all.iter().filter(|endpoint| endpoint.path == Path::DEFAULT);
    let here: Vec<SocketAddr> = here.map(|endpoint| endpoint.socket_addr()).collect();
    let others = all.len() - here.len();
    (here, others)
}

/// Parses `address:port/protocol`.
fn parse_frontend(text: &str) -> Option<FrontendAddr> {
    let (addr, protocol) = text.rsplit_once('/')?;
    let (addr, protocol) = (addr.parse::<SocketAddr>().ok()?, Protocol::named(protocol)?);
    Some(FrontendAddr { ip: addr.ip(), port: addr.port(), protocol })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frontend_is_read_as_it_is_shown() {
        for text in ["203.0.113.10:80/TCP", "[2001:db8::1]:53/UDP"] {
            assert_eq!(parse_frontend(text).unwrap().to_string(), text);
        }
        assert_eq!(parse_frontend("203.0.113.10:80"), None);
    }
}
