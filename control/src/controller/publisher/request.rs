//! Sends one write and waits for its answer. It must not know what the answer leads to.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::{Client, Resource};

use super::answer::{Answer, read};
use super::desk::Job;
use super::subject::Target;
use crate::address_pool::API_VERSION;
use crate::controller::names::FIELD_MANAGER;
use crate::controller::publication::Step;

/// More than the connection allows for a silent server; this one ends answers that trickle.
const PATIENCE: Duration = Duration::from_secs(15);
const STATUS: &str = "status";

/// Carries out the write. If this is dropped half-way, the write may have been done or not.
pub(super) async fn send(client: &Client, job: &Job) -> Answer {
    match tokio::time::timeout(PATIENCE, exchange(client, job)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Answer::Unreachable { reason: error.to_string(), retry_after: None },
        Err(_) => {
            let reason = format!("no answer within {} s", PATIENCE.as_secs());
            Answer::Unreachable { reason, retry_after: None }
        }
    }
}

async fn exchange(client: &Client, job: &Job) -> Result<Answer, kube::Error> {
    let (path, name) = match &job.target {
        Target::Service(key) => (Service::url_path(&(), Some(&key.namespace)), &key.name),
        Target::Pool(name) => (format!("/apis/{API_VERSION}/addresspools"), name),
    };
    let path = kube::core::Request::new(path);
    let params = PatchParams { force: job.force, ..PatchParams::apply(FIELD_MANAGER) };
    let request = match &job.step {
        Step::ApplyStatus(body) | Step::ClearStatus(body) => {
            path.patch_subresource(STATUS, name, &params, &Patch::Apply(body))
        }
        Step::AddFinalizer(body) | Step::RemoveFinalizer(body) => {
            path.patch(name, &params, &Patch::Merge(body))
        }
        Step::RemoveConditions(body) => path.patch_subresource(STATUS, name, &params, &Patch::Merge(body)),
        Step::Nothing => return Ok(Answer::Refused("there is nothing to write".into())),
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    let response = client.send(request.map(Body::from)).await?;
    let code = response.status().as_u16();
    let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let retry_after = header.map(str::to_owned);
    let body = response.into_body().collect_bytes().await?;
    Ok(read(code, retry_after.as_deref(), body.to_vec()))
}
