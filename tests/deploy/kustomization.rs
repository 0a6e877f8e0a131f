//! Tests that the kustomizations name existing files, and that the base includes all of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::files;
use crate::typed::strictly;

/// The used part of a Kustomization.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Kustomization {
    api_version: String,
    kind: String,
    #[serde(default)]
    labels: Vec<Labels>,
    #[serde(default)]
    pub(crate) resources: Vec<String>,
    #[serde(default)]
    pub(crate) config_map_generator: Vec<ConfigMapArgs>,
    #[serde(default)]
    pub(crate) images: Vec<Image>,
    #[serde(default)]
    pub(crate) patches: Vec<Patch>,
}

#[derive(Debug, Deserialize)]
struct Labels {
    pairs: BTreeMap<String, String>,
}

/// ConfigMap from files, as `key=file`.
#[derive(Debug, Deserialize)]
pub(crate) struct ConfigMapArgs {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) behavior: Option<String>,
    pub(crate) files: Vec<String>,
    #[serde(default)]
    pub(crate) options: Options,
}

/// Other properties of a ConfigMap.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Options {
    pub(crate) labels: BTreeMap<String, String>,
}

/// Image that replaces a name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) new_tag: String,
    pub(crate) new_name: Option<String>,
}

/// JSON patch, as text.
#[derive(Debug, Deserialize)]
pub(crate) struct Patch {
    pub(crate) target: BTreeMap<String, String>,
    pub(crate) patch: String,
}

/// Kustomization in a folder below `deploy`.
pub(crate) fn of(folder: &str) -> Kustomization {
    read(folder, "kustomize.config.k8s.io/v1beta1", "Kustomization")
}

/// Component in a folder below `deploy`, which kustomizations name under `components`.
pub(crate) fn component(folder: &str) -> Kustomization {
    read(folder, "kustomize.config.k8s.io/v1alpha1", "Component")
}

fn read(folder: &str, api_version: &str, kind: &str) -> Kustomization {
    let file = format!("{folder}/kustomization.yaml");
    let documents = files::documents(&file);
    assert_eq!(documents.len(), 1, "{file}");
    let kustomization: Kustomization = strictly(&file, &documents[0].value);
    assert_eq!(kustomization.api_version, api_version, "{file}");
    assert_eq!(kustomization.kind, kind, "{file}");
    kustomization
}

impl Kustomization {
    /// Labels of every object.
    pub(crate) fn label_pairs(&self) -> impl Iterator<Item = (&String, &String)> {
        self.labels.iter().flat_map(|labels| &labels.pairs)
    }

    /// Files of ConfigMaps.
    fn config_files(&self) -> impl Iterator<Item = &str> {
        let files = self.config_map_generator.iter().flat_map(|map| &map.files);
        files.map(|entry| entry.split_once('=').unwrap_or_else(|| panic!("{entry} has no key")).1)
    }
}

/// Resolves `..` in a path, as text.
fn resolve(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut resolved, component| {
        match component {
            Component::ParentDir => drop(resolved.pop()),
            other => resolved.push(other),
        }
        resolved
    })
}

#[test]
fn the_base_names_every_file_of_its_folder_once_and_no_other() {
    let base = of(files::BASE);
    let named: Vec<&str> = base
        .resources
        .iter()
        .map(String::as_str)
        .chain(base.config_files())
        .chain(["kustomization.yaml"])
        .collect();
    let set: BTreeSet<String> = named.iter().map(|&file| file.to_owned()).collect();
    assert_eq!(set.len(), named.len(), "named twice: {named:?}");
    assert_eq!(set, files::all(files::BASE).into_iter().collect());
}

#[test]
fn what_goes_beside_another_folder_names_every_file_of_its_own() {
    for folder in [files::EXPORTS, files::BOUND, files::GATEWAY_API] {
        let mut named = of(folder).resources;
        named.push("kustomization.yaml".to_owned());
        named.sort();
        assert_eq!(named, files::all(folder));
    }
}

#[test]
fn the_example_overlays_name_what_is_there() {
    ["examples/overlay", "examples/l2"].into_iter().for_each(names_what_is_there);
}

fn names_what_is_there(folder: &str) {
    let overlay = of(folder);
    let bases: Vec<PathBuf> =
        overlay.resources.iter().map(|path| resolve(&Path::new(folder).join(path))).collect();
    assert_eq!(bases, [Path::new(files::BASE)]);
    let mut named: Vec<&str> = overlay.config_files().chain(["kustomization.yaml"]).collect();
    named.sort_unstable();
    assert_eq!(named, files::all(folder));
    let base = of(files::BASE);
    for map in &overlay.config_map_generator {
        assert_eq!(map.behavior.as_deref(), Some("replace"), "{}", map.name);
        let same = base
            .config_map_generator
            .iter()
            .any(|it| (&it.name, &it.namespace) == (&map.name, &map.namespace));
        assert!(same, "the base has no ConfigMap {}", map.name);
    }
    for patch in &overlay.patches {
        serde_saphyr::from_str::<Vec<Value>>(&patch.patch).expect("a patch is a list");
    }
}
