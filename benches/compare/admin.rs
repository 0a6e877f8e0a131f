//! Client of Sheave's admin server: readiness, the number of tables, and the requests of status pages and Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::failure::{During, Failure};
use crate::subjects::ADMIN;
use crate::topology::Host;

const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the gateway serves with a complete table.
pub(crate) fn ready(gateway: &Host) -> Result<bool, Failure> {
    // A failed connection counts as not ready. The caller retries, and finds out whether the process is alive.
    let answer = gateway.call(|| get("/readyz"))?;
    Ok(answer.is_ok_and(|(status, _)| status == "200"))
}

/// Generation of the table in force.
pub(crate) fn generation(gateway: &Host) -> Result<u64, Failure> {
    let (_, body) = gateway.call(|| get("/api/routes"))??;
    let routes: Value = serde_json::from_str(&body)
        .map_err(|error| Failure::program("sheave", format!("/api/routes is not JSON: {error}")))?;
    let generation = routes.get("generation").and_then(Value::as_u64);
    generation.ok_or_else(|| Failure::program("sheave", "/api/routes has no generation"))
}

/// How many UDP flows there are.
pub(crate) fn flows(gateway: &Host) -> Result<u64, Failure> {
    const NAME: &str = "sheave_gateway_udp_flows ";
    let (_, body) = gateway.call(|| get("/metrics"))??;
    let value =
        body.lines().find_map(|line| line.strip_prefix(NAME)).and_then(|text| text.trim().parse().ok());
    value.ok_or_else(|| Failure::program("sheave", format!("/metrics has no {NAME}")))
}

/// Length of a page that must answer 200.
pub(crate) fn fetch(path: &str) -> Result<usize, Failure> {
    let (status, body) = get(path)?;
    if status == "200" {
        Ok(body.len())
    } else {
        Err(Failure::program("sheave", format!("{path} answers {status}: {body}")))
    }
}

/// Requests a stream. A read waits no longer than `patience`.
pub(crate) fn stream(path: &str, patience: Duration) -> Result<TcpStream, Failure> {
    let asking = || format!("ask http://{ADMIN}{path}");
    let mut stream = TcpStream::connect(ADMIN).during(asking())?;
    stream.set_read_timeout(Some(patience)).during(asking())?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").during(asking())?;
    Ok(stream)
}

/// Status code and body. With HTTP/1.0, the end of the connection is the end of the body.
fn get(path: &str) -> Result<(String, String), Failure> {
    let asking = || format!("ask http://{ADMIN}{path}");
    let mut stream = stream(path, PATIENCE)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).during(asking())?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    Ok((status.to_owned(), body.to_owned()))
}
