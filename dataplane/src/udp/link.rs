//! What a flow keeps to reach both its ends: a socket towards the endpoint with the task that reads it, and the socket
//! through which the client is answered.
//!
//! It must not know when a flow is opened, moved or ended.

use std::io;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::batch::BundleLimit;
use super::flow_table::FlowOwner;
use super::flow_table::{Links, Way};
use super::frontend::UdpFrontend;
use super::sockets::{Socket, Upstream};
use super::{forward, reply};
use crate::limits::capacity::Capacity;
use crate::proxy_protocol::{self, Addresses, Transport};
use crate::sys::Errno;
use crate::sys::errnos::{is_out_of_udp_ports, is_peer_unreachable, is_source_unusable};
use crate::task::{self, Task};
use sheave_model::{ClientSource, EndpointAddr};

/// A socket on the frontend's address, and the task that reads what clients send to it; none if that is read elsewhere. The
/// frontend's own is shared by all its flows; after retirement each flow has one to itself.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) socket: Rc<Socket>,
    _reader: Option<Task>,
    _descriptor: Option<Descriptor>,
}

/// A descriptor beyond the one that every flow has; given back when dropped.
#[derive(Debug)]
pub(super) struct Descriptor(Arc<Capacity>);

impl Descriptor {
    /// Takes one.
    ///
    /// # Errors
    /// `EMFILE` if there is none.
    pub(super) fn take(capacity: &Arc<Capacity>) -> io::Result<Self> {
        if capacity.try_take(1) { Ok(Self(Arc::clone(capacity))) } else { Err(Errno::EMFILE.into()) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.give(1);
    }
}

impl ClientSide {
    /// Starts to read `socket`, which has a descriptor of its own if it is for one client alone.
    pub(super) fn start(
        state: &Rc<UdpFrontend>,
        socket: Rc<Socket>,
        descriptor: Option<Descriptor>,
    ) -> Rc<Self> {
        let reader = Task::spawn(forward::receive(Rc::clone(state), Rc::clone(&socket)));
        Rc::new(Self { socket, _reader: Some(reader), _descriptor: descriptor })
    }

    /// ReplySocket only.
    pub(super) fn deaf(socket: Rc<Socket>, descriptor: Descriptor) -> Rc<Self> {
        Rc::new(Self { socket, _reader: None, _descriptor: Some(descriptor) })
    }
}

/// Both ends of a flow.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) upstream: Rc<Upstream>,
    pub(super) upstream_limit: BundleLimit,
    /// Begins each datagram to the endpoint; empty unless that is to be told of the client so.
    pub(super) header: Vec<u8>,
    pub(super) client_side: Rc<ClientSide>,
    pub(super) client_limit: BundleLimit,
    _replies: Task,
}

/// Opens links for clients whose datagrams came in on one socket.
pub(super) struct Opener<'a> {
    state: &'a Rc<UdpFrontend>,
    /// An endpoint towards which ports are scarce, and who has the most of them.
    pub(super) crowding: Option<(EndpointAddr, Weak<dyn FlowOwner>)>,
}

impl Links for Opener<'_> {
    type Link = Link;

    fn open(&mut self, way: &Way, previous: Option<&Link>) -> io::Result<Link> {
        let (client_side, client_limit) = match previous {
            Some(link) => (Rc::clone(&link.client_side), link.client_limit),
            None => (self.state.client_side()?, self.state.initial_limit()),
        };
        let upstream = self.upstream(way)?;
        if let Some(Link { upstream, .. }) = previous {
            let (state, before, back) = (self.state, Rc::clone(upstream), Rc::clone(&client_side));
            drop(task::spawn(reply::last(Rc::clone(state), way.client, before, back)));
        }
        let replies = Task::spawn(reply::receive(Rc::clone(self.state), way.client, Rc::clone(&upstream)));
        let (upstream_limit, header) = (self.state.initial_limit(), self.header(way));
        Ok(Link { upstream, upstream_limit, header, client_side, client_limit, _replies: replies })
    }
}

impl<'a> Opener<'a> {
    pub(super) fn new(state: &'a Rc<UdpFrontend>) -> Self {
        Self { state, crowding: None }
    }

    fn upstream(&mut self, way: &Way) -> io::Result<Rc<Upstream>> {
        let UdpFrontend { context, addr: frontend, counters, .. } = &**self.state;
        let speaker = context.transparency.source_ip(way.source, way.client, *frontend, way.endpoint);
        let owner: Weak<dyn FlowOwner> = Rc::<UdpFrontend>::downgrade(self.state);
        let opened =
            from_whom_it_can(speaker, |speaker| context.offload.upstream(way.endpoint, speaker, &owner));
        let lacking = opened.as_ref().is_err_and(is_out_of_udp_ports);
        self.crowding = context.offload.crowding(way.endpoint, lacking).map(|holder| (way.endpoint, holder));
        let (upstream, speaker) = opened.inspect_err(|error| {
            if is_peer_unreachable(error) {
                self.state.endpoint_failed(way.endpoint, error);
            }
        })?;
        let lost = way.source == ClientSource::Transparent && speaker.is_none();
        counters.add(|it| &it.source_lost, usize::from(lost));
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
}

/// Opens a way from the address of `speaker`, or from the gateway's if that one cannot be used; says which it was.
fn from_whom_it_can<T>(
    speaker: Option<IpAddr>,
    mut open: impl FnMut(Option<IpAddr>) -> io::Result<T>,
) -> io::Result<(T, Option<IpAddr>)> {
    match open(speaker) {
        Err(error) if speaker.is_some() && is_source_unusable(&error) => {
            tracing::debug!(?speaker, %error, "speaking from the gateway's address");
            Ok((open(None)?, None))
        }
        outcome => Ok((outcome?, speaker)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::udp::local_ports::LocalPorts;
    use crate::udp::sockets::Offload;
    use sheave_model::EndpointAddr;

    const CLIENT: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)));

    /// Who is tried in turn if the first attempt ends so, and what comes of it.
    fn tried(errno: Errno) -> (Vec<Option<IpAddr>>, Option<Option<IpAddr>>) {
        let mut tried = Vec::new();
        let outcome = from_whom_it_can(CLIENT, |speaker| {
            tried.push(speaker);
            if tried.len() == 1 { Err(errno.into()) } else { Ok(()) }
        });
        (tried, outcome.ok().map(|((), speaker)| speaker))
    }

    #[test]
    fn the_gateway_speaks_for_itself_if_the_clients_address_fails_to_connect() {
        for errno in [Errno::EADDRNOTAVAIL, Errno::EADDRINUSE, Errno::EINVAL, Errno::EAGAIN] {
            assert_eq!(tried(errno), (vec![CLIENT, None], Some(None)), "{errno}");
        }
        assert_eq!(tried(Errno::ENETUNREACH), (vec![CLIENT], None), "the endpoint's own failure");
    }

    #[test]
    fn an_address_that_cannot_be_bound_is_given_up_and_the_endpoint_is_reached() {
        let endpoint = EndpointAddr::new(Ipv4Addr::LOCALHOST.into(), 9);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _reactor = runtime.enter();
        // An address of the other family cannot be bound, whatever one may.
        let other_family = Some(std::net::Ipv6Addr::LOCALHOST.into());
        let offload = Offload::new(Arc::default(), LocalPorts::of_worker(0, 1));
        let nobody: Weak<dyn FlowOwner> = Weak::<UdpFrontend>::new();
        let (upstream, speaker) =
            from_whom_it_can(other_family, |speaker| offload.upstream(endpoint, speaker, &nobody)).unwrap();
        let bound = upstream.get_ref().local_addr().unwrap().as_socket().unwrap();
        assert_eq!((bound.ip(), speaker), (endpoint.ip, None));
    }
}
