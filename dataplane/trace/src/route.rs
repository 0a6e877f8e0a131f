//! Routes: where the kernel sends a packet, and whether it takes one that arrives.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::libc;
use nix::net::if_::if_indextoname;

use crate::netlink::route_request;
use crate::unseen::{Errno, Missing, Right, Unseen};

const WHAT: &str = "the route";
/// The kernel counts a cached route's lifetime in USER_HZ, which is 100 on all architectures that Sheave is built for.
const TICK: Duration = Duration::from_millis(10);

/// Route of a packet that this machine sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Fate of the packet.
    pub kind: RouteKind,
    /// The interface by which it leaves; none where it does not leave.
    pub interface: Option<Interface>,
    /// The router that gets it; none if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The MTU, if it is another than that of the interface.
    pub mtu: Option<RouteMtu>,
}

/// An interface of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sent to a neighbour.
    Unicast,
    /// Delivered to this machine.
    Local,
    /// Sent to all machines of a link.
    Broadcast,
    /// Sent to a group.
    Multicast,
    /// A route of type `blackhole` discards it without an error.
    Blackhole,
    /// A route of type `unreachable` refuses it with "no route to host".
    Unreachable,
    /// A route of type `prohibit` refuses it with "permission denied".
    Prohibit,
    /// There is no route.
    None,
    /// A kind of route that carries no packets of frontends.
    Other,
}

/// MTU of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteMtu {
    /// The route has it.
    Configured(u32),
    /// A router on the path reported it (RFC 1191, RFC 8201).
    Learned {
        /// The MTU.
        mtu: u32,
        /// How long the kernel keeps it.
        expires: Duration,
    },
}

/// Admission of a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Taken: by this machine ([`RouteKind::Local`]), or on to another.
    Admitted(RouteKind),
    /// `rp_filter` drops it: packets to its sender would leave by another interface (strict) or by none (loose).
    ReversePathFilter,
    /// Dropped because no packet from outside can have such an address: a local, loopback, broadcast or multicast source.
    Martian,
    /// Addressed to another machine, and this one does not forward.
    NotForwarded,
    /// There is no route to its destination, or one that discards or refuses it.
    Refused(RouteKind),
}

/// Mode of `rp_filter` (RFC 3704): 0, 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReversePath {
    /// Sources are not checked.
    Off,
    /// Packets to the source leave by the interface that the packet came by.
    Strict,
    /// There is a route to the source.
    Loose,
}

/// The route of packets to an address, as `ip route get TO from FROM` shows it.
///
/// # Errors
/// If the kernel does not answer, or `from` is no address of this machine.
pub fn output(from: Option<IpAddr>, to: IpAddr) -> Result<Route, Unseen> {
    match look_up(from, to, None) {
        Ok(message) => Ok(read(&message)),
        Err(error) => {
            // IPv4 answers an address that is not local with the error of a route (`ip_route_output_key_hash_rcu` in net/ipv4/route.c).
            if from.is_some_and(|from| !is_local(from)) {
                let reason = Missing::Link(format!("{} is no address of this machine", from.unwrap_or(to)));
                return Err(Unseen::new(WHAT, reason));
            }
            let kind = error_kind(&error)
                .ok_or_else(|| Unseen::from_io(WHAT, &error, Right::Nothing, "NETLINK_ROUTE"))?;
            Ok(Route { kind, interface: None, gateway: None, mtu: None })
        }
    }
}

/// What the kernel does with a packet of a client to a frontend that arrives on an interface. The kernel validates the source as it does
/// that of a packet. IPv6 has no `rp_filter`: there, only packet filters drop by the source.
///
/// # Errors
/// If the kernel does not answer, or there is no such interface.
pub fn input(client: IpAddr, frontend: IpAddr, interface_index: u32) -> Result<Admission, Unseen> {
    let error = match look_up(Some(client), frontend, Some(interface_index)) {
        Ok(message) => {
            let kind = read_kind(message.header.kind);
            // Without forwarding, IPv4 has no such route, and IPv6 drops the packet later (`ip6_forward` in net/ipv6/ip6_output.c).
            let dropped = kind == RouteKind::Unicast
                && frontend.is_ipv6()
                && !forwards(frontend, &interface(interface_index).name)?;
            return Ok(if dropped { Admission::NotForwarded } else { Admission::Admitted(kind) });
        }
        Err(error) => error,
    };
    match error.raw_os_error() {
        // `fib_validate_source` in net/ipv4/fib_frontend.c; Linux 6.14 and later answer EINVAL instead.
        Some(libc::EXDEV) => Ok(Admission::ReversePathFilter),
        Some(libc::EINVAL) => invalid(client, frontend, interface_index),
        // Without forwarding, IPv4 has this error for every route (`ip_route_input_slow`).
        Some(libc::EHOSTUNREACH) => Ok(match kind_of(frontend) {
            Some(RouteKind::Unicast) => Admission::NotForwarded,
            kind => Admission::Refused(kind.unwrap_or(RouteKind::Unreachable)),
        }),
        Some(libc::ENODEV) => {
            let reason = format!("there is no interface {interface_index}");
            Err(Unseen::new(WHAT, Missing::Link(reason)))
        }
        _ => error_kind(&error)
            .map(Admission::Refused)
            .ok_or_else(|| Unseen::from_io(WHAT, &error, Right::Nothing, "NETLINK_ROUTE")),
    }
}

/// Mode of `rp_filter` on an interface: the higher of its own and that of all (`IN_DEV_RPFILTER` in linux/inetdevice.h), where loose
/// is the higher number.
///
/// # Errors
/// If a file cannot be read.
pub fn rp_filter(interface: &str) -> Result<ReversePath, Unseen> {
    let mode = |of: &str| read_number(&format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"));
    Ok(match mode("all")?.max(mode(interface)?) {
        0 => ReversePath::Off,
        1 => ReversePath::Strict,
        _ => ReversePath::Loose,
    })
}

/// Whether the kernel forwards packets that arrive on an interface, of the family of an address. For IPv6, one setting has all interfaces.
///
/// # Errors
/// If the file cannot be read.
pub fn forwards(of: IpAddr, interface: &str) -> Result<bool, Unseen> {
    let path = match of {
        IpAddr::V4(_) => format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"),
        IpAddr::V6(_) => "/proc/sys/net/ipv6/conf/all/forwarding".to_owned(),
    };
    Ok(read_number(&path)? != 0)
}

fn read_number(path: &str) -> Result<u32, Unseen> {
    let text = fs::read_to_string(path).map_err(|error| Unseen::from_file("a setting", path, &error))?;
    text.trim().parse().map_err(|_| {
        Unseen::new("a setting", Missing::File { path: path.to_owned(), error: Errno(libc::EINVAL) })
    })
}

/// What EINVAL stands for: a route of type `blackhole`, an invalid source, or, from Linux 6.14 on, `rp_filter` as well
/// (`inet_rtm_getroute` in net/ipv4/route.c makes EINVAL of every reason for a drop).
fn invalid(client: IpAddr, frontend: IpAddr, interface_index: u32) -> Result<Admission, Unseen> {
    if kind_of(frontend) == Some(RouteKind::Blackhole) {
        return Ok(Admission::Refused(RouteKind::Blackhole));
    }
    let IpAddr::V4(source) = client else { return Ok(Admission::Martian) };
    let impossible = source.is_loopback()
        || source.is_multicast()
        || source.is_broadcast()
        || source.octets()[0] == 0
        || matches!(kind_of(client), Some(RouteKind::Local | RouteKind::Broadcast | RouteKind::Multicast));
    let filtered = !impossible && rp_filter(&interface(interface_index).name)? != ReversePath::Off;
    Ok(if filtered { Admission::ReversePathFilter } else { Admission::Martian })
}

fn is_local(ip: IpAddr) -> bool {
    kind_of(ip) == Some(RouteKind::Local)
}

fn kind_of(ip: IpAddr) -> Option<RouteKind> {
    match look_up(None, ip, None) {
        Ok(message) => Some(read_kind(message.header.kind)),
        Err(error) => error_kind(&error),
    }
}

fn look_up(source: Option<IpAddr>, destination: IpAddr, iif: Option<u32>) -> io::Result<RouteMessage> {
    let mut message = RouteMessage::default();
    let (family, length) =
        if destination.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.attributes.push(RouteAttribute::Destination(destination.into()));
    if let Some(source) = source {
        message.header.source_prefix_length = length;
        message.attributes.push(RouteAttribute::Source(source.into()));
    }
    message.attributes.extend(iif.map(RouteAttribute::Iif));
    match route_request(&RouteNetlinkMessage::GetRoute(message))? {
        Some(RouteNetlinkMessage::NewRoute(message)) => Ok(message),
        _ => Err(io::Error::other("no route in the answer")),
    }
}

/// The route that an error stands for (`fib_props` in net/ipv4/fib_semantics.c, `fib6_prop` in net/ipv6/route.c).
fn error_kind(error: &io::Error) -> Option<RouteKind> {
    match error.raw_os_error()? {
        libc::ENETUNREACH => Some(RouteKind::None),
        libc::EHOSTUNREACH => Some(RouteKind::Unreachable),
        libc::EACCES => Some(RouteKind::Prohibit),
        libc::EINVAL => Some(RouteKind::Blackhole),
        _ => None,
    }
}

fn read_kind(kind: RouteType) -> RouteKind {
    match kind {
        RouteType::Unicast => RouteKind::Unicast,
        RouteType::Local | RouteType::Anycast => RouteKind::Local,
        RouteType::Broadcast => RouteKind::Broadcast,
        RouteType::Multicast => RouteKind::Multicast,
        RouteType::BlackHole => RouteKind::Blackhole,
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::Prohibit => RouteKind::Prohibit,
        _ => RouteKind::Other,
    }
}

fn read(message: &RouteMessage) -> Route {
    let mut route = Route { kind: read_kind(message.header.kind), interface: None, gateway: None, mtu: None };
    let (mut mtu, mut expires) = (None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => route.interface = Some(interface(*index)),
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::Via(RouteVia::Inet6(address)) => route.gateway = Some((*address).into()),
            RouteAttribute::Via(RouteVia::Inet(address)) => route.gateway = Some((*address).into()),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            RouteAttribute::CacheInfo(cache) => expires = cache.expires,
            _ => {}
        }
    }
    // Only an exception expires (`rt_fill_info` in net/ipv4/route.c); routes of router advertisements have no MTU of their own.
    route.mtu = mtu.map(|mtu| match expires {
        0 => RouteMtu::Configured(mtu),
        ticks => RouteMtu::Learned { mtu, expires: TICK * ticks },
    });
    route
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn interface(index: u32) -> Interface {
    let name = if_indextoname(index).map(|name| name.to_string_lossy().into_owned());
    Interface { index, name: name.unwrap_or_else(|_| format!("number {index}")) }
}
