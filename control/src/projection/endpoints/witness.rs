//! Who hears what becomes of each endpoint while slices are read. The projection itself listens to nothing, and pays
//! nothing for it; an explanation hears the very pass that the projection makes.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// Stands for one endpoint on one slice port, from when it is read to when it is known what becomes of it.
pub(in super::super) type Mark = u32;

/// Why a slice has no port to serve with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Mismatch {
    /// None of its ports has the name and protocol.
    Absent,
    /// The port has no number.
    Unnumbered,
    /// The port has a number that is none.
    Invalid(i32),
}

/// Why an endpoint does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum LeftOut {
    NoAddress,
    /// The first address is none that can carry traffic, and why.
    InvalidAddress(&'static str),
    OtherFamily,
    NotReady,
    /// Another entry has the same address and counts.
    Duplicate(Mark),
    /// The gateway itself accepts traffic there.
    OwnFrontend,
}

/// Listens to a pass over the slices.
pub(in super::super) trait Witness {
    /// None of the slice's endpoints is read.
    fn unmatched(&mut self, slice: &EndpointSlice, why: Mismatch);

    /// An endpoint is read, on a port of this number. Exactly one of the others follows for its mark.
    fn reads(&mut self, slice: &EndpointSlice, endpoint: &Endpoint, port: u16) -> Mark;

    /// It does not serve.
    fn left_out(&mut self, mark: Mark, why: LeftOut);

    /// It serves; told in the order of the endpoints that come of it.
    fn serves(&mut self, mark: Mark);
}

/// Hears nothing.
pub(super) struct Nobody;

impl Witness for Nobody {
    fn unmatched(&mut self, _: &EndpointSlice, _: Mismatch) {}

    fn reads(&mut self, _: &EndpointSlice, _: &Endpoint, _: u16) -> Mark {
        0
    }

    fn left_out(&mut self, _: Mark, _: LeftOut) {}

    fn serves(&mut self, _: Mark) {}
}
