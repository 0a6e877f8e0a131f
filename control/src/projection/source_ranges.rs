//! `loadBalancerSourceRanges`: who may use a Service's load balancer addresses, per family, as kube-proxy reads it
//! (pkg/proxy/serviceport.go).

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use k8s_openapi::api::core::v1::Service;
use sheave_dataplane::address_set::{AddressSet, SourceRanges};

use super::families::Families;
use crate::ip::Family;
use crate::problem::reason;
use crate::report::Report;

/// Older form of the field; counts when the field is empty, as in the cloud controllers' helper.
const ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The ranges of both families.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyRanges {
    v4: Arc<SourceRanges>,
    v6: Arc<SourceRanges>,
}

impl FamilyRanges {
    /// Those of the frontend address `vip`. A node that has it as a local address talks to it from it, so where the
    /// node (that has these addresses) is let in, the address itself is, too (`allowFromNode` in
    /// pkg/proxy/iptables/proxier.go).
    pub(super) fn of(&self, vip: IpAddr, node: &[IpAddr]) -> Arc<SourceRanges> {
        let ranges = match Family::of(vip) {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let allowed = ranges.allowed();
        let mut node = node.iter().filter(|ip| Family::of(**ip) == Family::of(vip));
        if !allowed.contains(vip) && node.any(|ip| allowed.contains(*ip)) {
            Arc::new(ranges.with_also(vip))
        } else {
            Arc::clone(ranges)
        }
    }
}

/// Reads the field, or else the annotation.
pub(super) fn read(service: &Service, families: &Families, report: &mut Report) -> FamilyRanges {
    let listed =
        service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.as_deref()).unwrap_or(&[]);
    let mut cidrs: Vec<IpNet> = Vec::with_capacity(listed.len());
    if listed.is_empty() {
        let annotation = service.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
        let texts = annotation.map(String::as_str).unwrap_or_default();
        let texts = texts.split(',').filter(|text| !text.trim().is_empty());
        cidrs.extend(
            texts.filter_map(|text| parse(text, || format!("metadata.annotations[{ANNOTATION}]"), report)),
        );
    } else {
        let field = |index| format!("spec.loadBalancerSourceRanges[{index}]");
        let texts = listed.iter().enumerate();
        cidrs.extend(texts.filter_map(|(index, text)| parse(text, || field(index), report)));
    }
    report_open_family(&cidrs, families, report);
    let [v4, v6] = [Family::V4, Family::V6].map(|family| of_family(&cidrs, family));
    // A PROXY header may name a client of the other family than the frontend's, so each frontend knows both.
    let allowed = admitted(&v4, Family::V4).union(&admitted(&v6, Family::V6));
    let ranges = |cidrs| Arc::new(SourceRanges::showing(cidrs, allowed.clone()));
    FamilyRanges { v4: ranges(v4), v6: ranges(v6) }
}

/// kube-proxy limits each family by its own CIDRs, so those of one leave the other open to all: seldom what was meant.
fn report_open_family(cidrs: &[IpNet], families: &Families, report: &mut Report) {
    let listed = |family: Family| cidrs.iter().any(|cidr| Family::of(cidr.addr()) == family);
    let open = families.wanted.iter().find(|family| !listed(**family));
    if let Some(open) = open.filter(|_| !cidrs.is_empty()) {
        let everyone = everyone(*open);
        let message = format!(
            "no CIDR is {open}, so every {open} client is admitted; add the {open} ranges, or {everyone} to say so"
        );
        report.add(reason::SOURCE_RANGES_ONE_FAMILY, "spec.loadBalancerSourceRanges", None, message);
    }
}

/// Blanks around a CIDR are stored by the API server as they are; host bits are not checked by kube-proxy.
fn parse(text: &str, field: impl Fn() -> String, report: &mut Report) -> Option<IpNet> {
    let cidr = text.trim().parse::<IpNet>().ok();
    let mapped = |net: &IpNet| matches!(net, IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some());
    let usable = cidr.filter(|net| !mapped(net));
    if usable.is_none() {
        let message = format!(
            "{text:?} is not an IPv4 or IPv6 CIDR; it is left out (a family without any CIDR admits every client)"
        );
        report.invalid(field(), message);
    }
    usable.map(|net| net.trunc())
}

/// The CIDRs of one family. A /0 among them admits everyone, which is what an empty list says.
fn of_family(cidrs: &[IpNet], family: Family) -> Vec<IpNet> {
    let of_family = || cidrs.iter().copied().filter(|cidr| Family::of(cidr.addr()) == family);
    if of_family().any(|cidr| cidr.prefix_len() == 0) { Vec::new() } else { of_family().collect() }
}

/// The clients of one family that its CIDRs admit.
fn admitted(cidrs: &[IpNet], family: Family) -> AddressSet {
    if cidrs.is_empty() { AddressSet::from_cidrs([&everyone(family)]) } else { AddressSet::from_cidrs(cidrs) }
}

fn everyone(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::default().into(),
        Family::V6 => Ipv6Net::default().into(),
    }
}
