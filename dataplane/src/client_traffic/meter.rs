//! Meter of one connection or flow: its traffic since the last collection.

use std::net::IpAddr;

use super::counts::ClientCounts;
use super::prefix::ClientPrefix;

/// Traffic of one client's connection or flow. Only its worker writes it, so counting bytes costs one addition.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(super) client: ClientPrefix,
    is_new: bool,
    client_bytes: u64,
    endpoint_bytes: u64,
}

impl Meter {
    /// Creates the meter of a new connection or flow.
    pub(crate) fn new(client: IpAddr) -> Self {
        Self { client: ClientPrefix::of(client), is_new: true, client_bytes: 0, endpoint_bytes: 0 }
    }

    /// Sets the client that a trusted proxy has named.
    pub(crate) fn set_client(&mut self, client: IpAddr) {
        self.client = ClientPrefix::of(client);
    }

    /// Adds forwarded bytes.
    pub(crate) fn add_bytes(&mut self, from_client: u64, from_endpoint: u64) {
        self.client_bytes += from_client;
        self.endpoint_bytes += from_endpoint;
    }

    /// Takes the traffic since the last call.
    pub(super) fn take(&mut self) -> ClientCounts {
        ClientCounts {
            open: 0,
            opened: u64::from(std::mem::take(&mut self.is_new)),
            client_bytes: std::mem::take(&mut self.client_bytes),
            endpoint_bytes: std::mem::take(&mut self.endpoint_bytes),
        }
    }
}
