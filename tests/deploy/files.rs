//! The files of `deploy/` and the documents in them. It must not know what they say.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder that is applied.
pub(crate) const BASE: &str = "base";
/// The folder of what users may copy.
pub(crate) const EXAMPLES: &str = "examples";

/// The folder that is applied to a Karmada API server.
pub(crate) const KARMADA: &str = "karmada";
/// The folder that is applied beside it where it trusts tokens of the cluster that Sheave runs in.
pub(crate) const BOUND: &str = "karmada/bound";
/// The folder that is applied beside it where Services are exported.
pub(crate) const EXPORTS: &str = "karmada/exports";

/// One YAML document.
#[derive(Debug)]
pub(crate) struct Document {
    /// Below `deploy`, for messages.
    pub(crate) file: String,
    pub(crate) value: Value,
}

/// The place of `path`, which is below `deploy`.
pub(crate) fn place(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

/// The text of a file below `deploy`.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let place = place(path);
    std::fs::read_to_string(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

/// Every file but documents in the folder `below` and its subfolders, as paths below it, sorted.
pub(crate) fn all(below: &str) -> Vec<String> {
    fn collect(folder: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                collect(&path, root, found);
            } else if path.extension().is_none_or(|extension| extension != "md") {
                let below = path.strip_prefix(root).expect("it was found there");
                found.push(below.to_str().expect("the name is text").to_owned());
            }
        }
    }
    let root = place(below);
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    found.sort();
    assert!(!found.is_empty(), "nothing in {}", root.display());
    found
}

/// The documents of one file below `deploy`.
pub(crate) fn documents(file: &str) -> Vec<Document> {
    let values: Vec<Value> =
        serde_saphyr::from_multiple(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(!values.is_empty(), "{file} holds no document");
    values.into_iter().map(|value| Document { file: file.to_owned(), value }).collect()
}

/// Every API object of the base.
pub(crate) fn base() -> Vec<Document> {
    objects_in(BASE)
}

/// Every API object of the examples.
pub(crate) fn examples() -> Vec<Document> {
    objects_in(EXAMPLES)
}

/// Every API object of the optional policies.
pub(crate) fn admission() -> Vec<Document> {
    objects_in("admission")
}

/// Every API object that a Karmada API server always gets.
pub(crate) fn karmada() -> Vec<Document> {
    let mut documents = objects_in(KARMADA);
    documents.retain(|document| !document.file.starts_with(EXPORTS) && !document.file.starts_with(BOUND));
    documents
}

/// Every API object that it gets where Services are exported.
pub(crate) fn exports() -> Vec<Document> {
    objects_in(EXPORTS)
}

/// Every API object that it gets where it trusts tokens of the cluster that Sheave runs in.
pub(crate) fn bound() -> Vec<Document> {
    objects_in(BOUND)
}

/// Kustomizations, their components and the program's own configuration are no API objects.
fn objects_in(folder: &str) -> Vec<Document> {
    // FRR's own files are none either.
    let files = all(folder).into_iter().filter(|file| file.ends_with(".yaml"));
    let files = files.map(|file| format!("{folder}/{file}"));
    let documents = files.flat_map(|file| documents(&file));
    documents
        .filter(|it| {
            it.value.get("apiVersion").is_some()
                && it.value["kind"] != "Kustomization"
                && it.value["kind"] != "Component"
        })
        .collect()
}
