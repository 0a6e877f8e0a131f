//! Extensions of iptables in rules of nftables, as iptables-nft writes them: those that are common and simple.

use sheave_kernel::attributes::Walk;

use super::bits::both;
use super::first_packet::{NEW, PartialPacket};
use super::verdict::{Effect, Verdict};

/// NFTA_MATCH_NAME, NFTA_MATCH_REV and NFTA_MATCH_INFO (linux/netfilter/nf_tables_compat.h); those of targets are the same.
const NAME: u16 = 1;
const REVISION: u16 = 2;
const INFO: u16 = 3;
/// XT_CONNTRACK_STATE, XT_CONNTRACK_STATE_SNAT and XT_CONNTRACK_STATE_DNAT (linux/netfilter/xt_conntrack.h).
const BY_STATE: u16 = 1;
const TRANSLATED: u32 = 1 << 6 | 1 << 7;
/// Offsets in `xt_conntrack_mtinfo2` and `xt_conntrack_mtinfo3`: flags that match and that are inverted, and the states.
const MATCH_FLAGS: usize = 146;
const INVERT_FLAGS: usize = 148;
const STATES: usize = 150;
/// `xt_multiport_v1`: kind of comparison (XT_MULTIPORT_DESTINATION), number, ports, which of them begin a range, inversion.
const DESTINATION: u8 = 1;
const PORTS: usize = 2;
const BEGINS_RANGE: usize = 32;
const INVERT: usize = 47;

/// Whether a match lets its rule go on.
pub(super) fn matches(data: Walk<'_>, packet: &PartialPacket) -> Option<bool> {
    let info = data.find(INFO)?;
    match (data.text(NAME)?, data.number(REVISION)?) {
        ("comment", 0) => Some(true),
        ("conntrack", 2 | 3) => state(info, packet),
        ("multiport", 1) => ports(info, packet),
        _ => None,
    }
}

/// What a target does.
pub(super) fn target(data: Walk<'_>, packet: &mut PartialPacket) -> Effect {
    match data.text(NAME).unwrap_or_default() {
        "DROP" | "REJECT" => Effect::decides(Verdict::Drop),
        "DNAT" | "MASQUERADE" | "NETMAP" | "REDIRECT" | "SNAT" => {
            packet.forget_destination();
            Effect::decides(Verdict::Accept)
        }
        "CT" | "NOTRACK" => {
            packet.exempt();
            Effect::Matches(Some(true))
        }
        // Those that go on, whatever they do.
        "AUDIT" | "CLASSIFY" | "CONNMARK" | "CONNSECMARK" | "LOG" | "MARK" | "NFLOG" | "SECMARK" | "SET"
        | "TCPMSS" | "TRACE" => Effect::Matches(Some(true)),
        _ => Effect::Decides { verdicts: vec![Verdict::Other], may_not: true },
    }
}

/// A match by the state of a connection alone (`conntrack_mt` in net/netfilter/xt_conntrack.c). A connection whose addresses are
/// translated has one more.
fn state(info: &[u8], packet: &PartialPacket) -> Option<bool> {
    let number = |at: usize| Some(u16::from_ne_bytes(*info.get(at..)?.first_chunk()?));
    let (is_inverted, states) = (number(INVERT_FLAGS)? & BY_STATE != 0, u32::from(number(STATES)?));
    let is_decided = packet.is_new() && (packet.is_untranslated() || states & TRANSLATED == 0);
    if !is_decided || number(MATCH_FLAGS)? != BY_STATE {
        return None;
    }
    Some((states & NEW != 0) != is_inverted)
}

/// A match by destination ports (`ports_match_v1` in net/netfilter/xt_multiport.c).
fn ports(info: &[u8], packet: &PartialPacket) -> Option<bool> {
    let (kind, count) = (*info.first()?, usize::from(*info.get(1)?));
    if kind != DESTINATION {
        return None;
    }
    let port = |at: usize| Some(u16::from_ne_bytes(*info.get(PORTS + 2 * at..)?.first_chunk()?));
    // NFT_PAYLOAD_TRANSPORT_HEADER.
    let (of_packet, _) = packet.payload(2, 2, 2);
    let (mut at, mut found) = (0, Some(false));
    while at < count {
        let from = port(at)?;
        let begins_range = *info.get(BEGINS_RANGE + at)? != 0;
        at += usize::from(begins_range);
        let to = if begins_range { port(at)? } else { from };
        at += 1;
        let inside = (of_packet.at_least(&from.to_be_bytes()), of_packet.at_most(&to.to_be_bytes()));
        match both(inside.0, inside.1) {
            Some(false) => {}
            Some(true) => {
                found = Some(true);
                break;
            }
            None => found = None,
        }
    }
    Some(found? != (*info.get(INVERT)? != 0))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sheave_kernel::attributes::Attributes;
    use sheave_model::Protocol;

    use super::super::first_packet::FirstPacket;
    use super::*;

    fn packet(is_tracked: bool) -> PartialPacket {
        let mut packet = PartialPacket::new(&FirstPacket {
            protocol: Protocol::Tcp,
            client: None,
            client_port: None,
            frontend: SocketAddr::from(([203, 0, 113, 10], 80)),
            interface: None,
        });
        packet.is_tracked = is_tracked;
        packet
    }

    fn extension(name: &str, revision: u32, info: &[u8]) -> Attributes {
        let mut data = Attributes::new();
        data.text(NAME, name).number(REVISION, revision).bytes(INFO, info);
        data
    }

    #[test]
    fn states_of_connections_are_read() {
        let matched = |flags: u16, inverted: u16, states: u16, is_tracked| {
            let mut info = vec![0; 164];
            for (at, value) in [(146, flags), (148, inverted), (150, states)] {
                info[at..at + 2].copy_from_slice(&value.to_ne_bytes());
            }
            let data = extension("conntrack", 3, &info);
            matches(Walk(data.as_bytes()), &packet(is_tracked))
        };
        let (new, established_related, invalid) = (8, 6, 1);
        assert_eq!(matched(1, 0, new, true), Some(true));
        assert_eq!(matched(1, 0, established_related, true), Some(false));
        assert_eq!(matched(1, 1, established_related, true), Some(true));
        assert_eq!(matched(1, 0, invalid, true), Some(false));
        assert_eq!(matched(1, 0, new, false), None);
        // With addresses, too.
        assert_eq!(matched(1 | 1 << 4, 0, new, true), None);
    }

    #[test]
    fn ports_and_ranges_of_ports_are_read() {
        let matched = |kind: u8, ports: &[u16], begins: &[u8], invert: u8| {
            let mut info = vec![0; 48];
            (info[0], info[1], info[47]) = (kind, ports.len() as u8, invert);
            for (at, port) in ports.iter().enumerate() {
                info[2 + 2 * at..4 + 2 * at].copy_from_slice(&port.to_ne_bytes());
            }
            info[32..32 + begins.len()].copy_from_slice(begins);
            matches(Walk(extension("multiport", 1, &info).as_bytes()), &packet(true))
        };
        assert_eq!(matched(1, &[22, 80], &[0, 0], 0), Some(true));
        assert_eq!(matched(1, &[22, 81], &[0, 0], 0), Some(false));
        assert_eq!(matched(1, &[22, 81], &[1, 0], 0), Some(true));
        assert_eq!(matched(1, &[22, 81], &[1, 0], 1), Some(false));
        assert_eq!(matched(0, &[80], &[0], 0), None);
    }

    #[test]
    fn targets_drop_go_on_or_are_unknown() {
        let ends = |name: &str| target(Walk(extension(name, 0, &[]).as_bytes()), &mut packet(true));
        let decides = |verdict, may_not| Effect::Decides { verdicts: vec![verdict], may_not };
        assert_eq!(ends("REJECT"), decides(Verdict::Drop, false));
        assert_eq!(ends("LOG"), Effect::Matches(Some(true)));
        assert_eq!(ends("DNAT"), decides(Verdict::Accept, false));
        assert_eq!(ends("NFQUEUE"), decides(Verdict::Other, true));
    }
}
