//! Addresses of this machine: those of the kernel's local routing table, read again when that changes, so that connections look
//! them up without a system call.
//!
//! Other sources do not suffice: bind(2) accepts any address if `net.ipv4.ip_nonlocal_bind` is set, and interfaces list neither
//! broadcast addresses nor whole networks that are local (`ip route add local 10.0.0.0/8 dev lo`).
//!
//! A set that is outdated for a moment does no harm. For an address that was just removed, endpoints still see the gateway's
//! address. An address that was just added works as a client's, since replies to it are delivered here anyway; as an endpoint's
//! it does not answer, so that TCP retries from the gateway's address and a UDP flow ends as unanswered.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sheave_model::AddressSet;
use socket2::{SockFilter, Socket};
use tokio::io::Interest;
use tokio::time::sleep_until;

use super::netlink::{exchange, is, message};
use crate::sys::Errno;
use crate::sys::bpf::classic::{JUMP_IF_EQUAL, LOAD_BYTE, RETURN};
use crate::sys::sockets::{Registered, open_netlink, register, set_int};

/// RT_TABLE_LOCAL (linux/rtnetlink.h), which the kernel consults first.
const LOCAL: u8 = 255;
/// RTMGRP_IPV4_ROUTE and RTMGRP_IPV6_ROUTE of the same header: routes that are added or removed.
const ROUTE_CHANGES: u32 = 0x40 | 0x400;

/// Subscription to changes of the local addresses.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    changes: Arc<Socket>,
    /// Set at the first wait, which is certain to be inside a runtime.
    registered: Option<Registered>,
    outdated: bool,
    /// Earliest time of the next read, so that a burst of changes takes at most half of a core.
    pause: Instant,
}

impl LocalAddresses {
    /// Subscribes to changes.
    ///
    /// # Errors
    /// Returns an error if socket(2), bind(2) or setsockopt(2) fails.
    pub(super) fn follow() -> io::Result<Self> {
        // Offset of rtm_table (linux/rtnetlink.h) after the netlink header. Routes in other tables may change all the time (BGP).
        const TABLE: u32 = 16 + 4;
        let filter = [
            (LOAD_BYTE, 0, 0, TABLE),
            (JUMP_IF_EQUAL, 0, 1, LOCAL.into()),
            (RETURN, 0, 0, u32::MAX),
            (RETURN, 0, 0, 0),
        ]
        .map(|(code, if_true, if_false, k)| SockFilter::new(code, if_true, if_false, k));
        let changes = open_netlink(libc::NETLINK_ROUTE, ROUTE_CHANGES)?.socket;
        changes.attach_filter(&filter)?;
        Ok(Self { changes: Arc::new(changes), registered: None, outdated: true, pause: Instant::now() })
    }

    /// Waits until the addresses may have changed since the last read. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        if !self.outdated {
            self.notified().await;
            self.outdated = true;
        }
        sleep_until(self.pause.into()).await;
    }

    /// Waits for a notification, or forever if the socket cannot be registered with the runtime.
    async fn notified(&mut self) {
        if self.registered.is_none() {
            self.registered = register(Arc::clone(&self.changes), Interest::READABLE).ok();
        }
        if let Some(registered) = &self.registered
            && let Ok(mut guard) = registered.readable().await
        {
            drain(&self.changes);
            guard.clear_ready();
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Whether [`LocalAddresses::changed`] has returned since the last read.
    pub(crate) fn is_outdated(&self) -> bool {
        self.outdated
    }

    /// Reads the addresses. The kernel sends no notification of some changes, such as the end of an interface with an AnyIP route
    /// (`fib_flush` in net/ipv4/fib_frontend.c), so callers must also read from time to time.
    ///
    /// # Errors
    /// Returns an error if socket(2), bind(2), setsockopt(2), send(2) or recv(2) fails, or the error in the kernel's reply.
    pub(crate) fn read(&mut self) -> io::Result<AddressSet> {
        let started = Instant::now();
        let addresses = read();
        self.outdated = false;
        self.pause = Instant::now() + started.elapsed();
        addresses
    }
}

/// Discards the notifications. Their content does not matter, nor does a loss (ENOBUFS, netlink(7)), since all addresses are read
/// again.
fn drain(mut changes: &Socket) {
    loop {
        match changes.read(&mut [0]) {
            Err(error) if !is(&error, Errno::ENOBUFS) => break,
            _ => {}
        }
    }
}

/// The current addresses: local, broadcast, anycast and multicast.
///
/// # Errors
/// Returns an error if socket(2), bind(2), setsockopt(2), send(2) or recv(2) fails, or the error in the kernel's reply.
pub(super) fn read() -> io::Result<AddressSet> {
    let netlink = open_netlink(libc::NETLINK_ROUTE, 0)?;
    // NETLINK_GET_STRICT_CHK (linux/netlink.h), Linux 4.20: without it the kernel ignores the requested table.
    const GET_STRICT_CHECK: libc::c_int = 12;
    set_int(&netlink.socket, libc::SOL_NETLINK, GET_STRICT_CHECK, 1)?;
    let mut prefixes = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut request = RouteMessage::default();
        (request.header.address_family, request.header.table) = (family, LOCAL);
        match exchange(&netlink, vec![message(RouteNetlinkMessage::GetRoute(request), NLM_F_DUMP)]) {
            Ok(routes) => prefixes.extend(routes.iter().filter_map(local_prefix)),
            // The kernel has no IPv6.
            Err(error) if is(&error, Errno::EOPNOTSUPP) || is(&error, Errno::EAFNOSUPPORT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(AddressSet::from_cidrs(&prefixes))
}

/// The prefix of a local route. A route without a destination is the default route.
fn local_prefix(message: &RouteNetlinkMessage) -> Option<IpNet> {
    use RouteType::{Anycast, Broadcast, Local, Multicast};
    let RouteNetlinkMessage::NewRoute(RouteMessage { header, attributes, .. }) = message else { return None };
    if !matches!(header.kind, Local | Broadcast | Anycast | Multicast) {
        return None;
    }
    let destination = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some((*ip).into()),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    });
    let any = match header.address_family {
        AddressFamily::Inet => std::net::Ipv4Addr::UNSPECIFIED.into(),
        _ => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    IpNet::new(destination.unwrap_or(any), header.destination_prefix_length).ok()
}

#[cfg(test)]
mod tests;
