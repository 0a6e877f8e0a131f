//! Causes of socket errors: this machine, the local address, or the peer.

use std::io;

pub(crate) use nix::errno::Errno;

/// The error's number, if the kernel returned it.
fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

/// Whether the process or the machine is out of descriptors, memory or epoll watches (accept(2), socket(2), epoll_ctl(2)).
pub(crate) fn is_shortage(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM | Errno::ENOSPC)
}

/// Whether descriptors, memory or local ports have run out on this machine, so that the endpoint is not to blame (connect(2),
/// socket(2)).
pub(crate) fn is_local_shortage(error: &io::Error) -> bool {
    errno(error)
        .is_some_and(|errno| is_shortage(errno) || matches!(errno, Errno::EADDRNOTAVAIL | Errno::EAGAIN))
}

/// Whether all local TCP ports towards the endpoint are in use (connect(2)); others may be free towards another endpoint.
pub(crate) fn is_out_of_tcp_ports(error: &io::Error) -> bool {
    errno(error) == Some(Errno::EADDRNOTAVAIL)
}

/// Whether all local UDP ports towards the endpoint are in use; others may be free towards another endpoint (connect(2);
/// EAGAIN of `inet_autobind` in net/ipv4/af_inet.c).
pub(crate) fn is_out_of_udp_ports(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, WouldBlock};
    matches!(error.kind(), AddrInUse | AddrNotAvailable | WouldBlock)
}

/// Whether bind or connect failed because of the local address: it cannot be bound, all its ports towards the endpoint are
/// taken (EADDRNOTAVAIL, EADDRINUSE; EAGAIN of `inet_autobind` in net/ipv4/af_inet.c for UDP), or nothing may be sent from it
/// (EINVAL of `ip_route_output_key_hash_rcu` in net/ipv4/route.c).
pub(crate) fn is_source_unusable(error: &io::Error) -> bool {
    is_out_of_udp_ports(error) || error.kind() == io::ErrorKind::InvalidInput
}

/// Whether the peer is unreachable, as shown by ICMP or the lack of a route; another one may be reachable.
pub(crate) fn is_peer_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_local_address_are_not_blamed_on_the_endpoint() {
        for errno in [Errno::EADDRNOTAVAIL, Errno::EADDRINUSE, Errno::EINVAL, Errno::EAGAIN] {
            assert!(is_source_unusable(&errno.into()), "{errno}");
        }
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ETIMEDOUT, Errno::EMFILE] {
            assert!(!is_source_unusable(&errno.into()), "{errno}");
        }
    }

    #[test]
    fn shortages_of_this_machine_are_not_blamed_on_the_endpoint() {
        for errno in [Errno::EMFILE, Errno::EADDRNOTAVAIL] {
            assert!(is_local_shortage(&errno.into()), "{errno}");
        }
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH] {
            assert!(!is_local_shortage(&errno.into()), "{errno}");
        }
        assert!(!is_local_shortage(&io::ErrorKind::TimedOut.into()));
    }
}
