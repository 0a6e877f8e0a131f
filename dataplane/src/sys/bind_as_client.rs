//! Binding a socket that is about to connect to an address that is not this machine's: the client's.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::Socket;

use super::option::set_int;

/// Binds to the client's address and any port (`IP_TRANSPARENT`, ip(7)). Which port is left to connect(2), so that one
/// port may serve towards many endpoints (`IP_BIND_ADDRESS_NO_PORT`).
///
/// # Errors
/// `AddrNotAvailable` around any error of bind(2), and around `PermissionDenied` without CAP_NET_ADMIN or CAP_NET_RAW.
pub(crate) fn bind_as_client(socket: &Socket, client: IpAddr) -> io::Result<()> {
    bind(socket, client).map_err(|error| io::Error::new(io::ErrorKind::AddrNotAvailable, error))
}

/// Whether an error of bind or connect says that the bound address is of no use: it could not be bound at all, all its
/// ports towards the endpoint are taken (EADDRNOTAVAIL, EADDRINUSE; EAGAIN of `inet_autobind` in net/ipv4/af_inet.c for
/// UDP), or nothing may be sent from it (EINVAL of `ip_route_output_key_hash_rcu` in net/ipv4/route.c).
pub(crate) fn is_of_the_source(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidInput, WouldBlock};
    matches!(error.kind(), AddrInUse | AddrNotAvailable | InvalidInput | WouldBlock)
}

fn bind(socket: &Socket, client: IpAddr) -> io::Result<()> {
    allow_foreign_address(socket, client.is_ipv4())?;
    // Of level IP for both families (__inet6_bind in net/ipv6/af_inet6.c asks the same flag).
    set_int(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
    socket.bind(&SocketAddr::new(client, 0).into())
}

/// Lets a socket of either family be bound to an address that is not this machine's.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN or CAP_NET_RAW.
pub(crate) fn allow_foreign_address(socket: &Socket, ipv4: bool) -> io::Result<()> {
    let (level, transparent) = if ipv4 {
        (libc::IPPROTO_IP, libc::IP_TRANSPARENT)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT)
    };
    set_int(socket, level, transparent, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Errno;

    #[test]
    fn what_the_bound_address_causes_is_told_from_what_the_endpoint_causes() {
        for errno in [Errno::EADDRNOTAVAIL, Errno::EADDRINUSE, Errno::EINVAL, Errno::EAGAIN] {
            assert!(is_of_the_source(&errno.into()), "{errno}");
        }
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ETIMEDOUT, Errno::EMFILE] {
            assert!(!is_of_the_source(&errno.into()), "{errno}");
        }
    }
}
