//! Line of the connection log.

use std::net::SocketAddr;

use jiff::Timestamp;
use serde::Serialize;
use sheave_dataplane::ConnectionRecord;

use crate::views::routes::source_name;

/// JSON object of a line. Keys may be added, but are never renamed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line<'a> {
    /// Time when the connection ended.
    time: Timestamp,
    service: String,
    port_name: &'a str,
    source: &'static str,
    frontend: SocketAddr,
    client: SocketAddr,
    /// Proxy that sent the client's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    /// Time from accept to the endpoint's answer; missing if none answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_seconds: Option<f64>,
    duration_seconds: f64,
    client_bytes: u64,
    endpoint_bytes: u64,
    reason: &'static str,
}

impl<'a> Line<'a> {
    pub(super) fn of(record: &'a ConnectionRecord) -> Self {
        let (frontend, endpoint) = (&record.frontend, record.endpoint.as_ref());
        let place = endpoint.and_then(|endpoint| endpoint.place.as_ref());
        let peer = canonical(record.peer.0);
        let named = record.named_client.map(canonical).filter(|client| *client != peer);
        Self {
            time: record.ended.try_into().unwrap_or_else(|_| Timestamp::now()),
            service: frontend.service.to_string(),
            port_name: &frontend.service.port_name,
            source: source_name(frontend.service.source),
            frontend: frontend.addr.socket_addr(),
            client: named.unwrap_or(peer),
            proxy: named.map(|_| peer),
            endpoint: endpoint.map(|endpoint| endpoint.addr.socket_addr()),
            cluster: place.map(|(cluster, _)| &**cluster),
            node: place.map(|(_, node)| &**node).filter(|node| !node.is_empty()),
            connect_seconds: record.connected_after.map(|after| after.as_secs_f64()),
            duration_seconds: record.duration.as_secs_f64(),
            client_bytes: record.client_bytes,
            endpoint_bytes: record.endpoint_bytes,
            reason: record.reason.label(),
        }
    }
}

/// Converts an IPv4-mapped address of an IPv6 socket to IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
