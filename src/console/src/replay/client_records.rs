//! Clients of the replay: whether each one's connections went to one endpoint, and whether they still do.

use std::collections::HashMap;
use std::net::IpAddr;

use super::names::{EndpointId, FastMap, ServiceId};

/// Maximum number of clients: 100 MB.
const MOST_CLIENTS: usize = 1_000_000;
/// Number of clients that are named as examples.
const EXAMPLES: usize = 5;
/// Part of the returning clients that keep their endpoint in the log of a Service with affinity, in percent. The others come from
/// timeouts, and from endpoints that left.
const STICKY_PERCENT: u64 = 95;
/// Number of returning clients below which they say nothing about a Service.
const FEWEST_CLIENTS: u64 = 5;

/// Clients by Service port.
#[derive(Debug, Default)]
pub(super) struct ClientRecords {
    clients: FastMap<(ServiceId, IpAddr), ClientRecord>,
    /// Whether there were more clients than are counted.
    pub(super) full: bool,
}

/// A client of one Service port.
#[derive(Clone, Copy, Debug)]
struct ClientRecord {
    /// Endpoint of its first connection in the log.
    logged: EndpointId,
    returned: bool,
    /// Whether the log has another endpoint for it.
    changed: bool,
    /// Whether one of its connections goes to another endpoint than `logged` now.
    moved: bool,
}

/// Clients of one Service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientCountsOfService {
    pub(super) clients: u64,
    /// Clients with several connections.
    pub(super) returning: u64,
    /// Returning clients with one endpoint in the log.
    pub(super) kept: u64,
    pub(super) endpoints: EndpointsSeen,
    /// Clients with one endpoint in the log that now go to another one, and those of them that are returning.
    pub(super) lost: u64,
    pub(super) lost_returning: u64,
    /// The lowest addresses of those.
    pub(super) examples: Vec<IpAddr>,
}

/// Whether clients have one endpoint because there is only one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EndpointsSeen {
    #[default]
    None,
    One(EndpointId),
    Several,
}

impl ClientRecords {
    /// Notes a connection that went to `logged` and goes to `now`.
    pub(super) fn add(&mut self, service: ServiceId, client: IpAddr, logged: EndpointId, now: EndpointId) {
        let key = (service, client);
        if let Some(record) = self.clients.get_mut(&key) {
            record.returned = true;
            record.changed |= record.logged != logged;
            record.moved |= record.logged != now;
        } else if self.clients.len() < MOST_CLIENTS {
            let record = ClientRecord { logged, returned: false, changed: false, moved: logged != now };
            self.clients.insert(key, record);
        } else {
            self.full = true;
        }
    }

    /// Clients of each Service port.
    pub(super) fn by_service(&self) -> HashMap<ServiceId, ClientCountsOfService> {
        let mut services: HashMap<ServiceId, ClientCountsOfService> = HashMap::new();
        for ((service, client), record) in &self.clients {
            services.entry(*service).or_default().add(*client, *record);
        }
        services
    }
}

impl ClientCountsOfService {
    fn add(&mut self, client: IpAddr, record: ClientRecord) {
        let ClientRecord { logged, returned, changed, moved } = record;
        self.clients += 1;
        self.returning += u64::from(returned);
        self.kept += u64::from(returned && !changed);
        self.endpoints = match self.endpoints {
            EndpointsSeen::None if !changed => EndpointsSeen::One(logged),
            EndpointsSeen::One(one) if one == logged && !changed => EndpointsSeen::One(one),
            _ => EndpointsSeen::Several,
        };
        if !moved || changed {
            return;
        }
        self.lost += 1;
        self.lost_returning += u64::from(returned);
        let place = self.examples.binary_search(&client).unwrap_or_else(|place| place);
        if place < EXAMPLES {
            self.examples.insert(place, client);
            self.examples.truncate(EXAMPLES);
        }
    }

    /// Whether the log looks as if the Service had affinity: almost all returning clients keep one of several endpoints.
    pub(super) fn look_sticky(&self) -> bool {
        self.endpoints == EndpointsSeen::Several
            && self.returning >= FEWEST_CLIENTS
            && self.kept * 100 >= self.returning * STICKY_PERCENT
    }
}
