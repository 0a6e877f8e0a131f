//! Handover of listeners: the sockets that one process hands over, and the use of them in place of new sockets in the next.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use sheave_model::FrontendAddr;
use socket2::Socket;

use super::binding::Binding;
use super::state::Admission;
use super::{ListenerSet, serve};
use crate::counters::FrontendCounters;
use crate::handover::{HandedSocket, SocketRole};
use crate::worker::WorkerHandle;

/// Listeners of the previous process.
#[derive(Debug, Default)]
pub(super) struct FormerListeners {
    /// Sockets by worker. Usable only if there is one for each worker.
    sockets: HashMap<FrontendAddr, Vec<Socket>>,
    steered: HashSet<FrontendAddr>,
}

/// How the previous process reached a frontend.
#[derive(Debug)]
pub(super) enum Former {
    /// Through these sockets, one per worker.
    Sockets(Vec<Socket>),
    /// Through the steered sockets, so that this process may use the address.
    Steered,
    /// Not at all: it did not serve the frontend.
    Nowhere,
}

impl FormerListeners {
    /// Whether the previous process served the frontend, and it was not [taken](Self::take) yet.
    pub(super) fn has(&self, addr: FrontendAddr) -> bool {
        self.sockets.contains_key(&addr) || self.steered.contains(&addr)
    }

    /// Takes the listener of a frontend, if it fits the number of workers. A second call finds nothing.
    pub(super) fn take(&mut self, addr: FrontendAddr, workers: usize) -> Former {
        match self.sockets.remove(&addr) {
            Some(sockets) if sockets.len() == workers => Former::Sockets(sockets),
            _ if self.steered.remove(&addr) => Former::Steered,
            _ => Former::Nowhere,
        }
    }
}

impl ListenerSet {
    /// Every socket that receives new traffic.
    pub(crate) fn hand_over(&self) -> Vec<(SocketRole, Arc<Socket>)> {
        let with_sockets = self.listeners.iter().filter_map(|(addr, listener)| match &listener.binding {
            Binding::Sockets { sockets, .. } => Some((*addr, sockets)),
            Binding::Nowhere | Binding::Steered(_) => None,
        });
        let own = with_sockets.flat_map(|(addr, sockets)| {
            let role = move |worker| SocketRole::Frontend { addr, worker };
            sockets.iter().enumerate().map(move |(worker, socket)| (role(worker), Arc::clone(socket)))
        });
        let steering = self
            .steering
            .sockets()
            .map(|(addr, worker, socket)| (SocketRole::Steering { addr, worker }, Arc::clone(socket)));
        own.chain(steering).collect()
    }

    /// The frontends that are steered and open.
    pub(crate) fn steered(&self) -> impl Iterator<Item = FrontendAddr> {
        let is_open = |addr: &FrontendAddr| self.listeners.get(addr).is_some_and(|it| it.binding.is_open());
        self.steered_frontends().filter(is_open)
    }

    /// Uses these sockets for the frontends that are opened from now on, and treats the `steered` addresses as this process's own.
    pub(crate) fn take_over(&mut self, sockets: Vec<HandedSocket>, steered: Vec<FrontendAddr>) {
        let mut frontends: HashMap<FrontendAddr, Vec<(usize, Socket)>> = HashMap::new();
        let mut steering: HashMap<FrontendAddr, Vec<(usize, Socket)>> = HashMap::new();
        for HandedSocket { role, fd } in sockets {
            let (of, addr, worker) = match role {
                SocketRole::Frontend { addr, worker } => (&mut frontends, addr, worker),
                SocketRole::Steering { addr, worker } => (&mut steering, addr, worker),
            };
            of.entry(addr).or_default().push((worker, Socket::from(fd)));
        }
        let frontends = frontends.into_iter().map(|(addr, sockets)| (addr, by_worker(sockets)));
        self.former =
            FormerListeners { sockets: frontends.collect(), steered: steered.into_iter().collect() };
        for (addr, sockets) in steering {
            self.steering.take_over(addr, by_worker(sockets));
        }
    }

    /// Closes the handed-over sockets that no frontend has used: their frontends are gone.
    pub(crate) fn forget_former(&mut self) {
        self.former = FormerListeners::default();
        self.steering.forget_former();
    }

    /// Serves a frontend with its former sockets, with the current sources.
    pub(super) fn serve_former(
        &mut self,
        addr: FrontendAddr,
        sockets: Vec<Socket>,
        admission: &Admission,
        counters: &Arc<[FrontendCounters]>,
        workers: &[WorkerHandle],
    ) -> io::Result<Binding> {
        let sources = admission.sources(addr.ip);
        let (filter, ()) = self.filters.with(&sources, addr.ip, admission.syn_policy(), |filter| {
            sockets.iter().try_for_each(|socket| filter.attach(socket))
        })?;
        let sockets: Vec<Arc<Socket>> = sockets.into_iter().map(Arc::new).collect();
        serve(addr, &sockets, counters, workers);
        Ok(Binding::Sockets { sockets, filter })
    }

    /// Marks the filters of sockets as unknown, since another process may have changed them; the next reconcile sets them.
    pub(crate) fn doubt_filters(&mut self) {
        let with_sockets = |it: &&mut super::Listener| matches!(it.binding, Binding::Sockets { .. });
        self.listeners.values_mut().filter(with_sockets).for_each(|listener| listener.state = None);
    }

    /// Releases everything without closing it: another process has it.
    pub(crate) fn leave(&mut self) {
        self.release();
        self.leave_dedicated();
        self.steering.leave();
    }
}

fn by_worker(mut sockets: Vec<(usize, Socket)>) -> Vec<Socket> {
    sockets.sort_by_key(|(worker, _)| *worker);
    // If one is missing, the set is not complete for all workers.
    let complete = sockets.iter().enumerate().all(|(index, (worker, _))| index == *worker);
    if complete { sockets.into_iter().map(|(_, socket)| socket).collect() } else { Vec::new() }
}
