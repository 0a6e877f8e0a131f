//! `ipFamilies`, `ipFamilyPolicy` and `clusterIPs`: defaults and validation. After `initIPFamilyFields` and
//! `ValidateServiceClusterIPsRelatedFields`.

use serde_json::{Value, json};

use super::super::allocations::{Allocations, Family};
use super::super::causes::{duplicate, unsupported};
use super::super::names::ip_errors;
use super::{is_headless, needs_cluster_ip, spec_mut, text, texts};
use crate::apiserver::status::Cause;

const SINGLE: &str = "SingleStack";
const REQUIRE: &str = "RequireDualStack";

/// Completes policy and families, or returns the causes that prevent it.
pub(super) fn complete(service: &mut Value, old: Option<&Value>, allocations: &Allocations) -> Vec<Cause> {
    if !needs_cluster_ip(service) {
        return Vec::new();
    }
    if let Some(old) = old {
        trim_on_downgrade(service, old);
    }
    let causes = check_cluster_ips(service);
    if !causes.is_empty() {
        return causes;
    }
    let mut families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
    for address in texts(service, "clusterIPs").iter().skip(families.len()) {
        families.extend(Family::of(address).map(|family| family.name().to_owned()));
    }
    let policy = match text(service, "ipFamilyPolicy") {
        "" => SINGLE.to_owned(),
        given => given.to_owned(),
    };
    let causes = check_policy(&policy, &families, texts(service, "clusterIPs").len(), allocations);
    let configured = allocations.families();
    let wanted = if policy == SINGLE { 1 } else { configured.len() };
    for family in configured {
        if families.len() < wanted && !families.iter().any(|known| known == family.name()) {
            families.push(family.name().to_owned());
        }
    }
    if let Some(spec) = spec_mut(service) {
        spec.insert("ipFamilyPolicy".to_owned(), json!(policy));
        spec.insert("ipFamilies".to_owned(), json!(families));
    }
    causes
}

/// Drops the second address and family if only the policy changes to SingleStack.
fn trim_on_downgrade(service: &mut Value, old: &Value) {
    let was_dual = texts(old, "ipFamilies").len() == 2;
    let unchanged = |key: &str| texts(service, key) == texts(old, key);
    if !was_dual || text(service, "ipFamilyPolicy") != SINGLE {
        return;
    }
    let keys: Vec<&str> = ["clusterIPs", "ipFamilies"].into_iter().filter(|key| unchanged(key)).collect();
    for key in keys {
        if let Some(list) = service["spec"][key].as_array_mut() {
            list.truncate(1);
        }
    }
}

fn check_policy(
    policy: &str,
    families: &[String],
    addresses: usize,
    allocations: &Allocations,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    let configured = |name: &str| allocations.families().iter().any(|family| family.name() == name);
    if policy == SINGLE {
        let must = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
        if addresses == 2 {
            let why = format!("{must} cluster IPs are specified");
            causes.push(Cause::invalid("spec.ipFamilyPolicy", &json!(policy), &why));
        }
        if families.len() == 2 {
            let why = format!("{must} IP families are specified");
            causes.push(Cause::invalid("spec.ipFamilyPolicy", &json!(policy), &why));
        }
    }
    if policy == REQUIRE && allocations.families().len() < 2 {
        let why = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", &json!(policy), why));
    }
    if causes.is_empty() {
        for (index, family) in families.iter().enumerate().filter(|(_, family)| !configured(family)) {
            let field = format!("spec.ipFamilies[{index}]");
            causes.push(Cause::invalid(&field, &json!(family), "not configured on this cluster"));
        }
    }
    causes
}

/// `ValidateServiceClusterIPsRelatedFields`.
pub(super) fn check_cluster_ips(service: &Value) -> Vec<Cause> {
    if !needs_cluster_ip(service) {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let (first, addresses) = (text(service, "clusterIP"), texts(service, "clusterIPs"));
    let all = json!(addresses);
    if first.is_empty() && !addresses.is_empty() {
        let why = "must be empty when `clusterIP` is not specified";
        causes.push(Cause::invalid("spec.clusterIPs", &all, why));
    } else if !first.is_empty() && addresses.is_empty() {
        causes.push(Cause::required("spec.clusterIPs", ""));
    } else if !first.is_empty() && addresses[0] != first {
        causes.push(Cause::invalid("spec.clusterIPs", &all, "first value must match `clusterIP`"));
    }
    let families = texts(service, "ipFamilies");
    for (index, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if !["IPv4", "IPv6"].contains(family) {
            causes.push(unsupported(&field, family, &["IPv4", "IPv6"]));
        } else if families[..index].contains(family) {
            causes.push(duplicate(&field, &json!(family)));
        }
    }
    let policies = ["PreferDualStack", REQUIRE, SINGLE];
    let policy = text(service, "ipFamilyPolicy");
    if service["spec"]["ipFamilyPolicy"].is_string() && !policies.contains(&policy) {
        causes.push(unsupported("spec.ipFamilyPolicy", policy, &policies));
    }
    let valid = check_addresses(&addresses, &mut causes);
    if valid && !is_headless(service) && causes.is_empty() {
        check_match(&addresses, &families, &mut causes);
    }
    causes
}

/// Whether all addresses are valid.
fn check_addresses(addresses: &[&str], causes: &mut Vec<Cause>) -> bool {
    let before = causes.len();
    for (index, address) in addresses.iter().enumerate() {
        if index == 0 && *address == "None" {
            if addresses.len() > 1 {
                let why = "'None' must be the first and only value";
                causes.push(Cause::invalid("spec.clusterIPs", &json!(addresses), why));
            }
            continue;
        }
        for error in ip_errors(address) {
            causes.push(Cause::invalid(&format!("spec.clusterIPs[{index}]"), &json!(address), error));
        }
    }
    if addresses.len() > 2 {
        let why = "may only hold up to 2 values";
        causes.push(Cause::invalid("spec.clusterIPs", &json!(addresses), why));
    }
    if let [one, other] = addresses
        && Family::of(one) == Family::of(other)
    {
        let why = "may specify no more than one IP for each IP family";
        causes.push(Cause::invalid("spec.clusterIPs", &json!(addresses), why));
    }
    causes.len() == before
}

fn check_match(addresses: &[&str], families: &[&str], causes: &mut Vec<Cause>) {
    for (index, (address, family)) in addresses.iter().zip(families).enumerate() {
        if Family::of(address).is_some_and(|found| found.name() != *family) {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            causes.push(Cause::invalid(&format!("spec.clusterIPs[{index}]"), &json!(address), &why));
        }
    }
}
