//! HTTP requests of the writes.

use kube::api::{GetParams, Patch, Request};

use super::next_step::WriteStep;
use super::queue::WriteJob;
use super::target::WriteTarget;
use crate::api::address_pool::API_VERSION;
use crate::controller::api_writer::{ApiRequest, ApiWriter};
use crate::controller::service_exports;
use crate::controller::service_object::ServiceObject;

const STATUS: &str = "status";

pub(super) fn request(job: &WriteJob, writer: &ApiWriter) -> ApiRequest {
    let (path, name) = match &job.target {
        WriteTarget::Service(key) | WriteTarget::Export(key) => {
            (ServiceObject::url_path(key.source, Some(&key.namespace)), &key.name)
        }
        WriteTarget::Pool(name) => (format!("/apis/{API_VERSION}/addresspools"), name),
        WriteTarget::GatewayApi(key) => key.url_path(),
    };
    let path = Request::new(path);
    let params = writer.patch_params(job.force);
    // Never sent. If it were, it would change nothing.
    let nothing = || path.get(name, &GetParams::default());
    match &job.step {
        WriteStep::ApplyStatus(body) | WriteStep::ClearStatus(body) => {
            path.patch_subresource(STATUS, name, &params, &Patch::Apply(body))
        }
        WriteStep::AddFinalizer(body) | WriteStep::RemoveFinalizer(body) => {
            path.patch(name, &params, &Patch::Merge(body))
        }
        WriteStep::RemoveRest(body) | WriteStep::PatchParents { body, .. } => {
            path.patch_subresource(STATUS, name, &params, &Patch::Merge(body))
        }
        WriteStep::Export(step) => match &job.target {
            WriteTarget::Export(key) => service_exports::request(step, key, writer).unwrap_or_else(nothing),
            WriteTarget::Service(_) | WriteTarget::Pool(_) | WriteTarget::GatewayApi(_) => nothing(),
        },
        WriteStep::Nothing => nothing(),
    }
}
