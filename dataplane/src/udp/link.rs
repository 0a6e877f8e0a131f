//! What a flow keeps to reach both its ends: a socket towards the endpoint with the task that reads it, and the socket
//! through which the client is answered.
//!
//! It must not know when a flow is opened, moved or ended.

use std::io;
use std::rc::Rc;

use super::batch::BundleLimit;
use super::flows::{Links, Way};
use super::socket::Socket;
use super::state::State;
use super::{forward, reply};
use crate::model::ClientSource;
use crate::proxy_protocol::{self, Addresses, Transport};
use crate::sys::bind_as_client::bind_as_client;
use crate::task::Task;

/// A socket on the frontend's address, and the task that reads what clients send to it. The frontend's own is shared by
/// all its flows; after retirement each flow has one to itself.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) socket: Rc<Socket>,
    _reader: Task,
}

impl ClientSide {
    /// Starts to read `socket`.
    pub(super) fn start(state: &Rc<State>, socket: Rc<Socket>) -> Rc<Self> {
        let reader = Task::spawn(forward::receive(Rc::clone(state), Rc::clone(&socket)));
        Rc::new(Self { socket, _reader: reader })
    }
}

/// Both ends of a flow.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) upstream: Rc<Socket>,
    pub(super) upstream_limit: BundleLimit,
    /// Begins each datagram to the endpoint; empty unless that is to be told of the client so.
    pub(super) header: Vec<u8>,
    pub(super) client_side: Rc<ClientSide>,
    pub(super) client_limit: BundleLimit,
    _replies: Task,
}

/// Opens links for clients whose datagrams came in on one socket.
pub(super) struct Opener<'a> {
    pub(super) state: &'a Rc<State>,
}

impl Links for Opener<'_> {
    type Link = Link;

    fn open(&mut self, way: &Way, previous: Option<&Link>) -> io::Result<Link> {
        let (client_side, client_limit) = match previous {
            Some(link) => (Rc::clone(&link.client_side), link.client_limit),
            // A retired frontend takes no new flows, so one that does has its listening socket.
            None => (self.state.listening().ok_or(io::ErrorKind::NotConnected)?, self.state.initial_limit()),
        };
        let upstream = self.upstream(way)?;
        let replies = Task::spawn(reply::receive(Rc::clone(self.state), way.client, Rc::clone(&upstream)));
        let (upstream_limit, header) = (self.state.initial_limit(), self.header(way));
        Ok(Link { upstream, upstream_limit, header, client_side, client_limit, _replies: replies })
    }
}

impl Opener<'_> {
    fn upstream(&self, way: &Way) -> io::Result<Rc<Socket>> {
        let mut lost = false;
        let upstream = self.state.context.offload.upstream(way.endpoint, |socket| {
            lost = way.source == ClientSource::Transparent && !self.speaks_as_client(socket, way);
        })?;
        self.state.counters.source_lost.add(usize::from(lost));
        Ok(upstream)
    }

    /// Version 1 of the header knows TCP alone, so a flow that is to have it goes as the gateway's own.
    fn header(&self, way: &Way) -> Vec<u8> {
        match way.source {
            ClientSource::ProxyV2 => {
                let addresses =
                    Addresses { client: way.client.0, destination: self.state.addr.socket_addr() };
                proxy_protocol::write_v2(Transport::Datagram, &addresses)
            }
            ClientSource::Gateway | ClientSource::Transparent | ClientSource::ProxyV1 => Vec::new(),
        }
    }

    /// Gives `socket` the client's address, if that can work.
    fn speaks_as_client(&self, socket: &socket2::Socket, way: &Way) -> bool {
        let State { context, addr: frontend, .. } = &**self.state;
        let Some(client) = context.transparency.speaker(way.client, *frontend, way.endpoint) else {
            return false;
        };
        bind_as_client(socket, client)
            .inspect_err(|error| tracing::debug!(client.addr = %client, %error, "not bound as the client"))
            .is_ok()
    }
}
