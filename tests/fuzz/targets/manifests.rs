//! Any bytes as a manifest file of either API server: read, and projected.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sheave_control::sources::manifests::Of;
use sheave_fuzz::Manifest;

static MANIFEST: LazyLock<Manifest> =
    LazyLock::new(|| Manifest::new("input.yaml").expect("a temporary folder"));

fuzz_target!(|bytes: &[u8]| {
    MANIFEST.check(Of::Cluster, bytes);
    MANIFEST.check(Of::Karmada, bytes);
});
