//! Ports that a Gateway publishes at its addresses, as the message of a condition. The API of a Gateway has no field for them: its
//! spec may have changed since, and listeners of ListenerSets have a status of their own, which is written later.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sheave_model::{FrontendAddr, Protocol};

use crate::net;

/// API servers accept 32768 bytes. A port that does not fit is not protected while the Gateway changes.
const MOST_BYTES: usize = 32_000;

/// A text like `TCP 80, 443 at 203.0.113.7, 2001:db8::7; UDP 53 at 203.0.113.7.`
pub(crate) fn write(ports: &BTreeSet<FrontendAddr>) -> String {
    let mut at: BTreeMap<(Protocol, IpAddr), Vec<u16>> = BTreeMap::new();
    for addr in ports {
        at.entry((addr.protocol, addr.ip)).or_default().push(addr.port);
    }
    let mut groups: BTreeMap<(Protocol, Vec<u16>), Vec<IpAddr>> = BTreeMap::new();
    for ((protocol, ip), ports) in at {
        groups.entry((protocol, ports)).or_default().push(ip);
    }
    let mut text = String::new();
    for ((protocol, ports), ips) in groups {
        let group = format!("{} {} at {}", protocol.name(), list(&ports), list(&ips));
        if text.len() + group.len() < MOST_BYTES {
            text += if text.is_empty() { "" } else { "; " };
            text += &group;
        }
    }
    text + "."
}

fn list(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The ports of such a text. What cannot be read is left out.
pub(crate) fn read(text: &str) -> BTreeSet<FrontendAddr> {
    let groups = text.trim_end_matches('.').split("; ").filter_map(read_group);
    groups.flatten().collect()
}

fn read_group(text: &str) -> Option<impl Iterator<Item = FrontendAddr>> {
    let (ports, ips) = text.split_once(" at ")?;
    let (protocol, ports) = ports.split_once(' ')?;
    let protocol = Protocol::named(protocol)?;
    let ports: Vec<u16> = ports.split(", ").filter_map(|port| port.parse().ok()).collect();
    let ips: Vec<IpAddr> = ips.split(", ").filter_map(|ip| net::parse_ip(ip).ok()).collect();
    let at = move |ip: IpAddr| {
        let ports = ports.clone().into_iter();
        ports.map(move |port| FrontendAddr { ip, port, protocol })
    };
    Some(ips.into_iter().flat_map(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(addrs: &[&str]) -> BTreeSet<FrontendAddr> {
        let one = |text: &&str| {
            let (protocol, addr) = text.split_once(' ').unwrap();
            let addr: std::net::SocketAddr = addr.parse().unwrap();
            FrontendAddr { ip: addr.ip(), port: addr.port(), protocol: Protocol::named(protocol).unwrap() }
        };
        addrs.iter().map(one).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let ports = all(&[
            "TCP 203.0.113.7:80",
            "TCP 203.0.113.7:443",
            "TCP [2001:db8::7]:80",
            "TCP [2001:db8::7]:443",
            "UDP 203.0.113.7:53",
        ]);
        let text = write(&ports);
        assert_eq!(text, "TCP 80, 443 at 203.0.113.7, 2001:db8::7; UDP 53 at 203.0.113.7.");
        assert_eq!(read(&text), ports);
        assert_eq!(read(&write(&BTreeSet::new())), BTreeSet::new());
    }

    #[test]
    fn what_others_wrote_is_left_out() {
        assert_eq!(
            read("TCP 80, x, 99999 at 203.0.113.7, nowhere; SCTP 1 at 203.0.113.7; TCP"),
            all(&["TCP 203.0.113.7:80"])
        );
    }

    #[test]
    fn a_text_is_never_too_long_for_an_api_server() {
        let at = |last: u8| {
            (1..2000).map(move |port| FrontendAddr {
                ip: IpAddr::from([203, 0, 113, last]),
                port: port + u16::from(last),
                protocol: Protocol::Tcp,
            })
        };
        assert!(write(&(0..16).flat_map(at).collect()).len() <= 32_768);
    }
}
