//! From an endpoint to its client: batches off the flow's socket, sent through the frontend's, so that they come from
//! the address that the client addressed.
//!
//! It must not know how the endpoint was chosen.

use std::rc::Rc;

use tokio::time;

use super::batch::{self, Outlet, Piece, Position, Sent};
use super::context::Scratch;
use super::counters::DropReason;
use super::socket::{Upstream, tells_of_peer};
use super::state::State;
use super::turn::{self, Progress};
use crate::model::{ClientAddr, Protocol};
use crate::sys::mmsg::{BATCH, Receiver};

/// Receives what the endpoint sends, until the flow ends or moves to another one: both drop this task.
pub(super) async fn receive(state: Rc<State>, client: ClientAddr, upstream: Rc<Upstream>) {
    turn::read(&upstream, || reply_batch(&state, client, &upstream)).await;
}

/// Receives one batch and sends it to the client.
fn reply_batch(state: &State, client: ClientAddr, upstream: &Upstream) -> Progress {
    let mut scratch = state.context.scratch.borrow_mut();
    let Scratch { receiver, sender } = &mut *scratch;
    let mut flows = state.flows.borrow_mut();
    let count = match receiver.receive(upstream.get_ref()) {
        Ok(count) => count,
        Err(error) => {
            if tells_of_peer(&error) {
                // An ICMP error for what this flow sent; it is reported once, so reading goes on.
                if let Some(endpoint) = flows.suspect(client) {
                    state.endpoint_failed(endpoint, &error);
                }
                return Progress::More;
            }
            return Progress::of_error(&error);
        }
    };
    let counters = &state.counters;
    let (pieces, whole) = pieces_of(receiver, count);
    counters.count_dropped(DropReason::Truncated, count - whole);
    let Some(flow) = flows.answered(client, time::Instant::now().into_std()) else {
        debug_assert!(false, "a flow that ended has dropped this task");
        return Progress::Drained;
    };
    state.context.reports.answered(Protocol::Udp, flow.endpoint());
    let link = &mut flow.link;
    let outlet = Outlet {
        socket: link.client_side.socket.get_ref(),
        to: Some(client.0),
        header: &[],
        limit: &mut link.client_limit,
    };
    // With an address given nobody is refused: a client that is gone loses its own datagrams only.
    let (Sent::All(tally) | Sent::Refused(tally, _) | Sent::Stale(tally, _)) =
        batch::send(sender, outlet, &pieces[..whole], Position::default());
    counters.to_clients.datagrams.add(tally.datagrams);
    counters.to_clients.bytes.add(tally.bytes);
    counters.count_dropped(DropReason::SendToClient, tally.lost);
    Progress::of_count(count)
}

/// The messages as pieces, without those that were cut.
fn pieces_of(receiver: &Receiver, count: usize) -> ([Piece<'_>; BATCH], usize) {
    let mut pieces = [Piece::default(); BATCH];
    let mut whole = 0;
    for received in (0..count).map(|index| receiver.get(index)).filter(|received| !received.truncated) {
        pieces[whole] = Piece::new(&received);
        whole += 1;
    }
    (pieces, whole)
}
