//! Takes back what Sheave left in an API server's Services, and in the MultiClusterServices of a Karmada control plane, so
//! that it can go without leaving anything stuck. It must not
//! know how this is shown.

mod leftover;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sheave_model::FrontendSource;
use thiserror::Error;
use tokio::time::{Instant, sleep};

pub use leftover::Leftover;

use crate::api::karmada::MultiClusterService;
use crate::api::store::ServiceKey;
use crate::controller::ownership::Ownership;
use crate::controller::service_object::ServiceObject;
use crate::sources::connection::Connection;

/// A leader renews every 2 s: one that does nothing for so long is dead or has trouble that it will see through.
const LISTEN: Duration = Duration::from_secs(5);
/// How often the Lease is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(500);
/// As kubectl's chunks.
const PAGE: u32 = 500;
/// How often one Service is tried if others write to it in between.
const TRIES: u32 = 5;
/// The pause after the first try; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// Why something was not done.
#[derive(Debug, Error)]
pub enum UninstallError {
    /// The API server did not answer.
    #[error("the API server does not answer: {0}")]
    Unavailable(String),
    /// It did, but does not do it.
    #[error("the API server refuses: {0}")]
    Refused(String),
}

impl From<kube::Error> for UninstallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused(status.message.clone()),
            error => Self::Unavailable(error.to_string()),
        }
    }
}

/// Takes back what is ours on the objects of one kind.
pub struct Uninstall {
    api: Connection,
    source: FrontendSource,
    /// By which names they are ours.
    names: Ownership,
}

/// The holder of the Lease if it is alive: it renews while we look, which takes some seconds.
///
/// # Errors
/// If the Lease cannot be read.
pub async fn leader(connection: &Connection, lease: &ServiceKey) -> Result<Option<String>, UninstallError> {
    let api: Api<Lease> = Api::namespaced(connection.writer(), &lease.namespace);
    let look = async || api.get_opt(&lease.name).await.map(|it| it.and_then(|it| it.spec));
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
    /// `names` are those that the controller had; with the shared finalizer, that one goes with ours. What other
    /// installations left stays.
    pub fn new(connection: &Connection, names: Ownership) -> Self {
        Self { api: connection.clone(), source: FrontendSource::Service, names }
    }

    /// The same for MultiClusterServices; `connection` is to the Karmada control plane.
    pub fn of_fleet(connection: &Connection, names: Ownership) -> Self {
        Self { api: connection.clone(), source: FrontendSource::MultiClusterService, names }
    }

    /// All objects that have something of ours, in the API server's order.
    ///
    /// # Errors
    /// If they cannot be listed to the end.
    pub async fn find(&self) -> Result<Vec<Leftover>, UninstallError> {
        match self.source {
            FrontendSource::Service => self.find_all::<Service>().await,
            FrontendSource::MultiClusterService => self.find_all::<MultiClusterService>().await,
        }
    }

    async fn find_all<T: Kind>(&self) -> Result<Vec<Leftover>, UninstallError> {
        let api: Api<T> = Api::all(self.api.writer());
        let optional = self.source == FrontendSource::MultiClusterService;
        let mut found = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match api.list(&params).await {
                // Karmada, or a version of it that has the kind, was never there.
                Err(kube::Error::Api(status)) if status.code == 404 && optional => return Ok(found),
                page => page?,
            };
            found.extend(page.items.into_iter().filter_map(|it| Leftover::of(&it.exposed(), &self.names)));
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Takes what was found away, and what is there instead if the object has changed. One that is gone is clean.
    ///
    /// # Errors
    /// If it could not be done in some tries. Part of it may have been done.
    pub async fn clean(&self, found: &Leftover) -> Result<(), UninstallError> {
        match self.source {
            FrontendSource::Service => self.clean_one::<Service>(found).await,
            FrontendSource::MultiClusterService => self.clean_one::<MultiClusterService>(found).await,
        }
    }

    async fn clean_one<T: Kind>(&self, found: &Leftover) -> Result<(), UninstallError> {
        let api: Api<T> = Api::namespaced(self.api.writer(), &found.service.namespace);
        let mut left = Some(found.clone());
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match take(&api, left.as_ref(), &self.names).await {
                Ok(()) => return Ok(()),
                // Beaten by another writer (409, 422), or too busy (429, 500): as things are now, it may work.
                Err(error) => tracing::debug!(service = %found.service, %error, "tried again"),
            }
            sleep(pause).await;
            pause *= 2;
            let now = api.get_opt(&found.service.name).await?;
            left = now.and_then(|it| Leftover::of(&it.exposed(), &self.names));
        }
        Ok(take(&api, left.as_ref(), &self.names).await?)
    }
}

/// The kinds that have something of ours.
trait Kind:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
    fn exposed(self) -> ServiceObject;
}

impl Kind for Service {
    fn exposed(self) -> ServiceObject {
        ServiceObject::Service(Arc::new(self))
    }
}

impl Kind for MultiClusterService {
    fn exposed(self) -> ServiceObject {
        ServiceObject::MultiClusterService(Arc::new(self))
    }
}

async fn take<T: Kind>(api: &Api<T>, left: Option<&Leftover>, names: &Ownership) -> Result<(), kube::Error> {
    let manager = names.field_manager();
    let Some(left) = left else { return Ok(()) };
    let name = &left.service.name;
    // The finalizer goes last: until then the Service cannot go with our address still in use.
    let rest = if left.status {
        let empty = Patch::Apply(left.empty_status());
        let object = api.patch_status(name, &PatchParams::apply(manager), &empty).await?;
        Leftover::of(&object.exposed(), names)
    } else {
        Some(left.clone())
    };
    if let Some(steps) = rest.as_ref().and_then(Leftover::without_finalizers) {
        let patch = json_patch(steps)?;
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        api.patch(name, &params, &patch).await?;
    }
    Ok(())
}

fn json_patch(steps: Value) -> Result<Patch<()>, kube::Error> {
    serde_json::from_value(steps).map(Patch::Json).map_err(kube::Error::SerdeError)
}
