//! Problems: findings about objects that users should know. Sources and projection collect them; the CLI, logs, Events and
//! conditions show them.

mod problem_set;
pub(crate) mod report;

use std::fmt;
use std::sync::Arc;

pub use self::problem_set::ProblemChanges;
pub(crate) use self::problem_set::ProblemSet;

/// The object that a Problem is about. Displays as users name it: `Service shop/web`, `Node n1`, `File web.yaml`.
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
    /// Protocol as in the Service, including protocols that are not forwarded.
    pub protocol: &'static str,
}

/// A finding: what is wrong, where, and what is done instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The affected object.
    pub object: ObjectRef,
    /// A CamelCase token for conditions and Events. [`reason`] lists all of them.
    pub reason: &'static str,
    /// The field of the object, for example `spec.ports[0].port`; empty for the object as a whole.
    pub field: String,
    /// One sentence: the value, why it is rejected, and what happens instead.
    pub message: String,
    /// The affected port, if it is only one.
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

/// Every reason and its meaning. Users match on reasons, so they are never renamed.
pub mod reason {
    /// A manifest file or document cannot be read as YAML or JSON, or as its type.
    pub const INVALID_MANIFEST: &str = "InvalidManifest";
    /// Two documents define the same object. The first one counts.
    pub const DUPLICATE_OBJECT: &str = "DuplicateObject";
    /// The API server has an object that cannot be decoded as its type. Its last readable version is used, if there is one.
    pub const UNREADABLE_OBJECT: &str = "UnreadableObject";
    /// The API server does not know a kind that Sheave reads: its CustomResourceDefinition is not installed.
    pub const DEFINITION_MISSING: &str = "DefinitionMissing";
    /// The API server does not let Sheave read a kind.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// A field has a value that the API does not allow. A default or nothing is used instead.
    pub const INVALID_VALUE: &str = "InvalidValue";
    /// The protocol cannot be forwarded (SCTP).
    pub const PROTOCOL_NOT_SUPPORTED: &str = "ProtocolNotSupported";
    /// Another Service, or the node itself (`reservedPorts`), already has this address and port.
    pub const ADDRESS_IN_USE: &str = "AddressInUse";
    /// The frontend's port is a node port of another Service. kube-proxy answers node ports at every address of a node in most of its
    /// modes, and at the node's own addresses in all of them, so clients may reach the other Service.
    pub const NODE_PORT_CONFLICT: &str = "NodePortConflict";
    /// `spec.externalIPs` has an address that `externalIPs.allow` does not include.
    pub const EXTERNAL_IP_REFUSED: &str = "ExternalIPRefused";
    /// `loadBalancerSourceRanges` has no valid range for a family of the Service. Clients of that family are not admitted.
    pub const SOURCE_RANGES_ONE_FAMILY: &str = "SourceRangesOneFamily";
    /// The Service shares an address with another one, both have the policy `Local`, and no node has endpoints of both. The gateway that
    /// has the address serves the older one.
    pub const NO_COMMON_NODE: &str = "NoCommonNode";
    /// No address could be found or allocated for the Service.
    pub const NO_ADDRESS: &str = "NoAddress";
    /// An endpoint is one of the gateway's own frontends, or an address at which nodes forward to a Service: its cluster address, a
    /// node's address with a node port, one of `externalIPs`, or a load balancer address. It is left out, because traffic could loop.
    pub const ENDPOINT_LOOP: &str = "EndpointLoop";
    /// The gateway could not listen on the address.
    pub const BIND_FAILED: &str = "BindFailed";
    /// The gateway that owns the address cannot announce it.
    pub const ANNOUNCE_FAILED: &str = "AnnounceFailed";
    /// Another machine on the segment uses the address.
    pub const ADDRESS_CONFLICT: &str = "AddressConflict";
    /// The gateway of the Node has announced by other candidates or addresses than this one for more than 10 s: it knows other objects or
    /// other gateways. An address may have two owners, or none.
    pub const GATEWAYS_DISAGREE: &str = "GatewaysDisagree";
    /// Endpoints should see the client's address but see the gateway's, because the gateway may not use other source addresses.
    pub const CLIENT_SOURCE_LOST: &str = "ClientAddressLost";
    /// `acceptProxy.allow` admits peers that name clients, and neither `spec.podCIDRs` of the Node nor `internalCIDRs` says which addresses are those
    /// of Pods. Such a peer may claim one, and endpoints may see it.
    pub const POD_NETWORKS_UNKNOWN: &str = "PodNetworksUnknown";
    /// The gateway cannot have the kernel carry the Service's connections, so the proxy does.
    pub const KERNEL_PATH_UNAVAILABLE: &str = "KernelPathUnavailable";
    /// The kernel, which carries the Service's connections, has little room left to track them: more than four fifths are in use. It drops
    /// new connections for which there is none.
    pub const CONNECTION_TRACKING_FULL: &str = "ConnectionTrackingFull";
    /// Another process uses the local ports that the gateway's UDP flows would share. Each flow takes a port of its own, so there
    /// may be far fewer flows.
    pub const LOCAL_PORTS_TAKEN: &str = "LocalPortsTaken";
    /// New connections or flows are refused: the gateway has no capacity or memory for more of the Service.
    pub const OVERLOADED: &str = "Overloaded";
    /// New connections or flows are refused: the Service or a client has reached its limit.
    pub const LIMIT_REACHED: &str = "LimitReached";
    /// The object has the installation's class but cannot be served.
    pub const NOT_SERVED: &str = "NotServed";
    /// The gateway does not answer on the Service's `healthCheckNodePort`. kube-proxy uses the same reason for its Event.
    pub const FAILED_TO_START_SERVICE_HEALTHCHECK: &str = "FailedToStartServiceHealthcheck";
    /// The Karmada API server has no Service with the MultiClusterService's name.
    pub const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
    /// The Service has no such port.
    pub const PORT_NOT_FOUND: &str = "PortNotFound";
    /// No member cluster has this name.
    pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
    /// A field of older Karmada versions, which current Karmada ignores.
    pub const LEGACY_FIELD: &str = "LegacyField";
    /// The Service requests something that is not possible across clusters.
    pub const NOT_ACROSS_CLUSTERS: &str = "NotAcrossClusters";
    /// The API server keeps rejecting a write of the controller to the object. The controller retries with growing delays.
    pub const WRITE_REFUSED: &str = "WriteRefused";
    /// A listener of a Gateway or ListenerSet has the port of another one, so it is not served.
    pub const LISTENER_CONFLICT: &str = "ListenerConflict";
    /// A listener of a Gateway or ListenerSet has a protocol or port that cannot be served.
    pub const UNSUPPORTED_LISTENER: &str = "UnsupportedListener";
    /// No listener of its parent admits the route, so it does not attach there.
    pub const ROUTE_NOT_ACCEPTED: &str = "RouteNotAccepted";
    /// An older route serves each of the route's listeners.
    pub const ROUTE_SUPERSEDED: &str = "RouteSuperseded";
    /// A backend of a route does not exist or may not be used. Its share of the traffic is refused.
    pub const BACKEND_REF_INVALID: &str = "BackendRefInvalid";
    /// No backend of a route has a weight, so the listeners that the route serves refuse every connection.
    pub const NO_WEIGHT: &str = "NoWeight";
    /// Endpoints of two clusters have the same address, and no route distinguishes the clusters.
    pub const OVERLAPPING_ADDRESSES: &str = "OverlappingAddresses";
}
