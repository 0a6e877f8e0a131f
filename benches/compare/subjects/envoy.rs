//! Configuration of Envoy: one listener and one cluster for each port.

use super::address;
use crate::entrant::Subject;
use crate::ports::{BACKLOG, TCP, UDP};
use crate::topology::SERVER;

const TYPES: &str = "type.googleapis.com/envoy.extensions.filters";

/// Circuit breaker limit that is never reached; the default is 1,024 connections.
const UNLIMITED: u32 = 1_000_000;

/// SO_RCVBUF of SOL_SOCKET for datagrams: 4 MiB, as for nginx.
const RECEIVE_BUFFER: &str = "{level: 1, name: 8, int_value: 4194304}";

pub(super) fn config() -> String {
    let listeners: String = TCP.map(tcp_listener).into_iter().chain(UDP.map(udp_listener)).collect();
    let clusters: String = TCP.into_iter().chain(UDP).map(cluster).collect();
    format!("static_resources:\n  listeners:\n{listeners}  clusters:\n{clusters}")
}

fn tcp_listener(port: u16) -> String {
    let address = address(Subject::Envoy);
    format!(
        "  - name: p{port}
    address: {{socket_address: {{address: {address}, port_value: {port}}}}}
    tcp_backlog_size: {BACKLOG}
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          \"@type\": {TYPES}.network.tcp_proxy.v3.TcpProxy
          stat_prefix: p{port}
          cluster: p{port}
          idle_timeout: 3600s
"
    )
}

fn udp_listener(port: u16) -> String {
    let address = address(Subject::Envoy);
    format!(
        "  - name: p{port}
    address: {{socket_address: {{address: {address}, port_value: {port}, protocol: UDP}}}}
    socket_options: [{RECEIVE_BUFFER}]
    listener_filters:
    - name: udp
      typed_config:
        \"@type\": {TYPES}.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: p{port}
        matcher:
          on_no_match:
            action:
              name: route
              typed_config: {{\"@type\": {TYPES}.udp.udp_proxy.v3.Route, cluster: p{port}}}
"
    )
}

fn cluster(port: u16) -> String {
    let endpoint =
        format!("endpoint: {{address: {{socket_address: {{address: {SERVER}, port_value: {port}}}}}}}");
    format!(
        "  - name: p{port}
    type: STATIC
    connect_timeout: 5s
    upstream_bind_config: {{socket_options: [{RECEIVE_BUFFER}]}}
    circuit_breakers:
      thresholds: [{{max_connections: {UNLIMITED}, max_pending_requests: {UNLIMITED}}}]
    load_assignment:
      cluster_name: p{port}
      endpoints: [{{lb_endpoints: [{{{endpoint}}}]}}]
"
    )
}
