//! Fuzz target: any bytes as a manifest file of either API server, which is read and projected.

use std::sync::LazyLock;

use crate::invariants::Manifest;
use sheave_control::api::store::ControlPlane;

static MANIFEST: LazyLock<Manifest> =
    LazyLock::new(|| Manifest::new("input.yaml").expect("a temporary folder"));

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    MANIFEST.check(ControlPlane::Local, bytes);
    MANIFEST.check(ControlPlane::Karmada, bytes);
}
