//! Where the kernel sends a client: what is open, what it has on record, and what its hash chooses.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sheave_model::EndpointAddr;

use super::forwarding;
use crate::select::{ActiveFrontend, Origin};

/// Where the kernel sends a client whatever the frontend's shares are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// The endpoint of a connection or flow that is open.
    Open(EndpointAddr),
    /// The endpoint of the client's affinity record, and how long that lasts.
    Recorded(EndpointAddr, Duration),
    /// Nowhere.
    Nowhere,
}

/// Asks the kernel where it has pinned a client; `port` is the client's, if it is known. Takes two requests of netlink, about 0.1 ms.
pub fn pinned_by_kernel(frontend: &ActiveFrontend, client: IpAddr, port: Option<u16>) -> Pinned {
    let addr = frontend.spec().addr;
    let endpoint = |addr: SocketAddr| EndpointAddr::new(addr.ip(), addr.port());
    let failed = |error: sheave_kernel::Error| tracing::debug!(%error, "the kernel does not say where it sends a client");
    let connection = port.map(|port| sheave_kernel::open_connection(addr, SocketAddr::new(client, port)));
    let connection = connection.and_then(|it| it.map_err(failed).ok().flatten());
    // One that ends at the frontend itself is the proxy's.
    if let Some(open) = connection.filter(|open| *open != addr.socket_addr()) {
        return Pinned::Open(endpoint(open));
    }
    match sheave_kernel::affinity_record(addr, client).map_err(failed).ok().flatten() {
        Some((recorded, remaining)) => Pinned::Recorded(endpoint(recorded), remaining),
        None => Pinned::Nowhere,
    }
}

/// The endpoint that the kernel chooses by a hash of the client's address; `None` if it chooses at random, or none.
pub fn hashed_by_kernel(frontend: &ActiveFrontend, origin: Origin, client: IpAddr) -> Option<EndpointAddr> {
    let forwarding = forwarding::carried(frontend, false);
    let endpoint = sheave_kernel::hashed(&forwarding, origin == Origin::Internal, client)?;
    Some(EndpointAddr::new(endpoint.ip(), endpoint.port()))
}
