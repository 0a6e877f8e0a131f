//! One side of a tracked connection: two addresses, a protocol and its ports (`ctnetlink_parse_tuple` and `ctnetlink_dump_tuples` in
//! net/netfilter/nf_conntrack_netlink.c).

use std::net::{IpAddr, SocketAddr};

use sheave_model::FrontendAddr;

use crate::attributes::{Attributes, Walk};
use crate::expressions::protocol_number;

/// CTA_TUPLE_IP, CTA_TUPLE_PROTO, CTA_PROTO_NUM, CTA_PROTO_SRC_PORT and CTA_PROTO_DST_PORT.
const TUPLE_IP: u16 = 1;
const TUPLE_PROTOCOL: u16 = 2;
const PROTOCOL_NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

/// One side of a connection to the frontend. The kernel wants both addresses, and a filter compares those whose bits are set.
pub fn write_tuple(
    tuple: &mut Attributes,
    frontend: FrontendAddr,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
) {
    let (first, any) = if frontend.ip.is_ipv4() { (1, vec![0; 4]) } else { (3, vec![0; 16]) };
    let octets = |addr: Option<SocketAddr>| addr.map_or(any.clone(), |addr| ip_octets(addr.ip()));
    tuple.nested(TUPLE_IP, |ip| {
        ip.bytes(first, &octets(source)).bytes(first + 1, &octets(destination));
    });
    tuple.nested(TUPLE_PROTOCOL, |attributes| {
        let port = |addr: Option<SocketAddr>| addr.map_or(0, |addr| addr.port()).to_be_bytes();
        attributes.bytes(PROTOCOL_NUMBER, &[protocol_number(frontend.protocol)]);
        attributes.bytes(SOURCE_PORT, &port(source)).bytes(DESTINATION_PORT, &port(destination));
    });
}

/// Address and port from which a side of a connection is sent.
pub fn source_of(tuple: &[u8]) -> Option<SocketAddr> {
    end_of(tuple, 0, SOURCE_PORT)
}

/// Address and port to which a side of a connection is sent.
pub fn destination_of(tuple: &[u8]) -> Option<SocketAddr> {
    end_of(tuple, 1, DESTINATION_PORT)
}

fn end_of(tuple: &[u8], side: u16, port: u16) -> Option<SocketAddr> {
    let port = Walk(Walk(tuple).find(TUPLE_PROTOCOL)?).find(port)?.try_into().ok()?;
    let octets = address(Some(tuple), side)?;
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from).ok();
    let ip = v4.or_else(|| <[u8; 16]>::try_from(octets).map(IpAddr::from).ok())?;
    Some(SocketAddr::new(ip, u16::from_be_bytes(port)))
}

/// The protocol of a side of a connection.
pub fn protocol_of(tuple: &[u8]) -> Option<u8> {
    Walk(Walk(tuple).find(TUPLE_PROTOCOL)?).find(PROTOCOL_NUMBER)?.first().copied()
}

/// An address of a tuple: the source (0) or the destination (1).
pub(crate) fn address(tuple: Option<&[u8]>, side: u16) -> Option<&[u8]> {
    let addresses = Walk(Walk(tuple?).find(TUPLE_IP)?);
    addresses.find(1 + side).or_else(|| addresses.find(3 + side))
}

pub(crate) fn ip_octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}
