//! Reads and writes of the Lease that candidates compete for.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use kube::api::{GetParams, Request};

use crate::api::names::FIELD_MANAGER;
use crate::api::store::ServiceKey;
use crate::controller::api_writer::{API_TIMEOUT, ApiAnswer, ApiRequest, ApiWriter};
use crate::sources::connection::Connection;

/// Outcome of a write.
#[derive(Debug)]
#[must_use]
pub(super) enum LeaseWrite {
    /// The write succeeded. Holds the Lease in the answer.
    Yes(Box<Lease>),
    /// The write failed, and will have no effect: another process was faster (409), or the Lease is gone (404).
    Refused,
    /// The outcome is unknown: it may still take effect later.
    Unknown(String),
}

/// Storage of the Lease. Calls are not retried. Each may be dropped, and its outcome is then unknown.
pub(super) trait LeaseLock: Send + Sync + 'static {
    /// The Lease, if there is one.
    fn get(&self) -> impl Future<Output = Result<Option<Lease>, String>> + Send;
    /// Creates the Lease; refused if it exists.
    fn create(&self, lease: &Lease) -> impl Future<Output = LeaseWrite> + Send;
    /// Replaces the version of the Lease that it names; refused if that is not the current one.
    fn replace(&self, lease: &Lease) -> impl Future<Output = LeaseWrite> + Send;
}

/// The Lease of an API server.
pub(in crate::controller) struct ApiLeaseLock {
    writer: ApiWriter,
    lease: ServiceKey,
}

impl ApiLeaseLock {
    pub(in crate::controller) fn new(connection: &Connection, lease: &ServiceKey) -> Self {
        Self { writer: ApiWriter::new(connection, FIELD_MANAGER), lease: lease.clone() }
    }

    /// The Lease, if it exists, or the server's answer on failure.
    pub(in crate::controller) async fn read(&self) -> Result<Option<Lease>, ApiAnswer> {
        let request = self.path().get(&self.lease.name, &GetParams::default());
        match self.writer.send(request, API_TIMEOUT).await {
            ApiAnswer::Gone => Ok(None),
            answer => answer.object().map(Some),
        }
    }

    fn path(&self) -> Request {
        Request::new(Lease::url_path(&(), Some(&self.lease.namespace)))
    }

    async fn write(&self, request: impl FnOnce(Vec<u8>) -> ApiRequest, lease: &Lease) -> LeaseWrite {
        let body = match serde_json::to_vec(lease) {
            Ok(body) => body,
            Err(error) => return LeaseWrite::Unknown(error.to_string()),
        };
        match self.writer.send(request(body), API_TIMEOUT).await.object() {
            Ok(lease) => LeaseWrite::Yes(Box::new(lease)),
            Err(ApiAnswer::Exists | ApiAnswer::Stale | ApiAnswer::Gone) => LeaseWrite::Refused,
            Err(answer) => LeaseWrite::Unknown(answer.to_string()),
        }
    }
}

impl LeaseLock for ApiLeaseLock {
    async fn get(&self) -> Result<Option<Lease>, String> {
        self.read().await.map_err(|answer| answer.to_string())
    }

    async fn create(&self, lease: &Lease) -> LeaseWrite {
        self.write(|body| self.path().create(&self.writer.post_params(), body), lease).await
    }

    async fn replace(&self, lease: &Lease) -> LeaseWrite {
        let params = self.writer.post_params();
        self.write(|body| self.path().replace(&self.lease.name, &params, body), lease).await
    }
}
