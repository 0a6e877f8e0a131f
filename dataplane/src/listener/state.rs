//! The state that the routing table asks of a listener: closed, or open to some clients.

use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::overload::SynPolicy;
use sheave_model::{AddressSet, SourceRanges};
use sheave_model::{Frontend, Route};

/// How a frontend meets packets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum ListenerState {
    /// No socket: everybody is refused.
    Closed,
    /// A socket that sees packets of some sources only.
    Open(Admission),
}

impl ListenerState {
    /// What the table asks for. `internal` is who counts as a client inside the cluster.
    pub(super) fn of(frontend: &Frontend, internal: &Arc<AddressSet>, syn_policy: SynPolicy) -> Self {
        let scope = match (&frontend.external, &frontend.internal) {
            (Route::Reject, Route::Reject) => return Self::Closed,
            (Route::Drop | Route::Reject, Route::Drop | Route::Reject) => ClientScope::Nobody,
            (Route::Forward(_), Route::Forward(_)) => ClientScope::Everyone,
            (Route::Forward(_), _) => ClientScope::Outside(Arc::clone(internal)),
            (_, Route::Forward(_)) => ClientScope::Inside(Arc::clone(internal)),
        };
        Self::Open(Admission {
            scope,
            syn_policy,
            ranges: Arc::clone(&frontend.source_ranges),
            peers: frontend.proxied_by.clone(),
        })
    }
}

/// Which clients a frontend has anything for. With the set of those inside the cluster where it matters, so that its
/// changes concern no other frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClientScope {
    Nobody,
    Everyone,
    Outside(Arc<AddressSet>),
    Inside(Arc<AddressSet>),
}

/// Whom a socket is to see. It shares what it is made of with the table: thousands of frontends may go by one large set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    scope: ClientScope,
    syn_policy: SynPolicy,
    ranges: Arc<SourceRanges>,
    /// Whom these bring is known only once their header is read.
    peers: Option<Arc<AddressSet>>,
}

impl Admission {
    /// Whether any of them may come now.
    pub(super) fn syn_policy(&self) -> SynPolicy {
        self.syn_policy
    }

    /// The sources of a socket on `own`, while it accepts SYNs.
    pub(super) fn sources(&self, own: IpAddr) -> AddressSet {
        let allowed = self.ranges.allowed();
        let direct = match &self.scope {
            ClientScope::Nobody => return AddressSet::default(),
            ClientScope::Everyone => allowed.clone(),
            ClientScope::Outside(inside) => inside.complement().intersection(allowed),
            ClientScope::Inside(inside) => inside.with(own).intersection(allowed),
        };
        match &self.peers {
            Some(peers) => direct.union(peers),
            None => direct,
        }
    }
}
