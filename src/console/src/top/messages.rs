//! Events of a gateway's stream, as far as `sheave top` shows them. Unknown keys are ignored.

use std::fmt;

use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Number of known counters.
pub(super) const COUNTERS: usize = 6;

/// One event.
#[derive(Debug)]
pub(super) enum LiveMessage {
    Status(StatusMessage),
    Findings(FindingsMessage),
    Services(ServicesMessage),
    Traffic(TotalMessage),
    ServiceTraffic(RowsMessage<LiveService>),
    EndpointTraffic(RowsMessage<LiveEndpoint>),
    ClientTraffic(RowsMessage<LiveClient>),
    /// The control loop does not answer, with the reason.
    Stuck(String),
}

impl LiveMessage {
    /// Parses an event; `None` if it is of no interest here.
    pub(super) fn parse(event: &str, data: &str) -> Result<Option<Self>, serde_json::Error> {
        fn read<T: DeserializeOwned>(
            data: &str,
            into: fn(T) -> LiveMessage,
        ) -> Result<Option<LiveMessage>, serde_json::Error> {
            serde_json::from_str(data).map(|message| Some(into(message)))
        }
        match event {
            "status" => read(data, Self::Status),
            "findings" => read(data, Self::Findings),
            "services" => read(data, Self::Services),
            "traffic" => read(data, Self::Traffic),
            "serviceTraffic" => read(data, Self::ServiceTraffic),
            "endpointTraffic" => read(data, Self::EndpointTraffic),
            "clientTraffic" => read(data, Self::ClientTraffic),
            "stuck" => read(data, Self::Stuck),
            _ => Ok(None),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct StatusMessage {
    pub(super) status: LiveProcess,
    /// Problems of the process, as sentences.
    pub(super) wrong: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LiveProcess {
    pub(super) node: String,
    pub(super) problems: usize,
    pub(super) unhealthy_endpoints: usize,
    /// Whether it is about to drain.
    pub(super) lame_duck: bool,
    pub(super) draining: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct FindingsMessage {
    pub(super) services: StateCounts,
}

/// Number of Services in each state.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct StateCounts {
    pub(super) broken: usize,
    pub(super) degraded: usize,
    pub(super) ok: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct ServicesMessage {
    /// Whether all earlier rows are discarded.
    pub(super) reset: bool,
    pub(super) rows: Vec<LiveState>,
    pub(super) removed: Vec<LiveService>,
    /// Number of rows that are still to come.
    pub(super) more: usize,
}

/// State of a Service.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct LiveState {
    #[serde(flatten)]
    pub(super) name: LiveService,
    pub(super) state: String,
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) clusters: Vec<LiveCluster>,
}

/// Endpoints of a Service in one cluster.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct LiveCluster {
    pub(super) serving: usize,
    pub(super) of: usize,
    #[serde(default)]
    pub(super) unhealthy: usize,
}

impl LiveState {
    /// Number of usable endpoints, and of all endpoints.
    pub(super) fn endpoints(&self) -> (usize, usize) {
        let ready = self.clusters.iter().map(|it| it.serving.saturating_sub(it.unhealthy)).sum();
        (ready, self.clusters.iter().map(|it| it.of).sum())
    }
}

/// Counters of the whole gateway.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TotalMessage {
    pub(super) uptime_milliseconds: u64,
    pub(super) total: TotalCounts,
}

/// Counters since the start of the process.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TotalCounts {
    opened: u64,
    open: u64,
    client_bytes: u64,
    endpoint_bytes: u64,
    #[serde(default)]
    datagrams: u64,
    errors: u64,
}

impl From<TotalCounts> for Counters {
    fn from(it: TotalCounts) -> Self {
        Self([it.opened, it.open, it.client_bytes, it.endpoint_bytes, it.datagrams, it.errors])
    }
}

/// Counters of numbered rows: all rows, or the changed ones.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RowsMessage<L> {
    pub(super) uptime_milliseconds: u64,
    /// Whether all earlier rows are discarded.
    pub(super) reset: bool,
    pub(super) gone: Vec<u32>,
    pub(super) rows: Vec<LabelledRow<L>>,
    pub(super) counts: Vec<(u32, Counters)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LabelledRow<L> {
    pub(super) id: u32,
    #[serde(flatten)]
    pub(super) label: L,
}

/// A Service by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub(super) struct LiveService {
    pub(super) service: String,
    pub(super) source: String,
}

/// An endpoint of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct LiveEndpoint {
    #[serde(flatten)]
    pub(super) of: LiveService,
    pub(super) cluster: String,
    pub(super) endpoint: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) why: String,
    pub(super) node: String,
}

/// A network of clients, or the sum of those without a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct LiveClient {
    /// Empty for the sum of those without a row.
    pub(super) prefix: String,
    /// The Service that it uses most; empty if that is no longer known.
    #[serde(flatten)]
    pub(super) uses: LiveService,
    /// Number of networks without a row.
    #[serde(default)]
    pub(super) others: usize,
}

/// Counters: opened, open, bytes from clients, bytes from endpoints, datagrams, errors. A gateway of another version may have
/// fewer or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters(pub(super) [u64; COUNTERS]);

impl<'de> Deserialize<'de> for Counters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Known;
        impl<'de> Visitor<'de> for Known {
            type Value = Counters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("counters")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Counters, A::Error> {
                let (mut counters, mut at) = (Counters::default(), 0);
                while let Some(count) = sequence.next_element()? {
                    if let Some(place) = counters.0.get_mut(at) {
                        *place = count;
                    }
                    at += 1;
                }
                Ok(counters)
            }
        }
        deserializer.deserialize_seq(Known)
    }
}
