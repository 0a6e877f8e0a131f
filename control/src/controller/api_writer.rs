//! The single path for all writes of the controller: sends a request, limited to the time in which writing is allowed, and
//! classifies the answer. Reads that a write depends on take it as well.

mod answer;

use std::sync::Arc;
use std::time::Duration;

use kube::api::{PatchParams, PostParams};
use kube::client::Body;
use kube::core::request;
use tokio::time::timeout;

pub(super) use self::answer::{ApiAnswer, Conflict};
use crate::sources::connection::Connection;

/// Timeout of a request. It exceeds the connection's limit for a silent server, and ends answers that trickle.
pub(super) const API_TIMEOUT: Duration = Duration::from_secs(15);

/// A request as [`kube::core::Request`] builds it.
pub(super) type ApiRequest = Result<http::Request<Vec<u8>>, request::Error>;

/// Sends requests with one field manager. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ApiWriter {
    connection: Connection,
    field_manager: Arc<str>,
}

impl ApiWriter {
    pub(super) fn new(connection: &Connection, field_manager: &str) -> Self {
        Self { connection: connection.clone(), field_manager: field_manager.into() }
    }

    pub(super) fn field_manager(&self) -> &str {
        &self.field_manager
    }

    /// Parameters of a request that creates or replaces an object.
    pub(super) fn post_params(&self) -> PostParams {
        PostParams { field_manager: Some(self.field_manager.to_string()), ..PostParams::default() }
    }

    /// Parameters of a patch; `force` takes fields from other managers.
    pub(super) fn patch_params(&self, force: bool) -> PatchParams {
        PatchParams { force, ..PatchParams::apply(&self.field_manager) }
    }

    /// Sends the request and waits up to `longest` for the answer; with no time left it sends nothing. If the future is dropped,
    /// the write may or may not have happened.
    pub(super) async fn send(&self, request: ApiRequest, longest: Duration) -> ApiAnswer {
        let patience = API_TIMEOUT.min(longest);
        if patience.is_zero() {
            return ApiAnswer::Unreachable { reason: "no time is left to write".to_owned() };
        }
        match timeout(patience, self.exchange(request)).await {
            Ok(Ok((code, answer))) => {
                if code == 401 {
                    self.connection.reopen().await;
                }
                answer
            }
            Ok(Err(error)) => {
                // The server may have moved, in which case the kubeconfig file has changed.
                self.connection.reopen_if_changed().await;
                ApiAnswer::Unreachable { reason: error.to_string() }
            }
            Err(_) => {
                let reason = format!("no answer within {:.1} s", patience.as_secs_f64());
                ApiAnswer::Unreachable { reason }
            }
        }
    }

    async fn exchange(&self, request: ApiRequest) -> Result<(u16, ApiAnswer), kube::Error> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let response = self.connection.writer().send(request.map(Body::from)).await?;
        let code = response.status().as_u16();
        let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header.map(str::to_owned);
        let body = response.into_body().collect_bytes().await?;
        Ok((code, ApiAnswer::read(code, retry_after.as_deref(), body.to_vec(), &self.field_manager)))
    }
}
