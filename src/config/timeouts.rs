//! The section `timeouts`, with the reason for each default.

use std::time::Duration;

use super::section::Section;
use super::values;

/// Two lost SYNs are sent again after 1 s and 3 s (RFC 6298), so this allows for one loss and leaves a client with the
/// usual patience of 5 s time for a second endpoint.
const CONNECT: Duration = Duration::from_secs(2);
/// Longer than what clients keep pooled connections open for, short enough to get rid of peers that vanished.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// RFC 4787 asks for 2 minutes at least from a NAT; conntrack, which this replaces, gives 30 s to 120 s.
const UDP_IDLE: Duration = Duration::from_secs(60);
/// Endpoints that answer at all mostly do so sooner; conntrack waits for 30 s, and has no socket for each flow.
const UDP_UNANSWERED: Duration = Duration::from_secs(10);
/// A readiness probe of `deploy` comes once in 5 s; routers that ask at /healthz mostly ask as often.
const LAME_DUCK: Duration = Duration::from_secs(5);
/// What a rolling update can wait for; Kubernetes gives Pods 30 s by default, so `deploy` sets it.
const DRAIN: Duration = Duration::from_secs(60);

/// How long to wait for what; never zero, but for `lame_duck`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// For one endpoint to take a connection.
    pub(crate) connect: Duration,
    /// For either side of a connection to send something.
    pub(crate) idle: Duration,
    /// For either side of a UDP flow to send something.
    pub(crate) udp_idle: Duration,
    /// For an endpoint to answer a new UDP flow.
    pub(crate) udp_unanswered: Duration,
    /// For load balancers to notice that the process is not ready any more, before it takes nothing new.
    pub(crate) lame_duck: Duration,
    /// For open connections to finish when the process is stopped or their Service is gone.
    pub(crate) drain: Duration,
}

impl Timeouts {
    /// Those of the section `timeouts`.
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            connect: section.get("connect", CONNECT, values::timeout),
            idle: section.get("idle", IDLE, values::timeout),
            udp_idle: section.get("udpIdle", UDP_IDLE, values::timeout),
            udp_unanswered: section.get("udpUnanswered", UDP_UNANSWERED, values::timeout),
            lame_duck: section.get("lameDuck", LAME_DUCK, values::delay),
            drain: section.get("drain", DRAIN, values::timeout),
        }
    }
}
