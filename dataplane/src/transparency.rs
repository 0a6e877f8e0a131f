//! Whether, and for whom, this process may speak from its clients' addresses. It must not know what that takes.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::{ClientAddr, EndpointAddr, FrontendAddr};

/// Off until someone has seen to it that answers find their way back. Shared by all workers.
#[derive(Debug, Default)]
pub struct Transparency(AtomicBool);

impl Transparency {
    /// Says whether sockets may be bound to clients' addresses.
    pub(crate) fn set(&self, available: bool) {
        self.0.store(available, Ordering::Relaxed);
    }

    /// The client's address, if an endpoint can be spoken to from there. As kube-proxy does, the gateway speaks for itself
    /// where an endpoint would see its own address, and for clients on this machine, whose answers another machine with
    /// the frontend's address may get ("loops back to the originator" and `--src-type LOCAL` in
    /// pkg/proxy/iptables/proxier.go).
    pub(crate) fn speaker(
        &self,
        client: ClientAddr,
        frontend: FrontendAddr,
        endpoint: EndpointAddr,
    ) -> Option<IpAddr> {
        let ip = client.ip();
        let possible = self.0.load(Ordering::Relaxed)
            && ip.is_ipv4() == endpoint.ip.is_ipv4()
            && ip != endpoint.ip
            && ip != frontend.ip;
        possible.then_some(ip)
    }
}
