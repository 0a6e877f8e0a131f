//! Sends one write and waits for its answer. It must not know what the answer leads to.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::Resource;
use kube::api::{GetParams, Patch, PatchParams};
use kube::client::Body;
use sheave_model::FrontendSource;

use crate::api::address_pool::API_VERSION;
use crate::api::karmada::MultiClusterService;
use crate::controller::api_writer::answer::{Answer, read};
use crate::controller::ownership::Ownership;
use crate::controller::status_writer::next_step::Step;
use crate::controller::status_writer::queue::WriteJob;
use crate::controller::status_writer::target::WriteTarget;
use crate::sources::connection::Connection;

/// More than the connection allows for a silent server; this one ends answers that trickle.
const PATIENCE: Duration = Duration::from_secs(15);
const STATUS: &str = "status";

/// As whom to write, and where.
#[derive(Clone)]
pub(super) struct Sender {
    connection: Connection,
    field_manager: Arc<str>,
}

impl Sender {
    pub(super) fn new(connection: &Connection, options: &Ownership) -> Self {
        Self { connection: connection.clone(), field_manager: options.field_manager().into() }
    }

    /// Carries out the write, in `longest` at most. If this is dropped half-way, the write may have been done or not.
    pub(super) async fn send(&self, job: &WriteJob, longest: Duration) -> Answer {
        let patience = PATIENCE.min(longest);
        match tokio::time::timeout(patience, self.exchange(job)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer::Unreachable { reason: error.to_string(), retry_after: None },
            Err(_) => {
                let reason = format!("no answer within {:.1} s", patience.as_secs_f64());
                Answer::Unreachable { reason, retry_after: None }
            }
        }
    }

    async fn exchange(&self, job: &WriteJob) -> Result<Answer, kube::Error> {
        let request = request(job, &self.field_manager)?;
        let response = self.connection.writer().send(request.map(Body::from)).await?;
        let code = response.status().as_u16();
        let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header.map(str::to_owned);
        let body = response.into_body().collect_bytes().await?;
        if code == 401 {
            self.connection.reopen().await;
        }
        Ok(read(code, retry_after.as_deref(), body.to_vec(), &self.field_manager))
    }
}

fn request(job: &WriteJob, field_manager: &str) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let (path, name) = match &job.target {
        WriteTarget::Service(key) => {
            let namespace = Some(key.namespace.as_ref());
            let path = match key.source {
                FrontendSource::Service => Service::url_path(&(), namespace),
                FrontendSource::MultiClusterService => MultiClusterService::url_path(&(), namespace),
            };
            (path, &key.name)
        }
        WriteTarget::Pool(name) => (format!("/apis/{API_VERSION}/addresspools"), name),
    };
    let path = kube::core::Request::new(path);
    let params = PatchParams { force: job.force, ..PatchParams::apply(field_manager) };
    let request = match &job.step {
        Step::ApplyStatus(body) | Step::ClearStatus(body) => {
            path.patch_subresource(STATUS, name, &params, &Patch::Apply(body))
        }
        Step::AddFinalizer(body) | Step::RemoveFinalizer(body) => {
            path.patch(name, &params, &Patch::Merge(body))
        }
        Step::RemoveRest(body) => path.patch_subresource(STATUS, name, &params, &Patch::Merge(body)),
        // Never sent; were it, it would change nothing.
        Step::Nothing => path.get(name, &GetParams::default()),
    };
    request.map_err(kube::Error::BuildRequest)
}
