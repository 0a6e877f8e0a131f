//! What the status writer reports to users about its writes.

use std::fmt;

use crate::api::problem::{ObjectRef, reason};
use crate::controller::conditions::ENDPOINTS_OUTDATED;
use crate::controller::service_exports::Outdated;
use crate::text::first_few;

/// How many fields and field managers are named.
const LISTED: usize = 8;

/// A notice about a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteNotice {
    /// Another client writes our fields. They are restored, at growing intervals while this goes on.
    Contested {
        /// Whose status.
        object: ObjectRef,
        /// The fields that they hold, or the part of the object that they changed.
        fields: Vec<String>,
        /// Their field managers; empty if they left no name.
        rivals: Vec<String>,
    },
    /// Our account may not write. Reported once, and again if it could in between.
    Forbidden {
        /// As RBAC rules have it.
        verb: &'static str,
        /// As RBAC rules have it: `services/status`.
        resource: &'static str,
        /// The API server's message.
        message: String,
    },
    /// The API server refuses what is to be written, again and again. It is tried on, slowly.
    Refused {
        /// The object that stays as it is.
        object: ObjectRef,
        /// What was to be written: `finalizer`, `status`.
        what: &'static str,
        /// The API server's message.
        message: String,
    },
    /// The Karmada API server does not know a kind that exports need. Reported once until it exists, as are the other notices about exports.
    ExportUndefined {
        /// What has to be installed.
        definition: String,
    },
    /// Our account may not export.
    ExportForbidden {
        /// As RBAC rules have it.
        verb: &'static str,
        /// With its group.
        resource: String,
        /// The API server's message.
        message: String,
    },
    /// The API server refuses an object that makes Karmada collect endpoints.
    ExportRefused {
        /// The MultiClusterService.
        object: ObjectRef,
        /// Kind and name of what was written.
        what: String,
        /// The API server's message.
        message: String,
    },
    /// An object of the name that such an object of ours would have is not ours.
    ExportTaken {
        /// The MultiClusterService.
        object: ObjectRef,
        /// Kind and name.
        what: String,
    },
    /// Our account may not read the Lease of Karmada's controller. Reported once, as are the other notices about exports.
    CollectorUnreadable {
        /// The API server's message.
        message: String,
    },
    /// The endpoints that Karmada has collected for an export of ours may be out of date, or are not any longer.
    EndpointsOutdated {
        /// The MultiClusterService.
        object: ObjectRef,
        /// Why; none if they no longer are.
        outdated: Option<Outdated>,
    },
    /// What was [`Refused`](Self::Refused) is written, or no longer to be written.
    Recovered {
        /// The object.
        object: ObjectRef,
    },
}

impl WriteNotice {
    /// A CamelCase token for an Event. They are never renamed.
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

    /// The object that it is about; a missing right is about none.
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

/// A sentence without the object's name.
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
