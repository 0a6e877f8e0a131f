//! Requests to Karmada to collect the endpoints of MultiClusterServices: a ServiceExport for each, and the PropagationPolicy that
//! brings it to the clusters. Both are owned by the MultiClusterService, so that the API server's garbage collector removes them
//! with it even without a leader. Objects of others under these names are never touched.
//!
//! Each export is written once more when Karmada's own controller has a new leader (`collector`).
//!
//! These kinds are not watched: the status writer lists both at the start of a term and every few minutes, and in between assumes
//! them to be as it left them. So an undisturbed fleet costs two lists and no write.

mod collector;
mod desired;
mod diff;
mod object;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, Preconditions, Request};
use kube::core::DynamicObject;
use serde::Deserialize;

pub use self::collector::Outdated;
pub(super) use self::collector::{Collector, LeaseRead};
pub use self::desired::{DesiredExport, desired_export};
pub(super) use self::diff::ExportDiff;
pub use self::diff::ExportStep;
pub use self::object::{Export, ExportObject};
use super::api_writer::{API_TIMEOUT, ApiAnswer, ApiRequest, ApiWriter};
use crate::api::store::ServiceKey;

/// The existing objects of both kinds, whoever created them; or the kind whose list failed, and the answer.
pub(super) type ExportList = Result<Vec<(ExportObject, DynamicObject)>, (ExportObject, ApiAnswer)>;

#[derive(Deserialize)]
struct ObjectList {
    items: Vec<DynamicObject>,
}

/// Lists both kinds.
pub(super) async fn list(writer: &ApiWriter) -> ExportList {
    let mut all = Vec::new();
    for part in ExportObject::ALL {
        let path = Request::new(DynamicObject::url_path(&part.resource(), None));
        let answer = writer.send(path.list(&ListParams::default()), API_TIMEOUT).await;
        let list: ObjectList = answer.object().map_err(|answer| (part, answer))?;
        all.extend(list.items.into_iter().map(|object| (part, object)));
    }
    Ok(all)
}

/// Reads the Lease of Karmada's own controller, which collects the endpoints.
pub(super) async fn read_collector(writer: &ApiWriter) -> LeaseRead {
    let (namespace, name) = collector::LEASE;
    let path = Request::new(Lease::url_path(&(), Some(namespace)));
    match writer.send(path.get(name, &GetParams::default()), API_TIMEOUT).await {
        ApiAnswer::Gone => Ok(None),
        answer => answer.object().map(Some),
    }
}

/// The request for a step; `None` for steps that write nothing.
pub(super) fn request(step: &ExportStep, key: &ServiceKey, writer: &ApiWriter) -> Option<ApiRequest> {
    let (part, _) = step.write()?;
    let path = Request::new(DynamicObject::url_path(&part.resource(), Some(&key.namespace)));
    let (name, manager) = (part.name(key), writer.field_manager());
    Some(match step {
        ExportStep::Create(_, export) => {
            path.create(&writer.post_params(), part.body(key, export, manager).to_string().into_bytes())
        }
        ExportStep::Apply(_, export, uid) => {
            let mut body = part.body(key, export, manager);
            // The uid makes the apply fail if the object was deleted or created again in the meantime.
            body["metadata"]["uid"] = uid.as_str().into();
            // Force is needed because the created fields count as another manager's.
            path.patch(&name, &writer.patch_params(true), &Patch::Apply(body))
        }
        ExportStep::Delete(_, uid) => {
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            path.delete(&name, &DeleteParams::default().preconditions(preconditions))
        }
        ExportStep::Taken(_) | ExportStep::Wait | ExportStep::Nothing => return None,
    })
}
