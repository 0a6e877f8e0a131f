//! IP families for which a Service needs addresses: `ipFamilies` and `ipFamilyPolicy` as the API server would complete them, or
//! the families of its slices.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::api::problem::report::Report;
use crate::net;
use crate::net::Family;

/// Families in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Families {
    /// Families that get an address if one is available.
    pub(super) wanted: Vec<Family>,
    /// Families whose lack of an address is a Problem even if the other family has one.
    pub(super) required: Vec<Family>,
    /// Whether the Service lists the families itself. Otherwise an address of another family in its status counts as well.
    pub(super) given: bool,
}

/// Reads the families. An API server that has allocated cluster addresses has set the families of its cluster, so
/// `PreferDualStack` adds no others. `elsewhere` are the families of endpoints in clusters of other API servers.
pub(super) fn read<'a>(
    spec: &ServiceSpec,
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    elsewhere: &BTreeSet<Family>,
    report: &mut Report,
) -> Families {
    let mut listed = listed(spec, report);
    let given = !listed.is_empty();
    let policy = policy(spec, report);
    if policy == Some(FamilyPolicy::Single) && listed.len() > 1 {
        report.invalid("spec.ipFamilies", format!("SingleStack allows one family; {} is used", listed[0]));
        listed.truncate(1);
    }
    let mut wanted = if given { listed.clone() } else { suggested(spec, slices) };
    let completed = !allocated(spec).is_empty();
    let added: Vec<Family> = Family::ALL
        .into_iter()
        .filter(|family| match policy {
            Some(FamilyPolicy::RequireDual) => true,
            Some(FamilyPolicy::PreferDual) => !completed || elsewhere.contains(family),
            Some(FamilyPolicy::Single) | None => false,
        })
        .filter(|family| !wanted.contains(family))
        .collect();
    wanted.extend(added);
    let required = match policy {
        Some(FamilyPolicy::RequireDual) => wanted.clone(),
        Some(FamilyPolicy::PreferDual) => listed.into_iter().take(1).collect(),
        Some(FamilyPolicy::Single) | None => listed,
    };
    Families { wanted, required, given }
}

impl Families {
    /// Whether the Service may be served on this address, as far as its family is concerned.
    pub(super) fn fit(&self, ip: IpAddr) -> bool {
        !self.given || self.wanted.contains(&Family::of(ip))
    }
}

/// The addresses in `clusterIPs`, or else in `clusterIP`, each with its field. Empty ones are not allocated yet.
pub(super) fn cluster_ips(spec: &ServiceSpec) -> impl Iterator<Item = (String, &str)> {
    let listed = spec.cluster_ips.as_deref().unwrap_or_default();
    let single = spec.cluster_ip.iter().filter(|_| listed.is_empty());
    let single = single.map(|ip| ("spec.clusterIP".to_owned(), ip.as_str()));
    let listed =
        listed.iter().enumerate().map(|(index, ip)| (format!("spec.clusterIPs[{index}]"), ip.as_str()));
    single.chain(listed).filter(|(_, ip)| !ip.is_empty())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FamilyPolicy {
    Single,
    PreferDual,
    RequireDual,
}

fn policy(spec: &ServiceSpec, report: &mut Report) -> Option<FamilyPolicy> {
    match spec.ip_family_policy.as_deref()? {
        "" => None,
        "SingleStack" => Some(FamilyPolicy::Single),
        "PreferDualStack" => Some(FamilyPolicy::PreferDual),
        "RequireDualStack" => Some(FamilyPolicy::RequireDual),
        other => {
            let message =
                format!("{other:?} is not SingleStack, PreferDualStack or RequireDualStack; it is ignored");
            report.invalid("spec.ipFamilyPolicy", message);
            None
        }
    }
}

fn listed(spec: &ServiceSpec, report: &mut Report) -> Vec<Family> {
    let mut families = Vec::new();
    for (index, name) in spec.ip_families.as_deref().unwrap_or_default().iter().enumerate() {
        match Family::named(name) {
            Some(family) if families.contains(&family) => {
                let message = format!("{name:?} is listed before; it counts once");
                report.invalid(format!("spec.ipFamilies[{index}]"), message);
            }
            Some(family) => families.push(family),
            None => {
                let message = format!("{name:?} is not IPv4 or IPv6; it is ignored");
                report.invalid(format!("spec.ipFamilies[{index}]"), message);
            }
        }
    }
    families
}

/// Families of a Service that lists none, as in most handwritten manifests: those of the cluster addresses, which the API server
/// allocates by `ipFamilies`, or else those of the slices, or else IPv4.
fn suggested<'a>(spec: &ServiceSpec, slices: impl Iterator<Item = &'a Arc<EndpointSlice>>) -> Vec<Family> {
    let allocated = allocated(spec);
    if !allocated.is_empty() {
        return allocated;
    }
    let seen: BTreeSet<Family> = slices.filter_map(|slice| Family::named(&slice.address_type)).collect();
    if seen.is_empty() { vec![Family::V4] } else { seen.into_iter().collect() }
}

/// Families of the cluster addresses, in their order.
fn allocated(spec: &ServiceSpec) -> Vec<Family> {
    let mut allocated: Vec<Family> = Vec::new();
    for family in cluster_ips(spec).filter_map(|(_, ip)| net::parse_ip(ip).ok()).map(Family::of) {
        if !allocated.contains(&family) {
            allocated.push(family);
        }
    }
    allocated
}
