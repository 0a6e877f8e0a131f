//! What the API server refuses in an AddressPool, as CEL rules and schema limits.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::{MAX_INTERFACES, Sharing};

/// The API server bounds what evaluating rules may cost by these two, so without them it refuses the definition.
const MAX_ADDRESSES: u32 = 256;
/// Two IPv6 addresses written in full, with blanks around the hyphen; the server's own limit for addresses is 45.
const MAX_LENGTH: u32 = 96;

/// As dev_valid_name() of the kernel has it: IFNAMSIZ less the zero at the end.
const MAX_INTERFACE_LENGTH: u32 = 15;

/// For the spec as a whole.
pub(super) fn of_specs() -> [Rule; 1] {
    [Rule::new("self.fromGatewayNodes || size(self.addresses) > 0")
        .message("holds nothing: give addresses, or set fromGatewayNodes")]
}

/// The schema of `spec.addresses`. The rules are those of its elements, so that a refusal names the one that is wrong.
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

/// The schema of `spec.sharing`: the API knows enumerations, but no description of each value.
pub(super) fn sharing(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": [Sharing::Namespace, Sharing::Cluster]})
}

/// For one of `spec.addresses`. `isIP` and `isCIDR` came with Kubernetes 1.31; `split` of a single address gives itself.
fn of_entries() -> [Rule; 2] {
    let well_formed = "isCIDR(self.trim()) || \
         self.split('-').size() <= 2 && self.split('-').all(end, isIP(end.trim()))";
    // Where an end is not even an address, the first rule has said so.
    let one_family = "self.split('-').size() != 2 || !self.split('-').all(end, isIP(end.trim())) || \
         ip(self.split('-')[0].trim()).family() == ip(self.split('-')[1].trim()).family()";
    [
        Rule::new(well_formed).message(
            "must be an address (203.0.113.7), a CIDR (203.0.113.0/28) or a range (203.0.113.10-203.0.113.20)",
        ),
        Rule::new(one_family).message("must not be a range from IPv4 to IPv6"),
    ]
}
