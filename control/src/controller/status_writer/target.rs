//! An object to write and its desired state, independent of its kind.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use sheave_model::FrontendSource;

use crate::api::address_pool::{AddressPool, AddressPoolStatus, KIND};
use crate::api::problem::ObjectRef;
use crate::api::store::ServiceKey;
use crate::controller::desired_status::Desired;
use crate::controller::gateway_status::{GatewayApiKey, GatewayApiSubject};
use crate::controller::ownership::Ownership;
use crate::controller::service_object::ServiceObject;
use crate::controller::status_writer::next_step;
use crate::controller::status_writer::next_step::{Seen, Urgency, WriteStep};

/// Pause after a write of a pool, whose counters change with every Service that comes or goes.
const POOL_PAUSE: Duration = Duration::from_secs(5);
/// Pause between changes of texts only: conditions contain counts that change on their own, such as gateways with the same report
/// and endpoints in many clusters.
const COUNT_PAUSE: Duration = Duration::from_secs(10);

/// Identity of an object to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum WriteTarget {
    /// A Service or MultiClusterService; the key has the kind.
    Service(ServiceKey),
    Pool(Arc<str>),
    /// The objects that make Karmada collect the endpoints of this MultiClusterService.
    Export(ServiceKey),
    /// An object of the Gateway API.
    GatewayApi(GatewayApiKey),
}

impl WriteTarget {
    pub(super) fn object(&self) -> ObjectRef {
        match self {
            Self::Service(key) | Self::Export(key) => key.object(),
            Self::Pool(name) => ObjectRef { kind: KIND, namespace: "".into(), name: Arc::clone(name) },
            Self::GatewayApi(key) => key.object(),
        }
    }

    /// Whether it is an object of the Karmada control plane.
    pub(super) fn is_of_fleet(&self) -> bool {
        matches!(self, Self::Service(key) if key.source == FrontendSource::MultiClusterService)
    }

    /// Whether fields are always taken from other managers: only the controller of a class writes the status of its Gateways.
    pub(super) fn is_forced(&self) -> bool {
        matches!(self, Self::GatewayApi(_))
    }

    /// Pause after a write of the status before one that differs only in texts.
    pub(super) fn minor_pause(&self) -> Duration {
        match self {
            Self::Service(_) | Self::GatewayApi(_) => COUNT_PAUSE,
            Self::Pool(_) | Self::Export(_) => Duration::ZERO,
        }
    }

    /// Pause after any write.
    pub(super) fn pause(&self) -> Duration {
        match self {
            Self::Service(_) | Self::Export(_) | Self::GatewayApi(_) => Duration::ZERO,
            Self::Pool(_) => POOL_PAUSE,
        }
    }
}

/// The last known version of an object, and its desired state.
#[derive(Clone, Debug)]
pub(super) enum WriteSubject {
    Service(ServiceObject, Arc<Desired>),
    Pool(Arc<AddressPool>, Arc<AddressPoolStatus>),
    GatewayApi(GatewayApiSubject),
}

impl WriteSubject {
    pub(super) fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Service(object, _) => object.metadata(),
            Self::Pool(pool, _) => &pool.metadata,
            Self::GatewayApi(subject) => subject.metadata(),
        }
    }

    pub(super) fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    pub(super) fn version(&self) -> &str {
        self.metadata().resource_version.as_deref().unwrap_or_default()
    }

    /// Whether it is gone or about to be: the API server deletes it with the write that removes the last finalizer.
    pub(super) fn is_gone(&self) -> bool {
        let metadata = self.metadata();
        metadata.deletion_timestamp.is_some() && metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
    }

    pub(super) fn is_released(&self) -> bool {
        let is_released = match self {
            Self::Service(_, desired) => **desired == Desired::Released,
            Self::GatewayApi(subject) => subject.is_released(),
            Self::Pool(..) => false,
        };
        is_released || self.metadata().deletion_timestamp.is_some()
    }

    pub(super) fn next_step(&self, cleared: bool, options: &Ownership, now: Timestamp) -> WriteStep {
        match self {
            Self::Service(object, desired) => {
                next_step::next_step(&Seen { object, status_cleared: cleared, now }, desired, options)
            }
            Self::Pool(pool, status) => next_step::next_pool_step(pool, status),
            Self::GatewayApi(subject) => subject.next_step(cleared, now),
        }
    }

    /// When the step that [`Self::next_step`] returned is due.
    pub(super) fn urgency(&self, step: &WriteStep) -> Urgency {
        match self {
            Self::Service(object, desired) => next_step::urgency(step, object, desired),
            Self::Pool(..) => Urgency::Now,
            Self::GatewayApi(subject) => subject.urgency(step),
        }
    }

    /// This desired state with the object from the API server's answer; `None` if the answer cannot be parsed.
    pub(super) fn renewed(&self, body: &[u8]) -> Option<Self> {
        Some(match self {
            Self::Service(known, desired) => {
                let (source, object) = (known.source(), serde_json::from_slice(body).ok()?);
                Self::Service(ServiceObject::from_json(source, object).ok()?, Arc::clone(desired))
            }
            Self::Pool(_, status) => {
                Self::Pool(Arc::new(serde_json::from_slice(body).ok()?), Arc::clone(status))
            }
            Self::GatewayApi(subject) => Self::GatewayApi(subject.renewed(body)?),
        })
    }

    /// This desired state with another version of the object.
    pub(super) fn of(&self, object: &Self) -> Self {
        match (self, object) {
            (Self::Service(_, desired), Self::Service(object, _)) => {
                Self::Service(object.clone(), Arc::clone(desired))
            }
            (Self::Pool(_, status), Self::Pool(pool, _)) => Self::Pool(Arc::clone(pool), Arc::clone(status)),
            (Self::GatewayApi(subject), Self::GatewayApi(object)) => Self::GatewayApi(subject.of(object)),
            _ => self.clone(),
        }
    }
}

/// Fingerprint of what a write achieves. It ignores versions and times, which differ between repeated writes.
pub(super) fn fingerprint(step: &WriteStep) -> u64 {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(step).hash(&mut hasher);
    let written = match step {
        WriteStep::ApplyStatus(body) => Some(body["status"].clone()),
        WriteStep::PatchParents { ours, .. } => Some(Value::Array(ours.clone())),
        _ => None,
    };
    if let Some(mut written) = written {
        remove_times(&mut written);
        written.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

/// Removes the times of all conditions.
fn remove_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("lastTransitionTime");
            fields.values_mut().for_each(remove_times);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_times),
        _ => {}
    }
}
