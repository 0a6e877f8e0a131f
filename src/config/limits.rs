//! Section `limits`: resources that traffic may use, and the defaults per Service and client.

use std::num::NonZeroU32;

use serde_json::Value;
use sheave_control::projection::{LARGEST_CONNECTION_LIMIT, LARGEST_RATE_LIMIT};
use sheave_model::{Ipv6Prefix, ServiceLimits};

use super::section::Section;
use super::values;
use super::values::ValueError;

/// Minimum of `limits.memory`; a gateway with less could not hold its table.
const LEAST_MEMORY: u64 = 32 << 20;
/// Maximum of `limits.memory`; a larger value is a typo, since no machine has as much.
const MOST_MEMORY: u64 = 1 << 50;

/// Limits of traffic; `None` = as much as the machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Concurrent TCP connections.
    pub(crate) connections: Option<NonZeroU32>,
    /// Concurrent UDP flows.
    pub(crate) udp_flows: Option<NonZeroU32>,
    /// Memory limit in bytes, including the kernel's socket buffers. Above it, new connections and flows are
    /// refused.
    pub(crate) memory: Option<u64>,
    /// Defaults for Services without annotations.
    pub(crate) service: ServiceLimits,
}

pub(super) fn read(section: &mut Section<'_>) -> Limits {
    let connections = section.get("connections", None, limit(LARGEST_CONNECTION_LIMIT));
    let udp_flows = section.get("udpFlows", None, limit(LARGEST_CONNECTION_LIMIT));
    let memory = section.get("memory", None, memory);
    let (per_service, rate) = section.nested("perService", read_pair);
    let ((per_client, rate_per_client), client_prefix) = section.nested("perClient", |section| {
        let limits = read_pair(section);
        (limits, section.get("ipv6Prefix", Ipv6Prefix::DEFAULT, ipv6_prefix))
    });
    let service = ServiceLimits {
        connections: per_service,
        connection_rate: rate,
        connections_per_client: per_client,
        connection_rate_per_client: rate_per_client,
        client_prefix,
    };
    Limits { connections, udp_flows, memory, service }
}

fn read_pair(section: &mut Section<'_>) -> (Option<NonZeroU32>, Option<NonZeroU32>) {
    let connections = section.get("connections", None, limit(LARGEST_CONNECTION_LIMIT));
    (connections, section.get("connectionRate", None, limit(LARGEST_RATE_LIMIT)))
}

fn ipv6_prefix(value: &Value) -> Result<Ipv6Prefix, ValueError> {
    let bits = values::between(Ipv6Prefix::SHORTEST, Ipv6Prefix::LONGEST)(value)?;
    Ok(Ipv6Prefix::new(bits).unwrap_or_default())
}

/// Parses a whole number; 0 = no limit.
fn limit(most: u32) -> impl Fn(&Value) -> Result<Option<NonZeroU32>, ValueError> {
    move |value| values::between(0, most)(value).map(NonZeroU32::new)
}

/// Parses a Kubernetes quantity of bytes; 0 = as much as the machine has.
fn memory(value: &Value) -> Result<Option<u64>, ValueError> {
    const UNITS: [(&str, u64); 6] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, bytes) = unit.unwrap_or((&text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(bytes));
    match bytes {
        Some(0) => Ok(None),
        Some(bytes) if (LEAST_MEMORY..=MOST_MEMORY).contains(&bytes) => Ok(Some(bytes)),
        _ => Err(ValueError::expected("an amount of memory from 32Mi on, or 0", value)
            .hint("write it as 512Mi or 2Gi")),
    }
}
