//! Tests of the manifests for a Karmada API server, and of what the gateways' cluster needs to reach it: names, permissions,
//! and patches of the base.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{PodSpec, Secret, ServiceAccount, Volume};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::rbac::assert_bound;
use crate::typed::{names, object_of, strictly};
use crate::workloads::container;
use crate::{files, kustomization};

/// Component for the cluster that Sheave runs in.
const CLUSTER: &str = "karmada/cluster";
/// Same with tokens of that cluster.
const CLUSTER_BOUND: &str = "karmada/cluster-bound";
/// Folder of the kubeconfig in configurations.
const FOLDER: &str = "/etc/sheave-karmada";
/// Default port of Karmada's API server.
const PORT: i32 = 5443;
/// Port on which `karmadactl init` publishes it.
const NODE_PORT: i32 = 32443;

#[test]
fn the_folder_holds_two_accounts_with_their_rights_and_tokens() {
    assert_eq!(
        names(&files::karmada()),
        [
            "ClusterRole sheave-karmada-controller",
            "ClusterRole sheave-karmada-gateway",
            "ClusterRoleBinding sheave-karmada-controller",
            "ClusterRoleBinding sheave-karmada-gateway",
            "Namespace sheave-system",
            "Role sheave-karmada-controller",
            "RoleBinding sheave-karmada-controller",
            "Secret sheave-controller",
            "Secret sheave-gateway",
            "ServiceAccount sheave-controller",
            "ServiceAccount sheave-gateway",
            "ValidatingAdmissionPolicy sheave-karmada-controller",
            "ValidatingAdmissionPolicy sheave-karmada-controller-creates",
            "ValidatingAdmissionPolicyBinding sheave-karmada-controller",
            "ValidatingAdmissionPolicyBinding sheave-karmada-controller-creates",
        ]
    );
}

#[test]
fn the_kustomization_names_every_file_but_those_for_the_other_cluster() {
    let named: BTreeSet<String> = kustomization::of(files::KARMADA)
        .resources
        .into_iter()
        .chain(["kustomization.yaml".to_owned()])
        .collect();
    let apart = ["cluster/", "cluster-bound/", "exports/", "bound/"];
    let there = files::all(files::KARMADA)
        .into_iter()
        .filter(|file| !apart.iter().any(|folder| file.starts_with(folder)));
    assert_eq!(named, there.collect());
}

/// An object with the same name would replace the other if one API server has both.
#[test]
fn no_role_or_policy_has_the_name_of_one_of_the_base() {
    let roles = |all: Vec<String>| -> BTreeSet<String> {
        let shared = ["ClusterRole", "ValidatingAdmissionPolicy"];
        all.into_iter().filter(|it| shared.iter().any(|kind| it.starts_with(kind))).collect()
    };
    let shared: Vec<String> =
        roles(names(&files::base())).intersection(&roles(names(&files::karmada()))).cloned().collect();
    assert_eq!(shared, [] as [&str; 0]);
}

#[test]
fn everything_is_in_our_namespace() {
    for document in files::karmada() {
        let kind = document.value["kind"].as_str().unwrap();
        let namespace = document.value["metadata"]["namespace"].as_str();
        let cluster_scoped = ["Namespace", "ClusterRole", "ValidatingAdmissionPolicy"];
        let expected = (!cluster_scoped.iter().any(|it| kind.starts_with(it))).then_some("sheave-system");
        assert_eq!(namespace, expected, "{kind} of {}", document.file);
    }
}

/// A taint that evicts the definition removes every export of that cluster.
#[test]
fn the_definition_of_exports_is_in_every_cluster_whatever_its_taints() {
    let exports = files::exports();
    let policy =
        exports.iter().find(|it| it.value["kind"] == "ClusterPropagationPolicy").expect("it is there");
    let expected = serde_json::json!({"clusterAffinity": {}, "clusterTolerations": [{"operator": "Exists"}]});
    assert_eq!(policy.value["spec"]["placement"], expected);
}

#[test]
fn each_account_has_its_role_and_its_token() {
    let objects = files::karmada();
    for (account, role) in
        [("sheave-gateway", "sheave-karmada-gateway"), ("sheave-controller", "sheave-karmada-controller")]
    {
        let _: ServiceAccount = object_of(&objects, account);
        let binding: ClusterRoleBinding = object_of(&objects, role);
        assert_bound(account, ("ClusterRole", role), &binding.role_ref, binding.subjects.as_deref());
        let token: Secret = object_of(&objects, account);
        assert_eq!(token.type_.as_deref(), Some("kubernetes.io/service-account-token"));
        let annotations = token.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.get("kubernetes.io/service-account.name").map(String::as_str), Some(account));
    }
}

/// Tokens that Pods use for the Karmada API server belong to accounts with the same permissions there.
#[test]
fn accounts_of_the_own_cluster_have_the_same_rights() {
    let bindings = files::bound();
    for (account, role) in [
        ("sheave-gateway", "sheave-karmada-gateway"),
        ("sheave-controller", "sheave-karmada-controller"),
        ("sheave-controller", "sheave-controller-exports"),
    ] {
        let binding: ClusterRoleBinding = object_of(&bindings, &format!("{role}-bound"));
        assert_eq!((binding.role_ref.kind.as_str(), binding.role_ref.name.as_str()), ("ClusterRole", role));
        let subjects = binding.subjects.unwrap_or_default();
        let [subject] = &subjects[..] else { panic!("one subject is expected: {subjects:?}") };
        let user = format!("sheave:system:serviceaccount:sheave-system:{account}");
        assert_eq!((subject.kind.as_str(), subject.name.as_str()), ("User", user.as_str()));
        let own = if role.ends_with("exports") { files::exports() } else { files::karmada() };
        let _: ClusterRole = object_of(&own, role);
    }
    // The Leases of installations, and that of Karmada's controller.
    for (own, role, namespace) in [
        (files::karmada(), "sheave-karmada-controller", "sheave-system"),
        (files::exports(), "sheave-controller-exports", "karmada-system"),
    ] {
        let leases: RoleBinding = object_of(&bindings, &format!("{role}-bound"));
        assert_eq!((leases.role_ref.kind.as_str(), leases.role_ref.name.as_str()), ("Role", role));
        let subjects = leases.subjects.unwrap_or_default();
        assert_eq!(subjects[0].name, "sheave:system:serviceaccount:sheave-system:sheave-controller");
        let own: Role = object_of(&own, role);
        assert_eq!(
            (own.metadata.namespace.as_deref(), leases.metadata.namespace.as_deref()),
            (Some(namespace), Some(namespace))
        );
    }
    assert_eq!(bindings.len(), 5);
}

/// The object of the base after the component's patch.
fn patched<T: DeserializeOwned + k8s_openapi::Resource>(component: &str, name: &str) -> T {
    let patches = kustomization::component(component).patches;
    let mut of = patches.iter().filter(|it| it.target["kind"] == T::KIND && it.target["name"] == name);
    let (Some(patch), None) = (of.next(), of.next()) else { panic!("one patch is for {} {name}", T::KIND) };
    let base = files::base();
    let found = base.iter().find(|it| it.value["kind"] == T::KIND && it.value["metadata"]["name"] == name);
    let mut value: Value =
        found.unwrap_or_else(|| panic!("the base has no {} {name}", T::KIND)).value.clone();
    let operations: json_patch::Patch = serde_saphyr::from_str(&patch.patch).expect("a JSON patch");
    json_patch::patch(&mut value, &operations).unwrap_or_else(|error| panic!("{} {name}: {error}", T::KIND));
    strictly(component, &value)
}

/// The volume that is mounted read-only at the Pod's [`FOLDER`].
fn mounted(pod: &PodSpec) -> &Volume {
    let mounts = container(pod).volume_mounts.as_deref().unwrap_or_default();
    let mount = mounts.iter().find(|it| it.mount_path == FOLDER).expect("something is mounted there");
    assert_eq!(mount.read_only, Some(true));
    let mut volumes = pod.volumes.iter().flatten();
    volumes.find(|it| it.name == mount.name).expect("the volume is there")
}

/// Pods of gateways and controllers after a component's patches, with the names of their Secrets.
fn patched_pods(component: &str) -> [(PodSpec, &'static str); 2] {
    assert_eq!(kustomization::component(component).patches.len(), 3);
    let gateway: DaemonSet = patched(component, "sheave-gateway");
    let controller: Deployment = patched(component, "sheave-controller");
    [
        (gateway.spec.template.spec.expect("Pods"), "sheave-gateway-karmada"),
        (controller.spec.template.spec.expect("Pods"), "sheave-controller-karmada"),
    ]
}

#[test]
fn the_component_mounts_the_kubeconfigs() {
    for (pod, secret) in patched_pods(CLUSTER) {
        let source = mounted(&pod).secret.as_ref().expect("a Secret");
        assert_eq!(source.secret_name.as_deref(), Some(secret));
    }
}

#[test]
fn the_other_component_mounts_kubeconfigs_and_tokens_that_end() {
    for (pod, secret) in patched_pods(CLUSTER_BOUND) {
        let sources = mounted(&pod).projected.as_ref().and_then(|it| it.sources.as_deref()).expect("sources");
        let [kubeconfig, token] = sources else { panic!("two sources are expected: {sources:?}") };
        assert_eq!(kubeconfig.secret.as_ref().map(|it| it.name.as_str()), Some(secret));
        let token = token.service_account_token.as_ref().expect("a token");
        assert_eq!((token.path.as_str(), token.audience.as_deref()), ("token", Some("karmada")));
        let seconds = token.expiration_seconds.expect("it ends");
        // The API server issues no shorter ones.
        assert!((600..=86_400).contains(&seconds), "{seconds}");
    }
}

#[test]
fn both_components_open_the_way() {
    for component in [CLUSTER, CLUSTER_BOUND] {
        let policy: NetworkPolicy = patched(component, "sheave-controller");
        let egress = policy.spec.unwrap().egress.unwrap();
        let open = |port: i32| {
            egress.iter().any(|rule| {
                rule.to.is_none()
                    && rule.ports.iter().flatten().any(|it| it.port == Some(IntOrString::Int(port)))
            })
        };
        assert!(open(PORT) && open(NODE_PORT) && open(53), "{egress:?}");
    }
}
