//! CEL rules and schema limits with which the API server validates an AddressPool.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{MAX_INTERFACES, Sharing};

/// Largest number of entries. The API server estimates the cost of the rules from this and [`MAX_LENGTH`], and rejects a
/// definition that leaves either out.
const MAX_ADDRESSES: u32 = 256;
/// Largest length of an entry: two IPv6 addresses written in full, with blanks around the hyphen. The server's own limit for one
/// address is 45.
const MAX_LENGTH: u32 = 96;

/// Largest length of an interface name: IFNAMSIZ less the terminating zero, as in the kernel's dev_valid_name().
const MAX_INTERFACE_LENGTH: u32 = 15;

/// Rules for the spec as a whole.
pub(super) fn of_specs() -> [Rule; 1] {
    [Rule::new("self.fromGatewayNodes || size(self.addresses) > 0")
        .message("holds nothing: give addresses, or set fromGatewayNodes")]
}

/// The schema of `spec.addresses`. The rules apply to each element, so that an error names the invalid one.
pub(super) fn addresses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX_ADDRESSES,
        "items": {
            "type": "string",
            "maxLength": MAX_LENGTH,
            "x-kubernetes-validations": of_entries(),
        },
    })
}

/// The schema of `spec.announce.interfaces`.
pub(super) fn interfaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX_INTERFACES,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": MAX_INTERFACE_LENGTH,
            "x-kubernetes-validations": [
                Rule::new(r"self.matches('^[^/:\\s]+$') && self != '.' && self != '..'")
                    .message("must be the name of a network interface, such as eth1")
            ],
        },
    })
}

/// The schema of `spec.sharing`. A Kubernetes schema can list the values of an enumeration but not describe each.
pub(super) fn sharing(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [Sharing::Namespace, Sharing::Cluster]})
}

/// Rules for one entry of `spec.addresses`. `isIP` and `isCIDR` need Kubernetes 1.31. `split` of a single address returns that
/// address.
fn of_entries() -> [Rule; 2] {
    let well_formed = "isCIDR(self.trim()) || \
         self.split('-').size() <= 2 && self.split('-').all(end, isIP(end.trim()))";
    // If an end is not an address at all, the first rule has already reported it.
    let one_family = "self.split('-').size() != 2 || !self.split('-').all(end, isIP(end.trim())) || \
         ip(self.split('-')[0].trim()).family() == ip(self.split('-')[1].trim()).family()";
    [
        Rule::new(well_formed).message(
            "must be an address (203.0.113.7), a CIDR (203.0.113.0/28) or a range (203.0.113.10-203.0.113.20)",
        ),
        Rule::new(one_family).message("must not be a range from IPv4 to IPv6"),
    ]
}
