//! Forwarding from clients to endpoints: reads a batch from a frontend's socket, sorts it by client, and sends each client's
//! datagrams through its flow.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use socket2::Socket;

use super::batch::{self, Payload, Position, SendStats, SendTarget, Sent};
use super::context::Scratch;
use super::flow_table::{FlowTable, View};
use super::frontend::{Link, UdpFrontend};
use super::link::Opener;
use super::local_ports::Crowding;
use super::registry::Progress;
use crate::counters::DropReason;
use crate::sys::mmsg::{BATCH, Receiver, Sender};
use sheave_model::{ClientAddr, Path};

/// Sender of a message, and the message's index in the batch.
pub(super) type Arrival = (SocketAddr, usize);

/// Receives one batch and forwards it.
pub(super) fn forward_batch(state: &Rc<UdpFrontend>, socket: &Socket) -> Progress {
    let context = &*state.context;
    let mut scratch = context.scratch.borrow_mut();
    let Scratch { receiver, sender } = &mut *scratch;
    let count = match context.receive(receiver, socket) {
        Ok(count) => count,
        Err(error) => return Progress::of_error(&error),
    };
    let table = context.worker.table();
    let view = context.view(&table);
    let (mut arrivals, whole) = arrivals(receiver, count);
    state.counters().count_dropped(DropReason::Truncated, count - whole);
    forward_arrivals(state, view, receiver, sender, &mut arrivals[..whole]);
    Progress::of_count(count)
}

/// The messages with their senders, in order of arrival, without truncated ones.
fn arrivals(receiver: &Receiver, count: usize) -> ([Arrival; BATCH], usize) {
    let mut arrivals = [(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), 0); BATCH];
    let mut whole = 0;
    for index in 0..count {
        let received = receiver.get(index);
        if let Some(from) = received.from.filter(|_| !received.truncated) {
            arrivals[whole] = (from, index);
            whole += 1;
        }
    }
    (arrivals, whole)
}

/// Forwards the messages of a batch that are for one frontend. They are sorted by sender, each sender's messages in order of
/// arrival, so that one lookup and one send serve all messages of a client.
pub(super) fn forward_arrivals(
    state: &Rc<UdpFrontend>,
    view: View<'_>,
    receiver: &Receiver,
    sender: &mut Sender,
    arrivals: &mut [Arrival],
) {
    arrivals.sort_unstable();
    let mut flows = state.flows.borrow_mut();
    flows.set_frontend(view.table.get(state.addr));
    let mut forwarder = Forwarder { state, flows: &mut flows, sender, view };
    for run in arrivals.chunk_by(|left, right| left.0 == right.0) {
        let mut payloads = [Payload::default(); BATCH];
        for (payload, (_, index)) in payloads.iter_mut().zip(run) {
            *payload = Payload::new(&receiver.get(*index));
        }
        forwarder.forward(ClientAddr(run[0].0), &payloads[..run.len()]);
    }
    drop(flows);
    state.flows_changed();
}

/// Forwarder of the messages of one batch.
struct Forwarder<'a> {
    state: &'a Rc<UdpFrontend>,
    flows: &'a mut FlowTable<Link>,
    sender: &'a mut Sender,
    view: View<'a>,
}

impl Forwarder<'_> {
    /// Sends one client's datagrams through its flow. If the endpoint turns out to be gone, the refused datagram and those
    /// after it go to another endpoint, once per batch. If the socket has lost its interface, they go through a new socket.
    fn forward(&mut self, client: ClientAddr, payloads: &[Payload<'_>]) {
        let position = match self.send(client, payloads, Position::default()) {
            Some(Sent::Refused(_, position)) => {
                self.suspect(client);
                position
            }
            Some(Sent::Stale(_, position)) => {
                self.renew(client);
                position
            }
            Some(Sent::All(_)) | None => return,
        };
        let Some(Sent::Refused(_, position) | Sent::Stale(_, position)) =
            self.send(client, payloads, position)
        else {
            return;
        };
        // With IPv6 a lost interface cannot be distinguished from a lost route.
        if self.flows.endpoint(client).is_some_and(|endpoint| endpoint.path != Path::DEFAULT) {
            self.renew(client);
        }
        self.suspect(client);
        self.dropped(DropReason::SendToEndpoint, batch::datagrams_from(payloads, position));
    }

    fn renew(&mut self, client: ClientAddr) {
        self.flows.renew(client, &mut Opener::new(self.state));
    }

    fn suspect(&mut self, client: ClientAddr) {
        if let Some(endpoint) = self.flows.suspect(client) {
            self.state.endpoint_failed(endpoint, &io::ErrorKind::ConnectionRefused.into());
        }
    }

    /// Sends from `position` on through the client's flow; `None` if there is no flow.
    fn send(&mut self, client: ClientAddr, payloads: &[Payload<'_>], position: Position) -> Option<Sent> {
        let mut opener = Opener::new(self.state);
        let sent = match self.flows.route(client, &self.view, &mut opener) {
            Ok(flow) => {
                let link = &mut flow.link;
                let target = SendTarget {
                    socket: link.upstream.socket(),
                    to: None,
                    header: &link.header,
                    limit: &mut link.upstream_limit,
                };
                let sent = batch::send(self.sender, target, payloads, position);
                let (Sent::All(stats) | Sent::Refused(stats, _) | Sent::Stale(stats, _)) = &sent;
                flow.add_bytes(stats.bytes, 0);
                self.count(stats);
                Some(sent)
            }
            Err(reason) => {
                self.dropped(reason, batch::datagrams_from(payloads, position));
                if reason == DropReason::Loop {
                    self.log_loop(client);
                }
                None
            }
        };
        if let Some(endpoint) = self.flows.take_silent() {
            let error = io::Error::new(io::ErrorKind::TimedOut, "no answer to datagrams");
            self.state.endpoint_failed(endpoint, &error);
        }
        if let Some(Crowding { holder, towards }) = opener.crowding {
            self.flows.make_room(&holder, towards, self.view.now);
        }
        sent
    }

    fn count(&self, stats: &SendStats) {
        let counters = self.state.counters();
        counters.add(|it| &it.to_endpoints.datagrams, stats.datagrams);
        counters.add(|it| &it.to_endpoints.bytes, stats.bytes);
        counters.count_dropped(DropReason::SendToEndpoint, stats.lost);
        self.state.context.count_bytes(stats.bytes);
    }

    fn dropped(&self, reason: DropReason, datagrams: usize) {
        let context = &self.state.context;
        let counters = self.state.counters();
        counters.count_dropped(reason, datagrams);
        if let Some(reason) = reason.shed_reason() {
            context.worker.shared.refusals.count(self.state.addr, counters.usage(), reason);
        }
        let advice = match reason {
            DropReason::NoSocket => {
                "more flows need descriptors (LimitNOFILE, ulimit -n), a route to each endpoint, and the frontend's address for answers"
            }
            DropReason::NoPort => "widen net.ipv4.ip_local_port_range or add endpoints",
            // Shown as a Problem or logged elsewhere, or not of interest.
            _ => return,
        };
        if context.log_throttle.admits(self.view.now) {
            let frontend = self.state.addr;
            tracing::warn!(%frontend, reason = reason.label(), advice, "new UDP flows are refused");
        }
    }

    /// Logs the endpoint that leads back to the gateway. One that is a frontend of this gateway is a Problem of its Service
    /// instead.
    fn log_loop(&self, client: ClientAddr) {
        let (frontend, context) = (self.state.addr, &self.state.context);
        if let Some(endpoint) = self.view.upstream_addresses.looping(client)
            && context.log_throttle.admits(self.view.now)
        {
            let advice = "an endpoint must not be an address from which another load balancer or NAT leads to a frontend";
            tracing::warn!(%frontend, %endpoint, client.addr = %client, advice, "an endpoint leads back to the gateway: its datagrams are dropped");
        }
    }
}
