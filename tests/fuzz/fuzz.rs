//! Fuzz targets for all code that parses foreign input. One binary for all, so that the code under test is built with
//! coverage only once; `SHEAVE_FUZZ_TARGET` names the target. `tests/fuzz/run` builds and runs it.
//!
//! An example rather than a test, so that `cargo test` builds but does not run it.
#![no_main]

mod annotations;
mod client_hello;
mod invariants;
mod manifests;
mod proxy_header;
// It calls code that only exists for the fuzzer.
#[cfg(fuzzing)]
mod reports;
mod snapshot;
mod takeover;
mod works;

/// Modules of the program, which is not a library.
#[path = "../../src"]
#[expect(dead_code, reason = "the program calls more of it")]
mod program {
    pub(crate) mod takeover;
}

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("SHEAVE_FUZZ_TARGET").unwrap_or_default();
    match name.as_str() {
        "annotations" => |bytes| annotations::run(text(bytes)),
        "client_hello" => client_hello::run,
        "manifests" => manifests::run,
        "proxy_header" => proxy_header::run,
        #[cfg(fuzzing)]
        "reports" => reports::run,
        "snapshot" => snapshot::run,
        "takeover" => takeover::run,
        "works" => |bytes| works::run(text(bytes)),
        _ => panic!("SHEAVE_FUZZ_TARGET={name:?} names no target"),
    }
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));

/// The input up to the first byte that is not UTF-8.
fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
