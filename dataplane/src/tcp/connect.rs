//! Finding an endpoint that answers: pick, connect, and on failure pick another, before any byte of the client has
//! been taken from its socket.
//!
//! It must not know what is relayed afterwards.

use std::io;
use std::pin::Pin;
use std::time::Instant;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Sleep;

use crate::model::{ClientAddr, EndpointAddr, FrontendAddr};
use crate::pick::{Pick, PickRequest, Picked};
use crate::sys::Errno;
use crate::worker::Worker;

use super::PROBE_AFTER;
use super::counters::TcpCounters;
use super::shortage::{PAUSE, is_shortage};

/// How many endpoints one connection may try. Each may take the connect timeout, so this bounds the client's wait.
const ATTEMPTS: usize = 3;

/// How often a quiet endpoint is probed after the first time is the system's to say (tcp(7)): two system calls per
/// connection in place of four.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(PROBE_AFTER);

/// What came of looking for an endpoint.
#[derive(Debug)]
#[must_use]
pub(super) enum Connected {
    /// This endpoint took the connection.
    To(TcpStream, Picked),
    /// Endpoints were tried, none answered.
    Failed,
    /// The table has none for this client.
    NoEndpoint,
}

/// Connects `client` of `frontend` to an endpoint, each attempt bounded by the connect timeout, on the
/// connection's one `timer`.
///
/// Every attempt looks at the table anew, so an endpoint that has just left is not tried. Cancel safe.
pub(super) async fn connect(
    worker: &Worker,
    frontend: FrontendAddr,
    client: ClientAddr,
    counters: &TcpCounters,
    mut timer: Pin<&mut Sleep>,
) -> Connected {
    // Allocates only after a failure.
    let mut tried = Vec::new();
    while tried.len() < ATTEMPTS
        && let Some(picked) = pick(worker, frontend, client, &tried)
    {
        let endpoint = picked.addr();
        if !tried.is_empty() {
            counters.add_connect_retry();
        }
        timer.as_mut().reset(tokio::time::Instant::now() + worker.timeouts.connect);
        let outcome = tokio::select! {
            biased;
            outcome = open(endpoint) => outcome,
            () = timer.as_mut() => Err(io::ErrorKind::TimedOut.into()),
        };
        match outcome {
            Ok(stream) => return Connected::To(stream, picked),
            Err(error) => {
                tracing::debug!(client.addr = %client, %frontend, %endpoint, %error, "connect failed");
            }
        }
        tried.push(endpoint);
    }
    if tried.is_empty() { Connected::NoEndpoint } else { Connected::Failed }
}

fn pick(
    worker: &Worker,
    frontend: FrontendAddr,
    client: ClientAddr,
    tried: &[EndpointAddr],
) -> Option<Picked> {
    let table = worker.table.load();
    let request = PickRequest {
        client,
        origin: table.origin(frontend, client),
        random: worker.random.next(),
        now: Instant::now(),
        tried,
    };
    match table.get(frontend)?.pick(&request, &worker.affinity) {
        // An endpoint that failed already comes back only when there is no other.
        Pick::Forward(picked) if !tried.contains(&picked.addr()) => Some(picked),
        Pick::Forward(_) | Pick::Reject | Pick::Drop => None,
    }
}

/// Connects one endpoint. While this machine is short of what a socket needs, it waits: no endpoint is to blame, and
/// the caller's timer ends the wait.
async fn open(endpoint: EndpointAddr) -> io::Result<TcpStream> {
    loop {
        match attempt(endpoint).await {
            Err(error) if is_own_shortage(&error) => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

async fn attempt(endpoint: EndpointAddr) -> io::Result<TcpStream> {
    let socket = if endpoint.ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // The relay writes whole reads: waiting for more (Nagle) could only add latency.
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE)?;
    socket.connect(endpoint.socket_addr()).await
}

/// Descriptors, memory or ephemeral ports have run out here (connect(2), socket(2)).
fn is_own_shortage(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .map(Errno::from_raw)
        .is_some_and(|errno| is_shortage(errno) || matches!(errno, Errno::EADDRNOTAVAIL | Errno::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_blamed_for_its_own_failures_only() {
        assert!(is_own_shortage(&Errno::EMFILE.into()) && is_own_shortage(&Errno::EADDRNOTAVAIL.into()));
        assert!(
            !is_own_shortage(&Errno::ECONNREFUSED.into()) && !is_own_shortage(&Errno::EHOSTUNREACH.into())
        );
        assert!(!is_own_shortage(&io::ErrorKind::TimedOut.into()));
    }
}
