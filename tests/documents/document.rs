//! Documents of the repository, and the shared way to compare or update parts of them.

use std::fs::File;
use std::path::Path;

use snapbox::Data;

/// All documents for users or contributors.
pub(crate) const DOCUMENTS: [&str; 29] = [
    "CHANGELOG.md",
    "README.md",
    "SECURITY.md",
    "benches/README.md",
    "control/README.md",
    "control/gateway-api.md",
    "dataplane/README.md",
    "dataplane/kernel/README.md",
    "deploy/README.md",
    "deploy/announce.md",
    "deploy/networking.md",
    "deploy/releasing.md",
    "deploy/security.md",
    "deploy/sizing.md",
    "deploy/troubleshooting.md",
    "deploy/upgrade.md",
    "deploy/gateway-api/README.md",
    "deploy/helm/README.md",
    "deploy/helm/sheave/README.md",
    "deploy/karmada/README.md",
    "deploy/monitoring/README.md",
    "src/README.md",
    "src/commands/README.md",
    "src/config/README.md",
    "src/console/README.md",
    "src/console/src/http/README.md",
    "src/console/src/page/README.md",
    "src/takeover/README.md",
    "tests/README.md",
];

/// Folder of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Text of a document.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares the document with the result of `rewrite`, or writes that result if `UPDATE_DOCS` is set.
pub(crate) fn expect(path: &str, rewrite: impl FnOnce(&str) -> String) {
    // Several tests, each in its own process, may write to the same document.
    let document = File::open(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    document.lock().unwrap_or_else(|error| panic!("{path}: {error}"));
    let old = read(path);
    let new = rewrite(&old);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(path), new).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    println!("to write {path} anew: UPDATE_DOCS=1 cargo test --test documents");
    snapbox::assert_data_eq!(Data::text(old).raw(), Data::text(new).raw());
}
