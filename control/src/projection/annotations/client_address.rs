//! Annotations about client addresses: the source address that endpoints see, and the peers that send one in a PROXY header.

use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use sheave_model::{AddressSet, ClientSource, ClientSources, FrontendKind, Protocol};

use super::{ACCEPT_PROXY, CLIENT_SOURCE};
use crate::api::problem::report::Report;
use crate::net::Family;
use crate::projection::annotations;
use crate::projection::eligibility::TrafficPolicy;
use crate::projection::ports::PlannedPort;

/// How client addresses are passed on to the endpoints of a Service.
#[derive(Clone, Debug, Default)]
pub(in crate::projection) struct ClientAddress {
    /// Source for all kinds of frontends and for both external and internal clients; `None` follows the traffic policy.
    source: Option<ClientSource>,
    proxied_by_v4: Option<Arc<AddressSet>>,
    proxied_by_v6: Option<Arc<AddressSet>>,
}

impl ClientAddress {
    /// Sources that the endpoints of a frontend see.
    ///
    /// Kubernetes guarantees the client's address with `externalTrafficPolicy: Local` (API reference, Service). Clients inside
    /// the cluster also get endpoints on other nodes, whose answers would not return through this gateway, so their connections
    /// have the gateway's address.
    pub(in crate::projection) fn sources(
        &self,
        kind: FrontendKind,
        protocol: Protocol,
        external: TrafficPolicy,
    ) -> ClientSources {
        match self.source.filter(|source| carries(*source, protocol)) {
            Some(source) => ClientSources { external: source, internal: source },
            None if kind != FrontendKind::ClusterIp && external == TrafficPolicy::Local => {
                ClientSources { external: ClientSource::Transparent, internal: ClientSource::Gateway }
            }
            None => ClientSources::default(),
        }
    }

    /// Peers whose connections begin with a PROXY header.
    pub(in crate::projection) fn proxied_by(
        &self,
        family: Family,
        protocol: Protocol,
    ) -> Option<Arc<AddressSet>> {
        match (protocol, family) {
            (Protocol::Udp, _) => None,
            (Protocol::Tcp, Family::V4) => self.proxied_by_v4.clone(),
            (Protocol::Tcp, Family::V6) => self.proxied_by_v6.clone(),
        }
    }
}

/// Whether `source` works with `protocol`. Version 1 of the PROXY protocol supports only TCP (proxy-protocol.txt, section 2.1).
fn carries(source: ClientSource, protocol: Protocol) -> bool {
    !(source == ClientSource::ProxyV1 && protocol == Protocol::Udp)
}

/// Reads the annotations.
pub(in crate::projection) fn read(
    service: &Service,
    ports: &[PlannedPort],
    allow: &[IpNet],
    report: &mut Report,
) -> ClientAddress {
    let source = source(service, ports, report);
    let peers = peers(service, ports, allow, report);
    let of = |family| {
        let cidrs: Vec<&IpNet> = peers.iter().filter(|cidr| Family::of(cidr.addr()) == family).collect();
        (!cidrs.is_empty()).then(|| Arc::new(AddressSet::from_cidrs(cidrs)))
    };
    ClientAddress { source, proxied_by_v4: of(Family::V4), proxied_by_v6: of(Family::V6) }
}

fn source(service: &Service, ports: &[PlannedPort], report: &mut Report) -> Option<ClientSource> {
    let source = annotations::read(service, CLIENT_SOURCE, report, |asked| match asked.trim() {
        "gateway" => Ok(ClientSource::Gateway),
        "transparent" => Ok(ClientSource::Transparent),
        "proxy-v1" => Ok(ClientSource::ProxyV1),
        "proxy-v2" => Ok(ClientSource::ProxyV2),
        _ => Err(format!(
            "{asked:?} is not transparent, gateway, proxy-v1 or proxy-v2; endpoints see what the traffic policy asks for"
        )),
    })?;
    for port in ports.iter().filter(|port| !carries(source, port.protocol)) {
        let message = "proxy-v1 has no form for UDP; this port's endpoints see what the traffic policy asks for \
                       (proxy-v2 works for both)";
        report.invalid_port(annotations::field(CLIENT_SOURCE), port.problem_port(), message);
    }
    Some(source)
}

fn peers(service: &Service, ports: &[PlannedPort], allow: &[IpNet], report: &mut Report) -> Vec<IpNet> {
    let Some(listed) = annotations::value(service, ACCEPT_PROXY) else { return Vec::new() };
    let field = || annotations::field(ACCEPT_PROXY);
    let mut peers = Vec::new();
    for text in listed.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        match text.parse::<IpNet>() {
            Ok(cidr) if allow.iter().any(|allowed| allowed.contains(&cidr)) => peers.push(cidr.trunc()),
            Ok(cidr) => report.invalid(
                field(),
                format!("{cidr} is not within acceptProxy.allow of the configuration; peers in it are ordinary clients"),
            ),
            Err(_) => report.invalid(
                field(),
                format!("{text:?} is not a CIDR (as 10.0.0.0/8); peers in it are ordinary clients"),
            ),
        }
    }
    if listed.split(',').all(|text| text.trim().is_empty()) {
        report.invalid(field(), "names no CIDR of trusted peers; no PROXY header is read");
    }
    for port in ports.iter().filter(|port| port.protocol == Protocol::Udp && !peers.is_empty()) {
        let message =
            "PROXY headers are read on TCP ports only; datagrams on this port are taken as they are";
        report.invalid_port(field(), port.problem_port(), message);
    }
    peers
}
