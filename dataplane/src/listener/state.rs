//! State that the routing table requires of a listener: closed, or open to some clients.

use std::net::IpAddr;
use std::sync::Arc;

use crate::listener::overload::SynPolicy;
use sheave_model::{AddressSet, SourceRanges};
use sheave_model::{Frontend, Route};

/// Required state of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum ListenerState {
    /// No socket: every client is refused.
    Closed,
    /// A socket that sees packets of some sources only.
    Open(Admission),
}

impl ListenerState {
    /// The state that the table requires. `internal` are the clients inside the cluster.
    pub(super) fn of(frontend: &Frontend, internal: &Arc<AddressSet>, syn_policy: SynPolicy) -> Self {
        if !frontend.is_bound() {
            return Self::Closed;
        }
        let scope = match (frontend.route(|it| &it.external), frontend.route(|it| &it.internal)) {
            // What its server name leads to is known only once a client has connected.
            _ if frontend.server_names.is_some() => ClientScope::Everyone,
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

/// Clients for which a frontend has a route. Contains the set of clients inside the cluster only if it matters, so that
/// a change of the set concerns no other frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClientScope {
    Nobody,
    Everyone,
    Outside(Arc<AddressSet>),
    Inside(Arc<AddressSet>),
}

/// Sources that a socket admits. Shares its sets with the table: thousands of frontends may use one large set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    scope: ClientScope,
    syn_policy: SynPolicy,
    ranges: Arc<SourceRanges>,
    /// Proxies, whose clients are only known once a header is read.
    peers: Option<Arc<AddressSet>>,
}

impl Admission {
    /// Whether new connections are accepted now.
    pub(super) fn syn_policy(&self) -> SynPolicy {
        self.syn_policy
    }

    /// The sources of a socket on `own` while it accepts SYNs.
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

#[cfg(test)]
mod tests {
    use sheave_model::test_util::{pool, refused, split, with_server_names};
    use sheave_model::{Algorithm, SplitPart};

    use super::*;

    fn is_open(parts: impl IntoIterator<Item = SplitPart>) -> bool {
        let whole = split(1, Algorithm::Random, parts);
        ListenerState::of(&whole, &Arc::default(), SynPolicy::Accept) != ListenerState::Closed
    }

    #[test]
    fn a_split_listens_while_a_part_with_weight_forwards() {
        let endpoint: &[(u32, u16)] = &[(1, 100)];
        assert!(is_open([refused("gone", 9), pool(1, 1, endpoint)]));
        assert!(!is_open([refused("gone", 9), pool(1, 0, endpoint)]));
        assert!(!is_open([refused("gone", 9), pool(1, 1, &[])]));
        assert!(!is_open([]));
    }

    #[test]
    fn server_names_listen_to_all_allowed_clients_even_if_no_name_leads_anywhere() {
        let closed = split(1, Algorithm::Random, [refused("gone", 1)]);
        let ranges = Arc::new(SourceRanges::new(vec!["192.0.2.0/24".parse().unwrap()]));
        for names in [with_server_names(1, []), with_server_names(1, [("a.example", closed)])] {
            let whole = Frontend { source_ranges: Arc::clone(&ranges), ..names };
            match ListenerState::of(&whole, &Arc::default(), SynPolicy::Accept) {
                ListenerState::Open(admission) => {
                    assert_eq!(admission.sources(whole.addr.ip), *ranges.allowed());
                }
                ListenerState::Closed => panic!("refused before a name is known"),
            }
        }
    }
}
