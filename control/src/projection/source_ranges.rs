//! `loadBalancerSourceRanges`: the clients that may use a Service's load balancer addresses. If a list is given, a family without
//! a valid entry is closed. kube-proxy leaves it open (pkg/proxy/serviceport.go), so that a mistyped entry would admit every
//! client.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use k8s_openapi::api::core::v1::Service;
use sheave_model::{AddressSet, SourceRanges};

use super::families::Families;
use crate::api::problem::reason;
use crate::api::problem::report::Report;
use crate::net::Family;

/// Older form of the field. Used if the field is empty, as in the cloud controllers' helper.
pub(crate) const SOURCE_RANGES_OF_SERVICE: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Ranges of both families.
#[derive(Clone, Debug, Default)]
pub(super) struct FamilyRanges {
    v4: Arc<SourceRanges>,
    v6: Arc<SourceRanges>,
}

impl FamilyRanges {
    /// Ranges of the frontend address `vip`. A node with `vip` as a local address uses it as the source for connections to it, so
    /// if the ranges admit the node (with the addresses in `node`), `vip` is admitted, too (`allowFromNode` in
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

/// Reads the field, or else the annotation. kube-proxy treats a list without a valid CIDR as absent, because an API server does
/// not store one. A manifest may contain one, and must not open the Service to all.
pub(super) fn read(service: &Service, families: &Families, report: &mut Report) -> FamilyRanges {
    let Some(listed) = listed(service) else { return FamilyRanges::default() };
    let cidrs: Vec<IpNet> = listed.iter().filter_map(|entry| parse(&entry.text)).collect();
    report_invalid(&listed, cidrs.is_empty(), report);
    if cidrs.is_empty() {
        let nobody = Arc::new(SourceRanges::showing(Vec::new(), AddressSet::default()));
        return FamilyRanges { v4: Arc::clone(&nobody), v6: nobody };
    }
    report_closed_family(&cidrs, families, report);
    // A PROXY header may name a client of the other family than the frontend's, so each frontend has both.
    let allowed = AddressSet::from_cidrs(&cidrs);
    let of = |family| {
        let of_family: Vec<IpNet> =
            cidrs.iter().copied().filter(|cidr| Family::of(cidr.addr()) == family).collect();
        let shown = match of_family.as_slice() {
            // Closed except for clients of the other family in PROXY headers.
            [] => cidrs.clone(),
            all if all.iter().any(|cidr| cidr.prefix_len() == 0) => Vec::new(),
            _ => of_family,
        };
        Arc::new(SourceRanges::showing(shown, allowed.clone()))
    };
    FamilyRanges { v4: of(Family::V4), v6: of(Family::V6) }
}

/// An entry of the list.
struct RangeEntry {
    field: String,
    text: String,
}

/// The list, or `None` if the Service has none.
fn listed(service: &Service) -> Option<Vec<RangeEntry>> {
    let field = service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.as_deref());
    if let Some(texts) = field.filter(|texts| !texts.is_empty()) {
        let entry = |(index, text): (usize, &String)| RangeEntry {
            field: format!("spec.loadBalancerSourceRanges[{index}]"),
            text: text.clone(),
        };
        return Some(texts.iter().enumerate().map(entry).collect());
    }
    let annotation = service.metadata.annotations.as_ref()?.get(SOURCE_RANGES_OF_SERVICE)?;
    let entry = |text: &str| RangeEntry {
        field: format!("metadata.annotations[{SOURCE_RANGES_OF_SERVICE}]"),
        text: text.to_owned(),
    };
    let mut entries: Vec<RangeEntry> =
        annotation.split(',').filter(|text| !text.trim().is_empty()).map(entry).collect();
    if entries.is_empty() && !annotation.trim().is_empty() {
        // Only commas: this is a list, although it is empty.
        entries.push(entry(annotation));
    }
    (!entries.is_empty()).then_some(entries)
}

/// Reports a family that the Service uses and no range admits, so that users learn why clients get no answer. A family that is
/// closed on purpose can be left out of `ipFamilies`.
fn report_closed_family(cidrs: &[IpNet], families: &Families, report: &mut Report) {
    let listed = |family: Family| cidrs.iter().any(|cidr| Family::of(cidr.addr()) == family);
    if let Some(closed) = families.wanted.iter().find(|family| !listed(**family)) {
        let everyone = everyone(*closed);
        let message = format!(
            "no valid CIDR is {closed}, so no {closed} client is admitted; add the {closed} ranges, or {everyone} to admit all"
        );
        report.add(reason::SOURCE_RANGES_ONE_FAMILY, "spec.loadBalancerSourceRanges", None, message);
    }
}

/// Reports each entry that is not a CIDR, and the consequence. `none_valid` is whether no valid CIDR is left.
fn report_invalid(listed: &[RangeEntry], none_valid: bool, report: &mut Report) {
    let consequence = if none_valid {
        "no valid CIDR is left in the list, so no client is admitted"
    } else {
        "it is left out (a family without a valid CIDR admits no client)"
    };
    for RangeEntry { field, text } in listed.iter().filter(|entry| parse(&entry.text).is_none()) {
        report.invalid(field.as_str(), format!("{text:?} is not an IPv4 or IPv6 CIDR; {consequence}"));
    }
}

/// Parses a CIDR. The API server stores blanks around it, and kube-proxy does not check host bits.
fn parse(text: &str) -> Option<IpNet> {
    let mapped = |net: &IpNet| matches!(net, IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some());
    let cidr = text.trim().parse::<IpNet>().ok().filter(|net| !mapped(net));
    cidr.map(|net| net.trunc())
}

fn everyone(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::default().into(),
        Family::V6 => Ipv6Net::default().into(),
    }
}
