//! Removal of Sheave's marks from the Services of an API server and the MultiClusterServices of a Karmada control plane, so that
//! uninstalling leaves no object stuck.

mod gateway_api;
mod leftover;

use std::fmt;
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
/// How often one object is attempted if others write to it in between. A GatewayClass takes two writes.
const TRIES: u32 = 6;
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
        // Karmada, or a version of it with this kind, may never have been installed.
        let optional = self.source == FrontendSource::MultiClusterService;
        let mut found = Vec::new();
        for item in list(&self.writer, &self.path(None), optional).await? {
            found.extend(self.leftover(item)?);
        }
        Ok(found)
    }

    fn path(&self, namespace: Option<&str>) -> Request {
        Request::new(ServiceObject::url_path(self.source, namespace))
    }

    /// Removes `found` from its object, or the current marks if the object has changed. An object that is gone counts as clean.
    ///
    /// # Errors
    /// If all attempts failed. Some of the marks may have been removed.
    pub async fn clean(&self, found: &Leftover) -> Result<(), UninstallError> {
        let (path, name) = (self.path(Some(&found.service.namespace)), &found.service.name);
        let leftover = |object| self.leftover(object);
        until_clean(&self.writer, (&path, name), found.clone(), leftover, async |left: &Leftover| {
            self.remove(&path, left).await.map(|()| None)
        })
        .await
    }

    /// Marks of ours on the object.
    fn leftover(&self, object: Value) -> Result<Option<Leftover>, ApiAnswer> {
        let object = ServiceObject::from_json(self.source, object)
            .map_err(|error| ApiAnswer::Failed(error.to_string()))?;
        Ok(Leftover::of(&object, &self.names))
    }

    /// Removes the marks. The finalizer goes last: until then the Service cannot disappear while our address is still in use.
    async fn remove(&self, path: &Request, left: &Leftover) -> Result<(), ApiAnswer> {
        let name = &left.service.name;
        let params = self.writer.patch_params(false);
        let rest = if left.status {
            let empty = Patch::Apply(left.empty_status());
            let request = path.patch_subresource("status", name, &params, &empty);
            self.leftover(self.writer.send(request, API_TIMEOUT).await.object()?)?
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

/// All objects of a kind. One that the API server does not have has none if it is `optional`.
async fn list(writer: &ApiWriter, path: &Request, optional: bool) -> Result<Vec<Value>, UninstallError> {
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page: ObjectPage = match writer.send(path.list(&params), API_TIMEOUT).await {
            ApiAnswer::Undefined(_) | ApiAnswer::Gone if optional => return Ok(all),
            answer => answer.object()?,
        };
        all.extend(page.items);
        match page.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(all),
        }
    }
}

/// Has `remove` take what was found from an object, and what it says is left then. If that fails, for example because another writer
/// was faster, what the object has now is removed. An object that is gone is clean.
async fn until_clean<L: fmt::Display>(
    writer: &ApiWriter,
    (path, name): (&Request, &str),
    found: L,
    leftover: impl Fn(Value) -> Result<Option<L>, ApiAnswer>,
    remove: impl AsyncFn(&L) -> Result<Option<L>, ApiAnswer>,
) -> Result<(), UninstallError> {
    let mut left = found;
    let mut backoff = Backoff::new(PAUSE, PAUSE * (1 << TRIES));
    for attempt in 1..=TRIES {
        let rest = match remove(&left).await {
            Ok(rest) => rest,
            Err(answer) if attempt == TRIES => return Err(answer.into()),
            // 409, 422, or a busy server (429, 500).
            Err(answer) => {
                tracing::debug!(object = %left, %answer, "tried again");
                sleep(backoff.pause(None)).await;
                match writer.send(path.get(name, &GetParams::default()), API_TIMEOUT).await {
                    ApiAnswer::Gone => None,
                    answer => leftover(answer.object()?)?,
                }
            }
        };
        let Some(rest) = rest else { return Ok(()) };
        left = rest;
    }
    Err(UninstallError::Refused("another client restores the status".to_owned()))
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
