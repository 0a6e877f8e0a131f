//! What users should be told of it. It must not know how they are told.

use std::fmt;

use crate::api::problem::ObjectRef;

/// Why Karmada could not be asked to collect endpoints. Each is told once, until it has gone. Everything else goes on, by what
/// is collected without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportWarning {
    /// The Karmada API server does not know the kind.
    Undefined {
        /// What has to be installed.
        definition: String,
    },
    /// Our account may not.
    Forbidden {
        /// As RBAC rules have it.
        verb: &'static str,
        /// With its group.
        resource: String,
        /// What the API server says.
        message: String,
    },
    /// The API server does not want what is written.
    Refused {
        /// The MultiClusterService.
        object: ObjectRef,
        /// Kind and name of what was written.
        what: String,
        /// What the API server says.
        message: String,
    },
    /// An object of the name that ours would have is not ours.
    Taken {
        /// The MultiClusterService.
        object: ObjectRef,
        /// Kind and name.
        what: String,
    },
}

impl ExportWarning {
    /// A CamelCase token for an Event. They are never renamed.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Undefined { .. } => "ExportDefinitionMissing",
            Self::Forbidden { .. } => "ExportForbidden",
            Self::Refused { .. } => "ExportRefused",
            Self::Taken { .. } => "ExportNameTaken",
        }
    }

    /// The object that it is about; what is missing for all is about none.
    pub fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Refused { object, .. } | Self::Taken { object, .. } => Some(object),
            Self::Undefined { .. } | Self::Forbidden { .. } => None,
        }
    }
}

/// A sentence without the object's name.
impl fmt::Display for ExportWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { definition } => write!(
                f,
                "the Karmada API server does not know {definition}: install it, or set karmada.exportServices to false; \
                 until then only what others export is collected"
            ),
            Self::Forbidden { verb, resource, message } => write!(
                f,
                "the account of this controller may not {verb} {resource}: {message}; grant it (deploy/karmada/exports), or \
                 set karmada.exportServices to false"
            ),
            Self::Refused { what, message, .. } => {
                write!(f, "the API server refuses {what}: {message}; tried again later")
            }
            Self::Taken { what, .. } => write!(
                f,
                "there is a {what} that is not ours: it is left alone, and the ServiceExport is brought to no cluster by us"
            ),
        }
    }
}
