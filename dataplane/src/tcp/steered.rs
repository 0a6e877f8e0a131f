//! Connections of all steered frontends come to one socket per family: for which frontend one is says the address that its
//! client called, which is the connection's own.
//!
//! It must not know how packets are steered.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;

use super::accept_all;
use super::counters::TcpCounters;
use crate::model::{FrontendAddr, Protocol};
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

/// Accepts for all steered frontends, as [`super::listen`] does for one.
///
/// # Errors
/// The error that made the socket useless, with its address.
pub(crate) async fn listen(
    worker: &Rc<Worker>,
    frontends: &SteeredTcp,
    socket: &Arc<Socket>,
) -> Result<(), (FrontendAddr, io::Error)> {
    let own = socket.local_addr().ok().and_then(|addr| addr.as_socket());
    let own = own.map_or(UNKNOWN, |own| FrontendAddr { ip: own.ip(), port: own.port(), ..UNKNOWN });
    let served = accept_all(worker, own, socket, |client| {
        let called = client.local_addr().ok()?.as_socket()?;
        let addr = FrontendAddr { ip: called.ip(), port: called.port(), protocol: Protocol::Tcp };
        // Who calls the socket itself is no client of anyone.
        if addr == own {
            return None;
        }
        Some((addr, frontends.counters(addr)?))
    });
    served.await.map_err(|error| (own, error))
}

/// For the log, where the kernel does not tell.
const UNKNOWN: FrontendAddr =
    FrontendAddr { ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED), port: 0, protocol: Protocol::Tcp };
