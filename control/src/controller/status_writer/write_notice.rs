//! Notices of the status writer for users.

use std::fmt;

use crate::api::problem::{ObjectRef, reason};
use crate::controller::conditions::ENDPOINTS_OUTDATED;
use crate::controller::service_exports::Outdated;
use crate::text::first_few;

/// How many fields and field managers a notice lists.
const LISTED: usize = 8;

/// A notice about a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteNotice {
    /// Another client writes our fields. The controller restores them, at growing intervals while this continues.
    Contested {
        /// The object whose status is affected.
        object: ObjectRef,
        /// The fields that they own, or the part of the object that they changed.
        fields: Vec<String>,
        /// Their field managers; empty if unknown.
        rivals: Vec<String>,
    },
    /// RBAC denies a write to our account. Reported once, and again after a success in between.
    Forbidden {
        /// RBAC verb.
        verb: &'static str,
        /// RBAC resource, for example `services/status`.
        resource: &'static str,
        /// The API server's message.
        message: String,
    },
    /// The API server keeps rejecting a write. The controller retries with growing delays.
    Refused {
        /// The affected object, which stays unchanged.
        object: ObjectRef,
        /// Written part of the object: `metadata.finalizers` or `status`.
        what: &'static str,
        /// The API server's message.
        message: String,
    },
    /// The Karmada API server does not know a kind that exports need. Like the other notices about exports, it is reported once
    /// until the cause is gone.
    ExportUndefined {
        /// The CustomResourceDefinition to install.
        definition: String,
    },
    /// RBAC denies exports to our account.
    ExportForbidden {
        /// RBAC verb.
        verb: &'static str,
        /// Resource with its group.
        resource: String,
        /// The API server's message.
        message: String,
    },
    /// The API server rejected an object that makes Karmada collect endpoints.
    ExportRefused {
        /// The MultiClusterService.
        object: ObjectRef,
        /// Kind and name of what was written.
        what: String,
        /// The API server's message.
        message: String,
    },
    /// An object with the name of one of our export objects exists and is not ours.
    ExportTaken {
        /// The MultiClusterService.
        object: ObjectRef,
        /// Kind and name.
        what: String,
    },
    /// RBAC denies our account to read the Lease of Karmada's controller. Reported once, like the other notices about exports.
    CollectorUnreadable {
        /// The API server's message.
        message: String,
    },
    /// The endpoints that Karmada collected for an export may be out of date, or are current again.
    EndpointsOutdated {
        /// The MultiClusterService.
        object: ObjectRef,
        /// The reason; `None` if they are current.
        outdated: Option<Outdated>,
    },
    /// A [`Refused`](Self::Refused) write has succeeded or is no longer needed.
    Recovered {
        /// The object.
        object: ObjectRef,
    },
}

impl WriteNotice {
    /// A CamelCase token for an Event. Tokens are never renamed.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Contested { .. } => "StatusContested",
            Self::Forbidden { .. } => "WriteForbidden",
            Self::Refused { .. } => reason::WRITE_REFUSED,
            Self::Recovered { .. } => "WriteRecovered",
            Self::ExportUndefined { .. } => "ExportDefinitionMissing",
            Self::ExportForbidden { .. } => "ExportForbidden",
            Self::ExportRefused { .. } => "ExportRefused",
            Self::ExportTaken { .. } => "ExportNameTaken",
            Self::CollectorUnreadable { .. } => "CollectorUnreadable",
            Self::EndpointsOutdated { .. } => ENDPOINTS_OUTDATED,
        }
    }

    /// The affected object; `None` for a missing permission.
    pub fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Contested { object, .. }
            | Self::Refused { object, .. }
            | Self::Recovered { object }
            | Self::ExportRefused { object, .. }
            | Self::ExportTaken { object, .. }
            | Self::EndpointsOutdated { object, .. } => Some(object),
            Self::Forbidden { .. }
            | Self::ExportUndefined { .. }
            | Self::ExportForbidden { .. }
            | Self::CollectorUnreadable { .. } => None,
        }
    }
}

/// Displays as a sentence without the object's name.
impl fmt::Display for WriteNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contested { fields, rivals, .. } if rivals.is_empty() => {
                write!(
                    f,
                    "another client keeps changing {}; it is restored, at growing intervals",
                    first_few(fields, ", ", LISTED)
                )
            }
            Self::Contested { fields, rivals, .. } => {
                let rivals = rivals.iter().map(|rival| format!("{rival:?}"));
                write!(
                    f,
                    "field manager {} also writes {}; it is taken over: an object has only one load balancer",
                    first_few(rivals, ", ", LISTED),
                    first_few(fields, ", ", LISTED)
                )
            }
            Self::Forbidden { verb, resource, message } => write!(
                f,
                "the account of this controller may not {verb} {resource}: {message}; grant it, or nothing is published"
            ),
            Self::Refused { what, message, .. } => {
                write!(f, "the API server refuses its {what}: {message}; it is retried later")
            }
            Self::ExportUndefined { definition } => write!(
                f,
                "the Karmada API server does not know {definition}: install it, or set karmada.exportServices to false; \
                 until then only what others export is collected"
            ),
            Self::ExportForbidden { verb, resource, message } => write!(
                f,
                "the account of this controller may not {verb} {resource}: {message}; grant it (deploy/karmada/exports), or \
                 set karmada.exportServices to false"
            ),
            Self::ExportRefused { what, message, .. } => {
                write!(f, "the API server refuses {what}: {message}; it is retried later")
            }
            Self::ExportTaken { what, .. } => write!(
                f,
                "there is a {what} that is not ours: it is left alone, and the ServiceExport is brought to no cluster by us"
            ),
            Self::CollectorUnreadable { message } => write!(
                f,
                "the account of this controller may not get the Lease karmada-controller-manager in karmada-system: {message}; grant \
                 it (deploy/karmada/exports), or endpoints stay as they are after a restart of karmada-controller-manager"
            ),
            Self::EndpointsOutdated { outdated, .. } => f.write_str(match outdated {
                Some(_) => "the endpoints that Karmada collected may be out of date",
                None => "Karmada collects its endpoints again",
            }),
            Self::Recovered { .. } => f.write_str("the API server refuses no write of it any more"),
        }
    }
}
