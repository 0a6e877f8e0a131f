//! Annotations that limit a Service's share of each gateway, and its timeouts.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use sheave_model::{ServiceLimits, ServiceTimeouts};

use crate::api::problem::report::Report;
use crate::projection::annotations;
use crate::projection::options::{LARGEST_CONNECTION_LIMIT, LARGEST_RATE_LIMIT};
use crate::time;

use super::{
    CONNECT_TIMEOUT, IDLE_KEEPALIVES, IDLE_TIMEOUT, MAX_CONNECTION_AGE, MAX_CONNECTION_AGE_GRACE,
    MAX_CONNECTION_RATE, MAX_CONNECTION_RATE_PER_CLIENT, MAX_CONNECTIONS, MAX_CONNECTIONS_PER_CLIENT,
    REMOVED_ENDPOINT_GRACE,
};

/// Range of a timeout, and its text in messages.
type Allowed = (RangeInclusive<Duration>, &'static str);

/// Range of lasting timeouts. With a shorter one, a single lost packet would end a connection (RFC 6298 waits for a second).
const LASTING: Allowed = (Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 60 * 60), "1s to 8760h");

/// Range of grace periods. A connection to a removed endpoint may end at once.
const GRACE: Allowed = (Duration::ZERO..=Duration::from_secs(365 * 24 * 60 * 60), "0s to 8760h");

/// Range of the connect timeout. Clients do not wait longer.
const CONNECT: Allowed = (Duration::from_millis(10)..=Duration::from_secs(60), "10ms to 1m");

/// Text about the replacement of an invalid timeout.
const GATEWAYS: &str = "the gateway's own timeout holds";

/// Reads the limits. Without a valid annotation, the value from `defaults` applies.
pub(in crate::projection) fn limits(
    service: &Service,
    defaults: ServiceLimits,
    report: &mut Report,
) -> ServiceLimits {
    let mut read = |name, most, default: Option<NonZeroU32>| {
        let otherwise = default
            .map_or("nothing is limited".to_owned(), |default| format!("the default of {default} holds"));
        number(service, name, most, &otherwise, report).or(default)
    };
    ServiceLimits {
        connections: read(MAX_CONNECTIONS, LARGEST_CONNECTION_LIMIT, defaults.connections),
        connection_rate: read(MAX_CONNECTION_RATE, LARGEST_RATE_LIMIT, defaults.connection_rate),
        connections_per_client: read(
            MAX_CONNECTIONS_PER_CLIENT,
            LARGEST_CONNECTION_LIMIT,
            defaults.connections_per_client,
        ),
        connection_rate_per_client: read(
            MAX_CONNECTION_RATE_PER_CLIENT,
            LARGEST_RATE_LIMIT,
            defaults.connection_rate_per_client,
        ),
        client_prefix: defaults.client_prefix,
    }
}

/// Reads the timeouts. Without a valid annotation, the gateway's own apply.
pub(in crate::projection) fn timeouts(service: &Service, report: &mut Report) -> ServiceTimeouts {
    ServiceTimeouts {
        idle: time(service, IDLE_TIMEOUT, &LASTING, GATEWAYS, report),
        keepalives: annotations::flag(service, IDLE_KEEPALIVES, report, "only bytes count"),
        connect: time(service, CONNECT_TIMEOUT, &CONNECT, GATEWAYS, report),
        max_age: time(
            service,
            MAX_CONNECTION_AGE,
            &LASTING,
            "connections become as old as they like",
            report,
        ),
        max_age_grace: time(service, MAX_CONNECTION_AGE_GRACE, &LASTING, "the default of 30s holds", report),
        removed_endpoint_grace: time(
            service,
            REMOVED_ENDPOINT_GRACE,
            &GRACE,
            "connections to endpoints that have left go on for as long as they like",
            report,
        ),
    }
}

fn number(
    service: &Service,
    name: &str,
    most: u32,
    otherwise: &str,
    report: &mut Report,
) -> Option<NonZeroU32> {
    annotations::read(service, name, report, |text| {
        let number = text.trim().parse::<u32>().ok().and_then(NonZeroU32::new);
        number
            .filter(|number| number.get() <= most)
            .ok_or_else(|| format!("{text:?} is not a whole number from 1 to {most}; {otherwise}"))
    })
}

fn time(
    service: &Service,
    name: &str,
    (allowed, range): &Allowed,
    otherwise: &str,
    report: &mut Report,
) -> Option<Duration> {
    annotations::read(service, name, report, |text| {
        let time = time::parse_duration(text.trim()).ok().filter(|time| allowed.contains(time));
        time.ok_or_else(|| format!("{text:?} is not a duration from {range}, such as 30s or 1m; {otherwise}"))
    })
}
