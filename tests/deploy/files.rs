//! Files of `deploy/` and the documents in them. Independent of their contents.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Folder that is applied.
pub(crate) const BASE: &str = "base";
/// Folder of examples to copy.
pub(crate) const EXAMPLES: &str = "examples";
/// Folder that is additionally applied to serve Gateways.
pub(crate) const GATEWAY_API: &str = "gateway-api";

/// Folder that is applied to a Karmada API server.
pub(crate) const KARMADA: &str = "karmada";
/// Folder that is additionally applied if that server trusts tokens of the cluster that Sheave runs in.
pub(crate) const BOUND: &str = "karmada/bound";
/// Folder that is additionally applied to export Services.
pub(crate) const EXPORTS: &str = "karmada/exports";

/// YAML document.
#[derive(Debug)]
pub(crate) struct Document {
    /// Path below `deploy`, for messages.
    pub(crate) file: String,
    pub(crate) value: Value,
}

/// Absolute path of `path`, which is below `deploy`.
pub(crate) fn place(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

/// Text of a file below `deploy`.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let place = place(path);
    std::fs::read_to_string(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

/// All files except documentation in the folder `below` and its subfolders, as paths below it, sorted.
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

/// Documents of one file below `deploy`.
pub(crate) fn documents(file: &str) -> Vec<Document> {
    let values: Vec<Value> =
        serde_saphyr::from_multiple(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(!values.is_empty(), "{file} holds no document");
    values.into_iter().map(|value| Document { file: file.to_owned(), value }).collect()
}

/// API objects of the base.
pub(crate) fn base() -> Vec<Document> {
    objects_in(BASE)
}

/// API objects of the examples.
pub(crate) fn examples() -> Vec<Document> {
    objects_in(EXAMPLES)
}

/// API objects of the optional policies.
pub(crate) fn admission() -> Vec<Document> {
    objects_in("admission")
}

/// API objects with which Gateways are served.
pub(crate) fn gateway_api() -> Vec<Document> {
    objects_in(GATEWAY_API)
}

/// API objects that every Karmada API server gets.
pub(crate) fn karmada() -> Vec<Document> {
    let mut documents = objects_in(KARMADA);
    documents.retain(|document| !document.file.starts_with(EXPORTS) && !document.file.starts_with(BOUND));
    documents
}

/// API objects that it gets additionally to export Services.
pub(crate) fn exports() -> Vec<Document> {
    objects_in(EXPORTS)
}

/// API objects that it gets additionally if it trusts tokens of the cluster that Sheave runs in.
pub(crate) fn bound() -> Vec<Document> {
    objects_in(BOUND)
}

/// API objects in a folder, without kustomizations, their components and the program's own configuration.
fn objects_in(folder: &str) -> Vec<Document> {
    // FRR's own files are not API objects either.
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
