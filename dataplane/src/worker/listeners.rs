//! What a worker listens on: each frontend's sockets, and those that the steered ones share.
//!
//! It must not know who tells it to open and close them, or when.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;

use super::Worker;
use crate::counters::FrontendCounters;
use crate::listener::steering::SteeredFrontends;
use crate::task::{self, Task};
use crate::tcp::{self, SteeredTcp};
use crate::udp::{SteeredUdp, UdpListener};
use sheave_model::{FrontendAddr, Protocol};

/// What a worker listens on. Dropping an entry closes its socket.
pub(super) struct Listeners {
    tcp: HashMap<FrontendAddr, Task>,
    udp: HashMap<FrontendAddr, UdpListener>,
    /// UDP frontends that take nothing new, but still have flows.
    retired: Vec<(FrontendAddr, UdpListener)>,
    steered_tcp: Rc<SteeredTcp>,
    steered_udp: Rc<SteeredUdp>,
}

impl Listeners {
    /// Listens nowhere yet. `index` says which worker this is.
    pub(super) fn new(worker: &Worker, steered: Arc<SteeredFrontends>, index: usize) -> Self {
        Self {
            tcp: HashMap::new(),
            udp: HashMap::new(),
            retired: Vec::new(),
            steered_tcp: SteeredTcp::new(Arc::clone(&steered), index),
            steered_udp: SteeredUdp::new(steered, index, &worker.udp),
        }
    }

    /// Serves a socket of the steered frontends; `addr` is its own.
    pub(super) fn steer(&mut self, worker: &Rc<Worker>, addr: FrontendAddr, socket: Arc<Socket>) {
        match addr.protocol {
            Protocol::Tcp => {
                let (worker, frontends) = (Rc::clone(worker), Rc::clone(&self.steered_tcp));
                // It ends with its socket, or when the process drains.
                task::spawn(async move {
                    if let Err(error) = tcp::listen_steered(&worker, addr, &socket, &frontends).await {
                        worker.report_broken(addr, socket, error);
                    }
                });
            }
            Protocol::Udp => {
                if let Err(error) = self.steered_udp.listen(addr, Arc::clone(&socket)) {
                    worker.report_broken(addr, socket, error);
                }
            }
        }
    }

    /// Serves a frontend's own socket.
    pub(super) fn open(
        &mut self,
        worker: &Rc<Worker>,
        addr: FrontendAddr,
        socket: Arc<Socket>,
        counters: FrontendCounters,
    ) {
        match counters {
            FrontendCounters::Tcp(counters) => {
                let worker = Rc::clone(worker);
                let task = Task::spawn(async move {
                    if let Err(error) = tcp::listen(&worker, addr, &socket, &counters).await {
                        worker.report_broken(addr, socket, error);
                    }
                });
                self.tcp.insert(addr, task);
            }
            FrontendCounters::Udp(counters) => {
                match UdpListener::start(Arc::clone(&socket), addr, counters, &worker.udp) {
                    Ok(listener) => drop(self.udp.insert(addr, listener)),
                    Err(error) => worker.report_broken(addr, socket, error),
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
    pub(super) fn drain(&mut self, worker: &Rc<Worker>) {
        let udp = self.udp.drain().chain(self.retired.drain(..)).map(|(_, listener)| listener);
        for listener in udp {
            listener.drain();
            last_until(worker, async move { listener.finished().await });
        }
        for finished in self.steered_udp.drain() {
            last_until(worker, finished);
        }
    }
}

/// Keeps the worker from having come to its end before `finished` has.
fn last_until(worker: &Rc<Worker>, finished: impl Future<Output = ()> + 'static) {
    let live = worker.admit();
    task::spawn(async move {
        finished.await;
        drop(live);
    });
}
