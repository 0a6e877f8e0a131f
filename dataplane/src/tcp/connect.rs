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
use crate::paths::Paths;
use crate::pick::{Pick, PickRequest, Picked};
use crate::sys::bind_as_client::{bind_as_client, is_of_the_source};
use crate::worker::Worker;

use super::PROBE_AFTER;
use super::counters::TcpCounters;
use super::shortage::{PAUSE, is_own_shortage};

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
            let speaker = transparency.speaker(source, self.client, self.frontend, endpoint);
            let mut way = Way { endpoint, paths: &self.worker.paths, speaker, short: false };
            while attempts < ATTEMPTS {
                attempts += 1;
                timer.as_mut().reset(tokio::time::Instant::now() + self.worker.timeouts.connect);
                let outcome = tokio::select! {
                    biased;
                    outcome = way.open() => outcome,
                    () = timer.as_mut() => Err(io::ErrorKind::TimedOut.into()),
                };
                let error = match outcome {
                    Ok(stream) => {
                        self.worker.reports.answered(self.frontend.protocol, endpoint);
                        if source == ClientSource::Transparent && way.speaker.is_none() {
                            self.counters.add_source_lost();
                        }
                        return Connected::To(stream, picked, source);
                    }
                    Err(error) => error,
                };
                let Self { client, frontend, .. } = self;
                tracing::debug!(client.addr = %client, %frontend, %endpoint, ?way.speaker, %error, "connect failed");
                // Its answers to the client may go another way than through this machine.
                if error.kind() != io::ErrorKind::TimedOut || way.speaker.take().is_none() {
                    if !way.short {
                        self.worker.reports.failed(&self.worker.table.load(), self.frontend, endpoint, error);
                    }
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

/// How one endpoint is to be connected.
#[derive(Debug)]
struct Way<'a> {
    endpoint: EndpointAddr,
    paths: &'a Paths,
    /// Whose address to speak from, if not the gateway's; taken away if it cannot be used.
    speaker: Option<IpAddr>,
    /// This machine lacked what a socket needs when it was last tried, so the endpoint is not to blame.
    short: bool,
}

impl Way<'_> {
    /// Connects. While this machine is short of what a socket needs, it waits, and the caller's timer ends the wait.
    async fn open(&mut self) -> io::Result<TcpStream> {
        loop {
            let outcome = self.attempt().await;
            self.short = outcome.as_ref().is_err_and(is_own_shortage);
            match outcome {
                Err(error) if self.speaker.is_some() && is_of_the_source(&error) => {
                    let Self { endpoint, speaker, .. } = self;
                    tracing::debug!(?speaker, %endpoint, %error, "speaking from the gateway's address");
                    self.speaker = None;
                }
                Err(_) if self.short => tokio::time::sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    async fn attempt(&self) -> io::Result<TcpStream> {
        let Self { endpoint, paths, .. } = self;
        let socket = if endpoint.ip.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // The relay writes whole reads: waiting for more (Nagle) could only add latency.
        socket.set_nodelay(true)?;
        SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE)?;
        paths.bind(&SockRef::from(&socket), endpoint.path)?;
        if let Some(client) = self.speaker {
            bind_as_client(&SockRef::from(&socket), client)?;
        }
        socket.connect(endpoint.socket_addr()).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn an_address_that_cannot_be_bound_is_given_up_and_the_endpoint_is_reached() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let endpoint = listener.local_addr().unwrap();
        let endpoint = EndpointAddr::new(endpoint.ip(), endpoint.port());
        // An address of the other family cannot be bound, whatever one may.
        let speaker = Some(Ipv6Addr::LOCALHOST.into());
        let mut way = Way { endpoint, paths: &Paths::default(), speaker, short: false };
        let stream = way.open().await.unwrap();
        assert_eq!((stream.local_addr().unwrap().ip(), way.speaker), (endpoint.ip, None));
    }
}
