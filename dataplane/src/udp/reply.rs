//! Replies from an endpoint to its client: reads batches from the flow's socket and sends them through the frontend's socket, so
//! that they come from the address that the client used.

use socket2::Socket;

use super::batch::{self, BundleLimit, Payload, Position, SendTarget, Sent};
use super::context::{FormerWay, Scratch, UdpContext};
use super::frontend::UdpFrontend;
use super::registry::{self, Progress};
use super::sockets::Upstream;
use crate::counters::{DropReason, UdpCounters};
use crate::sys::errnos::is_peer_unreachable;
use crate::sys::mmsg::{BATCH, Receiver, Sender};
use sheave_model::{ClientAddr, EndpointAddr};

/// Receives one batch and sends it to the client.
pub(super) fn reply_batch(state: &UdpFrontend, client: ClientAddr, upstream: &Upstream) -> Progress {
    let context = &*state.context;
    let mut scratch = context.scratch.borrow_mut();
    let Scratch { receiver, sender } = &mut *scratch;
    let mut flows = state.flows.borrow_mut();
    let count = match context.receive(receiver, upstream.socket()) {
        Ok(count) => count,
        Err(error) => {
            if is_peer_unreachable(&error) {
                // An ICMP error for a datagram of this flow. It is reported once, so reading goes on.
                if let Some(endpoint) = flows.suspect(client) {
                    state.endpoint_failed(endpoint, &error);
                }
                return Progress::More;
            }
            return Progress::of_error(&error);
        }
    };
    state.context.offload.count_answers(upstream, count);
    let counters = &*state.counters();
    let (payloads, whole) = payloads_of(receiver, count, upstream.endpoint(), counters);
    let (Some(flow), Some(socket)) = (flows.answered(client, context.worker.now()), state.client_socket())
    else {
        debug_assert!(false, "a flow that ended is not registered");
        return Progress::Drained;
    };
    let worker = &context.worker;
    let table = worker.table();
    worker.shared.reports.answered(flow.endpoint(), || table.get(state.addr));
    let way = ToClient { context, client, socket: &socket, counters };
    let sent = way.send(sender, &payloads[..whole], &mut flow.link.client_limit);
    flow.add_bytes(0, sent);
    Progress::of_count(count)
}

/// Sends clients the answers of the endpoints that their flows have left, since those sockets are no longer read.
pub(super) fn send_last(context: &UdpContext) {
    let former_ways = std::mem::take(&mut *context.former_ways.borrow_mut());
    for FormerWay { client, upstream, client_socket, counters } in former_ways {
        let mut limit = context.offload.initial_limit();
        let way = ToClient { context, client, socket: &client_socket, counters: &counters };
        registry::drain(|| {
            let mut scratch = context.scratch.borrow_mut();
            let Scratch { receiver, sender } = &mut *scratch;
            // Errors concern the endpoint that the client has left.
            let Ok(count) = context.receive(receiver, upstream.socket()) else { return Progress::Failed };
            let (payloads, whole) = payloads_of(receiver, count, upstream.endpoint(), &counters);
            way.send(sender, &payloads[..whole], &mut limit);
            Progress::of_count(count)
        });
    }
}

/// Path back to one client.
struct ToClient<'a> {
    context: &'a UdpContext,
    client: ClientAddr,
    socket: &'a Socket,
    counters: &'a UdpCounters,
}

impl ToClient<'_> {
    /// Sends the payloads; returns the number of bytes sent.
    fn send(&self, sender: &mut Sender, payloads: &[Payload<'_>], limit: &mut BundleLimit) -> usize {
        let target = SendTarget { socket: self.socket, to: Some(self.client.0), header: &[], limit };
        // With an explicit address no send is refused: a client that is gone only loses its own datagrams.
        let (Sent::All(stats) | Sent::Refused(stats, _) | Sent::Stale(stats, _)) =
            batch::send(sender, target, payloads, Position::default());
        self.counters.add(|it| &it.to_clients.datagrams, stats.datagrams);
        self.counters.add(|it| &it.to_clients.bytes, stats.bytes);
        self.counters.count_dropped(DropReason::SendToClient, stats.lost);
        self.context.count_bytes(stats.bytes);
        stats.bytes
    }
}

/// The messages of the endpoint as payloads, without truncated ones and without those of strangers, who could send to the socket
/// before it was connected.
fn payloads_of<'r>(
    receiver: &'r Receiver,
    count: usize,
    endpoint: EndpointAddr,
    counters: &UdpCounters,
) -> ([Payload<'r>; BATCH], usize) {
    let mut payloads = [Payload::default(); BATCH];
    let mut whole = 0;
    for received in (0..count).map(|index| receiver.get(index)) {
        let stranger =
            received.from.is_none_or(|from| (from.ip(), from.port()) != (endpoint.ip, endpoint.port));
        if stranger {
            counters.count_dropped(DropReason::Stranger, 1);
        } else if received.truncated {
            counters.count_dropped(DropReason::Truncated, 1);
        } else {
            payloads[whole] = Payload::new(&received);
            whole += 1;
        }
    }
    (payloads, whole)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn who_knows_a_flows_port_cannot_answer_in_place_of_its_endpoint() {
        let [flow, endpoint, stranger] = [(); 3].map(|()| UdpSocket::bind(("127.0.0.1", 0)).unwrap());
        for (socket, answer) in [(&stranger, b"!"), (&endpoint, b"1"), (&stranger, b"!"), (&endpoint, b"2")] {
            socket.send_to(answer, flow.local_addr().unwrap()).unwrap();
        }
        let addr = endpoint.local_addr().unwrap();
        let (mut receiver, counters) = (Receiver::new(), UdpCounters::default());
        let count = receiver.receive(&flow).unwrap();
        let endpoint = EndpointAddr::new(addr.ip(), addr.port());
        let (_, whole) = payloads_of(&receiver, count, endpoint, &counters);
        assert_eq!((whole, counters.dropped(DropReason::Stranger)), (2, 2));
    }
}
