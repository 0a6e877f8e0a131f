//! How a frontend meets packets, as the table asks for it. It must not know how that is done.

use std::net::IpAddr;
use std::sync::Arc;

use sheave_model::{AddressSet, Frontend, Route, SourceRanges};

use crate::overload::Door;

/// How a frontend meets packets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Posture {
    /// No socket: everybody is refused.
    Closed,
    /// A socket that sees packets of some sources only.
    Open(Audience),
}

impl Posture {
    /// What the table asks for. `internal` is who counts as a client inside the cluster.
    pub(super) fn of(frontend: &Frontend, internal: &Arc<AddressSet>, door: Door) -> Self {
        let class = match (&frontend.external, &frontend.internal) {
            (Route::Reject, Route::Reject) => return Self::Closed,
            (Route::Drop | Route::Reject, Route::Drop | Route::Reject) => Class::Nobody,
            (Route::Forward(_), Route::Forward(_)) => Class::Everyone,
            (Route::Forward(_), _) => Class::Outside(Arc::clone(internal)),
            (_, Route::Forward(_)) => Class::Inside(Arc::clone(internal)),
        };
        Self::Open(Audience {
            class,
            door,
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
pub(super) struct Audience {
    class: Class,
    door: Door,
    ranges: Arc<SourceRanges>,
    /// Whom these bring is known only once their header is read.
    peers: Option<Arc<AddressSet>>,
}

impl Audience {
    /// Whether any of them may come now.
    pub(super) fn door(&self) -> Door {
        self.door
    }

    /// The sources of a socket on `own`, while its door is open.
    pub(super) fn sources(&self, own: IpAddr) -> AddressSet {
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
