//! Connections of all steered frontends come to one socket per family: for which frontend one is says the address that its
//! client called, which is the connection's own.
//!
//! It must not know how packets are steered.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use sheave_model::{FrontendAddr, Protocol};
use socket2::Socket;

use super::accept_all;
use super::counters::TcpCounters;
use crate::steering::Register;
use crate::worker::Worker;

/// The steered TCP frontends that one worker has met.
#[derive(Debug)]
pub(crate) struct SteeredTcp {
    register: Arc<Register>,
    /// Which worker this is.
    index: usize,
    met: RefCell<HashMap<FrontendAddr, Arc<TcpCounters>, foldhash::fast::RandomState>>,
}

impl SteeredTcp {
    /// None met so far.
    pub(crate) fn new(register: Arc<Register>, index: usize) -> Rc<Self> {
        Rc::new(Self { register, index, met: RefCell::default() })
    }

    /// The frontend is gone, or takes nothing new.
    pub(crate) fn forget(&self, addr: FrontendAddr) {
        self.met.borrow_mut().remove(&addr);
    }

    fn counters(&self, addr: FrontendAddr) -> Option<Arc<TcpCounters>> {
        let mut met = self.met.borrow_mut();
        if let Some(counters) = met.get(&addr) {
            return Some(Arc::clone(counters));
        }
        let counters = self.register.counters(addr, self.index)?.tcp()?;
        met.insert(addr, Arc::clone(&counters));
        Some(counters)
    }
}

/// Accepts for all steered frontends on a socket whose own address is `own`, as [`super::listen`] does for one.
///
/// # Errors
/// The error that made the socket useless.
pub(crate) async fn listen(
    worker: &Rc<Worker>,
    own: FrontendAddr,
    socket: &Arc<Socket>,
    frontends: &SteeredTcp,
) -> io::Result<()> {
    accept_all(worker, own, socket, |client| {
        let called = client.local_addr().ok()?.as_socket()?;
        let addr = FrontendAddr { ip: called.ip(), port: called.port(), protocol: Protocol::Tcp };
        // Who calls the socket itself is no client of anyone.
        let counters = if addr == own { None } else { frontends.counters(addr) };
        Some((addr, counters?))
    })
    .await
}
