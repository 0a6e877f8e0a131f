//! Reads and writes the Lease. It must not know what for.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;

use crate::api::names::FIELD_MANAGER;
use crate::api::store::ServiceKey;
use crate::sources::connection::Connection;

/// What became of a write.
#[derive(Debug)]
#[must_use]
pub(super) enum LeaseWrite {
    /// It is in place, as the server answered.
    Yes(Box<Lease>),
    /// It is not, and never will be: someone else was faster (409), or the Lease is gone (404).
    Refused,
    /// Nobody knows: it may come into effect later.
    Unknown(String),
}

/// Where the Lease is kept. Nothing is retried, and every call may be dropped: what it did is unknown then.
pub(super) trait LeaseLock: Send + Sync + 'static {
    /// The Lease, if there is one.
    fn get(&self) -> impl Future<Output = Result<Option<Lease>, String>> + Send;
    /// Makes it; refused if there is one.
    fn create(&self, lease: &Lease) -> impl Future<Output = LeaseWrite> + Send;
    /// Puts it in the place of the version that it names; refused if that is not the present one.
    fn replace(&self, lease: &Lease) -> impl Future<Output = LeaseWrite> + Send;
}

/// The Lease of an API server.
pub(super) struct ApiLeaseLock {
    connection: Connection,
    lease: ServiceKey,
}

impl ApiLeaseLock {
    pub(super) fn new(connection: &Connection, lease: &ServiceKey) -> Self {
        Self { connection: connection.clone(), lease: lease.clone() }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.connection.writer(), &self.lease.namespace)
    }

    /// The answer, after what it says about the credentials was heeded.
    async fn heed<T>(&self, answer: kube::Result<T>) -> kube::Result<T> {
        if let Err(error) = &answer {
            self.connection.heed(error).await;
        }
        answer
    }
}

impl LeaseLock for ApiLeaseLock {
    async fn get(&self) -> Result<Option<Lease>, String> {
        self.heed(self.api().get_opt(&self.lease.name).await).await.map_err(|error| text(&error))
    }

    async fn create(&self, lease: &Lease) -> LeaseWrite {
        written(self.heed(self.api().create(&params(), lease).await).await, &[409])
    }

    async fn replace(&self, lease: &Lease) -> LeaseWrite {
        let answer = self.api().replace(&self.lease.name, &params(), lease).await;
        written(self.heed(answer).await, &[404, 409])
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

fn written(answer: kube::Result<Lease>, refusals: &[u16]) -> LeaseWrite {
    match answer {
        Ok(lease) => LeaseWrite::Yes(Box::new(lease)),
        Err(kube::Error::Api(status)) if refusals.contains(&status.code) => LeaseWrite::Refused,
        Err(error) => LeaseWrite::Unknown(text(&error)),
    }
}

/// An API server's own words, without how they look in Rust.
fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        error => error.to_string(),
    }
}
