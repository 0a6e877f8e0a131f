//! Range of local ports from which the kernel chooses, and the part of it that is searched for one socket.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use socket2::{Domain, Socket, Type};

use super::sockets::set_int;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Ports that the kernel does not assign.
const RESERVED: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";
/// Default range of Linux, used if the range cannot be read.
const USUAL: RangeInclusive<u16> = 32_768..=60_999;

/// From include/uapi/linux/in.h; missing in libc.
const IP_LOCAL_PORT_RANGE: libc::c_int = 51;

/// The first and last port that the kernel assigns to sockets without a requested port.
pub(crate) fn port_range() -> RangeInclusive<u16> {
    fs::read_to_string(RANGE).ok().and_then(|text| parse(&text)).unwrap_or(USUAL)
}

/// Ports of the range that the kernel does not assign (`ip_local_reserved_ports`, ip-sysctl.rst).
pub(crate) fn reserved_ports() -> HashSet<u16> {
    fs::read_to_string(RESERVED).map(|text| parse_list(&text)).unwrap_or_default()
}

/// Parses the kernel's form of a range, as in `32768 60999`.
pub(crate) fn parse(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ends = text.split_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

/// Parses a list such as `8080,9148-9150`.
pub(crate) fn parse_list(text: &str) -> HashSet<u16> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// Whether connect(2) reuses ports of connections that ended a second ago (`tcp_tw_reuse`, ip(7)); by default it does only towards this
/// machine.
pub(crate) fn reuses_ports_early() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").is_ok_and(|text| text.trim() == "1")
}

/// Restricts connect(2) to local ports in this range (ip(7)). The port is still within the machine's range, not reserved, and may also
/// be used towards other addresses. The option has level IP for both families, like `IP_BIND_ADDRESS_NO_PORT`.
///
/// # Errors
/// Returns an error if setsockopt(2) fails, as it always does unless [`can_narrow_port_range`] returns true.
pub(crate) fn narrow_port_range(socket: &Socket, ports: &RangeInclusive<u16>) -> io::Result<()> {
    let value = u32::from(*ports.end()) << 16 | u32::from(*ports.start());
    set_int(socket, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, value.cast_signed())
}

/// Whether the kernel supports [`narrow_port_range`]: since Linux 6.3.
pub(crate) fn can_narrow_port_range() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(|| {
        let socket = [Domain::IPV4, Domain::IPV6].map(|family| Socket::new(family, Type::STREAM, None));
        socket.into_iter().flatten().any(|socket| narrow_port_range(&socket, &USUAL).is_ok())
    });
    *CAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_range_is_read() {
        assert_eq!(parse("32768\t60999\n"), Some(32_768..=60_999));
        assert_eq!(parse("odd"), None);
    }

    #[test]
    fn the_kernels_list_is_read() {
        assert_eq!(parse_list("8080,9148-9150\n"), HashSet::from([8080, 9148, 9149, 9150]));
        assert_eq!(parse_list("\n"), HashSet::new());
    }
}
