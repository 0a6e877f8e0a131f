//! How many endpoints each cluster has, for people: whatever port or family, and whether or not there is an address yet to
//! serve them on.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::endpoints::Conditions;
use super::super::members::{Listed, Member};
use super::super::ports::PlannedPort;
use super::status::ClusterStatus;
use crate::net;

/// Fills in the counts.
pub(super) fn count(standing: &[(ClusterStatus, Member)], ports: &[PlannedPort]) -> Vec<ClusterStatus> {
    let counted = standing.iter().map(|(status, member)| {
        let addresses = addresses(&member.slices, ports);
        let ready = addresses.values().filter(|ready| **ready).count();
        let lack = status.lack.clone().filter(|_| addresses.is_empty());
        ClusterStatus {
            lack,
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            total: u32::try_from(addresses.len()).unwrap_or(u32::MAX),
            ..status.clone()
        }
    });
    counted.collect()
}

/// Every address that serves one of the ports, and whether it is ready. Those that terminate are being replaced.
fn addresses(slices: &[Listed], ports: &[PlannedPort]) -> BTreeMap<IpAddr, bool> {
    let mut addresses = BTreeMap::new();
    let serves = |listed: &&Listed| {
        let names = listed.slice.ports.iter().flatten().map(|port| port.name.as_deref().unwrap_or_default());
        names.into_iter().any(|name| ports.iter().any(|port| *port.name == *name))
    };
    for endpoint in slices.iter().filter(serves).flat_map(|it| it.slice.endpoints.iter().flatten()) {
        let conditions = Conditions::of(endpoint);
        if let Some(Ok(ip)) = endpoint.addresses.first().map(|text| net::parse_ip(text))
            && !conditions.terminating
        {
            *addresses.entry(ip).or_default() |= conditions.ready();
        }
    }
    addresses
}
