//! Sends one request about exports, and reads what came of it. It must not know what it is good for.

use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};

use crate::api::store::ServiceKey;
use crate::controller::election::Leadership;
use crate::controller::karmada_export::diff::Step;
use crate::controller::karmada_export::object::ExportObject;
use crate::sources::connection::Connection;

/// More than the connection allows for a silent server; this one ends answers that trickle.
const PATIENCE: Duration = Duration::from_secs(15);

/// What became of a request.
#[derive(Debug)]
#[must_use]
pub(super) enum Answer {
    /// It is done; the object as it is now, if it is to be there.
    Written(Option<Box<DynamicObject>>),
    /// What is there is not what was thought to be there.
    Stale,
    /// Our account may not.
    Forbidden(String),
    /// The server understood, and does not want it.
    Refused(String),
    /// The server is of no use right now; it may have done the write.
    Lost(String),
}

/// In whose name is written, and for how long.
pub(super) struct Sender {
    connection: Connection,
    manager: String,
    leadership: Leadership,
}

impl Sender {
    pub(super) fn new(connection: &Connection, manager: &str, leadership: Leadership) -> Self {
        Self { connection: connection.clone(), manager: manager.to_owned(), leadership }
    }

    pub(super) fn manager(&self) -> &str {
        &self.manager
    }

    /// All that is there of both kinds, whoever made it.
    pub(super) async fn list(&self) -> Result<Vec<(ExportObject, DynamicObject)>, (ExportObject, Answer)> {
        let mut all = Vec::new();
        for part in ExportObject::ALL {
            let api = Api::<DynamicObject>::all_with(self.connection.writer(), &part.resource());
            let params = ListParams::default();
            let list = match tokio::time::timeout(PATIENCE, api.list(&params)).await {
                Ok(Ok(list)) => list,
                Ok(Err(error)) => return Err((part, self.read(error).await)),
                Err(_) => return Err((part, Answer::Lost("no answer".to_owned()))),
            };
            all.extend(list.items.into_iter().map(|object| (part, object)));
        }
        Ok(all)
    }

    /// Carries out a step, while this process leads.
    pub(super) async fn send(&self, key: &ServiceKey, step: &Step) -> Answer {
        let Some(rest) = self.leadership.rest() else {
            return Answer::Lost("another controller leads".to_owned());
        };
        match tokio::time::timeout(PATIENCE.min(rest), self.exchange(key, step)).await {
            Ok(Ok(object)) => Answer::Written(object),
            Ok(Err(error)) => self.read(error).await,
            Err(_) => Answer::Lost("no answer".to_owned()),
        }
    }

    async fn exchange(
        &self,
        key: &ServiceKey,
        step: &Step,
    ) -> Result<Option<Box<DynamicObject>>, kube::Error> {
        let api = |part: ExportObject| {
            Api::<DynamicObject>::namespaced_with(self.connection.writer(), &key.namespace, &part.resource())
        };
        let written = match step {
            Step::Create(part, export) => {
                let body = serde_json::from_value(part.body(key, export, &self.manager));
                let params =
                    PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() };
                api(*part).create(&params, &body.map_err(kube::Error::SerdeError)?).await?
            }
            Step::Apply(part, export, uid) => {
                let mut body = part.body(key, export, &self.manager);
                // One that was deleted meanwhile, or made again by somebody else, is not touched.
                body["metadata"]["uid"] = uid.as_str().into();
                // With force, for what was created counts as another manager's.
                let params = PatchParams::apply(&self.manager).force();
                api(*part).patch(&part.name(key), &params, &Patch::Apply(body)).await?
            }
            Step::Delete(part, uid) => {
                let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
                let params = DeleteParams::default().preconditions(preconditions);
                return match api(*part).delete(&part.name(key), &params).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                    other => other.map(|_| None),
                };
            }
            Step::Taken(_) | Step::Wait | Step::Nothing => return Ok(None),
        };
        Ok(Some(Box::new(written)))
    }

    async fn read(&self, error: kube::Error) -> Answer {
        self.connection.heed(&error).await;
        match error {
            kube::Error::Api(status) => match status.code {
                403 => Answer::Forbidden(status.message.clone()),
                // Another object, none, or no such kind any more: a list tells.
                404 | 409 => Answer::Stale,
                401 | 408 | 429 | 500..=599 => Answer::Lost(status.message.clone()),
                _ => Answer::Refused(status.message.clone()),
            },
            other => Answer::Lost(other.to_string()),
        }
    }
}
