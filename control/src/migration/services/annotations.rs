//! Annotations with which Services request something from other load balancers.

use std::net::IpAddr;

use super::super::draft::left;
use super::super::service_lb;
use crate::net;
use crate::sources::manifests::{FileProblem, RawObject};

/// Requests of a Service.
#[derive(Debug, Default)]
pub(super) struct ForeignAnnotations {
    /// Whether a migrated project has recorded that it allocated the address.
    pub(super) allocated: bool,
    /// An annotation that requests an address from such a project, without evidence that it was allocated.
    pub(super) request: Option<String>,
    /// The field and the name of the requested pool.
    pub(super) pool: Option<(String, String)>,
    /// Requested addresses, and the field of the last of them.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) addresses_field: Option<String>,
    /// Field and value of the key with which Services share an address.
    pub(super) sharing_key: Option<(String, String)>,
    /// Whether endpoints are selected with Maglev hashing.
    pub(super) balance_maglev: bool,
}

/// Meaning of an annotation.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Pool,
    Addresses,
    SharingKey,
    Algorithm,
    SourceRanges,
    /// Written by the other project when it allocated the address.
    Allocated,
    /// kube-vip ignores the Service.
    Ignored,
    /// No effect in Sheave.
    Nothing,
    /// No equivalent; holds the advice.
    Left(&'static str),
}

impl Meaning {
    /// Whether it requests an address.
    fn is_request(self) -> bool {
        matches!(self, Self::Pool | Self::Addresses | Self::SharingKey)
    }
}

/// Prefixes of the annotations of these projects.
const PREFIXES: [&str; 7] = [
    "metallb.io/",
    "metallb.universe.tf/",
    "lbipam.cilium.io/",
    "io.cilium/",
    "service.cilium.io/",
    "kube-vip.io/",
    "svccontroller.k3s.cattle.io/",
];

const EGRESS: &str = "Sheave takes no traffic out of the cluster; leave egress to another program";
const DHCP: &str = "Sheave gives addresses of AddressPools alone, not of DHCP";
const MESH: &str =
    "endpoints of several clusters come from a Karmada control plane, by a MultiClusterService";
const IGNORED: &str = "kube-vip leaves the Service alone, and handleUnclassified: true has Sheave serve it: if another program is to, delete \
                       it and create it anew with that one's loadBalancerClass";
const EVERYWHERE: &str = "every gateway serves all Services";

fn meaning(name: &str) -> Meaning {
    match name {
        "metallb.io/address-pool" | "metallb.universe.tf/address-pool" => Meaning::Pool,
        "metallb.io/loadBalancerIPs"
        | "metallb.universe.tf/loadBalancerIPs"
        | "lbipam.cilium.io/ips"
        | "io.cilium/lb-ipam-ips"
        | "kube-vip.io/loadbalancerIPs" => Meaning::Addresses,
        "metallb.io/allow-shared-ip"
        | "metallb.universe.tf/allow-shared-ip"
        | "lbipam.cilium.io/sharing-key"
        | "io.cilium/lb-ipam-sharing-key" => Meaning::SharingKey,
        "service.cilium.io/lb-algorithm" => Meaning::Algorithm,
        "service.cilium.io/src-ranges-policy" => Meaning::SourceRanges,
        "metallb.io/ip-allocated-from-pool"
        | "metallb.universe.tf/ip-allocated-from-pool"
        | "kube-vip.io/vipHost" => Meaning::Allocated,
        "kube-vip.io/ignore" => Meaning::Ignored,
        "lbipam.cilium.io/sharing-cross-namespace"
        | "io.cilium/lb-ipam-sharing-cross-namespace"
        | "lbipam.cilium.io/sharing-permit-different-pods"
        | "io.cilium/lb-ipam-sharing-permit-different-pods"
        | "kube-vip.io/hwaddr"
        | "kube-vip.io/leaseName"
        | "kube-vip.io/forcePerServiceElection"
        | "kube-vip.io/allow-reconcile-without-endpoints"
        | "kube-vip.io/active-endpoint"
        | "kube-vip.io/active-endpoint-ipv6"
        | "kube-vip.io/rp_filter"
        | "service.cilium.io/forwarding-mode"
        | "service.cilium.io/proxy-delegation"
        | "svccontroller.k3s.cattle.io/priorityclassname"
        | "svccontroller.k3s.cattle.io/tolerations" => Meaning::Nothing,
        "kube-vip.io/serviceInterface" | "kube-vip.io/serviceVLAN" => {
            Meaning::Left("interfaces are a matter of the AddressPool: announce.interfaces")
        }
        "kube-vip.io/requestedIP"
        | "kube-vip.io/loadbalancerHostname"
        | "kube-vip.io/macvlanName"
        | "kube-vip.io/dhcp-broadcast" => Meaning::Left(DHCP),
        "kube-vip.io/forwardUPNP" | "kube-vip.io/upnp-lease-duration" | "kube-vip.io/ddns" => {
            Meaning::Left("forward the ports, or write the name, where your router or DNS is configured")
        }
        "service.cilium.io/node" | "service.cilium.io/node-selector" => Meaning::Left(EVERYWHERE),
        "service.cilium.io/type" => {
            Meaning::Left("frontends in the configuration says which kinds are served, for all Services")
        }
        "service.cilium.io/global"
        | "io.cilium/global-service"
        | "service.cilium.io/shared"
        | "io.cilium/shared-service"
        | "service.cilium.io/affinity"
        | "io.cilium/service-affinity"
        | "service.cilium.io/global-sync-endpoint-slices" => Meaning::Left(MESH),
        _ if name.starts_with("kube-vip.io/egress") => Meaning::Left(EGRESS),
        _ => Meaning::Left("Sheave has nothing like it"),
    }
}

/// Reads the annotations of a Service and reports those without an equivalent.
pub(super) fn read(service: &RawObject, problems: &mut Vec<FileProblem>) -> ForeignAnnotations {
    let mut wishes = ForeignAnnotations::default();
    let has_class = service.at(&["spec", "loadBalancerClass"]).is_some();
    let ours = |name: &String| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    for (name, value) in service.texts("annotations").into_iter().filter(|(name, _)| ours(name)) {
        let field = format!("metadata.annotations[{name}]");
        let mut report = |message: String| problems.push(left(service, &field, message));
        let meaning = meaning(&name);
        let says_something = !value.trim().is_empty();
        wishes.allocated |= matches!(meaning, Meaning::Allocated) && says_something;
        if meaning.is_request() && says_something {
            wishes.request = Some(name);
        }
        match meaning {
            Meaning::Pool => wishes.pool = Some((field, value.trim().to_owned())),
            Meaning::Addresses => {
                read_addresses(&value, &mut wishes.addresses, &mut report);
                wishes.addresses_field = Some(field);
            }
            Meaning::SharingKey if value.is_empty() => {}
            Meaning::SharingKey => wishes.sharing_key = Some((field, value)),
            Meaning::Algorithm => match value.trim() {
                "maglev" => wishes.balance_maglev = true,
                // Cilium's default.
                "random" => {}
                other => report(format!("{other:?} is no algorithm that Sheave has; see sheave.dev/balance")),
            },
            Meaning::SourceRanges if value.trim() == "deny" => report(
                "\"deny\": loadBalancerSourceRanges is a list of who is admitted, so exactly these clients would be; write the ranges \
                 of all others"
                    .to_owned(),
            ),
            Meaning::Ignored if value == "true" && !has_class => report(IGNORED.to_owned()),
            Meaning::SourceRanges | Meaning::Allocated | Meaning::Ignored | Meaning::Nothing => {}
            Meaning::Left(instead) => report(format!("{value:?}: {instead}")),
        }
    }
    if let Some(pool) = service.texts("labels").get(service_lb::POOL) {
        let field = format!("metadata.labels[{}]", service_lb::POOL);
        problems.push(left(
            service,
            &field,
            format!("{pool:?}: the Service gets the addresses of all gateway nodes"),
        ));
    }
    if service.at(&["spec", "loadBalancerIP"]).and_then(serde_json::Value::as_str) == Some("0.0.0.0") {
        problems.push(left(
            service,
            "spec.loadBalancerIP",
            format!("\"0.0.0.0\" asks kube-vip for DHCP; remove it: {DHCP}"),
        ));
    }
    wishes
}

fn read_addresses(list: &str, addresses: &mut Vec<IpAddr>, report: &mut impl FnMut(String)) {
    for text in list.split(',').filter(|text| !text.trim().is_empty()) {
        match net::parse_ip(text) {
            Ok(ip) if addresses.contains(&ip) => {}
            Ok(ip) => addresses.push(ip),
            Err("is the unspecified address") => report(format!("{text:?} asks for DHCP: {DHCP}")),
            Err(why) => report(format!("{text:?} {why}")),
        }
    }
}
