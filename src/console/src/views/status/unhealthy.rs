//! View of an endpoint that new traffic avoids.

use std::fmt;

use serde::{Deserialize, Serialize};
use sheave_dataplane::UnhealthyEndpoint;

use crate::views::numbers::span;

/// Unhealthy endpoint of one Service port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnhealthyView {
    /// `namespace/name`.
    pub service: String,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// `ip:port`, IPv6 in brackets.
    pub endpoint: String,
    /// The error of the connection or check.
    pub reason: String,
    /// Seconds since it became unhealthy.
    pub seconds: u64,
    /// Whether an active check found it. Every gateway runs checks, but only gateways that use the endpoint see
    /// failing connections.
    #[serde(default)]
    pub checked: bool,
}

impl From<UnhealthyEndpoint> for UnhealthyView {
    fn from(UnhealthyEndpoint { service, addr, why, since, checked }: UnhealthyEndpoint) -> Self {
        Self {
            service: service.to_string(),
            protocol: service.protocol.to_string(),
            endpoint: addr.to_string(),
            reason: why.as_ref().to_owned(),
            seconds: since.elapsed().as_secs(),
            checked,
        }
    }
}

impl fmt::Display for UnhealthyView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, protocol, endpoint, reason, seconds, .. } = self;
        write!(f, "{endpoint} ({protocol}) of {service} for {}: {reason}", span(*seconds))
    }
}
