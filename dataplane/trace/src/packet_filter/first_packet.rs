//! The first packet of a client's connection, as rules see it: what is known of its headers and of what the kernel knows about it.

use std::net::{IpAddr, SocketAddr};

use nix::libc;
use sheave_model::Protocol;

use super::bits::Bits;
use crate::route::Interface;

/// Keys of `meta` (`enum nft_meta_keys` in linux/netfilter/nf_tables.h).
const META_PROTOCOL: u32 = 1;
const META_IIF: u32 = 4;
const META_IIFNAME: u32 = 6;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const META_PKTTYPE: u32 = 19;
/// Keys of `ct`: NFT_CT_STATE, NFT_CT_DIRECTION and NFT_CT_STATUS.
const CT_STATE: u32 = 0;
const CT_DIRECTION: u32 = 1;
const CT_STATUS: u32 = 2;
/// NF_CT_STATE_BIT(IP_CT_NEW) (linux/netfilter/nf_conntrack_common.h).
pub(super) const NEW: u32 = 1 << 3;
/// IPS_EXPECTED, IPS_SEEN_REPLY and IPS_ASSURED, none of which a new connection has, and IPS_DST_NAT.
const NOT_OF_NEW: u32 = 0b111;
const DST_NAT: u32 = 1 << 5;
/// NFT_PAYLOAD_NETWORK_HEADER and NFT_PAYLOAD_TRANSPORT_HEADER.
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;
/// IFNAMSIZ (linux/if.h).
const NAME_LENGTH: usize = 16;
/// The flags of TCP but for those of ECN, which any client may set; SYN alone is set.
const TCP_FLAGS: u8 = 0x3f;
const SYN: u8 = 0x02;
/// Offsets of the destination port and of the flags of TCP.
const DESTINATION_PORT: usize = 2;
const TCP_FLAGS_AT: usize = 13;

/// The first packet of a connection: the SYN of TCP, or a datagram of UDP.
#[derive(Clone, Debug)]
pub struct FirstPacket {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The client's address, if there is a certain one; of the frontend's family.
    pub client: Option<IpAddr>,
    /// The client's port, if it is known.
    pub client_port: Option<u16>,
    /// Address and port of the frontend.
    pub frontend: SocketAddr,
    /// The interface that it arrives on, if it is known.
    pub interface: Option<Interface>,
}

/// What is known of a packet at one point of its way.
#[derive(Clone, Debug)]
pub(super) struct PartialPacket {
    is_ipv4: bool,
    protocol: u8,
    network: Bits,
    transport: Bits,
    interface: Option<Interface>,
    /// Whether rules see it at a device, before the kernel looks at its headers.
    pub(super) is_at_device: bool,
    /// Whether the kernel tracks it for certain, as the first packet of a connection: rules before that do not see it so.
    pub(super) is_tracked: bool,
    /// Whether a rule may have exempted it from that.
    may_be_exempt: bool,
    /// Whether it has the destination that the client gave it; `None`: nobody knows.
    has_destination: Option<bool>,
    /// Whether no rule has changed the type that the link gave it.
    has_type: bool,
}

impl PartialPacket {
    pub(super) fn new(packet: &FirstPacket) -> Self {
        let is_tcp = packet.protocol == Protocol::Tcp;
        let protocol = if is_tcp { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP } as u8;
        let is_ipv4 = packet.frontend.is_ipv4();
        let mut network = Bits::unknown(if is_ipv4 { 20 } else { 40 });
        if is_ipv4 {
            network.set_masked(0, 0x40, 0xf0);
            network.set(9, &Bits::known(&[protocol]));
            if is_tcp {
                // No SYN is a fragment.
                network.set_masked(6, 0, 0x3f);
                network.set_masked(7, 0, 0xff);
            }
        } else {
            network.set_masked(0, 0x60, 0xf0);
            network.set(6, &Bits::known(&[protocol]));
        }
        match packet.client {
            Some(IpAddr::V4(client)) => network.set(12, &Bits::known(&client.octets())),
            Some(IpAddr::V6(client)) => network.set(8, &Bits::known(&client.octets())),
            None => {}
        }
        let mut transport = Bits::unknown(if is_tcp { 20 } else { 8 });
        if let Some(port) = packet.client_port {
            transport.set(0, &Bits::known(&port.to_be_bytes()));
        }
        if is_tcp {
            transport.set_masked(TCP_FLAGS_AT, SYN, TCP_FLAGS);
        }
        let mut it = Self {
            is_ipv4,
            protocol,
            network,
            transport,
            interface: packet.interface.clone(),
            is_at_device: false,
            is_tracked: false,
            may_be_exempt: false,
            has_destination: Some(true),
            has_type: true,
        };
        it.set_destination(packet.frontend);
        it
    }

    fn destination_at(&self) -> (usize, usize) {
        if self.is_ipv4 { (16, 4) } else { (24, 16) }
    }

    fn set_destination(&mut self, to: SocketAddr) {
        let ip = match to.ip() {
            IpAddr::V4(ip) => Bits::known(&ip.octets()),
            IpAddr::V6(ip) => Bits::known(&ip.octets()),
        };
        self.network.set(self.destination_at().0, &ip);
        self.transport.set(DESTINATION_PORT, &Bits::known(&to.port().to_be_bytes()));
    }

    /// Changes the destination, as the kernel path does; `None`: to one that is not known.
    pub(super) fn redirect(&mut self, to: Option<SocketAddr>) {
        self.forget_destination();
        if let Some(to) = to {
            self.set_destination(to);
            self.has_destination = Some(false);
        }
    }

    /// A rule may have changed the destination.
    pub(super) fn forget_destination(&mut self) {
        let (offset, length) = self.destination_at();
        self.network.forget(offset, length);
        self.transport.forget(DESTINATION_PORT, 2);
        self.has_destination = None;
    }

    /// A rule may exempt it from connection tracking.
    pub(super) fn exempt(&mut self) {
        self.may_be_exempt = true;
    }

    /// Whether it is tracked for certain, as the first packet of a connection.
    pub(super) fn is_new(&self) -> bool {
        self.is_tracked && !self.may_be_exempt
    }

    /// Whether it has the destination that the client gave it for certain.
    pub(super) fn is_untranslated(&self) -> bool {
        self.has_destination == Some(true)
    }

    /// A rule sets what `meta` loads.
    pub(super) fn set_meta(&mut self, key: u32) {
        self.has_type &= key != META_PKTTYPE;
    }

    /// A part of a header, and whether the packet is long enough for it for certain.
    pub(super) fn payload(&self, base: u32, offset: usize, length: usize) -> (Bits, bool) {
        let header = match base {
            NETWORK => &self.network,
            TRANSPORT => &self.transport,
            _ => return (Bits::unknown(length), false),
        };
        (header.part(offset, length), offset + length <= header.len())
    }

    /// A rule writes to a header.
    pub(super) fn overwrite(&mut self, base: u32, offset: usize, length: usize) {
        match base {
            NETWORK => self.network.forget(offset, length),
            TRANSPORT => self.transport.forget(offset, length),
            // What is before the headers is not known, and nothing is known of what is in the packet.
            _ => {}
        }
    }

    /// The register that `meta` loads; `None` if it is not known.
    pub(super) fn meta(&self, key: u32) -> Option<Bits> {
        let byte = |value: u8| Some(Bits::known(&[value, 0, 0, 0]));
        match key {
            META_PROTOCOL => {
                let kind = if self.is_ipv4 { libc::ETH_P_IP } else { libc::ETH_P_IPV6 } as u16;
                let [high, low] = kind.to_be_bytes();
                Some(Bits::known(&[high, low, 0, 0]))
            }
            META_NFPROTO if !self.is_at_device => {
                byte(if self.is_ipv4 { libc::NFPROTO_IPV4 } else { libc::NFPROTO_IPV6 } as u8)
            }
            META_L4PROTO => byte(self.protocol),
            META_IIF => self.interface.as_ref().map(|it| Bits::known(&it.index.to_ne_bytes())),
            META_IIFNAME => self.interface.as_ref().map(|it| {
                let mut name = it.name.clone().into_bytes();
                name.resize(NAME_LENGTH, 0);
                Bits::known(&name)
            }),
            // PACKET_HOST: what a client sends to this machine.
            META_PKTTYPE if self.has_type => byte(0),
            _ => None,
        }
    }

    /// The register that `ct` loads; `None` if it is not known, or the packet is not tracked for certain.
    pub(super) fn ct(&self, key: u32) -> Option<Bits> {
        if !self.is_new() {
            return None;
        }
        match key {
            CT_STATE => Some(Bits::known(&NEW.to_ne_bytes())),
            CT_DIRECTION => Some(Bits::known(&[0; 4])),
            CT_STATUS => {
                let (known, value) = match self.has_destination {
                    Some(true) => (NOT_OF_NEW | DST_NAT, 0),
                    Some(false) => (NOT_OF_NEW | DST_NAT, DST_NAT),
                    None => (NOT_OF_NEW, 0),
                };
                let mut status = Bits::unknown(4);
                for (at, (known, value)) in
                    known.to_ne_bytes().into_iter().zip(value.to_ne_bytes()).enumerate()
                {
                    status.set_masked(at, value, known);
                }
                Some(status)
            }
            _ => None,
        }
    }
}
