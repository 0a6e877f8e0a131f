//! The sockets of all frontends: opened, filtered and closed so that they say what the table says.
//!
//! Reject is a closed socket, so the kernel answers RST or ICMP port unreachable. Drop and source ranges are a filter
//! on the open socket, so packets vanish in silence. A frontend whose posture stays the same keeps its sockets, and
//! whatever waits in their accept queues. It must not know balancing or relays.

mod bind;
mod filter;

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;

use socket2::Socket;

use crate::address_set::{AddressSet, SourceRanges};
use crate::counters::FrontendCounters;
use crate::model::{Frontend, FrontendAddr, Protocol, Route};
use crate::sys::Errno;
use crate::worker::{Broken, Command, WorkerHandle};
use bind::Claim;
use filter::{Filters, Share};

/// How a frontend meets packets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
enum Posture {
    /// No socket: everybody is refused.
    Closed,
    /// A socket that sees packets of some sources only.
    Open(Audience),
}

impl Posture {
    /// What the table asks for. `internal` is who counts as a client inside the cluster.
    fn of(frontend: &Frontend, internal: &Arc<AddressSet>) -> Self {
        let class = match (&frontend.external, &frontend.internal) {
            (Route::Reject, Route::Reject) => return Self::Closed,
            (Route::Drop | Route::Reject, Route::Drop | Route::Reject) => Class::Nobody,
            (Route::Forward(_), Route::Forward(_)) => Class::Everyone,
            (Route::Forward(_), _) => Class::Outside(Arc::clone(internal)),
            (_, Route::Forward(_)) => Class::Inside(Arc::clone(internal)),
        };
        Self::Open(Audience {
            class,
            ranges: Arc::clone(&frontend.source_ranges),
            peers: frontend.proxied_by.clone(),
        })
    }
}

/// Which clients a frontend has anything for. With the set of those inside the cluster where it matters, so that its
/// changes concern no other frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Class {
    Nobody,
    Everyone,
    Outside(Arc<AddressSet>),
    Inside(Arc<AddressSet>),
}

/// Whom a socket is to see. It shares what it is made of with the table: thousands of frontends may go by one large set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Audience {
    class: Class,
    ranges: Arc<SourceRanges>,
    /// Whom these bring is known only once their header is read.
    peers: Option<Arc<AddressSet>>,
}

impl Audience {
    /// The sources of a socket on `own`.
    fn sources(&self, own: IpAddr) -> AddressSet {
        let allowed = self.ranges.allowed();
        let direct = match &self.class {
            Class::Nobody => return AddressSet::default(),
            Class::Everyone => allowed.clone(),
            Class::Outside(inside) => inside.complement().intersection(allowed),
            Class::Inside(inside) => inside.with(own).intersection(allowed),
        };
        match &self.peers {
            Some(peers) => direct.union(peers),
            None => direct,
        }
    }
}

/// A frontend that could not be opened.
#[derive(Debug)]
pub struct BindFailure {
    /// Which frontend.
    pub frontend: Arc<Frontend>,
    /// As bind(2): mostly `AddrInUse` or `PermissionDenied`; `EMFILE` also if listening sockets have had their share of the
    /// descriptors.
    pub error: io::Error,
    /// It still listens, but admits the clients that it admitted before.
    pub listening: bool,
}

impl BindFailure {
    /// Whether it is descriptors that are missing, which every other frontend lacks as well.
    pub(crate) fn is_of_everyone(&self) -> bool {
        let number = self.error.raw_os_error().map(Errno::from_raw);
        matches!(number, Some(Errno::EMFILE | Errno::ENFILE))
    }

    /// Whether it says the same of the same frontend.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.frontend, &other.frontend)
            && self.listening == other.listening
            && self.error.kind() == other.error.kind()
            && self.error.raw_os_error() == other.error.raw_os_error()
    }
}

/// One frontend's sockets, one per worker; none while it is closed.
#[derive(Debug)]
struct Listener {
    /// None if it is not known, because a change failed halfway.
    posture: Option<Posture>,
    sockets: Vec<Arc<Socket>>,
    share: Share,
    counters: Vec<FrontendCounters>,
}

/// The sockets of all frontends.
#[derive(Debug)]
pub(crate) struct ListenerSet {
    /// So many sockets may be open, lest none is left for those who connect to them.
    room: usize,
    open: usize,
    listeners: HashMap<FrontendAddr, Listener>,
    /// Every address that we ever asked for and got: sockets of ours may still be on it.
    held: HashSet<FrontendAddr>,
    filters: Filters,
}

impl ListenerSet {
    /// Nothing is open; so many sockets may be.
    pub(crate) fn new(room: usize) -> Self {
        let (listeners, held) = (HashMap::new(), HashSet::new());
        Self { room, open: 0, listeners, held, filters: Filters::default() }
    }

    /// Whether there is room for another frontend, with a socket for each worker.
    pub(crate) fn has_room(&self, workers: &[WorkerHandle]) -> bool {
        self.open + workers.len() <= self.room
    }

    /// Makes one frontend's sockets be what the table says. Touches nothing if they are already.
    ///
    /// # Errors
    /// As bind(2). The frontend then stays closed; calling again tries again.
    pub(crate) fn reconcile(
        &mut self,
        frontend: &Arc<Frontend>,
        internal: &Arc<AddressSet>,
        workers: &[WorkerHandle],
    ) -> Result<(), BindFailure> {
        let addr = frontend.addr;
        let wanted = Posture::of(frontend, internal);
        let has_room = self.has_room(workers);
        let listener = self.listeners.entry(addr).or_insert_with(|| Listener {
            posture: Some(Posture::Closed),
            sockets: Vec::new(),
            share: Share::default(),
            counters: workers.iter().map(|_| FrontendCounters::new(addr.protocol)).collect(),
        });
        if listener.posture.as_ref() == Some(&wanted) {
            return Ok(());
        }
        listener.posture = None;
        let before = listener.sockets.len();
        let changed = match &wanted {
            Posture::Closed => {
                listener.close(addr, workers, Command::Retire);
                Ok(())
            }
            Posture::Open(_) if before == 0 && !has_room => Err(Errno::EMFILE.into()),
            Posture::Open(audience) if before == 0 => {
                let claim = if self.held.contains(&addr) { Claim::Again } else { Claim::First };
                let sources = audience.sources(addr.ip);
                let opened = listener.open(addr, claim, &sources, workers, &mut self.filters);
                if opened.is_ok() {
                    self.held.insert(addr);
                }
                opened
            }
            Posture::Open(audience) => listener.refilter(addr, &audience.sources(addr.ip), &mut self.filters),
        };
        self.open = self.open + listener.sockets.len() - before;
        changed.map_err(|error| BindFailure {
            frontend: Arc::clone(frontend),
            error,
            listening: !listener.sockets.is_empty(),
        })?;
        listener.posture = Some(wanted);
        Ok(())
    }

    /// Closes a frontend that has left the table. Its open connections go on.
    pub(crate) fn remove(&mut self, addr: FrontendAddr, workers: &[WorkerHandle]) {
        if let Some(mut listener) = self.listeners.remove(&addr) {
            self.open -= listener.sockets.len();
            listener.close(addr, workers, Command::Close);
        }
    }

    /// Forgets the sockets of a frontend of which a worker found one broken, so that the next reconcile binds anew.
    /// False if that socket is not in use any more: closing it is what the worker has seen.
    pub(crate) fn discard(&mut self, broken: &Broken, workers: &[WorkerHandle]) -> bool {
        let Broken { addr, socket, error } = broken;
        let Some(listener) = self.listeners.get_mut(addr) else { return false };
        if !listener.sockets.iter().any(|current| Arc::ptr_eq(current, socket)) {
            return false;
        }
        tracing::warn!(frontend = %addr, %error, "listening socket is broken; binding it again");
        self.open -= listener.sockets.len();
        listener.close(*addr, workers, Command::Close);
        listener.posture = None;
        true
    }

    /// Lets go of all sockets, so that the workers hold them alone. What was counted stays.
    pub(crate) fn release(&mut self) {
        for listener in self.listeners.values_mut() {
            listener.sockets.clear();
            listener.posture = None;
        }
        self.open = 0;
    }

    /// What each worker counted for a frontend; nothing if it has none.
    pub(crate) fn counters(&self, addr: FrontendAddr) -> &[FrontendCounters] {
        self.listeners.get(&addr).map_or(&[], |listener| &listener.counters)
    }
}

impl Listener {
    fn open(
        &mut self,
        addr: FrontendAddr,
        claim: Claim,
        admitted: &AddressSet,
        workers: &[WorkerHandle],
        filters: &mut Filters,
    ) -> io::Result<()> {
        (self.share, self.sockets) =
            filters.with(admitted, addr.ip, |filter| bind::bind(addr, claim, filter, workers.len()))?;
        for ((worker, socket), counters) in workers.iter().zip(&self.sockets).zip(&self.counters) {
            worker.send(Command::Listen { addr, socket: Arc::clone(socket), counters: counters.clone() });
        }
        // A start opens thousands; those that cannot be opened are told.
        tracing::debug!(frontend = %addr, "listening");
        Ok(())
    }

    /// Replaces the filter in one step per socket; waiting connections stay.
    fn refilter(
        &mut self,
        addr: FrontendAddr,
        admitted: &AddressSet,
        filters: &mut Filters,
    ) -> io::Result<()> {
        (self.share, ()) = filters.with(admitted, addr.ip, |filter| {
            self.sockets.iter().try_for_each(|socket| filter.attach(socket))
        })?;
        Ok(())
    }

    fn close(&mut self, addr: FrontendAddr, workers: &[WorkerHandle], command: fn(FrontendAddr) -> Command) {
        // Also without sockets: flows of a retired frontend may live on.
        for worker in workers {
            worker.send(command(addr));
        }
        if self.sockets.is_empty() {
            return;
        }
        self.share = Share::default();
        for socket in self.sockets.drain(..) {
            if addr.protocol == Protocol::Tcp {
                // Takes effect at once, however long the worker holds its reference: the kernel leaves LISTEN.
                if let Err(error) = socket.shutdown(Shutdown::Both) {
                    tracing::debug!(frontend = %addr, %error, "listener was not listening");
                }
            }
        }
        tracing::debug!(frontend = %addr, "closed");
    }
}
