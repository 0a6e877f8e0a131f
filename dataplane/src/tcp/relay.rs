//! Both directions of one connection until it ends: half-close is kept, a reset on one side becomes a reset on the
//! other, and a connection that is quiet for too long is closed.
//!
//! It must not know how the endpoint was chosen.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::counters::{CloseReason, TcpCounters};
use super::direction::{Broken, Direction, RelayBuffers, Side};

/// The idle timer looks this many times per timeout: a quiet connection is closed after one timeout at the earliest
/// and 1 + 1/LOOKS of it at the latest, and no byte that passes has to touch a timer.
const LOOKS: u32 = 4;

/// Moves bytes both ways until both have ended, one side breaks, or nothing moved for `idle`. `upload` is the way from
/// client to endpoint, with what it may hold already.
///
/// Cancel safe in the sense that dropping the future closes nothing by itself: the caller owns both streams. Bytes
/// that were read but not written are lost with it.
pub(super) async fn relay(
    client: &TcpStream,
    endpoint: &TcpStream,
    upload: &mut Direction,
    buffers: &RelayBuffers,
    counters: &TcpCounters,
    mut timer: Pin<&mut Sleep>,
    idle: Duration,
) -> CloseReason {
    let mut download = Direction::new();
    let (mut client_error, mut endpoint_error) = (ErrorWatch::default(), ErrorWatch::default());
    let mut watch = IdleWatch { moved: 0, quiet: 0 };
    timer.as_mut().reset(Instant::now() + idle / LOOKS);
    poll_fn(|cx| {
        let before = (upload.moved(), download.moved());
        let mut failure = None;
        if !upload.is_over() {
            let moved = upload.poll(cx, client, endpoint, buffers, download.is_over());
            failure = broken(moved, Peer::Client, Peer::Endpoint);
        }
        if failure.is_none() && !download.is_over() {
            let moved = download.poll(cx, endpoint, client, buffers, upload.is_over());
            failure = broken(moved, Peer::Endpoint, Peer::Client);
        }
        counters.add_bytes(upload.moved() - before.0, download.moved() - before.1);
        // A direction that reads hears of a reset by itself.
        if failure.is_none() && !upload.reads() {
            failure = client_error.poll(cx, client).map(|error| (Peer::Client, error));
        }
        if failure.is_none() && !download.reads() {
            failure = endpoint_error.poll(cx, endpoint).map(|error| (Peer::Endpoint, error));
        }
        if let Some((peer, error)) = failure {
            tracing::debug!(%error, ?peer, "connection broke");
            return Poll::Ready(peer.reset_other(client, endpoint));
        }
        if upload.is_over() && download.is_over() {
            return Poll::Ready(CloseReason::Finished);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if watch.look(upload.moved() + download.moved()) {
                if upload.holds() || download.holds() {
                    reset_on_close(&SockRef::from(client));
                    reset_on_close(&SockRef::from(endpoint));
                }
                return Poll::Ready(CloseReason::Idle);
            }
            timer.as_mut().reset(Instant::now() + idle / LOOKS);
        }
        Poll::Pending
    })
    .await
}

/// Hears of a stream's reset while nobody reads it: its peer has sent FIN before, or is held back. Costs nothing until
/// then.
#[derive(Default)]
struct ErrorWatch<'a>(Option<Pin<Box<dyn Future<Output = io::Result<Ready>> + 'a>>>);

impl<'a> ErrorWatch<'a> {
    /// The error, once there is one.
    fn poll(&mut self, cx: &mut Context<'_>, stream: &'a TcpStream) -> Option<io::Error> {
        let waiting = self.0.get_or_insert_with(|| Box::pin(stream.ready(Interest::ERROR)));
        match waiting.as_mut().poll(cx) {
            Poll::Pending => None,
            Poll::Ready(Err(error)) => Some(error),
            Poll::Ready(Ok(_)) => {
                let pending = stream.take_error().ok().flatten();
                Some(pending.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
            }
        }
    }
}

/// Notices quiet by comparing byte counts at each look.
struct IdleWatch {
    moved: u64,
    quiet: u32,
}

impl IdleWatch {
    /// Whether the connection has been quiet for a whole timeout.
    fn look(&mut self, moved: u64) -> bool {
        self.quiet = if moved == self.moved { self.quiet + 1 } else { 0 };
        self.moved = moved;
        self.quiet >= LOOKS
    }
}

/// One of the two parties of a connection.
#[derive(Clone, Copy, Debug)]
enum Peer {
    Client,
    Endpoint,
}

impl Peer {
    /// This peer broke the connection: the other one shall see a reset too, not an orderly end.
    fn reset_other(self, client: &TcpStream, endpoint: &TcpStream) -> CloseReason {
        let (other, reason) = match self {
            Self::Client => (endpoint, CloseReason::ClientReset),
            Self::Endpoint => (client, CloseReason::EndpointReset),
        };
        reset_on_close(&SockRef::from(other));
        reason
    }
}

/// Makes the coming close send RST and discard what is unsent (SO_LINGER of zero, tcp(7)).
pub(super) fn reset_on_close(stream: &SockRef<'_>) {
    if let Err(error) = stream.set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "the peer will see FIN in place of RST");
    }
}

/// The peer that broke, if the direction that moves bytes between these two did.
fn broken(moved: Poll<Result<(), Broken>>, from: Peer, to: Peer) -> Option<(Peer, io::Error)> {
    match moved {
        Poll::Ready(Err(Broken { side: Side::From, error })) => Some((from, error)),
        Poll::Ready(Err(Broken { side: Side::To, error })) => Some((to, error)),
        Poll::Ready(Ok(())) | Poll::Pending => None,
    }
}
