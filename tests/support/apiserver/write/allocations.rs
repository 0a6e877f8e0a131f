//! Cluster addresses and node ports of Services, after k8s.io/kubernetes
//! `pkg/registry/core/service/{ipallocator,portallocator}`. Dynamic values are taken above a band that is reserved for
//! explicit requests. The real server picks random values, this one counts.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::apiserver::kind::Kind;

/// `--service-node-port-range`.
const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;
/// Number of node ports at the start of the range that are not assigned dynamically.
const NODE_PORT_BAND: u16 = 86;
/// Node port that a dry run shows.
const DRY_RUN_NODE_PORT: u16 = 32769;
const V4_RANGE: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 96, 0, 0), 1 << 16);
const V6_RANGE: (Ipv6Addr, u32) = (Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0), 1 << 16);
/// Number of addresses at the start of the range that are not assigned dynamically.
const ADDRESS_BAND: u32 = 256;

/// Reason why a value is unavailable, with the server's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("provided port is already allocated")]
    PortTaken,
    #[error("provided port is not in the valid range. The range of valid ports is 30000-32767")]
    PortOutside,
    #[error("range is full")]
    Full,
    #[error("provided IP is already allocated")]
    AddressTaken,
    #[error("the provided network does not match the current range")]
    AddressOutside,
}

/// Address family of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Family of an address in text form.
    pub fn of(address: &str) -> Option<Self> {
        Some(if address.parse::<IpAddr>().ok()?.is_ipv4() { Self::V4 } else { Self::V6 })
    }

    /// Name in `ipFamilies`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// Allocated values.
#[derive(Clone, Debug)]
pub struct Allocations {
    families: Vec<Family>,
    addresses: HashSet<IpAddr>,
    ports: HashSet<u16>,
    next_address: u32,
    next_port: u16,
}

impl Default for Allocations {
    /// Dual-stack cluster with only the Service `kubernetes`.
    fn default() -> Self {
        Self {
            families: vec![Family::V4, Family::V6],
            addresses: HashSet::from([IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1))]),
            ports: HashSet::new(),
            next_address: ADDRESS_BAND,
            next_port: *NODE_PORTS.start() + NODE_PORT_BAND,
        }
    }
}

impl Allocations {
    /// Cluster with only IPv4.
    pub fn single_stack() -> Self {
        Self { families: vec![Family::V4], ..Self::default() }
    }

    /// Families of the cluster, primary first.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Frees the values of a removed Service.
    pub fn release(&mut self, kind: &Kind, object: &Value) {
        if kind.kind != "Service" || !kind.group.is_empty() {
            return;
        }
        let spec = &object["spec"];
        for address in spec["clusterIPs"].as_array().into_iter().flatten() {
            self.free_address(address.as_str().unwrap_or_default());
        }
        let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
        for port in ports.chain([&spec["healthCheckNodePort"]]) {
            self.free_port(port.as_u64().and_then(|port| port.try_into().ok()).unwrap_or_default());
        }
    }

    /// Takes this address.
    pub fn take_address(&mut self, address: &str) -> Result<(), Unavailable> {
        let ip: IpAddr = address.parse().map_err(|_| Unavailable::AddressOutside)?;
        let inside = match ip {
            IpAddr::V4(ip) => u32::from(ip).wrapping_sub(u32::from(V4_RANGE.0)) < V4_RANGE.1,
            IpAddr::V6(ip) => u128::from(ip).wrapping_sub(u128::from(V6_RANGE.0)) < u128::from(V6_RANGE.1),
        };
        if !inside {
            return Err(Unavailable::AddressOutside);
        }
        if self.addresses.insert(ip) { Ok(()) } else { Err(Unavailable::AddressTaken) }
    }

    /// Takes any address of a family.
    pub fn next_address(&mut self, family: Family) -> Result<String, Unavailable> {
        for _ in 0..V4_RANGE.1 {
            let ip = at(family, self.next_address);
            self.next_address = if self.next_address + 2 >= V4_RANGE.1 { 1 } else { self.next_address + 1 };
            if self.addresses.insert(ip) {
                return Ok(ip.to_string());
            }
        }
        Err(Unavailable::Full)
    }

    pub fn free_address(&mut self, address: &str) {
        if let Ok(ip) = address.parse::<IpAddr>() {
            self.addresses.remove(&ip);
        }
    }

    /// Takes this node port.
    pub fn take_port(&mut self, port: u16) -> Result<(), Unavailable> {
        if !NODE_PORTS.contains(&port) {
            return Err(Unavailable::PortOutside);
        }
        if self.ports.insert(port) { Ok(()) } else { Err(Unavailable::PortTaken) }
    }

    /// Takes any node port.
    pub fn next_port(&mut self) -> Result<u16, Unavailable> {
        for _ in NODE_PORTS {
            let port = self.next_port;
            self.next_port = if port == *NODE_PORTS.end() { *NODE_PORTS.start() } else { port + 1 };
            if self.ports.insert(port) {
                return Ok(port);
            }
        }
        Err(Unavailable::Full)
    }

    pub fn free_port(&mut self, port: u16) {
        self.ports.remove(&port);
    }

    /// Address that a dry run shows.
    pub fn dry_run_address(family: Family) -> String {
        at(family, 0).to_string()
    }

    /// Node port that a dry run shows.
    pub fn dry_run_port() -> u16 {
        DRY_RUN_NODE_PORT
    }
}

fn at(family: Family, offset: u32) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from(u32::from(V4_RANGE.0) + offset)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(u128::from(V6_RANGE.0) + u128::from(offset))),
    }
}
