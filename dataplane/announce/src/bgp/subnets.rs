//! Addresses that neighbours take for their own: those in a subnet of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use crate::layer2::links::{Subnet, containing};
use crate::layer2::settings::in_force;

/// The values of `arp_ignore` with which the kernel answers for an interface's own addresses alone, or for none.
const OWN_ALONE: [u8; 3] = [1, 2, 8];

/// A warning for each subnet with such addresses. By default the kernel answers ARP requests for all addresses of the machine on all
/// interfaces (`arp_ignore`, Documentation/networking/ip-sysctl.rst), so every gateway does. For IPv6 it answers for those of the interface alone.
pub(super) fn warnings(subnets: &[Subnet], held: &BTreeMap<IpAddr, Instant>) -> Vec<String> {
    let mut within: BTreeMap<String, (IpAddr, &Subnet)> = BTreeMap::new();
    for ip in held.keys().filter(|ip| ip.is_ipv4()) {
        for subnet in containing(subnets, *ip, &[]) {
            within.entry(subnet.to_string()).or_insert((*ip, subnet));
        }
    }
    let interfaces: BTreeSet<&str> = within.values().map(|(_, subnet)| &*subnet.interface).collect();
    let answers = |interface: &&str| {
        !in_force("arp_ignore", interface).is_some_and(|(_, value)| OWN_ALONE.contains(&value))
    };
    let answering: BTreeSet<&str> = interfaces.into_iter().filter(answers).collect();
    let told = within.iter().filter(|(_, (_, subnet))| answering.contains(&*subnet.interface));
    told.map(|(text, (ip, subnet))| {
        let interface = subnet.interface.replace('.', "/");
        format!(
            "{ip} is announced by BGP and lies in the subnet {text}, where every gateway answers ARP requests for it: set \
             net.ipv4.conf.{interface}.arp_ignore to 1, or use addresses outside the gateways' subnets"
        )
    })
    .collect()
}
