//! The range of ports from which the kernel chooses local ones, and the part of it in which it is to look for one socket.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use socket2::{Domain, Socket, Type};

use super::sockets::set_int;

const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Linux's default, where the range cannot be read.
const USUAL: RangeInclusive<u16> = 32_768..=60_999;

/// include/uapi/linux/in.h, which libc does not have.
const IP_LOCAL_PORT_RANGE: libc::c_int = 51;

/// The first and last port that the kernel gives to whom it does not matter.
pub(crate) fn port_range() -> RangeInclusive<u16> {
    fs::read_to_string(RANGE).ok().and_then(|text| parse(&text)).unwrap_or(USUAL)
}

fn parse(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ends = text.split_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

/// Whether connect(2) takes ports of connections that ended a second ago (`tcp_tw_reuse`, ip(7)); by default, only towards this machine.
pub(crate) fn reuses_ports_early() -> bool {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_tw_reuse").is_ok_and(|text| text.trim() == "1")
}

/// Has connect(2) look for a local port among these only (ip(7)). It still is one of the machine's range, none of the reserved ones, and
/// may serve towards other addresses, too. Of level IP for both families, as `IP_BIND_ADDRESS_NO_PORT` is.
///
/// # Errors
/// As setsockopt(2); always where [`can_narrow_port_range`] says so.
pub(crate) fn narrow_port_range(socket: &Socket, ports: &RangeInclusive<u16>) -> io::Result<()> {
    let value = u32::from(*ports.end()) << 16 | u32::from(*ports.start());
    set_int(socket, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, value.cast_signed())
}

/// Whether the kernel can be told so: since Linux 6.3.
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
}
