//! Section `timeouts`, with the reason for each default.

use std::time::Duration;

use sheave_dataplane::Timeouts;

use super::section::Section;
use super::values;

/// SYNs are repeated after 1 s and 3 s (RFC 6298). Two seconds allow for one loss, and leave time for a second
/// endpoint to a client that waits for the usual 5 s.
const CONNECT: Duration = Duration::from_secs(2);
/// Longer than clients keep pooled connections open, and short enough to drop peers that vanished.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// A NAT should wait for at least 2 minutes (RFC 4787); conntrack, which this replaces, waits for 30 s to 120 s.
const UDP_IDLE: Duration = Duration::from_secs(60);
/// Endpoints that answer at all mostly do so sooner. Conntrack waits for 30 s, but needs no socket for each flow.
const UDP_UNANSWERED: Duration = Duration::from_secs(10);
/// The readiness probe of `deploy` runs every 5 s, and routers that poll /healthz mostly use a similar interval.
const LAME_DUCK: Duration = Duration::from_secs(5);
/// Short enough for a rolling update to wait for. Kubernetes gives Pods 30 s by default, so `deploy` raises it.
const DRAIN: Duration = Duration::from_secs(60);

/// Timeouts of traffic in the section, and the lame duck time: that for load balancers to notice that the process is no longer ready, before
/// it refuses new connections.
pub(super) fn read(section: &mut Section<'_>) -> (Timeouts, Duration) {
    let timeouts = Timeouts {
        connect: section.get("connect", CONNECT, values::timeout),
        idle: section.get("idle", IDLE, values::timeout),
        udp_idle: section.get("udpIdle", UDP_IDLE, values::timeout),
        udp_unanswered: section.get("udpUnanswered", UDP_UNANSWERED, values::timeout),
        drain: section.get("drain", DRAIN, values::timeout),
    };
    (timeouts, section.get("lameDuck", LAME_DUCK, values::delay))
}
