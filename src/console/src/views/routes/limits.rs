//! JSON of a Service's limits and timeouts.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sheave_model::{Frontend, ServiceLimits, ServiceTimeouts};

/// Limits and timeouts of one Service. Missing ones are unlimited, or the gateway's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u32>,
    /// New connections per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_rate: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections_per_client: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_rate_per_client: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_timeout_milliseconds: Option<u64>,
    /// Whether keepalives of peers count as traffic.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    idle_keepalives: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_timeout_milliseconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connection_age_milliseconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connection_age_grace_milliseconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_endpoint_grace_milliseconds: Option<u64>,
}

impl LimitsView {
    /// Limits of a frontend's Service, if it has any.
    pub(super) fn of(frontend: &Frontend) -> Option<Self> {
        let ServiceLimits {
            connections,
            connection_rate,
            connections_per_client,
            connection_rate_per_client,
            client_prefix: _,
        } = frontend.limits;
        let ServiceTimeouts { idle, keepalives, connect, max_age, max_age_grace, removed_endpoint_grace } =
            frontend.timeouts;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let view = Self {
            connections: connections.map(NonZeroU32::get),
            connection_rate: connection_rate.map(NonZeroU32::get),
            connections_per_client: connections_per_client.map(NonZeroU32::get),
            connection_rate_per_client: connection_rate_per_client.map(NonZeroU32::get),
            idle_timeout_milliseconds: idle.map(milliseconds),
            idle_keepalives: keepalives,
            connect_timeout_milliseconds: connect.map(milliseconds),
            max_connection_age_milliseconds: max_age.map(milliseconds),
            max_connection_age_grace_milliseconds: max_age_grace.map(milliseconds),
            removed_endpoint_grace_milliseconds: removed_endpoint_grace.map(milliseconds),
        };
        (view != Self::default()).then_some(view)
    }
}
