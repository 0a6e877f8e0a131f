//! Warnings about accepted objects, after `pkg/api/service/warnings.go`.

use serde_json::Value;

use super::super::names::{canonical_cidr, canonical_ip};
use super::{text, texts};

/// Texts of `Warning` headers.
pub(crate) fn warnings(service: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for key in ["clusterIPs", "externalIPs"] {
        for (index, address) in texts(service, key).into_iter().enumerate() {
            warnings.extend(uncanonical_ip(&format!("spec.{key}[{index}]"), address));
        }
    }
    for (index, range) in texts(service, "loadBalancerSourceRanges").into_iter().enumerate() {
        if let Some(canonical) = canonical_cidr(range) {
            warnings.push(format!(
                "spec.loadBalancerSourceRanges[{index}]: IPv6 CIDR value {range:?} should be in RFC 5952 \
                 canonical format ({canonical:?})"
            ));
        }
    }
    if !texts(service, "externalIPs").is_empty() {
        let text = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(text.to_owned());
    }
    if text(service, "trafficDistribution") == "PreferClose" {
        let text = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(text.to_owned());
    }
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    for (index, entry) in ingress.enumerate() {
        let address = entry["ip"].as_str().unwrap_or_default();
        warnings.extend(uncanonical_ip(&format!("status.loadBalancer.ingress[{index}]"), address));
    }
    warnings
}

fn uncanonical_ip(field: &str, address: &str) -> Option<String> {
    let canonical = canonical_ip(address)?;
    Some(format!("{field}: IPv6 address {address:?} should be in RFC 5952 canonical format ({canonical:?})"))
}
