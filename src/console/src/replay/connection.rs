//! A logged connection, with its names as numbers.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use sheave_model::FrontendSource;

use super::log_line::{LineError, LogLine, address, or_empty, required};
use super::names::{EndpointId, LoggedNames, RouteId};
use crate::views::routes::source_name;

/// Maximum length of a name. Kubernetes allows less.
const LONGEST_NAME: usize = 400;
/// Longest connection: a century.
const LONGEST: f64 = 3_155_760_000.0;

/// Reasons for which a connection without an endpoint ended because it could not get one. All others ended before one was chosen.
const NO_ENDPOINT: [&str; 5] = ["", "no_endpoint", "invalid_backend", "denied", "no_route"];

/// A connection of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReplayedConnection {
    pub(super) route: RouteId,
    pub(super) client: SocketAddr,
    pub(super) proxy: Option<SocketAddr>,
    pub(super) endpoint: Option<EndpointId>,
    /// Whether the gateway looked for an endpoint.
    pub(super) asked: bool,
    /// When it was accepted, in nanoseconds since 1970.
    pub(super) start: i64,
    /// When it ended.
    pub(super) end: i64,
    pub(super) client_bytes: u64,
    pub(super) endpoint_bytes: u64,
}

impl ReplayedConnection {
    /// Reads a line.
    pub(super) fn of(line: &LogLine<'_>, names: &mut LoggedNames) -> Result<Self, LineError> {
        let time = required("time", line.time.as_ref())?;
        let ended: Timestamp =
            time.parse().map_err(|_| LineError::value("time", time, "a time (RFC 3339)"))?;
        let duration = duration(line.duration_seconds.unwrap_or(0.0))?;
        let frontend = address("frontend", required("frontend", line.frontend.as_ref())?)?;
        let client = address("client", required("client", line.client.as_ref())?)?;
        let proxy =
            line.proxy.as_ref().map(|_| address("proxy", or_empty(line.proxy.as_ref()))).transpose()?;
        let endpoint = line.endpoint.as_ref().map(|_| address("endpoint", or_empty(line.endpoint.as_ref())));
        let endpoint = endpoint.transpose()?;
        let (cluster, node) = (or_empty(line.cluster.as_ref()), or_empty(line.node.as_ref()));
        for (key, name) in [("cluster", cluster), ("node", node)] {
            short("a name", key, name)?;
        }
        let reason = or_empty(line.reason.as_ref());
        let asked = endpoint.is_some() || NO_ENDPOINT.contains(&reason);
        let route = route(line, frontend, names)?;
        let endpoint = endpoint.map(|addr| names.endpoint(addr, cluster, node)).transpose()?;
        let end = i64::try_from(ended.as_nanosecond()).unwrap_or(i64::MAX);
        let start = end.saturating_sub(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX));
        let (client_bytes, endpoint_bytes) =
            (line.client_bytes.unwrap_or_default(), line.endpoint_bytes.unwrap_or_default());
        Ok(Self { route, client, proxy, endpoint, asked, start, end, client_bytes, endpoint_bytes })
    }
}

fn route(line: &LogLine<'_>, frontend: SocketAddr, names: &mut LoggedNames) -> Result<RouteId, LineError> {
    let service = required("service", line.service.as_ref())?;
    if !service.contains('/') {
        return Err(LineError::value("service", service, "a namespace/name"));
    }
    let port_name = or_empty(line.port_name.as_ref());
    short("a namespace/name", "service", service)?;
    short("a name", "portName", port_name)?;
    let source = or_empty(line.source.as_ref());
    let kinds = [FrontendSource::Service, FrontendSource::MultiClusterService, FrontendSource::Gateway];
    // The first version had no other kind.
    let kind = kinds.into_iter().find(|kind| source_name(*kind) == source);
    let kind = kind.or(source.is_empty().then_some(FrontendSource::Service));
    let kind = kind.ok_or_else(|| LineError::value("source", source, "a kind of object with frontends"))?;
    names.route((kind, service, port_name), frontend)
}

/// Refuses names that no object can have.
fn short(expected: &'static str, key: &'static str, name: &str) -> Result<(), LineError> {
    if name.len() > LONGEST_NAME { Err(LineError::value(key, name, expected)) } else { Ok(()) }
}

fn duration(seconds: f64) -> Result<Duration, LineError> {
    let wrong = || LineError::value("durationSeconds", &seconds.to_string(), "a duration in seconds");
    if !(0.0..=LONGEST).contains(&seconds) {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<ReplayedConnection, LineError> {
        ReplayedConnection::of(&LogLine::of_json(json.as_bytes()).unwrap(), &mut LoggedNames::default())
    }

    #[test]
    fn a_connection_began_before_it_ended() {
        let line = r#"{"time":"1970-01-01T00:00:10Z","service":"shop/web","frontend":"203.0.113.1:80","client":"[::ffff:192.0.2.1]:7","durationSeconds":1.5}"#;
        let connection = read(line).unwrap();
        assert_eq!((connection.start, connection.end), (8_500_000_000, 10_000_000_000));
        assert_eq!(connection.client, "192.0.2.1:7".parse().unwrap());
        assert!(connection.asked && connection.endpoint.is_none());
        let refused = line.replace("1.5", r#"1.5,"reason":"bad_proxy_header""#);
        assert!(!read(&refused).unwrap().asked);
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let error = |from: &str, to: &str| {
            let line = r#"{"time":"2026-01-01T00:00:00Z","service":"shop/web","source":"Service","frontend":"203.0.113.1:80","client":"192.0.2.1:7","durationSeconds":1}"#;
            assert!(line.contains(from));
            read(&line.replace(from, to)).unwrap_err().to_string()
        };
        assert_eq!(
            error("2026-01-01T", "yesterday"),
            r#"time: "yesterday00:00:00Z" is not a time (RFC 3339)"#
        );
        assert_eq!(error(":1}", ":-1}"), r#"durationSeconds: "-1" is not a duration in seconds"#);
        assert_eq!(error("shop/web", "web"), r#"service: "web" is not a namespace/name"#);
        assert!(error("shop/web", &format!("shop/{}", "x".repeat(500))).contains("is not a namespace/name"));
        assert_eq!(
            error(":\"Service", ":\"Ingress"),
            r#"source: "Ingress" is not a kind of object with frontends"#
        );
        assert_eq!(error(r#""client":"192.0.2.1:7","#, ""), "there is no client");
    }
}
