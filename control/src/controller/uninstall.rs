//! Removal of Sheave's marks from the Services of an API server and the MultiClusterServices of a Karmada control plane, so that
//! uninstalling leaves no object stuck.

mod gateway_api;
mod leftover;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{GetParams, ListParams, Patch, Request};
use serde::Deserialize;
use serde_json::Value;
use sheave_model::FrontendSource;
use thiserror::Error;
use tokio::time::{Instant, sleep};

pub use gateway_api::{GatewayApiLeftover, GatewayApiMarks, GatewayApiUninstall};
pub use leftover::Leftover;

use super::api_writer::{API_TIMEOUT, ApiAnswer, ApiWriter};
use super::election::ApiLeaseLock;
use super::ownership::Ownership;
use super::service_object::ServiceObject;
use crate::api::store::ServiceKey;
use crate::backoff::Backoff;
use crate::sources::connection::Connection;

/// How long to watch the Lease: a live leader renews every 2 s.
const LISTEN: Duration = Duration::from_secs(5);
/// Interval between reads of the Lease.
const LOOK: Duration = Duration::from_millis(500);
/// Page size of lists, as in kubectl.
const PAGE: u32 = 500;
/// How often one Service is attempted if others write to it in between.
const TRIES: u32 = 5;
/// Largest pause after the first attempt. It doubles with each further one.
const PAUSE: Duration = Duration::from_millis(150);

/// Reason for a failed step.
#[derive(Debug, Error)]
pub enum UninstallError {
    /// The API server did not answer.
    #[error("the API server does not answer: {0}")]
    Unavailable(String),
    /// The API server rejected the request.
    #[error("the API server refuses: {0}")]
    Refused(String),
}

impl From<ApiAnswer> for UninstallError {
    fn from(answer: ApiAnswer) -> Self {
        match answer {
            ApiAnswer::Unreachable { .. } => Self::Unavailable(answer.to_string()),
            answer => Self::Refused(answer.to_string()),
        }
    }
}

/// Removes marks from the objects of one kind.
pub struct Uninstall {
    writer: ApiWriter,
    source: FrontendSource,
    /// Marks to remove.
    names: Ownership,
}

/// The holder of the Lease if it is alive, that is if it renews the Lease while this watches, for a few seconds.
///
/// # Errors
/// If the Lease cannot be read.
pub async fn leader(connection: &Connection, lease: &ServiceKey) -> Result<Option<String>, UninstallError> {
    let lock = ApiLeaseLock::new(connection, lease);
    let look = async || lock.read().await.map(|it| it.and_then(|it| it.spec));
    let Some(first) = look().await?.filter(|it| holder(it).is_some()) else { return Ok(None) };
    let end = Instant::now() + LISTEN;
    while Instant::now() < end {
        sleep(LOOK).await;
        match look().await? {
            Some(now) if now == first => {}
            Some(now) => return Ok(holder(&now)),
            None => return Ok(None),
        }
    }
    Ok(None)
}

fn holder(spec: &LeaseSpec) -> Option<String> {
    spec.holder_identity.clone().filter(|it| !it.is_empty())
}

impl Uninstall {
    /// Removes marks of the controller with these `names`; with the shared finalizer, that one is removed together with ours.
    /// Marks of other installations stay.
    pub fn new(connection: &Connection, names: Ownership) -> Self {
        Self::of(connection, FrontendSource::Service, names)
    }

    /// Like [`Self::new`] for MultiClusterServices; `connection` is to the Karmada control plane.
    pub fn of_fleet(connection: &Connection, names: Ownership) -> Self {
        Self::of(connection, FrontendSource::MultiClusterService, names)
    }

    fn of(connection: &Connection, source: FrontendSource, names: Ownership) -> Self {
        Self { writer: ApiWriter::new(connection, names.field_manager()), source, names }
    }

    /// All objects with marks of ours, in the API server's order.
    ///
    /// # Errors
    /// If a page cannot be listed, or an object on it cannot be decoded.
    pub async fn find(&self) -> Result<Vec<Leftover>, UninstallError> {
        let optional = self.source == FrontendSource::MultiClusterService;
        let mut found = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page: ObjectPage = match self.writer.send(self.path(None).list(&params), API_TIMEOUT).await {
                // Karmada, or a version of it with this kind, was never installed.
                ApiAnswer::Undefined(_) | ApiAnswer::Gone if optional => return Ok(found),
                answer => answer.object()?,
            };
            for item in page.items {
                let object = ServiceObject::from_json(self.source, item)
                    .map_err(|error| ApiAnswer::Failed(error.to_string()))?;
                found.extend(Leftover::of(&object, &self.names));
            }
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(found),
            }
        }
    }

    fn path(&self, namespace: Option<&str>) -> Request {
        Request::new(ServiceObject::url_path(self.source, namespace))
    }

    /// Removes `found` from its object, or the current marks if the object has changed. An object that is gone counts as clean.
    ///
    /// # Errors
    /// If all attempts failed. Some of the marks may have been removed.
    pub async fn clean(&self, found: &Leftover) -> Result<(), UninstallError> {
        let mut left = Some(found.clone());
        let mut backoff = Backoff::new(PAUSE, PAUSE * (1 << TRIES));
        for _ in 1..TRIES {
            match self.remove(left.as_ref()).await {
                Ok(()) => return Ok(()),
                // Another writer was faster (409, 422), or the server is busy (429, 500): the next attempt may succeed.
                Err(answer) => tracing::debug!(service = %found.service, %answer, "tried again"),
            }
            sleep(backoff.pause(None)).await;
            let path = self.path(Some(&found.service.namespace));
            left = match self
                .writer
                .send(path.get(&found.service.name, &GetParams::default()), API_TIMEOUT)
                .await
            {
                ApiAnswer::Gone => None,
                answer => self.leftover(answer)?,
            };
        }
        Ok(self.remove(left.as_ref()).await?)
    }

    /// Marks of ours on the object in the answer.
    fn leftover(&self, answer: ApiAnswer) -> Result<Option<Leftover>, ApiAnswer> {
        let object = ServiceObject::from_json(self.source, answer.object()?)
            .map_err(|error| ApiAnswer::Failed(error.to_string()))?;
        Ok(Leftover::of(&object, &self.names))
    }

    /// Removes the marks. The finalizer goes last: until then the Service cannot disappear while our address is still in use.
    async fn remove(&self, left: Option<&Leftover>) -> Result<(), ApiAnswer> {
        let Some(left) = left else { return Ok(()) };
        let (path, name) = (self.path(Some(&left.service.namespace)), &left.service.name);
        let params = self.writer.patch_params(false);
        let rest = if left.status {
            let empty = Patch::Apply(left.empty_status());
            self.leftover(
                self.writer.send(path.patch_subresource("status", name, &params, &empty), API_TIMEOUT).await,
            )?
        } else {
            Some(left.clone())
        };
        if let Some(patch) = rest.as_ref().and_then(Leftover::without_finalizers) {
            let patch: Patch<()> = serde_json::from_value(patch)
                .map(Patch::Json)
                .map_err(|error| ApiAnswer::Failed(error.to_string()))?;
            let answer = self.writer.send(path.patch(name, &params, &patch), API_TIMEOUT).await;
            answer.object::<Value>()?;
        }
        Ok(())
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct ObjectPage {
    metadata: ListMeta,
    items: Vec<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_is_called_no_answer() {
        let text = |answer: ApiAnswer| UninstallError::from(answer).to_string();
        let reason = || "timed out".to_owned();
        assert_eq!(
            text(ApiAnswer::Unreachable { reason: reason() }),
            "the API server does not answer: timed out"
        );
        let expired = ApiAnswer::Unauthenticated("Unauthorized".to_owned());
        assert_eq!(text(expired), "the API server refuses: Unauthorized");
        let busy = ApiAnswer::Busy { reason: reason(), retry_after: None };
        assert_eq!(text(busy), "the API server refuses: timed out");
    }
}
