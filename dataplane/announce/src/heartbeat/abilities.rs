//! What a gateway is able to own, on the wire: its weight, the number of its subnets, and for each subnet the interface's number, the length
//! of the prefix, a byte of bits, and the network's address.

use std::net::IpAddr;

use super::reader::{Reader, WireError};
use crate::ability::{Ability, InterfaceId, LARGEST_WEIGHT, MOST_SUBNETS, Reach, ReachedSubnet};
use crate::network::Network;

/// In place of the number of subnets.
const EVERYWHERE: u8 = u8::MAX;
const IPV6: u8 = 1;
const BY_DEFAULT: u8 = 1 << 1;

pub(super) fn encode(ability: &Ability, bytes: &mut Vec<u8>) {
    bytes.push(ability.weight);
    let Reach::Subnets(subnets) = &ability.reach else { return bytes.push(EVERYWHERE) };
    bytes.push(u8::try_from(subnets.len()).unwrap_or(EVERYWHERE));
    for subnet in subnets {
        bytes.extend_from_slice(&subnet.interface.0.to_be_bytes());
        let network = subnet.network;
        let ipv6 = if network.address().is_ipv6() { IPV6 } else { 0 };
        bytes.extend([network.prefix(), ipv6 | if subnet.by_default { BY_DEFAULT } else { 0 }]);
        match network.address() {
            IpAddr::V4(ip) => bytes.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes.extend_from_slice(&ip.octets()),
        }
    }
}

pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Ability, WireError> {
    let [weight, count] = reader.array()?;
    let weight = weight.clamp(1, LARGEST_WEIGHT);
    if count == EVERYWHERE {
        return Ok(Ability { weight, reach: Reach::Everywhere });
    }
    if usize::from(count) > MOST_SUBNETS {
        return Err(WireError::Malformed);
    }
    let subnets = (0..count).map(|_| decode_subnet(reader)).collect::<Result<_, _>>()?;
    Ok(Ability { weight, reach: Reach::Subnets(subnets) })
}

fn decode_subnet(reader: &mut Reader<'_>) -> Result<ReachedSubnet, WireError> {
    let interface = InterfaceId(u32::from_be_bytes(reader.array()?));
    let [prefix, bits] = reader.array()?;
    let address: IpAddr = match bits & IPV6 {
        0 => reader.array::<4>()?.into(),
        _ => reader.array::<16>()?.into(),
    };
    Ok(ReachedSubnet { network: Network::of(address, prefix), interface, by_default: bits & BY_DEFAULT != 0 })
}
