//! Opening a flow's link: a socket towards the endpoint, registered for reading, and the socket through which the client is
//! answered.

use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::context::{FormerWay, OPENING};
use super::flow_table::FlowOwner;
use super::flow_table::{Links, Way};
use super::frontend::{Link, UdpFrontend};
use super::local_ports::Crowding;
use super::registry::Source;
use super::sockets::Upstream;
use crate::proxy_protocol::{self, Addresses, Transport};
use crate::sys::errnos::{is_out_of_udp_ports, is_peer_unreachable, is_source_unusable};
use sheave_model::ClientSource;
use socket2::Socket;

/// Opens the links of one frontend's flows.
pub(super) struct Opener<'a> {
    state: &'a Rc<UdpFrontend>,
    /// The owner that is to give up a port, if they are scarce.
    pub(super) crowding: Option<Crowding>,
}

impl Links for Opener<'_> {
    type Link = Link;

    fn open(&mut self, way: &Way, previous: Option<&Link>) -> io::Result<Link> {
        let client_socket = self.state.open_client_socket()?;
        let upstream = self.upstream(way)?;
        let mut link = self.join(way, upstream)?;
        let context = &self.state.context;
        if let Some(Link { upstream, client_limit, .. }) = previous {
            link.client_limit = *client_limit;
            context.former_ways.borrow_mut().push(FormerWay {
                client: way.client,
                upstream: Rc::clone(upstream),
                client_socket,
                counters: Arc::clone(&self.state.counters()),
            });
        }
        Ok(link)
    }
}

impl<'a> Opener<'a> {
    pub(super) fn new(state: &'a Rc<UdpFrontend>) -> Self {
        Self { state, crowding: None }
    }

    /// The link of a flow of another process, with that flow's socket towards the endpoint.
    ///
    /// # Errors
    /// Returns the errors of [`Offload::take_over`](super::sockets::Offload::take_over), or an error if epoll_ctl(2) fails or the client
    /// cannot be answered.
    pub(super) fn take_over(&self, way: &Way, socket: Socket, port: Option<u16>) -> io::Result<Link> {
        let owner: Weak<dyn FlowOwner> = Rc::<UdpFrontend>::downgrade(self.state);
        let upstream =
            self.state.context.offload.take_over(socket, way.endpoint, way.client, port, &owner)?;
        self.state.open_client_socket()?;
        self.join(way, upstream)
    }

    /// The link with a socket towards the endpoint, which is read from now on.
    fn join(&self, way: &Way, upstream: Rc<Upstream>) -> io::Result<Link> {
        let UdpFrontend { context, place, .. } = &**self.state;
        let reading = Source::Endpoint(*place, way.client, Rc::clone(&upstream));
        let replies = context.registry.register(reading)?;
        let (limit, header) = (self.state.initial_limit(), self.header(way));
        Ok(Link { upstream, upstream_limit: limit, header, client_limit: limit, _replies: replies })
    }

    fn upstream(&mut self, way: &Way) -> io::Result<Rc<Upstream>> {
        let UdpFrontend { context, addr: frontend, .. } = &**self.state;
        let source_addr =
            context.worker.shared.transparency.source_addr(way.source, way.client, *frontend, way.endpoint);
        context.add_work(OPENING);
        let owner: Weak<dyn FlowOwner> = Rc::<UdpFrontend>::downgrade(self.state);
        let opened = from_whom_it_can(source_addr, |source_addr| {
            context.offload.upstream(way.endpoint, way.client, source_addr, &owner)
        });
        let lacking = opened.as_ref().is_err_and(is_out_of_udp_ports);
        self.crowding = context.offload.crowding(way.endpoint, way.client, lacking);
        let (upstream, source_addr) = opened.inspect_err(|error| {
            if is_peer_unreachable(error) && way.source != ClientSource::Transparent {
                self.state.endpoint_failed(way.endpoint, error);
            }
        })?;
        let lost = way.source == ClientSource::Transparent && source_addr.is_none();
        self.state.counters().add(|it| &it.source_lost, usize::from(lost));
        Ok(upstream)
    }

    /// The header before each datagram. Version 1 only supports TCP, so such a flow has none and comes from the gateway's address.
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

/// Calls `open` with `source_addr`, or without one if that address cannot be used; also returns the address used.
fn from_whom_it_can<T>(
    source_addr: Option<SocketAddr>,
    mut open: impl FnMut(Option<SocketAddr>) -> io::Result<T>,
) -> io::Result<(T, Option<SocketAddr>)> {
    match open(source_addr) {
        Err(error) if source_addr.is_some() && is_source_unusable(&error) => {
            tracing::debug!(?source_addr, %error, "sending from the gateway's address");
            Ok((open(None)?, None))
        }
        outcome => Ok((outcome?, source_addr)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::*;
    use crate::sys::Errno;
    use crate::udp::local_ports::LocalPorts;
    use crate::udp::sockets::Offload;
    use crate::worker::context::{Shared, Timeouts, WorkerContext};
    use sheave_model::{ClientAddr, EndpointAddr};

    const CLIENT: Option<SocketAddr> = Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 1));

    /// The source addresses that are tried if the first attempt fails with `errno`, and the one that is used.
    fn tried(errno: Errno) -> (Vec<Option<SocketAddr>>, Option<Option<SocketAddr>>) {
        let mut tried = Vec::new();
        let outcome = from_whom_it_can(CLIENT, |source_addr| {
            tried.push(source_addr);
            if tried.len() == 1 { Err(errno.into()) } else { Ok(()) }
        });
        (tried, outcome.ok().map(|((), source_addr)| source_addr))
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
        // An address of the other family can never be bound.
        let other_family = Some((std::net::Ipv6Addr::LOCALHOST, 1).into());
        let timeouts = Timeouts::all(Duration::from_secs(1));
        let worker = WorkerContext::new(Shared::for_tests(timeouts), 0, 1).unwrap();
        let offload = Offload::new(Arc::default(), LocalPorts::of_worker(&worker), Arc::default());
        let nobody: Weak<dyn FlowOwner> = Weak::<UdpFrontend>::new();
        let client = ClientAddr(([198, 51, 100, 1], 1).into());
        let (upstream, source_addr) = from_whom_it_can(other_family, |source_addr| {
            offload.upstream(endpoint, client, source_addr, &nobody)
        })
        .unwrap();
        let bound = upstream.socket().local_addr().unwrap().as_socket().unwrap();
        assert_eq!((bound.ip(), source_addr), (endpoint.ip, None));
    }
}
