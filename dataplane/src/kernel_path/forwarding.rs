//! Forwarding of a frontend on the kernel path: the routes with the shares that health and failover leave.

use std::net::SocketAddr;
use std::sync::Arc;

use sheave_kernel::{Decision, Forwarding, Masquerade, Method};
use sheave_model::{AddressSet, Affinity, Algorithm, ClientSource, FrontendAddr, Route};

use crate::select::{ActiveFrontend, Origin};

/// The forwarding of a frontend that the kernel carries. `guarded`: the proxy may have open connections of it.
pub(super) fn carried(frontend: &ActiveFrontend, guarded: bool) -> Forwarding {
    let spec = frontend.spec();
    Forwarding {
        addr: spec.addr,
        external: decision(frontend, Origin::External, &spec.external),
        internal: decision(frontend, Origin::Internal, &spec.internal),
        method: if is_hashed(frontend) { Method::Hash } else { Method::Random },
        guarded,
        affinity: match spec.affinity {
            Affinity::None => None,
            Affinity::ClientIp { timeout, .. } => Some(timeout),
        },
        masquerade: masquerade(frontend),
        admitted: Arc::new(spec.source_ranges.allowed().of_family(spec.addr.ip)),
    }
}

/// Whose address the endpoints do not see.
pub(super) fn masquerade(frontend: &ActiveFrontend) -> Masquerade {
    let is_masqueraded = |origin| frontend.client_source(origin) == ClientSource::Gateway;
    match (is_masqueraded(Origin::External), is_masqueraded(Origin::Internal)) {
        (false, false) => Masquerade::Nobody,
        (false, true) => Masquerade::Internal,
        (true, _) => Masquerade::Everyone,
    }
}

/// Whether every gateway is to choose the same endpoint for a client. Where nobody has asked for that, the many flows of one client spread
/// at random, as the kernel's hash takes in no port.
pub(super) fn is_hashed(frontend: &ActiveFrontend) -> bool {
    let spec = frontend.spec();
    let asked = spec.algorithm_named || spec.affinity != Affinity::None;
    asked && frontend.algorithm() == Algorithm::Maglev
}

/// The forwarding of a frontend that stays with the proxy: the kernel passes its packets on to the proxy's socket, or refuses them where
/// there is none.
pub(super) fn proxied(addr: FrontendAddr) -> Forwarding {
    Forwarding {
        addr,
        external: Decision::Proxy,
        internal: Decision::Proxy,
        method: Method::Random,
        guarded: false,
        affinity: None,
        masquerade: Masquerade::Nobody,
        admitted: Arc::new(AddressSet::all()),
    }
}

fn decision(frontend: &ActiveFrontend, origin: Origin, route: &Route) -> Decision {
    match route {
        Route::Reject => Decision::Refuse,
        Route::Drop => Decision::Discard,
        Route::Forward(_) => {
            let shares: Vec<(SocketAddr, u64)> =
                frontend.shares(origin).map(|(endpoint, share)| (endpoint.socket_addr(), share)).collect();
            match scaled(&shares) {
                endpoints if endpoints.is_empty() => Decision::Refuse,
                endpoints => Decision::Forward(endpoints),
            }
        }
    }
}

/// The shares in 32 bits, in proportion and none of them 0.
fn scaled(shares: &[(SocketAddr, u64)]) -> Vec<(SocketAddr, u32)> {
    let largest = shares.iter().map(|&(_, share)| share).max().unwrap_or_default();
    let shift = u64::BITS.saturating_sub(largest.leading_zeros()).saturating_sub(u32::BITS);
    let scale = |share: u64| u32::try_from(share >> shift).unwrap_or(u32::MAX).max(1);
    shares.iter().filter(|&&(_, share)| share > 0).map(|&(addr, share)| (addr, scale(share))).collect()
}
