//! Observes what becomes of each endpoint while slices are read. The projection itself observes nothing, and pays nothing for it;
//! an explanation observes the very pass that the projection makes.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// Stands for one endpoint on one slice port, from when it is read to when it is known what becomes of it.
pub(in crate::projection) type EntryId = u32;

/// Why a slice has no port to serve with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::projection) enum PortMismatch {
    /// None of its ports has the name and protocol.
    Absent,
    /// The port has no number.
    Unnumbered,
    /// The port has a number that is none.
    Invalid(i32),
}

/// Why an endpoint does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::projection) enum Exclusion {
    NoAddress,
    /// The first address is none that can carry traffic, and why.
    InvalidAddress(&'static str),
    OtherFamily,
    NotReady,
    /// Another entry has the same address and counts.
    Duplicate(EntryId),
    /// What is sent there comes back, or may.
    Loop(Loop),
}

/// Why what is sent to an address comes back, or may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::projection) enum Loop {
    /// The gateway itself accepts traffic there.
    OwnFrontend,
    /// It is a Service's, which the node leads on.
    OfService,
}

/// Observes a pass over the slices.
pub(in crate::projection) trait EndpointObserver {
    /// None of the slice's endpoints is read.
    fn unmatched(&mut self, slice: &EndpointSlice, why: PortMismatch);

    /// An endpoint is read, on a port of this number. Exactly one of the others follows for its mark.
    fn reads(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, port: u16) -> EntryId;

    /// It does not serve.
    fn left_out(&mut self, mark: EntryId, why: Exclusion);

    /// It serves; called in the order of the endpoints.
    fn serves(&mut self, mark: EntryId);
}

/// Hears nothing.
pub(super) struct NoObserver;

impl EndpointObserver for NoObserver {
    fn unmatched(&mut self, _: &EndpointSlice, _: PortMismatch) {}

    fn reads(&mut self, _: &EndpointSlice, _: &Endpoint, _: u16) -> EntryId {
        0
    }

    fn left_out(&mut self, _: EntryId, _: Exclusion) {}

    fn serves(&mut self, _: EntryId) {}
}
