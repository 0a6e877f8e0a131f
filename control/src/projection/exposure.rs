//! Where a Service is exposed: the address and port of each of its frontends, by kind. It must not know who else claims
//! them, nor what is behind.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::ServiceSpec;
use sheave_model::{FrontendAddr, FrontendKind};

use super::Options;
use super::class::Kinds;
use super::facts::Facts;
use super::families::{self, Families};
use super::plan::Plan;
use crate::api::problem::reason;
use crate::api::problem::report::Report;
use crate::net::{self, Family};

/// One frontend as the Service asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exposure {
    pub(super) kind: FrontendKind,
    pub(super) addr: FrontendAddr,
    /// Index into the plan's ports.
    pub(super) port: usize,
}

/// Why a Service is not served where it asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It is served there as this already.
    Twice(Exposure),
    /// The port is reserved for the node, whose own address it is.
    Reserved,
}

/// The addresses that a Service's spec names, as far as it is served there.
#[derive(Clone, Debug, Default)]
pub(super) struct SpecAddresses {
    cluster: Vec<IpAddr>,
    external: Vec<IpAddr>,
}

impl Plan {
    /// The frontends that the Service asks for, once it has these load balancer addresses; no address and port twice, and
    /// none that is reserved for a node. `left_out` hears of those, and why.
    pub(super) fn exposures(
        &self,
        load_balancer: &[IpAddr],
        facts: &Facts,
        mut left_out: impl FnMut(Exposure, Obstacle),
    ) -> Vec<Exposure> {
        let mut exposures: Vec<Exposure> = Vec::with_capacity(load_balancer.len() * self.ports.len());
        let mut seen: BTreeMap<FrontendAddr, usize> = BTreeMap::new();
        let mut add = |kind, ip, number: u16, port: usize| {
            let addr = FrontendAddr { ip, port: number, protocol: self.ports[port].protocol };
            let exposure = Exposure { kind, addr, port };
            if facts.reserves(addr) {
                left_out(exposure, Obstacle::Reserved);
                return;
            }
            match seen.entry(addr) {
                Entry::Occupied(first) => left_out(exposure, Obstacle::Twice(exposures[*first.get()])),
                Entry::Vacant(place) => {
                    place.insert(exposures.len());
                    exposures.push(exposure);
                }
            }
        };
        let on_port = [
            (FrontendKind::LoadBalancer, load_balancer),
            (FrontendKind::ExternalIp, &self.addresses.external),
            (FrontendKind::ClusterIp, &self.addresses.cluster),
        ];
        for (kind, ips) in on_port {
            for (index, port) in self.ports.iter().enumerate() {
                ips.iter().for_each(|ip| add(kind, *ip, port.port, index));
            }
        }
        if self.kinds.contains(&FrontendKind::NodePort) {
            let on_node = facts
                .node_port_addresses
                .iter()
                .filter(|ip| self.families.wanted.contains(&Family::of(**ip)));
            for ip in on_node {
                for (index, port) in self.ports.iter().enumerate() {
                    port.node_port
                        .into_iter()
                        .for_each(|number| add(FrontendKind::NodePort, *ip, number, index));
                }
            }
        }
        exposures
    }
}

/// Reads `clusterIPs` and `externalIPs`; what cannot be used is reported.
pub(super) fn read(
    spec: &ServiceSpec,
    kinds: &Kinds,
    families: &Families,
    options: &Options,
    report: &mut Report,
) -> SpecAddresses {
    let mut addresses = SpecAddresses::default();
    // Read in any case: what contradicts the rest of the Service is told whether or not it is served.
    let cluster = cluster_ips(spec, families, report);
    if kinds.contains(&FrontendKind::ClusterIp) {
        addresses.cluster = cluster;
    }
    let wanted = kinds.contains(&FrontendKind::ExternalIp);
    let ours = kinds.contains(&FrontendKind::LoadBalancer);
    for (index, text) in spec.external_ips.iter().flatten().enumerate() {
        let field = format!("spec.externalIPs[{index}]");
        if !wanted {
            if ours {
                let message = format!(
                    "{text:?} is not served; list ExternalIP in frontends, and a CIDR with it in externalIPs.allow, in the configuration"
                );
                report.add(reason::EXTERNAL_IP_REFUSED, field, None, message);
            }
            continue;
        }
        if let Some(ip) = address(text, &field, families, report)
            && allowed(ip, &options.external_ips_allow, &field, report)
            && !addresses.external.contains(&ip)
        {
            addresses.external.push(ip);
        }
    }
    addresses
}

/// Whoever may create Services could take over any address by naming it here (CVE-2020-8554).
fn allowed(ip: IpAddr, allow: &[IpNet], field: &str, report: &mut Report) -> bool {
    let allowed = allow.iter().any(|cidr| cidr.contains(&ip));
    if !allowed {
        let message =
            format!("{ip} is in no CIDR of externalIPs.allow in the configuration; it is not served");
        report.add(reason::EXTERNAL_IP_REFUSED, field, None, message);
    }
    allowed
}

fn cluster_ips(spec: &ServiceSpec, families: &Families, report: &mut Report) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = Vec::new();
    for (field, text) in families::cluster_ips(spec) {
        let ip = address(text, &field, families, report);
        ips.extend(ip.filter(|ip| !ips.contains(ip)));
    }
    ips
}

fn address(text: &str, field: &str, families: &Families, report: &mut Report) -> Option<IpAddr> {
    match net::parse_ip(text) {
        Ok(ip) if families.fit(ip) => Some(ip),
        Ok(_) => {
            report.invalid(field, format!("{text:?} is not of the Service's ipFamilies; it is not served"));
            None
        }
        Err(why) => {
            report.invalid(field, format!("{text:?} {why}; it is not served"));
            None
        }
    }
}
