//! Properties of the client that matter: where it is, whether it is admitted, and what endpoints see of it.

use std::net::IpAddr;

use ipnet::IpNet;
use sheave_dataplane::select::{ActiveFrontend, Origin};
use sheave_dataplane::transparent::{self, Masked};
use sheave_model::{
    ClientAddr, ClientSource, EndpointAddr, Frontend, FrontendKind, FrontendSource, Protocol,
};

use super::Basis;
use super::question::Client;

/// Limit of CIDRs in one sentence.
const NAMED: usize = 8;

/// Client as the frontend's socket would see it; an unknown port is 0.
pub(super) fn addr(client: Client) -> ClientAddr {
    ClientAddr((client.ip, client.port.unwrap_or(0)).into())
}

/// Location of the client, with the reason.
pub(super) fn origin(frontend: &Frontend, client: Client, basis: Basis<'_>) -> (Origin, String) {
    let ip = client.ip;
    let origin = basis.active.origin(frontend.addr, addr(client));
    let reason = match origin {
        Origin::External => format!(
            "{ip} counts as outside the cluster: it is in no pod CIDR and no internalCIDRs, and no Node has it"
        ),
        Origin::Internal if ip == frontend.addr.ip => format!(
            "{ip} counts as inside the cluster: it is the frontend's own address, so the client is on this machine"
        ),
        Origin::Internal => match basis.projector.inside(basis.objects, ip) {
            Some(inside) => format!("{ip} counts as inside the cluster: it is {inside}"),
            None => format!("{ip} counts as inside the cluster by the table in force"),
        },
    };
    (origin, reason)
}

/// Sentence about frontends that accept PROXY headers.
pub(super) fn proxied(frontend: &Frontend, client: Option<Client>) -> Option<String> {
    let trusted = frontend.proxied_by.as_ref()?;
    Some(match client {
        Some(client) if trusted.contains(client.ip) => format!(
            "{} is trusted by sheave.dev/accept-proxy: its connections must begin with a PROXY protocol header, and \
             everything here goes by the client that the header names, not by {}",
            client.ip, client.ip
        ),
        _ => "connections from peers in sheave.dev/accept-proxy go by the client that their PROXY protocol header names"
            .to_owned(),
    })
}

/// Whether the client may use the frontend, with the reason.
pub(super) fn admission(frontend: &Frontend, client: Option<Client>) -> (bool, String) {
    let ranges = &frontend.source_ranges;
    let field = ranges_field(frontend);
    let family = if frontend.addr.ip.is_ipv4() { "IPv4" } else { "IPv6" };
    if ranges.allowed().is_empty() {
        let why = format!("{field} has no valid CIDR; all packets are silently dropped");
        return (false, format!("no client is admitted: {why}"));
    }
    if ranges.cidrs().is_empty() {
        let why = match frontend.kind {
            FrontendKind::LoadBalancer => format!("no {field} limit {family} clients"),
            FrontendKind::ExternalIp | FrontendKind::NodePort | FrontendKind::ClusterIp => {
                "loadBalancerSourceRanges are for load balancer addresses alone".to_owned()
            }
        };
        return (true, format!("every client is admitted: {why}"));
    }
    let list = list(ranges.cidrs());
    let Some(Client { ip, .. }) = client else {
        return (true, format!("only clients in {field} are admitted ({list}); what follows is for those"));
    };
    let admits = ranges.cidrs().iter().find(|cidr| cidr.contains(&ip));
    match (ranges.allowed().contains(ip), admits) {
        (true, Some(cidr)) => (true, format!("{ip} is admitted: {cidr} of {field} has it")),
        (true, None) => (true, format!("{ip} is admitted: {field} admit this node, whose address it is")),
        (false, _) => {
            let verdict = "its packets are silently dropped";
            (false, format!("{ip} is not admitted: none of {field} has it ({list}); {verdict}"))
        }
    }
}

/// Where the source ranges of a frontend are given.
fn ranges_field(frontend: &Frontend) -> &'static str {
    match frontend.service.source {
        FrontendSource::Gateway => "sheave.dev/source-ranges",
        FrontendSource::Service | FrontendSource::MultiClusterService => "loadBalancerSourceRanges",
    }
}

fn list(cidrs: &[IpNet]) -> String {
    let mut list: Vec<String> = cidrs.iter().take(NAMED).map(ToString::to_string).collect();
    if cidrs.len() > NAMED {
        list.push(format!("and {} more", cidrs.len() - NAMED));
    }
    list.join(", ")
}

/// Sentence about the source address that the endpoint sees. `endpoint` is the chosen one, if known.
pub(super) fn seen(
    active: &ActiveFrontend,
    origin: Origin,
    client: Option<IpAddr>,
    endpoint: Option<EndpointAddr>,
    basis: Basis<'_>,
) -> String {
    let header = match active.spec().addr.protocol {
        Protocol::Tcp => "at the beginning of the connection",
        Protocol::Udp => "at the beginning of each datagram",
    };
    match active.client_source(origin) {
        ClientSource::Gateway => "the endpoint sees the gateway's address, not the client's".to_owned(),
        ClientSource::Transparent => match (masked(active, client, endpoint), basis.no_client_addresses) {
            (Some(why), _) => format!("the endpoint sees the gateway's address: {why}"),
            (None, None) => "the endpoint sees the client's own address (transparent)".to_owned(),
            (None, Some(why)) => {
                format!("the endpoint sees the gateway's address, in place of the client's own: {why}")
            }
        },
        ClientSource::ProxyV1 => {
            format!(
                "the endpoint sees the gateway's address, and a PROXY protocol header (version 1) {header} names the client"
            )
        }
        ClientSource::ProxyV2 => {
            format!(
                "the endpoint sees the gateway's address, and a PROXY protocol header (version 2) {header} names the client"
            )
        }
    }
}

/// Reason why the client's own address cannot be used; `None` if no reason is known.
fn masked(active: &ActiveFrontend, client: Option<IpAddr>, endpoint: Option<EndpointAddr>) -> Option<Masked> {
    let (client, frontend) = (client?, active.spec().addr);
    let local = transparent::local_addresses();
    match endpoint {
        Some(endpoint) => transparent::source_ip(client, frontend, endpoint, &local),
        None => transparent::presentable(client, frontend, &local),
    }
    .err()
}
