//! Connections from the client's own address ([`ClientSource::Transparent`]): the clients and endpoints for which they are possible,
//! and the return path that they need.

mod local_addresses;
mod netlink;
mod nftables;
pub(crate) mod return_path;
mod routes;
#[cfg(test)]
mod test_network;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use sheave_model::{AddressSet, ClientAddr, ClientSource, EndpointAddr, FrontendAddr};
use thiserror::Error;

/// Mark of packets that are delivered locally, and the bits that it covers. No other program uses bit 12 alone: Kubernetes has 14 and
/// 15, CNI portmap 13, the AWS plugin 7, Calico and Tailscale those from 16 (the registry of marks,
/// <https://github.com/fwmark/registry>). Cilium and Istio use it or its neighbours with a value other than 0 in bits 8
/// to 11 (0x0f00; `MARK_MAGIC_*` in Cilium's bpf/lib/common.h, 0x539 in Istio), so the mark requires 0 there.
const MARK: u32 = 0x1000;
const MARK_MASK: u32 = 0x1f00;

/// Addresses of this machine, once the return path is established. Shared by all workers.
#[derive(Debug, Default)]
pub struct Transparency(ArcSwapOption<AddressSet>);

impl Transparency {
    /// Sets the addresses of this machine; `None` = sockets may not be bound to clients' addresses.
    pub(crate) fn set(&self, local: Option<AddressSet>) {
        if self.0.load().as_deref() != local.as_ref() {
            self.0.store(local.map(Arc::new));
        }
    }

    /// The client's address and port, if `source` requests them and connections from that address to the endpoint are possible now. The
    /// port may be in use by another socket.
    pub(crate) fn source_addr(
        &self,
        source: ClientSource,
        client: ClientAddr,
        frontend: FrontendAddr,
        endpoint: EndpointAddr,
    ) -> Option<SocketAddr> {
        if source != ClientSource::Transparent {
            return None;
        }
        let ip = source_ip(client.ip(), frontend, endpoint, self.0.load().as_ref()?).ok()?;
        Some(SocketAddr::new(ip, client.0.port()))
    }
}

/// Reason why an endpoint sees the gateway's address instead of a client's.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[must_use]
pub enum Masked {
    /// The client is on this machine; another machine with the frontend's address may get the replies
    /// (`--src-type LOCAL` in kube-proxy's pkg/proxy/iptables/proxier.go).
    #[error("the client has the frontend's own address, so replies would not come back")]
    FrontendAddress,
    /// The endpoint would see its own address ("loops back to the originator" in the same file).
    #[error("the client is the endpoint itself, which would not reply through the gateway")]
    Endpoint,
    /// The client and the endpoint have addresses of different families.
    #[error("the client's address is of the other family")]
    OtherFamily,
    /// Replies from this machine itself do not pass the return path.
    #[error("the endpoint is on the gateway's machine, whose replies go to the client directly")]
    EndpointHere,
    /// The address is loopback, unspecified, multicast, broadcast or this machine's own, any of which a proxy may claim.
    #[error("the client's address is not that of another machine")]
    NoClient,
}

/// Current addresses of this machine; empty if the kernel does not return them.
pub fn local_addresses() -> AddressSet {
    local_addresses::read().unwrap_or_default()
}

/// Source address of connections to `endpoint` for `client`: the client's. `local` are the addresses of this machine.
///
/// # Errors
/// Returns the reason why replies would not come back through this machine; the gateway then uses its own address.
pub fn source_ip(
    client: IpAddr,
    frontend: FrontendAddr,
    endpoint: EndpointAddr,
    local: &AddressSet,
) -> Result<IpAddr, Masked> {
    let client = presentable(client, frontend, local)?;
    if client.is_ipv4() != endpoint.ip.is_ipv4() {
        Err(Masked::OtherFamily)
    } else if client == endpoint.ip {
        Err(Masked::Endpoint)
    } else if is_unusable(endpoint.ip) || local.contains(endpoint.ip) {
        Err(Masked::EndpointHere)
    } else {
        Ok(client)
    }
}

/// Checks the conditions of [`source_ip`] that do not depend on the endpoint.
///
/// # Errors
/// Returns the reason why no endpoint can be connected from the client's address.
pub fn presentable(client: IpAddr, frontend: FrontendAddr, local: &AddressSet) -> Result<IpAddr, Masked> {
    if client == frontend.ip {
        Err(Masked::FrontendAddress)
    } else if is_unusable(client) || local.contains(client) {
        Err(Masked::NoClient)
    } else {
        Ok(client)
    }
}

/// Whether no remote host can have this address. 0.0.0.0/8 is "this network" (RFC 1122, 3.2.1.3).
fn is_unusable(ip: IpAddr) -> bool {
    let v4_special = matches!(ip, IpAddr::V4(v4) if v4.octets()[0] == 0 || v4.is_broadcast());
    v4_special || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use sheave_model::Protocol;

    use super::*;

    fn ask(client: &str, frontend: &str, endpoint: &str) -> Result<IpAddr, Masked> {
        let [client, frontend, endpoint] = [client, frontend, endpoint].map(|ip| ip.parse().unwrap());
        let frontend = FrontendAddr { ip: frontend, port: 80, protocol: Protocol::Tcp };
        let local = ["192.0.2.16/28", "2001:db8::16/124"].map(|cidr| cidr.parse().unwrap());
        source_ip(client, frontend, EndpointAddr::new(endpoint, 80), &AddressSet::from_cidrs(&local))
    }

    #[test]
    fn the_gateway_uses_its_own_address_where_replies_would_not_come_back() {
        let (v4, v6) = (["203.0.113.1", "198.51.100.7"], ["2001:db8::1", "2001:db8::7"]);
        for [frontend, endpoint] in [v4, v6] {
            assert_eq!(ask(frontend, frontend, endpoint), Err(Masked::FrontendAddress));
            assert_eq!(ask(endpoint, frontend, endpoint), Err(Masked::Endpoint));
        }
        for (client, here) in [
            ("192.0.2.1", ["192.0.2.17", "127.0.0.3", "255.255.255.255"]),
            ("2001:db8::9", ["2001:db8::17", "::1", "ff02::1"]),
        ] {
            for here in here {
                assert_eq!(ask(client, v4[0], here), Err(Masked::EndpointHere), "{here}");
            }
            assert_eq!(ask(here[0], v4[0], v4[1]), Err(Masked::NoClient), "{here:?}");
        }
        assert_eq!(ask("192.0.2.1", v4[0], v6[1]), Err(Masked::OtherFamily));
        assert_eq!(ask("2001:db8::9", v6[0], v4[1]), Err(Masked::OtherFamily));
        for (client, [frontend, endpoint]) in [("192.0.2.1", v4), ("2001:db8::9", v6)] {
            assert_eq!(ask(client, frontend, endpoint), Ok(client.parse().unwrap()));
        }
    }

    #[test]
    fn addresses_that_no_host_has_are_never_used() {
        let claims =
            ["0.0.0.0", "0.0.0.5", "127.0.0.2", "224.0.0.1", "255.255.255.255", "::", "::1", "ff02::1"];
        for client in claims {
            for endpoint in ["198.51.100.7", "2001:db8::7"] {
                assert_eq!(ask(client, "203.0.113.1", endpoint), Err(Masked::NoClient), "{client}");
            }
        }
    }
}
