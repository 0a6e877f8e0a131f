//! Choice of a frontend's binding when it opens: its own sockets, or steering if there is no room for them or all are steered.

use std::io;
use std::sync::Arc;

use sheave_model::{AddressSet, FrontendAddr, Protocol};

use super::address_claims::used_by_itself;
use super::binding::Binding;
use super::handover::Former;
use super::open;
use super::state::Admission;
use super::steering::SteeringMode;
use super::{ListenerSet, serve};
use crate::counters::FrontendCounters;
use crate::listener::overload::SynPolicy;
use crate::sys::Errno;
use crate::worker::WorkerHandle;

impl ListenerSet {
    /// Opens a closed frontend, with the sockets of the previous process if it handed over any.
    pub(super) fn open(
        &mut self,
        addr: FrontendAddr,
        admission: &Admission,
        counters: &Arc<[FrontendCounters]>,
        workers: &[WorkerHandle],
    ) -> io::Result<Binding> {
        let former = match self.former.take(addr, workers.len()) {
            Former::Sockets(sockets) => {
                return self.serve_former(addr, sockets, admission, counters, workers);
            }
            former => former,
        };
        // A steered frontend stays steered: until the previous process leaves, its program assigns the packets to the steered
        // sockets.
        if matches!(former, Former::Steered) && self.steering.is_ready() {
            return self.steer(addr, admission, counters, workers);
        }
        if !self.chooses_steering(workers)? {
            return self.bind(addr, admission, counters, workers);
        }
        self.claim(addr, counters)?;
        self.steer(addr, admission, counters, workers)
    }

    /// Whether a frontend that opens is to be steered.
    ///
    /// # Errors
    /// Returns `EMFILE` if steering is not possible and there is no room for sockets.
    fn chooses_steering(&mut self, workers: &[WorkerHandle]) -> io::Result<bool> {
        let room = self.has_room_for_sockets(workers);
        let steered = (self.steering.mode() == SteeringMode::Always || !room) && self.steering.is_ready();
        if steered || room { Ok(steered) } else { Err(Errno::EMFILE.into()) }
    }

    fn bind(
        &mut self,
        addr: FrontendAddr,
        admission: &Admission,
        counters: &Arc<[FrontendCounters]>,
        workers: &[WorkerHandle],
    ) -> io::Result<Binding> {
        let claim = self.claims.claim(addr, counters);
        let (sources, syn_policy) = (admission.sources(addr.ip), admission.syn_policy());
        let (filter, sockets) = self
            .filters
            .with(&sources, addr.ip, syn_policy, |filter| open::open(addr, claim, filter, workers.len()))?;
        serve(addr, &sockets, counters, workers);
        Ok(Binding::Sockets { sockets, filter })
    }

    pub(super) fn steer(
        &mut self,
        addr: FrontendAddr,
        admission: &Admission,
        counters: &Arc<[FrontendCounters]>,
        workers: &[WorkerHandle],
    ) -> io::Result<Binding> {
        if self.claims.is_reserved(addr) {
            return Err(used_by_itself());
        }
        // The program does not see packets of established connections.
        let sources = match admission.syn_policy() {
            SynPolicy::Accept => admission.sources(addr.ip),
            SynPolicy::Drop => AddressSet::default(),
        };
        self.steering.steer(addr, &sources, counters, workers).map(|lease| Binding::Steered(Some(lease)))
    }

    /// Checks that steering to `addr` takes no traffic from another process. The check is skipped where taking over is wanted,
    /// which is never the case at an address of this machine itself, nor for UDP.
    fn claim(&mut self, addr: FrontendAddr, counters: &Arc<[FrontendCounters]>) -> io::Result<()> {
        let takes_over = self.steering.mode() == SteeringMode::Always
            && addr.protocol == Protocol::Tcp
            && !self.claims.is_machine(addr.ip);
        if takes_over {
            return Ok(());
        }
        let claim = self.claims.claim(addr, counters);
        self.claims.probe(addr, claim)
    }
}
