//! Problems: what a user should know about an object. Collected by sources and projection, shown by the CLI,
//! logs, Events and conditions.

mod problem_set;
pub(crate) mod report;

use std::fmt;
use std::sync::Arc;

pub use self::problem_set::ProblemChanges;
pub(crate) use self::problem_set::ProblemSet;

/// The object that a Problem is about. Prints as users name it: `Service shop/web`, `Node n1`, `File web.yaml`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectRef {
    /// The object's kind as in its manifest, or `File` for a manifest file as a whole.
    pub kind: &'static str,
    /// Empty for cluster-scoped objects and files.
    pub namespace: Arc<str>,
    /// The object's name, or the file's path below the manifest folder.
    pub name: Arc<str>,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// The Service port that a Problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProblemPort {
    /// The port number as in the Service.
    pub port: u16,
    /// The protocol as in the Service; not only those that we forward.
    pub protocol: &'static str,
}

/// One thing that is wrong, where, and what was done instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// What it is about.
    pub object: ObjectRef,
    /// A CamelCase token, fit for a condition or an Event. The list is in [`reason`].
    pub reason: &'static str,
    /// The field inside the object, as `spec.ports[0].port`; empty if the object as a whole is meant.
    pub field: String,
    /// One sentence: the value, why it is refused, and what happens instead.
    pub message: String,
    /// Set when one port alone is affected.
    pub port: Option<ProblemPort>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.object, self.reason)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Every reason, with its meaning: users match on these, so they are never renamed.
pub mod reason {
    /// A manifest file or document cannot be read as YAML or JSON, or as its type.
    pub const INVALID_MANIFEST: &str = "InvalidManifest";
    /// Two documents define the same object. The first one counts.
    pub const DUPLICATE_OBJECT: &str = "DuplicateObject";
    /// The API server holds an object that cannot be read as its type. Its last readable version counts, if
    /// there is one.
    pub const UNREADABLE_OBJECT: &str = "UnreadableObject";
    /// The API server does not know a kind of ours: its CustomResourceDefinition is not installed.
    pub const DEFINITION_MISSING: &str = "DefinitionMissing";
    /// The API server does not let Sheave read a kind.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// A field has a value that the API does not allow. A default or nothing is used instead.
    pub const INVALID_VALUE: &str = "InvalidValue";
    /// The protocol cannot be forwarded (SCTP).
    pub const PROTOCOL_NOT_SUPPORTED: &str = "ProtocolNotSupported";
    /// Another Service, or the node itself (`reservedPorts`), already has this address and port.
    pub const ADDRESS_IN_USE: &str = "AddressInUse";
    /// `spec.externalIPs` names an address that `externalIPs.allow` does not.
    pub const EXTERNAL_IP_REFUSED: &str = "ExternalIPRefused";
    /// `loadBalancerSourceRanges` has no valid range of a family of the Service. No client of that family is admitted.
    pub const SOURCE_RANGES_ONE_FAMILY: &str = "SourceRangesOneFamily";
    /// The Service shares an address with another one, both have the policy `Local`, and no node has endpoints of both. The gateway that
    /// has the address serves the older one.
    pub const NO_COMMON_NODE: &str = "NoCommonNode";
    /// No address could be found or allocated for the Service.
    pub const NO_ADDRESS: &str = "NoAddress";
    /// An endpoint is one of the gateway's own frontends, a Service's cluster address, or a node's address with a node port, and is
    /// left out: traffic would go round in circles, or could.
    pub const ENDPOINT_LOOP: &str = "EndpointLoop";
    /// The gateway could not listen on the address.
    pub const BIND_FAILED: &str = "BindFailed";
    /// The gateway that owns the address cannot announce it.
    pub const ANNOUNCE_FAILED: &str = "AnnounceFailed";
    /// Another machine of the segment uses the address.
    pub const ADDRESS_CONFLICT: &str = "AddressConflict";
    /// Endpoints should see the client's address, but see the gateway's: it may not use other addresses.
    pub const CLIENT_SOURCE_LOST: &str = "ClientAddressLost";
    /// Another process has the local ports that the gateway's UDP flows would share, so each flow takes one for itself: there may
    /// be far fewer.
    pub const LOCAL_PORTS_TAKEN: &str = "LocalPortsTaken";
    /// New connections or flows are refused: the gateway has no room or memory for more of the Service.
    pub const OVERLOADED: &str = "Overloaded";
    /// New connections or flows are refused: the Service or a client has as many as it may have.
    pub const LIMIT_REACHED: &str = "LimitReached";
    /// The object is of our class, but cannot be served as it is.
    pub const NOT_SERVED: &str = "NotServed";
    /// The gateway does not answer on the Service's `healthCheckNodePort`. kube-proxy's Event has the same
    /// reason.
    pub const FAILED_TO_START_SERVICE_HEALTHCHECK: &str = "FailedToStartServiceHealthcheck";
    /// The Karmada API server has no Service of the MultiClusterService's name.
    pub const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
    /// The Service has no such port.
    pub const PORT_NOT_FOUND: &str = "PortNotFound";
    /// No member cluster has this name.
    pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
    /// A field of older Karmada versions, which today's Karmada ignores.
    pub const LEGACY_FIELD: &str = "LegacyField";
    /// The Service asks for something that cannot hold across clusters.
    pub const NOT_ACROSS_CLUSTERS: &str = "NotAcrossClusters";
    /// The API server keeps refusing what the controller has to write to the object. It tries again ever
    /// more slowly.
    pub const WRITE_REFUSED: &str = "WriteRefused";
    /// Endpoints of two clusters have the same address, and nothing tells the clusters apart on the way
    /// there.
    pub const OVERLAPPING_ADDRESSES: &str = "OverlappingAddresses";
}
