//! Return path of connections from a client's address. The endpoint's replies are addressed to the client, so this machine
//! would forward or drop them. nftables marks those that belong to a transparent socket here (`nftables`), and routing
//! delivers marked packets locally (`routes`).

use std::io;

use netlink_packet_route::AddressFamily;
use sheave_model::AddressSet;
use socket2::{Domain, Socket, Type};
use thiserror::Error;

use super::local_addresses::LocalAddresses;
use super::netlink::is;
use super::nftables::MarkingTable;
use super::routes;
use crate::sys::Errno;
use crate::sys::bind::set_transparent;
use crate::sys::sockets::{Netlink, open_netlink};

/// Reason why endpoints cannot see clients' addresses. Each message includes the remedy.
#[derive(Debug, Error)]
pub enum ReturnPathError {
    /// A step failed with `EPERM`.
    #[error("connections from clients' addresses need CAP_NET_ADMIN: give the gateway that capability")]
    NotPermitted,
    /// The kernel supports nftables, but not the expressions `socket` and `tproxy`.
    #[error(
        "nftables cannot match packets by socket: \
         load the modules nft_socket and nft_tproxy (CONFIG_NFT_SOCKET, CONFIG_NFT_TPROXY)"
    )]
    NoSocketMatch,
    /// The kernel has no nftables, or an old one, or the process may not use it.
    #[error(
        "nftables is not available ({0}): it needs Linux 5.10 with the module nf_tables (CONFIG_NF_TABLES_INET), and \
         netlink sockets (systemd: RestrictAddressFamilies=AF_NETLINK)"
    )]
    NoNftables(io::Error),
    /// Another step failed.
    #[error("cannot {step}: {error}")]
    Failed {
        /// The step.
        step: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

/// The established return path. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct ReturnPath {
    marks: MarkingTable,
    netlink: Netlink,
    families: Vec<AddressFamily>,
    pub(crate) local: LocalAddresses,
}

impl ReturnPath {
    /// Sets up the return path, and checks that sockets may be bound to clients' addresses. Takes milliseconds.
    ///
    /// # Errors
    /// Returns an error, and leaves nothing behind, if the process lacks the permission or the kernel the features.
    pub(crate) fn establish() -> Result<Self, ReturnPathError> {
        let mut families = vec![AddressFamily::Inet];
        allow_transparency(Domain::IPV4).map_err(failed("open a transparent socket"))?;
        match allow_transparency(Domain::IPV6) {
            Ok(()) => families.push(AddressFamily::Inet6),
            Err(error) if is(&error, Errno::EAFNOSUPPORT) => {}
            Err(error) => return Err(failed("open a transparent IPv6 socket")(error)),
        }
        let netlink = open_netlink(libc::NETLINK_ROUTE, 0).map_err(nftables_error)?;
        let local = LocalAddresses::follow().map_err(failed("follow the local routes"))?;
        // From here on, dropping `path` removes everything that was created.
        let mut path =
            Self { marks: MarkingTable::install().map_err(nftables_error)?, netlink, families, local };
        path.restore()?;
        Ok(path)
    }

    /// Adds what other programs removed: systemd-networkd removes routes and routing rules when it starts, unless its
    /// `ManageForeignRoutes=` and `ManageForeignRoutingPolicyRules=` are off. Changes nothing if everything exists.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses an addition; replies do not come back until a retry succeeds.
    pub(crate) fn restore(&mut self) -> Result<(), ReturnPathError> {
        self.marks.restore().map_err(nftables_error)?;
        for &family in &self.families {
            match routes::add(&self.netlink, family) {
                // IPv6 is switched off on the loopback interface (`ip6_route_info_create` in net/ipv6/route.c).
                Err(error) if family == AddressFamily::Inet6 && is(&error, Errno::EACCES) => {}
                outcome => outcome.map_err(failed("add a route or a routing rule"))?,
            }
        }
        Ok(())
    }

    /// Reads the addresses of this machine, whose replies do not take the return path.
    ///
    /// # Errors
    /// Returns an error if the kernel's routes cannot be read.
    pub(crate) fn local_addresses(&mut self) -> Result<AddressSet, ReturnPathError> {
        self.local.read().map_err(failed("read the local routes"))
    }

    /// Removes the table, and the rules and routes with the last gateway of the network namespace, since its gateways share
    /// them. A gateway that starts between the check and the removal loses them until it restores them; without a mark they
    /// have no effect.
    fn remove(&self) -> io::Result<()> {
        let others = self.marks.remove()?;
        if !others {
            for &family in &self.families {
                routes::remove(&self.netlink, family)?;
            }
        }
        Ok(())
    }
}

impl Drop for ReturnPath {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "nftables or routing rules for clients' addresses are left behind");
        }
    }
}

fn allow_transparency(domain: Domain) -> io::Result<()> {
    set_transparent(&Socket::new(domain, Type::DGRAM.cloexec(), None)?, domain == Domain::IPV4)
}

fn failed(step: &'static str) -> impl Fn(io::Error) -> ReturnPathError {
    move |error| {
        if is(&error, Errno::EPERM) {
            ReturnPathError::NotPermitted
        } else {
            ReturnPathError::Failed { step, error }
        }
    }
}

/// Converts an error of nftables. ENOENT only means an unknown expression here (`nf_tables_expr_parse`).
fn nftables_error(error: io::Error) -> ReturnPathError {
    let unavailable = [Errno::EAFNOSUPPORT, Errno::EPROTONOSUPPORT, Errno::EOPNOTSUPP];
    if is(&error, Errno::ENOENT) {
        ReturnPathError::NoSocketMatch
    } else if unavailable.iter().any(|&errno| is(&error, errno)) {
        ReturnPathError::NoNftables(error)
    } else {
        failed("make an nftables table")(error)
    }
}

#[cfg(test)]
mod tests;
