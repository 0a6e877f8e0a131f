//! Hashes with which gateways agree without communication: a client's first pick must be the same endpoint on every gateway,
//! version and machine. The functions must therefore never change; a test compares them with fixed values.
//!
//! The hash has no key: a client that chooses its own address and port can choose its endpoint. Agreement matters more.

use std::net::IpAddr;

use sheave_model::{ClientAddr, EndpointAddr, FrontendSource, Path, ServicePort};

/// 2^64 divided by the golden ratio: SplitMix64's increment.
pub(crate) const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Initial values that keep the hashes of clients and endpoints apart, even for equal addresses.
const CLIENT: u64 = 0x636c_6965_6e74_0000;
const ENDPOINT: u64 = 0x656e_6470_6f69_6e74;

/// SplitMix64's finaliser (Steele, Lea, Flood 2014; constants: Stafford's mix 13): every input bit reaches every output bit.
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Adds a word to a hash.
const fn fold(hash: u64, word: u64) -> u64 {
    mix(hash.wrapping_add(GAMMA) ^ word)
}

fn fold_ip(seed: u64, ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => fold(seed ^ 4, u64::from(u32::from(ip))),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            fold(fold(seed ^ 6, (bits >> 64) as u64), bits as u64)
        }
    }
}

/// Hash of the client's address, the same for all its connections.
pub fn client_ip(client: ClientAddr) -> u64 {
    fold_ip(CLIENT, client.ip())
}

/// Hash of the client's address and port, which differs between its connections and flows.
pub fn client(client: ClientAddr) -> u64 {
    fold(client_ip(client), u64::from(client.0.port()))
}

/// Identity of an endpoint: a hash of its address and port, never its index, and of its path unless that is the default.
/// Excludes the protocol, which all candidates of a frontend share.
pub fn endpoint(endpoint: EndpointAddr) -> u64 {
    let address = fold(fold_ip(ENDPOINT, endpoint.ip), u64::from(endpoint.port));
    match endpoint.path {
        Path::DEFAULT => address,
        Path(path) => fold(address, u64::from(path)),
    }
}

/// Hash of a cluster's name.
pub fn cluster(name: &str) -> u64 {
    text(name)
}

/// Identity of a part of a split.
pub fn part(name: &str) -> u64 {
    text(&format!("part/{name}"))
}

/// Hash of a Service port's name, so that records have the same meaning on every gateway. Kubernetes names contain no `/`,
/// so different ports never have the same text.
pub fn service_port(port: &ServicePort) -> u64 {
    let source = source(port);
    text(&format!("{source}{}/{}/{}/{}", port.namespace, port.name, port.port_name, port.protocol))
}

/// Hash of the name of a port's Service.
pub fn service(port: &ServicePort) -> u64 {
    text(&format!("{}{}/{}", source(port), port.namespace, port.name))
}

/// Hash of one of the other names with that of a part of a split.
pub const fn in_part(hash: u64, part: u64) -> u64 {
    fold(hash, part)
}

fn source(port: &ServicePort) -> &'static str {
    match port.source {
        FrontendSource::Service => "",
        // No namespace has these names.
        FrontendSource::MultiClusterService => "MultiClusterService/",
        FrontendSource::Gateway => "Gateway/",
    }
}

/// FNV-1a, then mixed.
fn text(text: &str) -> u64 {
    mix(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}
