//! Requests to Sheave's admin server on the gateway: readiness, the number of tables, and those of status pages and Prometheus.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use sheave_test_support::host::Host;
use sheave_test_support::http;

use crate::failure::{During, Failure};

/// Address of the admin server.
pub(crate) const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9841);

const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the gateway serves with a complete table.
pub(crate) fn ready(gateway: &Host) -> bool {
    // A failed connection counts as not ready. The caller retries, and finds out whether the process is alive.
    gateway.run(|| fetch("/readyz")).is_ok()
}

/// Generation of the table in force.
pub(crate) fn generation(gateway: &Host) -> Result<u64, Failure> {
    let body = gateway.run(|| fetch("/api/routes"))?;
    let routes: Value = serde_json::from_str(&body)
        .map_err(|error| Failure::program("sheave", format!("/api/routes is not JSON: {error}")))?;
    let generation = routes.get("generation").and_then(Value::as_u64);
    generation.ok_or_else(|| Failure::program("sheave", "/api/routes has no generation"))
}

/// How many UDP flows there are.
pub(crate) fn flows(gateway: &Host) -> Result<u64, Failure> {
    const NAME: &str = "sheave_gateway_udp_flows ";
    let body = gateway.run(|| fetch("/metrics"))?;
    let value =
        body.lines().find_map(|line| line.strip_prefix(NAME)).and_then(|text| text.trim().parse().ok());
    value.ok_or_else(|| Failure::program("sheave", format!("/metrics has no {NAME}")))
}

/// A page that must answer 200. The calling thread must be on the gateway.
pub(crate) fn fetch(path: &str) -> Result<String, Failure> {
    let response = http::get(ADMIN, path).during(format!("ask http://{ADMIN}{path}"))?;
    if response.status == 200 {
        Ok(response.body)
    } else {
        Err(Failure::program("sheave", format!("{path} answers {}: {}", response.status, response.body)))
    }
}

/// Requests a stream. The calling thread must be on the gateway.
pub(crate) fn stream(path: &str) -> Result<TcpStream, Failure> {
    let asking = || format!("ask http://{ADMIN}{path}");
    let mut stream = TcpStream::connect(ADMIN).during(asking())?;
    stream.set_read_timeout(Some(PATIENCE)).during(asking())?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").during(asking())?;
    Ok(stream)
}
