//! Authorization of listeners that are open to the network: the keys `authorization` and `tokenFile` of their
//! sections.

use sheave_console::http::server::guarded::Authorization;

use super::section::Section;
use super::values::{self, ValueError};

/// Value of `authorization`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Authority {
    File,
    Kubernetes,
}

pub(super) fn read(section: &mut Section<'_>) -> Authorization {
    let authorities = [("file", Authority::File), ("kubernetes", Authority::Kubernetes)];
    let authority = section.get("authorization", None, values::optional(values::one_of(&authorities)));
    let file = section.get("tokenFile", None, values::optional(values::path));
    match (authority, file) {
        (None, None) => Authorization::Open,
        (None | Some(Authority::File), Some(file)) => Authorization::TokenFile(file),
        (Some(Authority::Kubernetes), None) => Authorization::Kubernetes,
        (Some(Authority::File), None) => {
            section.report("tokenFile", "is missing, and authorization is file");
            Authorization::Open
        }
        (Some(Authority::Kubernetes), Some(_)) => {
            let unused = ValueError::from("has no effect, since authorization is kubernetes");
            section.report("tokenFile", unused.hint("remove one of them"));
            Authorization::Kubernetes
        }
    }
}
