//! Listeners in the hands of two processes: what the one hands over, and what the other takes in place of new sockets.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use sheave_model::FrontendAddr;
use socket2::Socket;

use super::binding::Binding;
use super::state::Admission;
use super::{ListenerSet, serve};
use crate::counters::FrontendCounters;
use crate::handover::{HandedFrontend, HandedSocket, SocketRole};
use crate::worker::WorkerHandle;

/// What the process that was there before had open.
#[derive(Debug, Default)]
pub(super) struct FormerListeners {
    /// By worker; complete or of no use.
    sockets: HashMap<FrontendAddr, Vec<Socket>>,
    steered: HashSet<FrontendAddr>,
}

/// How a frontend was reached there.
#[derive(Debug)]
pub(super) enum Former {
    /// By these sockets, one per worker.
    Sockets(Vec<Socket>),
    /// Through those of all steered frontends, so that the address is ours.
    Steered,
    /// Not at all.
    Nowhere,
}

impl FormerListeners {
    /// What there was of a frontend, for so many workers. It is not asked for twice.
    pub(super) fn take(&mut self, addr: FrontendAddr, workers: usize) -> Former {
        match self.sockets.remove(&addr) {
            Some(sockets) if sockets.len() == workers => Former::Sockets(sockets),
            _ if self.steered.remove(&addr) => Former::Steered,
            _ => Former::Nowhere,
        }
    }
}

impl ListenerSet {
    /// Every socket that takes new traffic.
    pub(crate) fn hand_over(&self) -> Vec<(SocketRole, Arc<Socket>)> {
        let with_sockets = self.listeners.iter().filter_map(|(addr, listener)| match &listener.binding {
            Binding::Sockets { sockets, .. } => Some((*addr, sockets)),
            Binding::Nowhere | Binding::Steered(_) => None,
        });
        let own = with_sockets.flat_map(|(addr, sockets)| {
            let HandedFrontend { addr, udp } = addr.into();
            let role = move |worker| SocketRole::Frontend { addr, udp, worker };
            sockets.iter().enumerate().map(move |(worker, socket)| (role(worker), Arc::clone(socket)))
        });
        let steering = self.steering.sockets().map(|(addr, worker, socket)| {
            let HandedFrontend { addr, udp } = addr.into();
            (SocketRole::Steering { addr, udp, worker }, Arc::clone(socket))
        });
        own.chain(steering).collect()
    }

    /// The frontends that are steered and open.
    pub(crate) fn steered(&self) -> impl Iterator<Item = FrontendAddr> {
        let is_open = |addr: &FrontendAddr| self.listeners.get(addr).is_some_and(|it| it.binding.is_open());
        self.steered_frontends().filter(is_open)
    }

    /// Opens frontends with these sockets from now on, and takes these addresses for its own.
    pub(crate) fn take_over(
        &mut self,
        sockets: Vec<HandedSocket>,
        steered: impl IntoIterator<Item = FrontendAddr>,
    ) {
        let mut frontends: HashMap<FrontendAddr, Vec<(usize, Socket)>> = HashMap::new();
        let mut steering: HashMap<FrontendAddr, Vec<(usize, Socket)>> = HashMap::new();
        for HandedSocket { role, fd } in sockets {
            let (of, addr, udp, worker) = match role {
                SocketRole::Frontend { addr, udp, worker } => (&mut frontends, addr, udp, worker),
                SocketRole::Steering { addr, udp, worker } => (&mut steering, addr, udp, worker),
            };
            of.entry(HandedFrontend { addr, udp }.into()).or_default().push((worker, Socket::from(fd)));
        }
        let frontends = frontends.into_iter().map(|(addr, sockets)| (addr, by_worker(sockets)));
        self.former =
            FormerListeners { sockets: frontends.collect(), steered: steered.into_iter().collect() };
        for (addr, sockets) in steering {
            self.steering.take_over(addr, by_worker(sockets));
        }
    }

    /// Closes what no frontend has asked for: they are gone.
    pub(crate) fn forget_former(&mut self) {
        self.former = FormerListeners::default();
        self.steering.forget_former();
    }

    /// Serves a frontend with the sockets that it had, and lets in whom it is to let in from now on.
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

    /// Does not know any more whom the sockets let in, since another process may have changed that: the next reconcile sees to it.
    pub(crate) fn doubt_filters(&mut self) {
        let with_sockets = |it: &&mut super::Listener| matches!(it.binding, Binding::Sockets { .. });
        self.listeners.values_mut().filter(with_sockets).for_each(|listener| listener.state = None);
    }

    /// Lets go of everything, without closing it: another process has it.
    pub(crate) fn leave(&mut self) {
        self.release();
        self.leave_dedicated();
        self.steering.leave();
    }
}

fn by_worker(mut sockets: Vec<(usize, Socket)>) -> Vec<Socket> {
    sockets.sort_by_key(|(worker, _)| *worker);
    // With one missing, they are not those of all workers.
    let complete = sockets.iter().enumerate().all(|(index, (worker, _))| index == *worker);
    if complete { sockets.into_iter().map(|(_, socket)| socket).collect() } else { Vec::new() }
}
