//! `ValidateLoadBalancerStatus`. Conditions and `ingress[].ports` are not validated by a real server either.

use serde_json::{Value, json};

use super::super::causes::unsupported;
use super::super::metadata::each;
use super::super::names::{ip_errors, subdomain_errors};
use super::is_load_balancer;
use crate::apiserver::status::Cause;

/// Validates a new status.
pub(crate) fn check_status(service: &Value) -> Vec<Cause> {
    let entries =
        service["status"]["loadBalancer"]["ingress"].as_array().map(Vec::as_slice).unwrap_or_default();
    let field = "status.loadBalancer.ingress";
    if !is_load_balancer(service) && !entries.is_empty() {
        return vec![Cause::forbidden(field, "may only be used when `spec.type` is 'LoadBalancer'")];
    }
    let each = entries.iter().enumerate();
    each.flat_map(|(index, entry)| check_entry(&format!("{field}[{index}]"), entry)).collect()
}

fn check_entry(field: &str, entry: &Value) -> Vec<Cause> {
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    let (ip, hostname) = (text("ip"), text("hostname"));
    let mut causes = Vec::new();
    if !ip.is_empty() {
        causes.extend(each(&format!("{field}.ip"), ip, ip_errors(ip)));
    }
    let mode = format!("{field}.ipMode");
    match (entry["ipMode"].as_str(), ip.is_empty()) {
        (None, false) => causes.push(Cause::required(&mode, "must be specified when `ip` is set")),
        (Some(_), true) => {
            causes.push(Cause::forbidden(&mode, "may not be specified when `ip` is not set"));
        }
        (Some(given), false) if !["Proxy", "VIP"].contains(&given) => {
            causes.push(unsupported(&mode, given, &["Proxy", "VIP"]));
        }
        _ => {}
    }
    if !hostname.is_empty() {
        let field = format!("{field}.hostname");
        causes.extend(each(&field, hostname, subdomain_errors(hostname)));
        if hostname.parse::<std::net::IpAddr>().is_ok() {
            causes.push(Cause::invalid(&field, &json!(hostname), "must be a DNS name, not an IP address"));
        }
    }
    causes
}
