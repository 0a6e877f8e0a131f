//! Who is answered on a listener that is open to the network: the keys `authorization` and `tokenFile` of its section.

use std::path::PathBuf;

use super::section::Section;
use super::values::{self, ValueError};

/// Who is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Authorization {
    /// Everybody who can connect.
    Open,
    /// Those who show the bearer token in this file.
    TokenFile(PathBuf),
    /// Those whom the API server knows by their bearer token, and lets read the path.
    Kubernetes,
}

/// What `authorization` says.
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
            let message = "is missing, and authorization is file".to_owned();
            section.report("tokenFile", ValueError { message, hint: None });
            Authorization::Open
        }
        (Some(Authority::Kubernetes), Some(_)) => {
            let message = "has no effect, since authorization is kubernetes".to_owned();
            section.report("tokenFile", ValueError { message, hint: Some("remove one of them".to_owned()) });
            Authorization::Kubernetes
        }
    }
}
