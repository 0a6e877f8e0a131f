//! Observer of what happens to each endpoint while slices are read. The projection itself uses none and pays nothing for it; an
//! explanation observes the same pass that the projection makes.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// Identifies an endpoint on one slice port, from reading it to the decision about it.
pub(in crate::projection) type EntryId = u32;

/// Reason why a slice has no usable port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::projection) enum PortMismatch {
    /// No port has the name and protocol.
    Absent,
    /// The port has no number.
    Unnumbered,
    /// The number is not a valid port.
    Invalid(i32),
}

/// Reason why an endpoint does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::projection) enum Exclusion {
    NoAddress,
    /// The first address cannot carry traffic; holds the reason.
    InvalidAddress(&'static str),
    OtherFamily,
    NotReady,
    /// Another entry has the same address and takes precedence.
    Duplicate(EntryId),
    /// Traffic to the endpoint returns to the gateway, or may.
    Loop(EndpointLoop),
}

/// Reason why traffic to an address returns, or may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::projection) enum EndpointLoop {
    /// The gateway itself accepts traffic there.
    OwnFrontend,
    /// The address belongs to a Service, to which the node forwards.
    OfService,
}

impl EndpointLoop {
    /// What the address is, as the end of a sentence.
    pub(in crate::projection) fn text(self) -> &'static str {
        match self {
            Self::OwnFrontend => "is a frontend of this gateway",
            Self::OfService => "is an address at which nodes forward to a Service",
        }
    }
}

/// Observer of a pass over the slices.
pub(in crate::projection) trait EndpointObserver {
    /// Called for a slice without a usable port, of which no endpoint is read.
    fn unmatched(&mut self, slice: &EndpointSlice, why: PortMismatch);

    /// Called for each endpoint with its port number. Exactly one of the following methods is then called with the returned id.
    fn reads(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, port: u16) -> EntryId;

    /// Called for an endpoint that does not serve.
    fn left_out(&mut self, mark: EntryId, why: Exclusion);

    /// Called for an endpoint that serves, in the order of the endpoints.
    fn serves(&mut self, mark: EntryId);
}

/// An observer that ignores everything.
pub(super) struct NoObserver;

impl EndpointObserver for NoObserver {
    fn unmatched(&mut self, _: &EndpointSlice, _: PortMismatch) {}

    fn reads(&mut self, _: &EndpointSlice, _: &Endpoint, _: u16) -> EntryId {
        0
    }

    fn left_out(&mut self, _: EntryId, _: Exclusion) {}

    fn serves(&mut self, _: EntryId) {}
}
