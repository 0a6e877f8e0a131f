//! What is compared: one row for each kind of load, with its unit and the peer that ratios refer to.

use crate::sample::Units;
use crate::subjects::Subject;

/// One kind of load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Streams as fast as they go.
    Bulk {
        /// At the same time.
        streams: usize,
    },
    /// Requests on connections that stay open.
    Request {
        /// Each with one request under way.
        connections: usize,
        /// Bytes of a request, and of its answer.
        size: usize,
    },
    /// Connect, one request, close.
    Connect {
        /// Connections under way.
        parallel: usize,
    },
    /// Connections that do nothing.
    Idle,
    /// Datagrams and their answers.
    Datagram {
        /// Client ports.
        flows: usize,
        /// Bytes of a datagram.
        size: usize,
    },
}

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// As it is written in the table and on the command line.
    pub(crate) name: &'static str,
    /// What is done.
    pub(crate) load: Load,
}

/// All rows, in the order of the table.
pub(crate) const ROWS: [Row; 8] = [
    Row { name: "bulk-1", load: Load::Bulk { streams: 1 } },
    Row { name: "bulk-4", load: Load::Bulk { streams: 4 } },
    Row { name: "request-1b", load: Load::Request { connections: 64, size: 1 } },
    Row { name: "request-1k", load: Load::Request { connections: 64, size: 1024 } },
    Row { name: "connect", load: Load::Connect { parallel: 32 } },
    Row { name: "idle", load: Load::Idle },
    Row { name: "udp-64", load: Load::Datagram { flows: 32, size: 64 } },
    Row { name: "udp-1200", load: Load::Datagram { flows: 32, size: 1200 } },
];

impl Load {
    /// In words.
    pub(crate) fn describe(self) -> String {
        match self {
            Self::Bulk { streams: 1 } => "1 stream, client to server".to_owned(),
            Self::Bulk { streams } => format!("{streams} streams, client to server"),
            Self::Request { connections, size } => {
                format!("request and answer of {size} B, {connections} connections kept alive")
            }
            Self::Connect { parallel } => {
                format!("connect, request and answer of 64 B, close; {parallel} under way")
            }
            Self::Idle => "connections that did one exchange and stay".to_owned(),
            Self::Datagram { flows, size } => format!("datagram and answer of {size} B, {flows} flows"),
        }
    }

    /// Its units.
    pub(crate) fn units(self) -> Units {
        const MICROSECONDS: f64 = 1e6;
        let each = |rate, cost| Units { rate, rate_scale: 1e-3, cost, cost_scale: MICROSECONDS };
        match self {
            Self::Bulk { .. } => {
                Units { rate: "Gbit/s", rate_scale: 8e-9, cost: "s/GiB", cost_scale: f64::from(1 << 30) }
            }
            Self::Request { .. } => each("k req/s", "us/req"),
            Self::Connect { .. } | Self::Idle => each("k conn/s", "us/conn"),
            Self::Datagram { .. } => each("k dgram/s", "us/dgram"),
        }
    }

    /// Whom ratios refer to.
    pub(crate) fn reference(self) -> Subject {
        match self {
            // HAProxy does not forward arbitrary datagrams.
            Self::Datagram { .. } => Subject::Nginx,
            _ => Subject::Haproxy,
        }
    }

    /// Whether `subject` takes part at all.
    pub(crate) fn suits(self, subject: Subject) -> bool {
        match self {
            Self::Datagram { .. } => subject != Subject::Haproxy,
            // Without a proxy there is no process to weigh.
            Self::Idle => subject != Subject::Direct,
            _ => true,
        }
    }
}
