//! Frames of ARP and neighbour discovery: those that are sent, byte by byte, and what those that are received say.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Statement of a frame about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// The sender has the address. Neighbour advertisements may leave the sender's MAC address out.
    Has(IpAddr, Option<MacAddress>),
    /// The sender has the address, and wants all to know. No kernel does that by itself for an address that it has had for a while.
    Announces(IpAddr, Option<MacAddress>),
    /// The sender is about to take the address, if nobody has it.
    Probes(IpAddr, MacAddress),
    /// The sender looks for whoever has the address.
    Asks(IpAddr, Asker),
}

/// Sender of a question for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    /// Its own address; unspecified while it has none.
    pub(super) ip: IpAddr,
    /// Neighbour solicitations to a single machine may leave it out.
    pub(super) mac: Option<MacAddress>,
}

/// `Request` and `Reply`: some neighbours update their caches by one form, some by the other (RFC 5227, section 3). In
/// both Linux takes the address at once even if it has just heard another (`arp_is_garp` in net/ipv4/arp.c); in a reply, only
/// if the target has the MAC address of the sender (as RFC 5944, section 4.6 wants it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArpForm {
    Request = 1,
    Reply = 2,
}

const BROADCAST: MacAddress = MacAddress([0xff; 6]);
const NOBODY: MacAddress = MacAddress([0; 6]);
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERNET: usize = 14;
const IPV6: usize = 40;
const ICMPV6: u8 = 58;
/// Types of ICMPv6 (RFC 4861, sections 4.3 and 4.4).
const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
const OPTION_TARGET_MAC: u8 = 2;
const OPTION_SOURCE_MAC: u8 = 1;
/// The override flag: caches take the MAC address although they have another (RFC 4861, section 4.4).
const OVERRIDE: u8 = 0x20;
/// The solicited flag: it is the answer to a question (RFC 4861, section 4.4).
pub(crate) const SOLICITED: u8 = 0x40;
/// ff02::1, all nodes.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The frames that announce an address.
pub(super) fn announcements(mac: MacAddress, ip: IpAddr) -> Vec<Vec<u8>> {
    match ip {
        IpAddr::V4(ip) => {
            let gratuitous = |form, target| arp(form, (mac, ip), (target, ip), BROADCAST);
            vec![gratuitous(ArpForm::Request, NOBODY), gratuitous(ArpForm::Reply, mac)]
        }
        // RFC 4861, section 7.2.6.
        IpAddr::V6(ip) => vec![advertisement(mac, ip, OVERRIDE, ALL_NODES, group_mac(ALL_NODES))],
    }
}

/// The frame that asks whether anybody has an address (RFC 5227, section 2.1.1; RFC 4862, section 5.4.2).
pub fn probe(mac: MacAddress, ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => arp(ArpForm::Request, (mac, Ipv4Addr::UNSPECIFIED), (NOBODY, ip), BROADCAST),
        IpAddr::V6(ip) => {
            let group = solicited_node(ip);
            icmpv6(mac, Ipv6Addr::UNSPECIFIED, group, group_mac(group), solicitation(ip))
        }
    }
}

/// The frame by which a machine with a link-local address asks who has an address (RFC 4861, section 7.2.2). Unlike a probe, it does not
/// stop a machine that is about to take the address (RFC 4862, section 5.4.3).
pub fn neighbour_solicitation(mac: MacAddress, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = solicited_node(target);
    let body = [&solicitation(target)[..], &[OPTION_SOURCE_MAC, 1], &mac.0].concat();
    icmpv6(mac, source, group, group_mac(group), body)
}

/// The address that the sender of an Ethernet frame claims to have, and its MAC address: ARP other than a probe, or a neighbour
/// advertisement.
pub fn claim(frame: &[u8]) -> Option<(IpAddr, MacAddress)> {
    let sender = MacAddress(*frame.get(6..)?.first_chunk()?);
    let statement = match u16::from_be_bytes(*frame.get(12..)?.first_chunk()?) {
        ETHERTYPE_ARP => read_arp(frame)[0],
        ETHERTYPE_IPV6 => {
            let source = Ipv6Addr::from(*frame.get(ETHERNET + 8..)?.first_chunk::<16>()?);
            read_neighbour_discovery(source, frame.get(ETHERNET + IPV6..)?)
        }
        _ => None,
    };
    match statement? {
        Statement::Has(ip, mac) | Statement::Announces(ip, mac) => Some((ip, mac.unwrap_or(sender))),
        Statement::Probes(..) | Statement::Asks(..) => None,
    }
}

/// ICMPv6 message that asks for an address (RFC 4861, section 4.3), with zeros in place of its checksum.
pub(crate) fn solicitation(target: Ipv6Addr) -> Vec<u8> {
    [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat()
}

/// The frame that tells somebody where an address is, as the kernel of its owner would (`arp_process` in net/ipv4/arp.c, `ndisc_recv_ns` in
/// net/ipv6/ndisc.c).
pub(super) fn answer(mac: MacAddress, ip: IpAddr, asker: Asker) -> Option<Vec<u8>> {
    match (ip, asker.ip) {
        (IpAddr::V4(ip), IpAddr::V4(to)) => {
            let to_mac = asker.mac?;
            Some(arp(ArpForm::Reply, (mac, ip), (to_mac, to), to_mac))
        }
        // Who probes has no address yet (RFC 4861, section 7.2.4).
        (IpAddr::V6(ip), IpAddr::V6(to)) if to.is_unspecified() => {
            Some(advertisement(mac, ip, OVERRIDE, ALL_NODES, group_mac(ALL_NODES)))
        }
        // Without its MAC address it still listens to its own group on the network.
        (IpAddr::V6(ip), IpAddr::V6(to)) => {
            let to_mac = asker.mac.unwrap_or_else(|| group_mac(solicited_node(to)));
            Some(advertisement(mac, ip, SOLICITED | OVERRIDE, to, to_mac))
        }
        _ => None,
    }
}

/// The frame that asks where an address is.
pub(crate) fn arp_request(mac: MacAddress, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    arp(ArpForm::Request, (mac, sender), (NOBODY, target), BROADCAST)
}

fn arp(
    form: ArpForm,
    sender: (MacAddress, Ipv4Addr),
    target: (MacAddress, Ipv4Addr),
    destination: MacAddress,
) -> Vec<u8> {
    let mut frame = ethernet(destination, sender.0, ETHERTYPE_ARP);
    // Ethernet, IPv4, and the lengths of their addresses.
    frame.extend([0, 1, 0x08, 0, 6, 4, 0, form as u8]);
    for (mac, ip) in [sender, target] {
        frame.extend(mac.0);
        frame.extend(ip.octets());
    }
    frame
}

/// The source is the address itself, as in the kernel's own (`ndisc_send_na` in net/ipv6/ndisc.c).
fn advertisement(mac: MacAddress, ip: Ipv6Addr, flags: u8, to: Ipv6Addr, to_mac: MacAddress) -> Vec<u8> {
    let head = [ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    let body = [&head[..], &ip.octets(), &[OPTION_TARGET_MAC, 1], &mac.0].concat();
    icmpv6(mac, ip, to, to_mac, body)
}

/// The group in which whoever has the address listens (RFC 4291, section 2.7.1).
fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., high, low] = ip.segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | (high & 0xff), low)
}

/// Where frames to a group go (RFC 2464, section 7).
fn group_mac(group: Ipv6Addr) -> MacAddress {
    let [.., c, d, e, f] = group.octets();
    MacAddress([0x33, 0x33, c, d, e, f])
}

/// A frame of ICMPv6; `body` has zeros in place of its checksum.
fn icmpv6(
    mac: MacAddress,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    destination_mac: MacAddress,
    mut body: Vec<u8>,
) -> Vec<u8> {
    let length = body.len() as u16;
    let sum = icmpv6_checksum(source, destination, &body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ethernet(destination_mac, mac, ETHERTYPE_IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(length.to_be_bytes());
    // The hop limit shows that no router has passed it on (RFC 4861, section 7.1).
    frame.extend([ICMPV6, 255]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend(body);
    frame
}

fn ethernet(destination: MacAddress, source: MacAddress, kind: u16) -> Vec<u8> {
    let mut frame = Vec::with_capacity(ETHERNET + IPV6 + 32);
    frame.extend(destination.0);
    frame.extend(source.0);
    frame.extend(kind.to_be_bytes());
    frame
}

/// The checksum of an ICMPv6 message of even length, with the pseudo-header (RFC 8200, section 8.1).
pub fn icmpv6_checksum(source: Ipv6Addr, destination: Ipv6Addr, body: &[u8]) -> u16 {
    let header = [source.octets(), destination.octets()].concat();
    let rest = [0, 0, 0, ICMPV6];
    internet_checksum(&[&header[..], &(body.len() as u32).to_be_bytes(), &rest, body].concat())
}

/// The checksum of the internet protocols over bytes of even length (RFC 1071).
pub fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Statements of an Ethernet frame of ARP: a request has the address of its sender, and the one that it looks for.
pub(super) fn read_arp(frame: &[u8]) -> [Option<Statement>; 2] {
    let Some(arp) = frame.get(ETHERNET..ETHERNET + 28) else { return [None; 2] };
    if arp[..6] != [0, 1, 0x08, 0, 6, 4] {
        return [None; 2];
    }
    let address = |at: usize| Ipv4Addr::new(arp[at], arp[at + 1], arp[at + 2], arp[at + 3]);
    let mac = MacAddress([arp[8], arp[9], arp[10], arp[11], arp[12], arp[13]]);
    let (request, sender, target) = (arp[6..8] == [0, 1], address(14), address(24));
    if sender.is_unspecified() {
        return [request.then_some(Statement::Probes(target.into(), mac)), None];
    }
    if sender == target {
        return [Some(Statement::Announces(sender.into(), Some(mac))), None];
    }
    let asker = Asker { ip: sender.into(), mac: Some(mac) };
    [Some(Statement::Has(sender.into(), Some(mac))), request.then_some(Statement::Asks(target.into(), asker))]
}

/// Statement of an ICMPv6 message from this source. The probe of another machine looks like one of this machine that a network sends back (RFC 7527), so
/// it counts as a question; whoever has the address answers both.
pub(super) fn read_neighbour_discovery(source: Ipv6Addr, message: &[u8]) -> Option<Statement> {
    let ip = IpAddr::V6(Ipv6Addr::from(*message.get(8..24)?.first_chunk::<16>()?));
    match message[0] {
        ADVERTISEMENT => {
            let mac = mac_option(&message[24..], OPTION_TARGET_MAC);
            let unsolicited = message[4] & SOLICITED == 0;
            Some(if unsolicited { Statement::Announces(ip, mac) } else { Statement::Has(ip, mac) })
        }
        SOLICITATION => {
            let mac = mac_option(&message[24..], OPTION_SOURCE_MAC);
            Some(Statement::Asks(ip, Asker { ip: source.into(), mac }))
        }
        _ => None,
    }
}

/// The MAC address in the options of a message (RFC 4861, section 4.6).
fn mac_option(mut options: &[u8], kind: u8) -> Option<MacAddress> {
    while let [found, units, rest @ ..] = options {
        if *units == 0 {
            return None;
        }
        if *found == kind && *units == 1 {
            return rest.first_chunk().map(|mac| MacAddress(*mac));
        }
        options = options.get(usize::from(*units) * 8..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);
    const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 8]);

    fn v4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn both_forms_of_a_gratuitous_arp_name_the_address_as_sender_and_target() {
        let frames = announcements(MAC, "192.0.2.9".parse().unwrap());
        let [request, reply] = frames.as_slice() else { panic!("{frames:?}") };
        let ends = |frame: &[u8]| (frame[28..32].to_vec(), frame[38..42].to_vec());
        for frame in [request, reply] {
            assert_eq!(frame.len(), 42);
            assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 8, 6]);
            assert_eq!(ends(frame), (vec![192, 0, 2, 9], vec![192, 0, 2, 9]));
            assert_eq!(
                read_arp(frame),
                [Some(Statement::Announces(v4("192.0.2.9").into(), Some(MAC))), None]
            );
        }
        assert_eq!((request[21], &request[32..38]), (1, &[0; 6][..]));
        assert_eq!((reply[21], &reply[32..38]), (2, &MAC.0[..]));
    }

    #[test]
    fn a_probe_has_no_sender_address() {
        let frame = probe(MAC, "192.0.2.9".parse().unwrap());
        assert_eq!(read_arp(&frame), [Some(Statement::Probes(v4("192.0.2.9").into(), MAC)), None]);
    }

    #[test]
    fn a_request_says_where_its_sender_is_and_what_it_looks_for() {
        let frame = arp(ArpForm::Request, (MAC, v4("192.0.2.1")), (NOBODY, v4("192.0.2.9")), BROADCAST);
        let has = Statement::Has(v4("192.0.2.1").into(), Some(MAC));
        let asker = Asker { ip: v4("192.0.2.1").into(), mac: Some(MAC) };
        assert_eq!(read_arp(&frame), [Some(has), Some(Statement::Asks(v4("192.0.2.9").into(), asker))]);
    }

    #[test]
    fn an_advertisement_overrides_and_its_checksum_holds() {
        let ip: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let frame = &announcements(MAC, ip.into())[0];
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!((frame[20], frame[21]), (ICMPV6, 255));
        let body = &frame[ETHERNET + IPV6..];
        assert_eq!((body[0], body[4]), (ADVERTISEMENT, OVERRIDE));
        // A body with its checksum sums up to zero.
        assert_eq!(icmpv6_checksum(ip, ALL_NODES, body), 0);
        assert_eq!(read_neighbour_discovery(ip, body), Some(Statement::Announces(ip.into(), Some(MAC))));
    }

    #[test]
    fn an_answer_goes_to_who_has_asked() {
        let asker = Asker { ip: v4("192.0.2.1").into(), mac: Some(OTHER) };
        let frame = answer(MAC, v4("192.0.2.9").into(), asker).unwrap();
        assert_eq!((&frame[..6], &frame[6..12]), (&OTHER.0[..], &MAC.0[..]));
        assert_eq!(frame[21], ArpForm::Reply as u8);
        assert_eq!((&frame[22..28], &frame[28..32]), (&MAC.0[..], &[192, 0, 2, 9][..]));
        assert_eq!((&frame[32..38], &frame[38..42]), (&OTHER.0[..], &[192, 0, 2, 1][..]));

        let (ip, to): (Ipv6Addr, Ipv6Addr) =
            ("2001:db8::9".parse().unwrap(), "2001:db8::12:3456".parse().unwrap());
        let to_asker = |mac| answer(MAC, ip.into(), Asker { ip: to.into(), mac }).unwrap();
        let frame = to_asker(Some(OTHER));
        assert_eq!((&frame[..6], &frame[38..54]), (&OTHER.0[..], &to.octets()[..]));
        let body = &frame[ETHERNET + IPV6..];
        assert_eq!((body[0], body[4]), (ADVERTISEMENT, SOLICITED | OVERRIDE));
        assert_eq!(icmpv6_checksum(ip, to, body), 0);
        assert_eq!(read_neighbour_discovery(ip, body), Some(Statement::Has(ip.into(), Some(MAC))));
        assert_eq!(to_asker(None)[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
    }

    #[test]
    fn who_probes_is_answered_without_having_an_address() {
        let asker = Asker { ip: Ipv4Addr::UNSPECIFIED.into(), mac: Some(OTHER) };
        let frame = answer(MAC, v4("192.0.2.9").into(), asker).unwrap();
        assert_eq!((&frame[..6], &frame[38..42]), (&OTHER.0[..], &[0; 4][..]));
        let ip: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let asker = Asker { ip: Ipv6Addr::UNSPECIFIED.into(), mac: None };
        assert_eq!(answer(MAC, ip.into(), asker).unwrap(), announcements(MAC, ip.into())[0]);
    }

    #[test]
    fn a_solicitation_goes_to_the_group_of_the_address() {
        let ip: Ipv6Addr = "2001:db8::12:3456".parse().unwrap();
        let frame = probe(MAC, ip.into());
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        let body = &frame[ETHERNET + IPV6..];
        assert_eq!(icmpv6_checksum(Ipv6Addr::UNSPECIFIED, "ff02::1:ff12:3456".parse().unwrap(), body), 0);
        let nobody = Asker { ip: Ipv6Addr::UNSPECIFIED.into(), mac: None };
        assert_eq!(
            read_neighbour_discovery(Ipv6Addr::UNSPECIFIED, body),
            Some(Statement::Asks(ip.into(), nobody))
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..120)) {
            let _ = (read_arp(&bytes), read_neighbour_discovery(Ipv6Addr::UNSPECIFIED, &bytes));
        }
    }
}
