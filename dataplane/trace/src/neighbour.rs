//! Neighbour cache: what the kernel knows of the MAC address of a neighbour.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState as KernelState};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::libc;
use sheave_announce::MacAddress;

use crate::netlink::route_request;
use crate::unseen::{Right, Unseen};

/// Neighbour, as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// State of the entry.
    pub state: NeighbourState,
    /// The MAC address to which packets for the neighbour go.
    pub mac: Option<MacAddress>,
}

/// State of an entry (NUD_... in linux/neighbour.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// There is no entry: nothing was sent to the neighbour of late.
    Absent,
    /// The kernel asks for the MAC address, and has no answer yet.
    Incomplete,
    /// The neighbour has answered of late.
    Reachable,
    /// The neighbour was reachable. The kernel asks it again when a packet is to be sent.
    Stale,
    /// A packet was sent to a stale neighbour, and the kernel waits for a sign of life.
    Delay,
    /// The kernel asks the stale neighbour again.
    Probe,
    /// The neighbour does not answer.
    Failed,
    /// The link needs no MAC addresses.
    NoArp,
    /// An administrator or a program has set the MAC address.
    Permanent,
}

/// The entry of an address on a link.
///
/// # Errors
/// If the kernel does not answer.
pub fn entry(ip: IpAddr, link_index: u32) -> Result<Neighbour, Unseen> {
    let mut message = NeighbourMessage::default();
    message.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.ifindex = link_index;
    message.attributes.push(NeighbourAttribute::Destination(ip.into()));
    match route_request(&RouteNetlinkMessage::GetNeighbour(message)) {
        Ok(Some(RouteNetlinkMessage::NewNeighbour(message))) => Ok(read(&message)),
        Ok(_) => Ok(Neighbour { state: NeighbourState::Absent, mac: None }),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            Ok(Neighbour { state: NeighbourState::Absent, mac: None })
        }
        // Linux 5.0 added requests for one entry (`neigh_get` in net/core/neighbour.c).
        Err(error) => {
            Err(Unseen::from_io("the neighbour cache", &error, Right::Nothing, "RTM_GETNEIGH of one entry"))
        }
    }
}

fn read(message: &NeighbourMessage) -> Neighbour {
    let state = match message.header.state {
        KernelState::Incomplete => NeighbourState::Incomplete,
        KernelState::Reachable => NeighbourState::Reachable,
        KernelState::Stale => NeighbourState::Stale,
        KernelState::Delay => NeighbourState::Delay,
        KernelState::Probe => NeighbourState::Probe,
        KernelState::Failed => NeighbourState::Failed,
        KernelState::Noarp => NeighbourState::NoArp,
        KernelState::Permanent => NeighbourState::Permanent,
        _ => NeighbourState::Absent,
    };
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok().map(MacAddress),
        _ => None,
    });
    Neighbour { state, mac }
}
