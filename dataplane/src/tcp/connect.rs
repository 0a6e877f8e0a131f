//! Finding an endpoint that answers: pick, connect, and on failure pick another, before any byte of the client has
//! been taken from its socket.
//!
//! It must not know what is relayed afterwards.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Instant;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Sleep;

use crate::model::{ClientAddr, ClientSource, EndpointAddr, FrontendAddr};
use crate::pick::{Pick, PickRequest, Picked};
use crate::sys::Errno;
use crate::sys::bind_as_client::{bind_as_client, is_of_the_source};
use crate::worker::Worker;

use super::PROBE_AFTER;
use super::counters::TcpCounters;
use super::shortage::{PAUSE, is_shortage};

/// How often one connection may try to connect an endpoint. Each attempt may take the connect timeout, so this bounds the client's wait.
const ATTEMPTS: usize = 3;

/// How often a quiet endpoint is probed after the first time is the system's to say (tcp(7)): two system calls per
/// connection in place of four.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new().with_time(PROBE_AFTER);

/// What came of looking for an endpoint.
#[derive(Debug)]
#[must_use]
pub(super) enum Connected {
    /// This endpoint took the connection, and is to see this of the client.
    To(TcpStream, Picked, ClientSource),
    /// Endpoints were tried, none answered.
    Failed,
    /// The table has none for this client.
    NoEndpoint,
}

/// Whom an endpoint is looked for, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    pub(super) worker: &'a Worker,
    pub(super) frontend: FrontendAddr,
    pub(super) client: ClientAddr,
    pub(super) counters: &'a TcpCounters,
}

impl Search<'_> {
    /// Connects an endpoint, each attempt bounded by the connect timeout, on the connection's one `timer`.
    ///
    /// Every endpoint is picked by the table of that moment, so one that has just left is not tried. An endpoint that is
    /// silent when spoken to from the client's address is tried once more from the gateway's. Cancel safe.
    pub(super) async fn connect(&self, mut timer: Pin<&mut Sleep>) -> Connected {
        // Allocates only after a failure.
        let mut tried = Vec::new();
        let mut attempts = 0;
        while attempts < ATTEMPTS
            && let Some((picked, source)) = self.pick(&tried)
        {
            let endpoint = picked.addr();
            if !tried.is_empty() {
                self.counters.add_connect_retry();
            }
            let transparency = &self.worker.transparency;
            let mut speaker = transparency.speaker(source, self.client, self.frontend, endpoint);
            while attempts < ATTEMPTS {
                attempts += 1;
                timer.as_mut().reset(tokio::time::Instant::now() + self.worker.timeouts.connect);
                let outcome = tokio::select! {
                    biased;
                    outcome = open(endpoint, &mut speaker) => outcome,
                    () = timer.as_mut() => Err(io::ErrorKind::TimedOut.into()),
                };
                let error = match outcome {
                    Ok(stream) => {
                        if source == ClientSource::Transparent && speaker.is_none() {
                            self.counters.add_source_lost();
                        }
                        return Connected::To(stream, picked, source);
                    }
                    Err(error) => error,
                };
                let Self { client, frontend, .. } = self;
                tracing::debug!(client.addr = %client, %frontend, %endpoint, ?speaker, %error, "connect failed");
                // Its answers to the client may go another way than through this machine.
                if error.kind() != io::ErrorKind::TimedOut || speaker.take().is_none() {
                    break;
                }
            }
            tried.push(endpoint);
        }
        if tried.is_empty() { Connected::NoEndpoint } else { Connected::Failed }
    }

    fn pick(&self, tried: &[EndpointAddr]) -> Option<(Picked, ClientSource)> {
        let Self { worker, client, .. } = *self;
        let table = worker.table.load();
        let origin = table.origin(self.frontend, client);
        let request =
            PickRequest { client, origin, random: worker.random.next(), now: Instant::now(), tried };
        let frontend = table.get(self.frontend)?;
        match frontend.pick(&request, &worker.affinity) {
            // An endpoint that failed already comes back only when there is no other.
            Pick::Forward(picked) if !tried.contains(&picked.addr()) => {
                Some((picked, frontend.client_source(origin)))
            }
            Pick::Forward(_) | Pick::Reject | Pick::Drop => None,
        }
    }
}

/// Connects one endpoint, from the address of `speaker` if there is one; it is taken away if it cannot be used. While
/// this machine is short of what a socket needs, it waits: no endpoint is to blame, and the caller's timer ends the
/// wait.
async fn open(endpoint: EndpointAddr, speaker: &mut Option<IpAddr>) -> io::Result<TcpStream> {
    loop {
        match attempt(endpoint, *speaker).await {
            Err(error) if speaker.is_some() && is_of_the_source(&error) => {
                tracing::debug!(?speaker, %endpoint, %error, "speaking from the gateway's address");
                *speaker = None;
            }
            Err(error) if is_own_shortage(&error) => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

async fn attempt(endpoint: EndpointAddr, speaker: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = if endpoint.ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // The relay writes whole reads: waiting for more (Nagle) could only add latency.
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE)?;
    if let Some(client) = speaker {
        bind_as_client(&SockRef::from(&socket), client)?;
    }
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
    use std::net::{Ipv6Addr, TcpListener};

    use super::*;

    #[test]
    fn an_endpoint_is_blamed_for_its_own_failures_only() {
        assert!(is_own_shortage(&Errno::EMFILE.into()) && is_own_shortage(&Errno::EADDRNOTAVAIL.into()));
        assert!(
            !is_own_shortage(&Errno::ECONNREFUSED.into()) && !is_own_shortage(&Errno::EHOSTUNREACH.into())
        );
        assert!(!is_own_shortage(&io::ErrorKind::TimedOut.into()));
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_bound_is_given_up_and_the_endpoint_is_reached() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let endpoint = listener.local_addr().unwrap();
        let endpoint = EndpointAddr::new(endpoint.ip(), endpoint.port());
        // An address of the other family cannot be bound, whatever one may.
        let mut speaker = Some(Ipv6Addr::LOCALHOST.into());
        let stream = open(endpoint, &mut speaker).await.unwrap();
        assert_eq!((stream.local_addr().unwrap().ip(), speaker), (endpoint.ip, None));
    }
}
