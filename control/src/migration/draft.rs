//! Intermediate state of a migration: draft AddressPools, and fields without an equivalent.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value;

use crate::api::address_pool::{AddressPoolSpec, is_interface_name};
use crate::api::problem::{ObjectRef, Problem};
use crate::projection::AddressRange;
use crate::sources::manifests::{FileProblem, RawObject};
use crate::text::{MAX_MESSAGE_BYTES, cut_middle};

/// Reason of everything that has no direct translation.
pub const NO_EQUIVALENT: &str = "NoEquivalent";

/// Kinds that can have fields without an equivalent, and whether they are namespaced.
const KINDS: [(&str, bool); 24] = [
    ("AddressPool", true),
    ("BFDProfile", true),
    ("BGPAdvertisement", true),
    ("BGPPeer", true),
    ("Community", true),
    ("IPAddressPool", true),
    ("L2Advertisement", true),
    ("CiliumBGPAdvertisement", false),
    ("CiliumBGPClusterConfig", false),
    ("CiliumBGPNodeConfigOverride", false),
    ("CiliumBGPPeerConfig", false),
    ("CiliumBGPPeeringPolicy", false),
    ("CiliumL2AnnouncementPolicy", false),
    ("CiliumLoadBalancerIPPool", false),
    ("ConfigMap", true),
    ("DaemonSet", true),
    ("Node", false),
    ("Service", true),
    ("Deployment", true),
    ("StatefulSet", true),
    ("Namespace", false),
    ("Secret", true),
    ("Pod", true),
    ("Object", true),
];

/// The object, as Problems name it.
pub(super) fn reference(object: &RawObject) -> ObjectRef {
    let known = KINDS.iter().find(|(kind, _)| *kind == object.kind());
    let (kind, namespaced) = known.copied().unwrap_or(("Object", true));
    let namespace = if namespaced { object.namespace() } else { "" };
    ObjectRef { kind, namespace: namespace.into(), name: object.name().into() }
}

/// A field without an equivalent, and what to do instead.
pub(super) fn left(object: &RawObject, field: &str, message: impl Into<String>) -> FileProblem {
    let problem = Problem {
        object: reference(object),
        reason: NO_EQUIVALENT,
        field: field.to_owned(),
        message: cut_middle(message.into(), MAX_MESSAGE_BYTES),
        port: None,
    };
    FileProblem { origin: object.origin(field), problem }
}

/// A draft of an AddressPool.
#[derive(Debug)]
pub(super) struct PoolDraft<'a> {
    /// Its final name.
    pub(super) name: String,
    /// The object that it is translated from.
    pub(super) source: &'a RawObject,
    pub(super) spec: AddressPoolSpec,
    pub(super) comments: Vec<String>,
    pub(super) left: Vec<FileProblem>,
}

impl<'a> PoolDraft<'a> {
    /// A draft without addresses.
    pub(super) fn new(source: &'a RawObject, name: &str) -> Self {
        let spec = AddressPoolSpec::default();
        Self { name: name.to_owned(), source, spec, comments: Vec::new(), left: Vec::new() }
    }

    /// Records that a field of its source has no equivalent.
    pub(super) fn left(&mut self, field: &str, message: impl Into<String>) {
        self.left.push(left(self.source, field, message));
    }

    /// Adds a CIDR, range or address from `field` of the source, unless an AddressPool must not contain it.
    pub(super) fn add(&mut self, field: &str, entry: &str) {
        match AddressRange::read(entry, false) {
            Ok(_) if has_mapped(entry) => {
                self.left(
                    field,
                    format!("{entry:?} is IPv4, written as IPv6; it is left out: write it as IPv4"),
                );
            }
            Ok(_) => self.spec.addresses.push(entry.trim().to_owned()),
            Err(why) => self.left(field, format!("{entry:?} {why}; it is left out")),
        }
    }

    /// Whether the pool contains this address.
    pub(super) fn spans(&self, ip: IpAddr) -> bool {
        let mut ranges = self.spec.addresses.iter().filter_map(|entry| AddressRange::read(entry, false).ok());
        ranges.any(|range| range.spans(ip))
    }
}

/// Whether one of the addresses is an IPv4-mapped IPv6 address, which the API server rejects.
fn has_mapped(entry: &str) -> bool {
    let is_mapped =
        |text: &str| text.trim().parse::<Ipv6Addr>().is_ok_and(|ip| ip.to_ipv4_mapped().is_some());
    entry.split(['-', '/']).any(is_mapped)
}

/// Whether an AddressPool may name this interface. If not, `report` gets the reason.
pub(super) fn may_be_named(interface: &str, report: impl FnOnce(String)) -> bool {
    let may = is_interface_name(interface);
    if !may {
        report(format!("{interface:?} is not the name of a network interface; it is left out"));
    }
    may
}

/// A list of texts, without items that are not text.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}
