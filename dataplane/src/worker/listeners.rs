//! What a worker listens on: each frontend's sockets, and those that steered frontends share.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;

use super::context::{BrokenSocket, WorkerContext};
use crate::counters::FrontendCounters;
use crate::listener::steering::frontends::SteeredFrontends;
use crate::task::{self, Task};
use crate::tcp::{self, SteeredTcp, TcpContext};
use crate::udp::{SteeredUdp, UdpContext, UdpListener};
use sheave_model::{FrontendAddr, Protocol};

/// What a worker listens on. Dropping an entry closes its socket.
pub(super) struct WorkerListeners {
    context: Rc<WorkerContext>,
    tcp_context: Rc<TcpContext>,
    udp_context: Rc<UdpContext>,
    tcp: HashMap<FrontendAddr, Task>,
    udp: HashMap<FrontendAddr, UdpListener>,
    /// UDP frontends that take nothing new, but still have flows.
    retired: Vec<(FrontendAddr, UdpListener)>,
    steered_tcp: Rc<SteeredTcp>,
    steered_udp: Rc<SteeredUdp>,
}

impl WorkerListeners {
    /// Listens nowhere yet. `index` is the worker's.
    pub(super) fn new(
        context: &Rc<WorkerContext>,
        tcp: &Rc<TcpContext>,
        udp: Rc<UdpContext>,
        steered: Arc<SteeredFrontends>,
        index: usize,
    ) -> Self {
        Self {
            context: Rc::clone(context),
            tcp_context: Rc::clone(tcp),
            tcp: HashMap::new(),
            udp: HashMap::new(),
            retired: Vec::new(),
            steered_tcp: SteeredTcp::new(Arc::clone(&steered), index),
            steered_udp: SteeredUdp::new(steered, index, &udp),
            udp_context: udp,
        }
    }

    /// Serves a socket of the steered frontends; `addr` is its own.
    pub(super) fn steer(&mut self, addr: FrontendAddr, socket: Arc<Socket>) {
        match addr.protocol {
            Protocol::Tcp => {
                let (context, frontends) = (Rc::clone(&self.tcp_context), Rc::clone(&self.steered_tcp));
                // It ends with its socket, or when the process drains.
                task::spawn(async move {
                    if let Err(error) = tcp::listen_steered(&context, addr, &socket, &frontends).await {
                        report_broken(&context.worker, addr, socket, error);
                    }
                });
            }
            Protocol::Udp => {
                if let Err(error) = self.steered_udp.listen(addr, Arc::clone(&socket)) {
                    report_broken(&self.context, addr, socket, error);
                }
            }
        }
    }

    /// Serves a frontend's own socket.
    pub(super) fn open(&mut self, addr: FrontendAddr, socket: Arc<Socket>, counters: FrontendCounters) {
        match counters {
            FrontendCounters::Tcp(counters) => {
                let context = Rc::clone(&self.tcp_context);
                let task = Task::spawn(async move {
                    if let Err(error) = tcp::listen(&context, addr, &socket, &counters).await {
                        report_broken(&context.worker, addr, socket, error);
                    }
                });
                self.tcp.insert(addr, task);
            }
            FrontendCounters::Udp(counters) => {
                match UdpListener::start(Arc::clone(&socket), addr, counters, &self.udp_context) {
                    Ok(listener) => drop(self.udp.insert(addr, listener)),
                    Err(error) => report_broken(&self.context, addr, socket, error),
                }
            }
        }
    }

    /// Ends a frontend, and its UDP flows with it.
    pub(super) fn close(&mut self, addr: FrontendAddr) {
        self.tcp.remove(&addr);
        self.udp.remove(&addr);
        self.steered_tcp.forget(addr);
        self.steered_udp.close(addr);
        self.retired.retain(|(retired, _)| *retired != addr);
    }

    /// Takes nothing new on a frontend.
    pub(super) fn retire(&mut self, addr: FrontendAddr) {
        self.tcp.remove(&addr);
        self.steered_tcp.forget(addr);
        self.retired.retain(|(_, listener)| listener.flows() > 0);
        if let Some(listener) = self.udp.remove(&addr) {
            listener.retire();
            self.retired.push((addr, listener));
        }
        self.retired.extend(self.steered_udp.retire(addr).map(|listener| (addr, listener)));
    }

    /// Lets UDP flows come to their end. TCP listeners hear of the drain by themselves.
    pub(super) fn drain(&mut self) {
        let udp = self.udp.drain().chain(self.retired.drain(..)).map(|(_, listener)| listener);
        for listener in udp {
            listener.drain();
            last_until(&self.context, async move { listener.finished().await });
        }
        for finished in self.steered_udp.drain() {
            last_until(&self.context, finished);
        }
    }
}

fn report_broken(context: &WorkerContext, addr: FrontendAddr, socket: Arc<Socket>, error: io::Error) {
    if context.shared.broken.send(BrokenSocket { addr, socket, error }).is_err() {
        tracing::debug!(frontend = %addr, "nobody is left to bind it again");
    }
}

/// Counts as open on the worker until `finished` is over.
fn last_until(context: &Rc<WorkerContext>, finished: impl Future<Output = ()> + 'static) {
    let open = context.count_open();
    task::spawn(async move {
        finished.await;
        drop(open);
    });
}
