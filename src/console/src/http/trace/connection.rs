//! Step of the client's own connections: sockets, and entries of connection tracking where the kernel carries or tracks them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sheave_model::{FrontendAddr, Protocol};
use sheave_trace::conntrack::TrackedFlow;
use sheave_trace::socket::{TcpSocket, TcpState};
use sheave_trace::{Unseen, conntrack, socket};

use super::subject::Subject;
use crate::views::trace::StepView;

const PATIENCE: Duration = Duration::from_millis(700);

/// The client's connections.
#[derive(Clone, Debug)]
pub(super) struct ConnectionFacts {
    pub(super) sockets: Result<Vec<TcpSocket>, Unseen>,
    pub(super) tracked: Result<Vec<TrackedFlow>, Unseen>,
}

impl ConnectionFacts {
    /// Whether packets have gone both ways.
    pub(super) fn has_open(&self) -> bool {
        let is_open = |it: &TcpSocket| it.state == TcpState::Established;
        self.sockets.iter().flatten().any(is_open) || self.tracked.iter().flatten().any(|it| it.is_replied)
    }
}

/// Looks for connections of the client at the frontend.
pub(super) fn look(client: IpAddr, frontend: FrontendAddr) -> ConnectionFacts {
    let sockets = match frontend.protocol {
        Protocol::Tcp => socket::of_client(client, frontend.socket_addr(), PATIENCE),
        Protocol::Udp => Ok(Vec::new()),
    };
    ConnectionFacts { sockets, tracked: conntrack::flows(client, frontend, PATIENCE) }
}

/// Judges the connections.
pub(super) fn step(subject: &Subject, client: IpAddr, facts: &ConnectionFacts) -> StepView {
    let step = StepView::new("connection", format!("connections of {client} that are open or being opened"));
    let is_udp = subject.addr().is_some_and(|addr| addr.protocol == Protocol::Udp);
    let sockets = match (&facts.sockets, &facts.tracked) {
        (_, Err(unseen)) if is_udp => return step.unseen(unseen.to_string()),
        (Ok(sockets), _) => sockets.as_slice(),
        (Err(unseen), Err(_)) => return step.unseen(unseen.to_string()),
        (Err(_), Ok(_)) => &[],
    };
    let flows = facts.tracked.as_deref().unwrap_or_default();
    if let Some(elsewhere) = sent_elsewhere(subject, flows).filter(|_| sockets.is_empty()) {
        return step.stopped(
            format!("rules of another program send packets of {client} to {elsewhere}, past this gateway"),
            "a Service with this node port, a Pod with this hostPort, or an `ipMode` that is not Proxy: deploy/networking.md says what to set, and nft list ruleset shows the rules",
        );
    }
    if let Some(found) = sockets.iter().find_map(unacknowledged) {
        return step.doubtful(
            found,
            "the gateway's packets or the client's acknowledgements are lost: look at the way back and at the MTU",
        );
    }
    let opening = sockets.iter().filter(|it| it.state == TcpState::SynReceived).count();
    if opening > 0 && sockets.iter().all(|it| it.state == TcpState::SynReceived) {
        return step.doubtful(
            format!("{opening} connections wait for the client's last packet of the handshake"),
            "the gateway's answers do not reach the client: look at the way back, and whether another machine answers for the client",
        );
    }
    if let Some(flow) = flows.iter().find(|flow| subject.by_kernel && !flow.is_replied) {
        return step.doubtful(
            format!("packets of {} go to {} and nothing comes back", flow.client, flow.reply_source),
            "the endpoint does not answer, or its answers take another way than through this node",
        );
    }
    let established = sockets.iter().filter(|it| it.state == TcpState::Established).count();
    match (established, flows.len()) {
        (0, 0) => step.ok("there is none at present"),
        (0, flows) => step.ok(format!("connection tracking has {flows}")),
        (established, _) => {
            step.ok(format!("{established} are established, nothing waits to be acknowledged"))
        }
    }
}

/// Where the destination NAT of others leads packets of the client. The kernel path has NAT of its own.
fn sent_elsewhere(subject: &Subject, flows: &[TrackedFlow]) -> Option<SocketAddr> {
    let frontend = subject.addr().filter(|_| !subject.by_kernel)?;
    flows.iter().find(|flow| flow.is_translated(frontend)).map(|flow| flow.reply_source)
}

/// A connection whose packets are sent again and again.
fn unacknowledged(socket: &TcpSocket) -> Option<String> {
    let info = socket.info.filter(|info| info.retransmits > 0 && info.unacked > 0)?;
    Some(format!(
        "{} does not acknowledge {} bytes, sent {} times again",
        socket.remote, socket.send_queue, info.retransmits
    ))
}
