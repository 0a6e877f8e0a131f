//! Frontends that currently refuse new connections or flows because of a limit, as Problems. The controller does not get them, since
//! a flood must not cause writes to the API server.

use std::num::NonZeroU32;

use sheave_control::api::problem::{Problem, reason};
use sheave_dataplane::counters::ShedReason;
use sheave_dataplane::{Dataplane, Overloaded};
use sheave_model::{Frontend, Protocol};

use super::dataplane_failures::{object_ref, problem_port};

/// Problems as of the last refresh.
#[derive(Debug, Default)]
pub(super) struct Overload {
    revision: u64,
    problems: Vec<Problem>,
}

impl Overload {
    /// Refreshes the Problems. Returns whether they may have changed.
    pub(super) fn refresh(&mut self, dataplane: &Dataplane) -> bool {
        let revision = dataplane.overload_revision();
        if revision == self.revision {
            return false;
        }
        let table = dataplane.table();
        let problem = |Overloaded { frontend, reason }| Some(problem(table.table().get(frontend)?, reason));
        self.problems = dataplane.overloaded().filter_map(problem).collect();
        self.revision = revision;
        true
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

fn problem(frontend: &Frontend, why: ShedReason) -> Problem {
    let addr = frontend.addr;
    let (what, setting) = match addr.protocol {
        Protocol::Tcp => ("connections", "limits.connections"),
        Protocol::Udp => ("flows", "limits.udpFlows"),
    };
    let limits = &frontend.limits;
    let number = |limit: Option<NonZeroU32>| limit.map_or_else(String::new, |limit| format!(" {limit}"));
    let because = match why {
        ShedReason::Capacity => format!(
            "the gateway has no room for more of this Service; raise its limit of open files (LimitNOFILE, ulimit -n) or \
             {setting} in its config, or run more gateways"
        ),
        ShedReason::Memory => {
            "the gateway has no memory for more of this Service; raise its memory limit (limits.memory in \
                               its config, or the container's), or run more gateways"
                .to_owned()
        }
        ShedReason::Connections => format!(
            "the Service has{} open, which is its limit (sheave.dev/max-connections, limits.perService.connections)",
            number(limits.connections)
        ),
        ShedReason::ConnectionRate => format!(
            "more than{} were opened within a second (sheave.dev/max-connection-rate, limits.perService.connectionRate)",
            number(limits.connection_rate)
        ),
        ShedReason::ClientConnections => format!(
            "a client has{} open, which is its limit (sheave.dev/max-connections-per-client, limits.perClient.connections)",
            number(limits.connections_per_client)
        ),
        ShedReason::ClientConnectionRate => format!(
            "a client opened more than{} within a second (sheave.dev/max-connection-rate-per-client, \
             limits.perClient.connectionRate)",
            number(limits.connection_rate_per_client)
        ),
    };
    Problem {
        object: object_ref(frontend),
        reason: match why {
            ShedReason::Capacity | ShedReason::Memory => reason::OVERLOADED,
            ShedReason::Connections
            | ShedReason::ConnectionRate
            | ShedReason::ClientConnections
            | ShedReason::ClientConnectionRate => reason::LIMIT_REACHED,
        },
        field: String::new(),
        message: format!("new {what} to {addr} are refused: {because}"),
        port: Some(problem_port(addr)),
    }
}
