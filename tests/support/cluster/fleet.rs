//! Karmada control plane next to a cluster.

use std::fs;
use std::path::PathBuf;
use std::sync::PoisonError;

use serde_json::{Value, json};

use super::rights::{Rights, text_of};
use super::{Account, Backing, Cluster, MANAGER, Refusal, documents_of};
use crate::karmada;

/// Variable with the kubeconfig of a real control plane, for an administrator.
const REAL_KARMADA: &str = "SHEAVE_TEST_KARMADA_KUBECONFIG";
/// Folder of this repository with the manifests for it.
const FOLDER: &str = "deploy/karmada";
/// Additional manifests for exporting Services, except the definition that members need.
const EXPORT_RIGHTS: &str = "deploy/karmada/exports/rights.yaml";
const EXPORT_POLICY: &str = "deploy/karmada/exports/policy.yaml";

impl Cluster {
    /// The Karmada control plane of the environment, with a namespace of the same name: a test API server, unless the cluster is
    /// real and the environment names a control plane.
    pub fn control_plane(&self) -> Self {
        let real = match &self.backing {
            Backing::Test(_) => None,
            Backing::Real(_) => std::env::var_os(REAL_KARMADA),
        };
        let files = files();
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        let plane = Self::connect(self.namespace.clone(), real, Rights::read(&names), None);
        plane.define_karmada();
        let objects = names.iter().flat_map(|file| documents_of(&text_of(file)));
        // Namespaces must exist before their objects.
        let (first, then): (Vec<_>, Vec<_>) = objects.partition(|object| object["kind"] == "Namespace");
        first.into_iter().chain(then).for_each(|object| plane.install_object(object));
        plane.keep_what_is_made();
        plane.forget_installations();
        plane.open();
        plane
    }

    /// Deletes the Leases that a killed controller of the last case has left. The next controller is another installation, and
    /// would otherwise wait for a minute before it writes.
    fn forget_installations(&self) {
        if self.test_server().is_none() {
            let leases = "/apis/coordination.k8s.io/v1/namespaces/sheave-system/leases";
            self.send("DELETE", leases, "", &Value::Null)
                .unwrap_or_else(|error| panic!("{leases}: {error:?}"));
        }
    }

    /// Defines the kinds that the server does not serve yet. The test API server has Clusters as an aggregated kind.
    fn define_karmada(&self) {
        if let Backing::Test(server) = &self.backing {
            server.aggregate_clusters();
            server.admit_as_karmada();
        }
        self.define_kinds(&[
            ("MultiClusterService", karmada::MULTI_CLUSTER_SERVICE),
            ("Work", karmada::WORK),
            ("ResourceBinding", karmada::RESOURCE_BINDING),
            ("Cluster", karmada::CLUSTER),
        ]);
        if self.test_server().is_none() {
            // Otherwise, only real servers have the namespace of the accounts.
            self.make_namespace("sheave-system");
        }
    }

    fn define_kinds(&self, kinds: &[(&str, &str)]) {
        for (kind, definition) in kinds {
            let served = self.send("GET", &super::paths::everywhere(kind), "", &Value::Null);
            if matches!(served, Err(Refusal { code: 404, .. })) {
                self.apply(definition);
                self.wait_until_served(kind);
            }
        }
    }

    /// Serves the kinds for exporting Services. The definitions stay, but nothing else.
    pub fn define_exports(&self) {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.define_kinds(&[
            ("ServiceExport", karmada::SERVICE_EXPORT),
            ("PropagationPolicy", karmada::PROPAGATION_POLICY),
        ]);
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = made;
    }

    /// Gives the controller the additional permissions of `deploy/karmada/exports`.
    pub fn allow_exports(&self) {
        if self.test_server().is_some() {
            // Karmada creates this namespace; the Leases of its controllers are there.
            self.make_namespace("karmada-system");
        }
        for file in [EXPORT_RIGHTS, EXPORT_POLICY] {
            documents_of(&text_of(file)).into_iter().for_each(|object| self.install_object(object));
        }
        if let Backing::Test(server) = &self.backing {
            let mut files = files();
            files.push(EXPORT_RIGHTS.to_owned());
            let names: Vec<&str> = files.iter().map(String::as_str).collect();
            let account = Account::Controller;
            server.authorize(self.user(account), &Rights::read(&names).roles(account));
        }
    }

    /// Creates the namespace of a member's Works.
    pub fn make_execution_space(&self, name: &str) {
        self.make_namespace(name);
        self.keep("Namespace", name);
    }

    /// Excludes an object from deletion at the end. A real control plane takes long to delete such objects, and the next case
    /// needs them.
    pub fn keep(&self, kind: &str, name: &str) {
        let path = self.path_of(kind, name);
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|made| *made != path);
    }

    /// Creates an object unchanged, rather than by apply, so that no schema alters it.
    pub fn create(&self, object: &Value) -> Result<Value, Refusal> {
        let mut object = object.clone();
        self.place(&mut object);
        let path = super::path(&object);
        let (collection, _) = path.rsplit_once('/').expect("a path has parts");
        let made =
            self.send("POST", &format!("{collection}?fieldManager={MANAGER}"), "application/json", &object)?;
        self.remember(path);
        Ok(made)
    }

    /// Removes a finalizer from an object, like its owner would.
    pub fn release(&self, kind: &str, name: &str) -> Result<Value, Refusal> {
        self.merge(kind, name, MANAGER, &json!({"metadata": {"finalizers": null}}))
    }
}

/// Manifests of [`FOLDER`].
fn files() -> Vec<String> {
    let folder = PathBuf::from(crate::program::PROJECT).join(FOLDER);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names =
        entries.map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned());
    let mut files: Vec<String> = names
        .filter(|name| name.ends_with(".yaml") && name != "kustomization.yaml")
        .map(|name| format!("{FOLDER}/{name}"))
        .collect();
    files.sort();
    files
}
