//! Handover of UDP: pauses while another process takes the flows over, then resumes if that fails, or releases everything.

use std::io::ErrorKind;

use sheave_model::{ClientAddr, FrontendAddr, Protocol};
use socket2::Socket;

use super::Udp;
use super::flow_table::{FormerFlow, Way};
use super::link::Opener;
use crate::handover::{FlowRecord, HandedFlow, before, millis_since};
use crate::worker::token::Key;

/// Flows to hand over, in order from the end.
pub(super) type OutgoingFlows = Vec<(Key, ClientAddr)>;

impl Udp {
    /// Stops reading sockets and ending flows. Datagrams wait in the sockets.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
        let of_frontend =
            |(place, clients): (Key, Vec<ClientAddr>)| clients.into_iter().map(move |client| (place, client));
        let serving = self.frontends.iter_mut().filter_map(|(place, frontend)| {
            let flows = frontend.flows.borrow();
            flows.is_accepting().then(|| (place, flows.clients().collect()))
        });
        self.outgoing = serving.flat_map(of_frontend).collect();
    }

    pub(crate) fn resume(&mut self) {
        (self.paused, self.outgoing) = (false, Vec::new());
    }

    /// The next flows for the process that takes over, at most `most`; empty after the last.
    pub(crate) fn hand_over(&mut self, most: usize) -> Vec<HandedFlow> {
        let mut handed = Vec::new();
        while handed.len() < most
            && let Some((place, client)) = self.outgoing.pop()
        {
            match self.handed(place, client) {
                Some(Ok(flow)) => handed.push(flow),
                Some(Err(error)) => {
                    tracing::warn!(client.addr = %client, %error, "a flow is not handed over");
                }
                None => {}
            }
        }
        handed
    }

    fn handed(&mut self, place: Key, client: ClientAddr) -> Option<std::io::Result<HandedFlow>> {
        let frontend = self.frontends.get_mut(place)?;
        let flows = frontend.flows.borrow();
        let (FormerFlow { endpoint, source, touched, answered, suspect, .. }, link) = flows.former(client)?;
        let record = FlowRecord {
            frontend: frontend.addr.socket_addr(),
            client: client.0,
            endpoint,
            source,
            quiet_millis: millis_since(touched, self.context.worker.now()),
            answered,
            suspect,
            port: link.upstream.shared_port(),
        };
        let fd = link.upstream.socket().try_clone();
        Some(fd.map(|socket| HandedFlow { record, fd: socket.into() }))
    }

    /// Takes over flows of another process. A flow whose frontend or endpoint no longer serves ends, and so does one whose local port another
    /// worker may have: the client's next datagram opens a new one.
    pub(crate) fn take_over(&mut self, flows: Vec<HandedFlow>) {
        let now = self.context.worker.now();
        for HandedFlow { record, fd } in flows {
            let addr = FrontendAddr {
                ip: record.frontend.ip(),
                port: record.frontend.port(),
                protocol: Protocol::Udp,
            };
            let place = match self.own.get(&addr) {
                Some(place) => Some(*place),
                None => self.steered.place(&mut self.frontends, addr),
            };
            let Some(frontend) = place.and_then(|place| self.frontends.get_mut(place)) else { continue };
            let way =
                Way { client: ClientAddr(record.client), endpoint: record.endpoint, source: record.source };
            let link = match Opener::new(frontend).take_over(&way, Socket::from(fd), record.port) {
                Ok(link) => link,
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    // Perhaps thousands.
                    if self.context.log_throttle.admits(now) {
                        const CAUSE: &str = "the number of workers, net.ipv4.ip_local_port_range or \
                             net.ipv4.ip_local_reserved_ports has changed";
                        tracing::warn!(frontend = %addr, "flows end whose local ports they cannot keep: {CAUSE}");
                    }
                    continue;
                }
                Err(error) => {
                    tracing::warn!(client.addr = %way.client, frontend = %addr, %error, "a flow is not taken over");
                    continue;
                }
            };
            let former = FormerFlow {
                client: way.client,
                endpoint: way.endpoint,
                source: way.source,
                touched: before(now, record.quiet_millis),
                answered: record.answered,
                suspect: record.suspect,
            };
            let table = self.context.worker.table();
            let mut flows = frontend.flows.borrow_mut();
            flows.set_frontend(table.get(addr));
            flows.take_over(&former, link, &self.context.view(&table));
            drop(flows);
            frontend.flows_changed();
        }
    }

    /// Releases everything that another process has taken over.
    pub(crate) fn leave(&mut self) {
        self.resume();
        self.context.registry.hand_over();
        self.own.clear();
        self.steered.leave();
        self.ended.extend(self.frontends.drain().map(|frontend| frontend.end()));
    }
}
