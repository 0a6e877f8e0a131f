//! Step of the frontend's socket: whether it listens, and whether connections wait in its queue.

use std::time::Duration;

use sheave_model::Protocol;
use sheave_trace::socket::ListeningSocket;
use sheave_trace::{Unseen, socket};

use super::subject::Subject;
use crate::views::numbers::counted;
use crate::views::trace::StepView;

const PATIENCE: Duration = Duration::from_millis(500);

/// Looks for sockets that listen at a TCP frontend.
pub(super) fn look(subject: &Subject) -> Option<Result<Vec<ListeningSocket>, Unseen>> {
    let addr = subject.addr().filter(|addr| addr.protocol == Protocol::Tcp && !subject.by_kernel)?;
    Some(socket::listening(addr.socket_addr(), PATIENCE))
}

/// Judges the sockets.
pub(super) fn step(subject: &Subject, sockets: Option<&Result<Vec<ListeningSocket>, Unseen>>) -> StepView {
    let step = StepView::new("frontend", "the sockets that accept for the frontend, and their queues");
    let counts = &subject.counts;
    let so_far = format!("{} connections so far, {} errors", counts.opened, counts.errors);
    match sockets {
        None => step.ok(so_far),
        Some(Err(unseen)) => step.unseen(unseen.to_string()),
        Some(Ok(sockets)) => {
            // Others may listen at all addresses.
            let sockets: Vec<&ListeningSocket> =
                sockets.iter().filter(|it| !it.local.ip().is_unspecified()).collect();
            let full = sockets.iter().find(|it| it.accept_queue > it.accept_queue_limit);
            let all_full = sockets.iter().all(|it| it.accept_queue > it.accept_queue_limit);
            match (full, sockets.len()) {
                (Some(ListeningSocket { accept_queue, .. }), number) if !all_full => step.doubtful(
                    format!("one of {number} accept queues is full: {accept_queue} connections wait there"),
                    "a worker of the gateway does not get to accept: look at its processor time and its log",
                ),
                (Some(ListeningSocket { accept_queue, accept_queue_limit, .. }), _) => step.stopped(
                    format!(
                        "the accept queue is full: {accept_queue} connections wait, {accept_queue_limit} may"
                    ),
                    "the gateway does not get to accept: look at its processor time and its log",
                ),
                // Steered frontends share the sockets of others.
                (None, 0) => step.ok(format!("its connections are steered to a shared socket; {so_far}")),
                (None, number) => step.ok(format!("{} listening; {so_far}", counted(number, "socket"))),
            }
        }
    }
}
