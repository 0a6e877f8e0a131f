//! The Karmada control plane beside a cluster.

use std::fs;
use std::path::PathBuf;
use std::sync::PoisonError;

use serde_json::{Value, json};

use super::rights::{Rights, text_of};
use super::{Account, Backing, Cluster, MANAGER, Refusal, documents_of};
use crate::karmada;

/// Names a real control plane, with the rights of an administrator.
const REAL_KARMADA: &str = "SHEAVE_TEST_KARMADA_KUBECONFIG";
/// What is applied to it, in this repository.
const FOLDER: &str = "deploy/karmada";
/// What is applied beside it where Services are exported, but for the definition that members need.
const EXPORT_RIGHTS: &str = "deploy/karmada/exports/rights.yaml";
const EXPORT_POLICY: &str = "deploy/karmada/exports/policy.yaml";

impl Cluster {
    /// The Karmada control plane of the environment, with a namespace of the same name: a test API server, unless the
    /// cluster is real and the environment names one.
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
        // Namespaces come before what is in them.
        let (first, then): (Vec<_>, Vec<_>) = objects.partition(|object| object["kind"] == "Namespace");
        first.into_iter().chain(then).for_each(|object| plane.install_object(object));
        plane.keep_what_is_made();
        plane.forget_installations();
        plane.open();
        plane
    }

    /// Ends the Leases that a killed controller of the last case left: the next one is another installation, and would wait for a
    /// minute before it writes.
    fn forget_installations(&self) {
        if self.test_server().is_none() {
            let leases = "/apis/coordination.k8s.io/v1/namespaces/sheave-system/leases";
            self.send("DELETE", leases, "", &Value::Null)
                .unwrap_or_else(|error| panic!("{leases}: {error:?}"));
        }
    }

    /// Defines what the server does not serve yet. Clusters are aggregated where that can be had.
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
            // Others on a real server do without the accounts' namespace.
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

    /// Serves what Services are exported by. The definitions stay, and nothing else.
    pub fn define_exports(&self) {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.define_kinds(&[
            ("ServiceExport", karmada::SERVICE_EXPORT),
            ("PropagationPolicy", karmada::PROPAGATION_POLICY),
        ]);
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = made;
    }

    /// Gives the controller what `deploy/karmada/exports` gives beside its other rights.
    pub fn allow_exports(&self) {
        if self.test_server().is_some() {
            // Karmada makes it; its controllers have their Leases there.
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

    /// Makes the namespace of a member's Works.
    pub fn make_execution_space(&self, name: &str) {
        self.make_namespace(name);
        self.keep("Namespace", name);
    }

    /// Leaves an object there at the end: a real control plane takes its time to end such, and the next case wants it.
    pub fn keep(&self, kind: &str, name: &str) {
        let path = self.path_of(kind, name);
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|made| *made != path);
    }

    /// Puts an object there as it is, by creation and not by apply: for what no schema must touch.
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

    /// Takes a finalizer off an object, as its owner would.
    pub fn release(&self, kind: &str, name: &str) -> Result<Value, Refusal> {
        self.merge(kind, name, MANAGER, &json!({"metadata": {"finalizers": null}}))
    }
}

/// The manifests of [`FOLDER`].
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
