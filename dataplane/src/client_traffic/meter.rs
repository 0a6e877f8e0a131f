//! What one connection or flow has had since it was collected last.

use std::net::IpAddr;

use super::counts::ClientCounts;
use super::prefix::ClientPrefix;

/// Of one client. Its worker alone has it, so that bytes cost an addition.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(super) client: ClientPrefix,
    is_new: bool,
    client_bytes: u64,
    endpoint_bytes: u64,
}

impl Meter {
    /// One that begins now.
    pub(crate) fn new(client: IpAddr) -> Self {
        Self { client: ClientPrefix::of(client), is_new: true, client_bytes: 0, endpoint_bytes: 0 }
    }

    /// A trusted proxy has named the client.
    pub(crate) fn set_client(&mut self, client: IpAddr) {
        self.client = ClientPrefix::of(client);
    }

    /// So many bytes were passed on.
    pub(crate) fn add_bytes(&mut self, from_client: u64, from_endpoint: u64) {
        self.client_bytes += from_client;
        self.endpoint_bytes += from_endpoint;
    }

    /// What it has had since the last time.
    pub(super) fn take(&mut self) -> ClientCounts {
        ClientCounts {
            open: 0,
            opened: u64::from(std::mem::take(&mut self.is_new)),
            client_bytes: std::mem::take(&mut self.client_bytes),
            endpoint_bytes: std::mem::take(&mut self.endpoint_bytes),
        }
    }
}
