//! Counts of a replay: connections and bytes of each endpoint before and after the change, and what is refused.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::chooser::{FrontendTraits, KnownEndpoint, Refusal};
use super::connection::ReplayedConnection;
use super::names::ServiceId;
use super::names::{EndpointId, FastMap, LoggedRoute};

/// Number of clients that are named as examples.
const EXAMPLES: usize = 3;

/// Connections and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) connections: u64,
    pub(super) client_bytes: u64,
    pub(super) endpoint_bytes: u64,
}

/// Loads of an endpoint for one Service port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointLoads {
    pub(super) before: Load,
    pub(super) after: Load,
    /// Connections before and after, of those that have an endpoint in both cases.
    pub(super) both: [u64; 2],
    /// Connections before, of the same ones, while the endpoint was no choice.
    pub(super) gone: u64,
}

/// What is refused of a Service port for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RefusedLoad {
    pub(super) load: Load,
    pub(super) clients: Vec<IpAddr>,
    pub(super) frontend: Option<SocketAddr>,
}

/// Counts of one Service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceTally {
    pub(super) total: Load,
    /// Connections with an endpoint before and after, and how many of them go to another one in this run.
    pub(super) both: u64,
    pub(super) differ: u64,
    /// Whether each connection has the same endpoint in every run.
    pub(super) exact: bool,
    pub(super) sticky: bool,
    pub(super) limited: bool,
    pub(super) newly_served: u64,
    /// Connections without an endpoint before and after.
    pub(super) still_refused: u64,
    pub(super) undecided: u64,
    /// Connections that ended before an endpoint was looked for.
    pub(super) unasked: u64,
    pub(super) endpoints: FastMap<EndpointId, EndpointLoads>,
    pub(super) refused: BTreeMap<Refusal, RefusedLoad>,
}

/// Where a connection goes after the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Endpoint(EndpointId),
    Refused(Refusal),
    Undecided,
    Unasked,
}

/// Counts of all Service ports.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) services: FastMap<ServiceId, ServiceTally>,
    /// Starts of the first and the last connection, and the last end.
    pub(super) span: Option<(i64, i64)>,
}

impl Load {
    pub(super) fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.client_bytes = self.client_bytes.saturating_add(other.client_bytes);
        self.endpoint_bytes = self.endpoint_bytes.saturating_add(other.endpoint_bytes);
    }

    /// Bytes in both directions.
    pub(super) fn bytes(self) -> u64 {
        self.client_bytes.saturating_add(self.endpoint_bytes)
    }
}

impl Tally {
    /// Counts a connection that went to `before`.
    pub(super) fn add(
        &mut self,
        connection: &ReplayedConnection,
        route: LoggedRoute,
        traits: FrontendTraits,
        before: Option<KnownEndpoint>,
        after: After,
    ) {
        let ReplayedConnection { client_bytes, endpoint_bytes, start, end, .. } = *connection;
        let (first, last) = self.span.unwrap_or((start, end));
        self.span = Some((first.min(start), last.max(end)));
        let load = Load { connections: 1, client_bytes, endpoint_bytes };
        let service = self
            .services
            .entry(route.service)
            .or_insert_with(|| ServiceTally { exact: true, ..ServiceTally::default() });
        service.total.add(load);
        service.exact &= traits.exact;
        service.sticky |= traits.sticky;
        service.limited |= traits.limited;
        if let Some(KnownEndpoint { id, is_choice }) = before {
            let loads = service.endpoints.entry(id).or_default();
            let both = u64::from(matches!(after, After::Endpoint(_)));
            loads.before.add(load);
            loads.both[0] += both;
            loads.gone += if is_choice { 0 } else { both };
        }
        let before = before.map(|known| known.id);
        match (before, after) {
            (_, After::Endpoint(endpoint)) => service.add_served(before, endpoint, load),
            (Some(_), After::Refused(refusal)) => {
                service.refused.entry(refusal).or_default().add(route, connection, load);
            }
            (None, After::Refused(_)) => service.still_refused += 1,
            (_, After::Undecided) => service.undecided += 1,
            (_, After::Unasked) => service.unasked += 1,
        }
    }
}

impl ServiceTally {
    fn add_served(&mut self, before: Option<EndpointId>, endpoint: EndpointId, load: Load) {
        let loads = self.endpoints.entry(endpoint).or_default();
        loads.after.add(load);
        match before {
            None => self.newly_served += 1,
            Some(before) => {
                loads.both[1] += 1;
                self.both += 1;
                self.differ += u64::from(before != endpoint);
            }
        }
    }

    /// Number of connections that go to another endpoint. Where chance decides, only as far as the loads of endpoints differ by more than
    /// chance explains.
    pub(super) fn moved(&self) -> u64 {
        if self.exact {
            return self.differ;
        }
        let lost = |loads: &EndpointLoads| {
            let [before, after] = loads.both;
            let lost =
                if is_significant(before, after, self.both) { before.saturating_sub(after) } else { 0 };
            lost.max(loads.gone)
        };
        self.endpoints.values().map(lost).sum()
    }
}

/// Whether two counts of `whole` connections differ by more than two points, or by a tenth where the share is small, and by more than four standard deviations of independent
/// draws.
fn is_significant(before: u64, after: u64, whole: u64) -> bool {
    let whole = whole as f64;
    let difference = before.abs_diff(after) as f64 / whole;
    let share = (before + after) as f64 / (2.0 * whole);
    let deviation = (2.0 * share * (1.0 - share) / whole).sqrt();
    difference > (share * 0.1).min(0.02) && difference > 4.0 * deviation
}

impl RefusedLoad {
    fn add(&mut self, route: LoggedRoute, connection: &ReplayedConnection, load: Load) {
        self.load.add(load);
        self.frontend.get_or_insert(route.frontend);
        let client = connection.client.ip();
        if self.clients.len() < EXAMPLES && !self.clients.contains(&client) {
            self.clients.push(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_moves_nothing() {
        for (before, after, whole) in
            [(10, 14, 24), (0, 3, 100), (5_000, 5_190, 10_000), (500_000, 510_000, 1_000_000)]
        {
            assert!(!is_significant(before, after, whole), "{before} {after} {whole}");
        }
        for (before, after, whole) in [(5_000, 3_300, 10_000), (100, 50, 200), (500_000, 530_000, 1_000_000)]
        {
            assert!(is_significant(before, after, whole), "{before} {after} {whole}");
        }
    }
}
