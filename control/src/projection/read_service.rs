//! Reader of a Service's fields, which builds its [`Plan`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sheave_model::{Affinity, FrontendKind, FrontendSource};

use super::annotations::{AFFINITY_SCOPE, client_address, health, limits};
use super::class::FrontendKinds;
use super::eligibility::{TrafficPolicies, TrafficPolicy};
use super::families::Families;
use super::options::Options;
use super::plan::{Plan, Rank, SpecAddresses};
use super::published::{self, Published};
use super::requests::Requests;
use super::source_ranges::FamilyRanges;
use super::{annotations, families, health_checks, ports, requests, source_ranges};
use crate::api::problem::reason;
use crate::api::problem::report::Report;
use crate::api::store::ServiceKey;
use crate::net;
use crate::net::Family;

/// A Service that is known to be ours, to be read.
pub(super) struct ServiceFields<'a> {
    pub(super) key: &'a ServiceKey,
    pub(super) service: &'a Service,
    pub(super) kinds: FrontendKinds,
    /// Indexes of the exposed ports; `None` means all.
    pub(super) exposed: Option<&'a BTreeSet<usize>>,
}

/// Reads the requests from the fields of a Service.
pub(super) fn read<'a>(
    asked: ServiceFields<'_>,
    slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
    options: &Options,
    mut report: Report,
) -> Plan {
    let ServiceFields { key, service, kinds, exposed } = asked;
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let slices: Vec<&Arc<EndpointSlice>> = slices.collect();
    let elsewhere = match key.source {
        FrontendSource::Service | FrontendSource::Gateway => BTreeSet::new(),
        FrontendSource::MultiClusterService => families_elsewhere((key.source, service), &slices),
    };
    let families = families::read(spec, slices.into_iter(), &elsewhere, &mut report);
    let (mut requests, mut ranges) = (Requests::default(), FamilyRanges::default());
    if kinds.contains(&FrontendKind::LoadBalancer) {
        requests = requests::read((key.source, service), &families, options, &mut report);
        ranges = source_ranges::read(service, &families, &mut report);
    } else if published::keeps(service, options) {
        requests.status = Published::read(key.source, service.status.as_ref());
    }
    let exposed = |index: usize| exposed.is_none_or(|exposed| exposed.contains(&index));
    let (ports, listed_ports) = ports::plan(spec.ports.as_deref().unwrap_or_default(), exposed, &mut report);
    let policies = traffic_policies(spec, &mut report);
    Plan {
        rank: Rank::new(key, &service.metadata),
        uid: service.metadata.uid.clone(),
        labels: service.metadata.labels.clone().unwrap_or_default(),
        addresses: spec_addresses(spec, &kinds, &families, options, &mut report),
        families,
        requests,
        affinity: affinity(service, spec, &mut report),
        algorithm: annotations::algorithm(service, &mut report),
        path: annotations::data_path(service, options.path, &mut report),
        ranges,
        policies,
        client_address: client_address::read(service, &ports, &options.accept_proxy_allow, &mut report),
        limits: limits::limits(service, options.limits, &mut report),
        timeouts: limits::timeouts(service, &mut report),
        logged: annotations::logged(service, options.logged, &mut report),
        health: health::read(service, &options.health, &mut report),
        settings_of: None,
        health_check_port: health_checks::port(spec, &kinds, policies.external, &mut report),
        ports,
        listed_ports,
        kinds,
        fleet: None,
        gateway: None,
        suspended: false,
        problems: report.into_problems(),
    }
}

/// Families that a MultiClusterService has in member clusters. A family with an address in its status is included, so that no
/// address is released while the slices of a cluster are missing.
fn families_elsewhere(
    (source, service): (FrontendSource, &Service),
    slices: &[&Arc<EndpointSlice>],
) -> BTreeSet<Family> {
    let published = Published::read(source, service.status.as_ref()).addresses;
    let of_slices = slices.iter().filter_map(|slice| Family::named(&slice.address_type));
    published.into_iter().map(Family::of).chain(of_slices).collect()
}

/// Reads the traffic policies and validates `trafficDistribution`. Proxies do not implement the latter: the EndpointSlice
/// controller turns it into hints (staging/src/k8s.io/endpointslice/trafficdist).
pub(super) fn traffic_policies(spec: &ServiceSpec, report: &mut Report) -> TrafficPolicies {
    if let Some(other) = spec.traffic_distribution.as_deref()
        && !matches!(other, "" | "PreferClose" | "PreferSameZone" | "PreferSameNode")
    {
        let message =
            format!("{other:?} is not PreferSameZone, PreferSameNode or PreferClose; it is ignored");
        report.invalid("spec.trafficDistribution", message);
    }
    TrafficPolicies {
        external: traffic_policy(
            spec.external_traffic_policy.as_deref(),
            "spec.externalTrafficPolicy",
            report,
        ),
        internal: traffic_policy(
            spec.internal_traffic_policy.as_deref(),
            "spec.internalTrafficPolicy",
            report,
        ),
    }
}

fn traffic_policy(value: Option<&str>, field: &str, report: &mut Report) -> TrafficPolicy {
    match value.unwrap_or_default() {
        "" | "Cluster" => TrafficPolicy::Cluster,
        "Local" => TrafficPolicy::Local,
        other => {
            report.invalid(field, format!("{other:?} is not Cluster or Local; Cluster is used"));
            TrafficPolicy::Cluster
        }
    }
}

/// Default of the API server: three hours.
const DEFAULT_TIMEOUT_SECONDS: i32 = 10_800;

const TIMEOUT_FIELD: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";

/// Reads the affinity. An invalid value is reported and replaced by its default.
pub(super) fn affinity(service: &Service, spec: &ServiceSpec, report: &mut Report) -> Affinity {
    let scope = annotations::read(service, AFFINITY_SCOPE, report, annotations::affinity_scope);
    match spec.session_affinity.as_deref().unwrap_or_default() {
        "" | "None" => Affinity::None,
        "ClientIP" => {
            Affinity::ClientIp { timeout: affinity_timeout(spec, report), scope: scope.unwrap_or_default() }
        }
        other => {
            let message = format!("{other:?} is not None or ClientIP; clients have no affinity");
            report.invalid("spec.sessionAffinity", message);
            Affinity::None
        }
    }
}

fn affinity_timeout(spec: &ServiceSpec, report: &mut Report) -> Duration {
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let asked = config.and_then(|client_ip| client_ip.timeout_seconds).unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    let seconds = if (1..=86_400).contains(&asked) {
        asked
    } else {
        let message = format!("{asked} is not within 1 to 86400; {DEFAULT_TIMEOUT_SECONDS} is used");
        report.invalid(TIMEOUT_FIELD, message);
        DEFAULT_TIMEOUT_SECONDS
    };
    Duration::from_secs(u64::from(seconds.unsigned_abs()))
}

/// Reads `clusterIPs` and `externalIPs`, and reports unusable values.
pub(super) fn spec_addresses(
    spec: &ServiceSpec,
    kinds: &FrontendKinds,
    families: &Families,
    options: &Options,
    report: &mut Report,
) -> SpecAddresses {
    let mut addresses = SpecAddresses::default();
    // Always read, so that contradictions with the rest of the Service are reported whether it is served on this kind or not.
    let cluster = cluster_addresses(spec, families, report);
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
        if let Some(ip) = spec_address(text, &field, families, report)
            && is_external_ip_allowed(ip, &options.external_ips_allow, &field, report)
            && !addresses.external.contains(&ip)
        {
            addresses.external.push(ip);
        }
    }
    addresses
}

/// Whether an external IP may be used. Otherwise a user who may create Services could take over any address by naming it here
/// (CVE-2020-8554).
fn is_external_ip_allowed(ip: IpAddr, allow: &[IpNet], field: &str, report: &mut Report) -> bool {
    let allowed = allow.iter().any(|cidr| cidr.contains(&ip));
    if !allowed {
        let message =
            format!("{ip} is in no CIDR of externalIPs.allow in the configuration; it is not served");
        report.add(reason::EXTERNAL_IP_REFUSED, field, None, message);
    }
    allowed
}

fn cluster_addresses(spec: &ServiceSpec, families: &Families, report: &mut Report) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = Vec::new();
    for (field, text) in families::cluster_ips(spec) {
        let ip = spec_address(text, &field, families, report);
        ips.extend(ip.filter(|ip| !ips.contains(ip)));
    }
    ips
}

fn spec_address(text: &str, field: &str, families: &Families, report: &mut Report) -> Option<IpAddr> {
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
