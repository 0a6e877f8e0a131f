//! Tests that the Helm chart, whose templates change the objects of the kustomizations, has the same objects by default. Tests that
//! need helm are run by `tests/run`, which finds one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::kustomization::{self, ConfigMapArgs, Kustomization};
use crate::{files, typed};

mod frr;
mod openshift;
mod values;

/// Folder of the chart.
const CHART: &str = "helm/sheave";
/// Variable with the program, if it is not the `helm` in the path.
const HELM: &str = "SHEAVE_TEST_HELM";
/// Additional labels of objects from Helm.
const LABELS_OF_HELM: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

/// Renders the chart with `KEY=VALUE`, or `KEY=@FILE` for the text of a file below `deploy`.
fn helm(namespace: &str, values: &[&str]) -> Output {
    helm_of(&files::place(CHART), namespace, values)
}

/// Renders the chart in this folder.
fn helm_of(chart: &Path, namespace: &str, values: &[&str]) -> Output {
    let program = std::env::var_os(HELM).unwrap_or_else(|| OsString::from("helm"));
    let home = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    for name in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
        command.env(name, home.path());
    }
    command.args(["template", "sheave"]).arg(chart);
    command.args(["--namespace", namespace, "--kube-version", "1.31.0"]);
    for value in values {
        match value.split_once("=@") {
            Some((key, file)) => {
                command.arg("--set-file").arg(format!("{key}={}", files::place(file).display()))
            }
            None => command.args(["--set", value]),
        };
    }
    command.output().expect("helm starts")
}

/// Copies the chart with one changed file.
fn copy_with(to: &Path, file: &str, change: impl Fn(&str) -> String) {
    for name in files::all(CHART) {
        let place = to.join(&name);
        let text = files::text(format!("{CHART}/{name}"));
        fs::create_dir_all(place.parent().expect("a folder")).expect("it is made");
        fs::write(place, if name.ends_with(file) { change(&text) } else { text }).expect("it is written");
    }
}

/// Objects of the chart with these values.
fn rendered(namespace: &str, values: &[&str]) -> Objects {
    objects(&helm(namespace, values), values)
}

fn objects(output: &Output, values: &[&str]) -> Objects {
    assert!(output.status.success(), "{values:?}: {}", String::from_utf8_lossy(&output.stderr));
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&String::from_utf8_lossy(&output.stdout)).expect("helm gives YAML");
    by_name(documents.into_iter().filter(|document| !document.is_null()))
}

fn by_name(objects: impl Iterator<Item = Value>) -> Objects {
    let mut found = Objects::new();
    for object in objects {
        let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        assert!(found.insert(name.clone(), object).is_none(), "{name} is there twice");
    }
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// Objects of `kubectl apply -k` for an overlay or the base. Supports resources, ConfigMaps, images and patches, which is all that
/// they use.
fn kustomized(overlay: Option<&str>) -> Objects {
    let base = kustomization::of(files::BASE);
    let top = overlay.map_or_else(|| kustomization::of(files::BASE), kustomization::of);
    let mut objects = by_name(files::base().into_iter().map(|document| document.value));
    objects.extend(base.config_map_generator.iter().map(|map| config_map(files::BASE, map)));
    for object in objects.values_mut() {
        let labels = &mut object["metadata"]["labels"];
        for (name, value) in base.label_pairs() {
            labels[name] = json!(value);
        }
    }
    if let Some(folder) = overlay {
        let own = top.resources.iter().filter(|resource| resource.ends_with(".yaml"));
        let own = own.flat_map(|file| files::documents(&format!("{folder}/{file}")));
        objects.extend(by_name(own.map(|document| document.value)));
        for (name, map) in top.config_map_generator.iter().map(|map| config_map(folder, map)) {
            match objects.get_mut(&name) {
                Some(replaced) => replaced["data"] = map["data"].clone(),
                None => drop(objects.insert(name, map)),
            }
        }
    }
    patch(&mut objects, &top);
    objects
}

/// ConfigMap that is generated from files of a folder.
fn config_map(folder: &str, map: &ConfigMapArgs) -> (String, Value) {
    let data: BTreeMap<_, _> = map
        .files
        .iter()
        .map(|entry| {
            let (key, file) = entry.split_once('=').unwrap_or((entry, entry));
            (key, files::text(format!("{folder}/{file}")))
        })
        .collect();
    let mut metadata = json!({"name": map.name, "namespace": map.namespace});
    if !map.options.labels.is_empty() {
        metadata["labels"] = json!(map.options.labels);
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    (format!("ConfigMap {}", map.name), object)
}

fn patch(objects: &mut Objects, top: &Kustomization) {
    apply_patches(objects, top);
    let [image] = &top.images[..] else { panic!("one image is expected: {:?}", top.images) };
    let image = format!("{}:{}", image.new_name.as_ref().unwrap_or(&image.name), image.new_tag);
    for name in ["DaemonSet sheave-gateway", "Deployment sheave-controller"] {
        objects.get_mut(name).expect("a workload")["spec"]["template"]["spec"]["containers"][0]["image"] =
            json!(image);
    }
}

fn apply_patches(objects: &mut Objects, top: &Kustomization) {
    for patch in &top.patches {
        let name = format!("{} {}", patch.target["kind"], patch.target["name"]);
        let operations: json_patch::Patch = serde_saphyr::from_str(&patch.patch).expect("a patch");
        json_patch::patch(objects.get_mut(&name).expect("its target"), &operations)
            .expect("a patch that fits");
    }
}

/// Removes what a chart does in its own way.
fn comparable(mut objects: Objects) -> Objects {
    // `helm --create-namespace` creates the namespace, and `helm test` the Pod.
    objects.retain(|name, _| !name.starts_with("Namespace ") && !name.starts_with("Pod "));
    for (name, object) in &mut objects {
        if name.starts_with("CustomResourceDefinition ") {
            // Helm writes whole numbers without a fraction, and keeps the definition.
            let text = object.to_string().replace(".0,", ",").replace(".0}", "}");
            *object = serde_json::from_str(&text).expect("the definition");
            object["metadata"].as_object_mut().expect("metadata").remove("annotations");
        }
        let labels = object["metadata"]["labels"].as_object_mut().expect("labels");
        labels.retain(|label, _| !LABELS_OF_HELM.contains(&label.as_str()));
        if name.starts_with("ConfigMap ") {
            labels.remove("app.kubernetes.io/component");
            if let Some(config) = object["data"].get_mut("config.yaml") {
                *config = serde_saphyr::from_str(text(config)).expect("a configuration");
            }
        }
        // kustomize adds the hash to the name of the ConfigMap.
        if let Some(metadata) = object.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut)
            && let Some(annotations) = metadata.remove("annotations")
        {
            assert_eq!(
                annotations.as_object().expect("annotations").keys().collect::<Vec<_>>(),
                ["checksum/config"]
            );
        }
    }
    objects
}

fn expect_same(chart: Objects, kustomized: Objects) {
    let (chart, kustomized) = (comparable(chart), comparable(kustomized));
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&chart), names(&kustomized));
    for (name, object) in &chart {
        snapbox::assert_data_eq!(
            serde_json::to_string_pretty(object).expect("JSON"),
            snapbox::Data::text(serde_json::to_string_pretty(&kustomized[name]).expect("JSON")).raw()
        );
    }
}

#[test]
#[ignore = "needs helm"]
fn the_chart_brings_the_objects_of_the_base() {
    expect_same(rendered("sheave-system", &[]), kustomized(None));
}

#[test]
#[ignore = "needs helm"]
fn a_chart_that_announces_brings_the_objects_of_that_overlay() {
    let values = ["announce=l2", "image.repository=registry.example.com/sheave"];
    expect_same(rendered("sheave-system", &values), kustomized(Some("examples/l2")));
}

#[test]
#[ignore = "needs helm"]
fn a_chart_that_announces_by_bgp_brings_the_objects_of_that_overlay() {
    let values = [
        "announce=bgp",
        "frr.config=@examples/bgp-frr/frr.conf",
        "image.repository=registry.example.com/sheave",
    ];
    expect_same(rendered("sheave-system", &values), kustomized(Some("examples/bgp-frr")));
}

#[test]
#[ignore = "needs helm"]
fn a_chart_with_another_drain_brings_the_objects_of_the_example_overlay() {
    let values = [
        "image.repository=registry.example.com/sheave",
        "gateway.config.timeouts.drain=5m",
        "gateway.terminationGracePeriodSeconds=330",
    ];
    expect_same(rendered("sheave-system", &values), kustomized(Some("examples/overlay")));
}

#[test]
#[ignore = "needs helm"]
fn a_chart_with_admission_brings_the_policies_of_that_folder_for_its_class() {
    let mut kustomized = kustomized(None);
    let policies =
        by_name(files::documents("admission/policy.yaml").into_iter().map(|document| document.value));
    for (name, mut object) in policies {
        for (label, value) in kustomization::of("admission").label_pairs() {
            object["metadata"]["labels"][label] = json!(value);
        }
        kustomized.insert(name, object);
    }
    expect_same(rendered("sheave-system", &["admission=true"]), kustomized);
}

/// The policies name the class and its finalizer, whose suffix is a hash that templates cannot compute.
#[test]
#[ignore = "needs helm"]
fn the_policies_are_for_the_class_of_the_values() {
    let objects = rendered("sheave-system", &["admission=true", "loadBalancerClass=example.com/lb"]);
    let policy = |name: &str| objects[&format!("ValidatingAdmissionPolicy {name}")].to_string();
    assert!(policy("sheave-services").contains("== 'example.com/lb'"));
    assert!(policy("sheave-controller").contains("in ['example.com/lb']"));
    assert!(policy("sheave-controller").contains("name.startsWith('sheave.dev/load-balancer-cleanup-')"));
    for name in ["sheave-services", "sheave-controller"] {
        let policy = policy(name);
        assert!(!policy.contains("sheave.dev/l4"), "{policy}");
        assert!(!policy.contains("'sheave.dev/load-balancer-cleanup'"), "{policy}");
    }
    let objects = rendered("sheave-system", &["handleUnclassified=true"]);
    let policy = objects["ValidatingAdmissionPolicy sheave-controller"].to_string();
    assert!(policy.contains("in ['sheave.dev/l4', '']"), "{policy}");
}

#[test]
#[ignore = "needs helm"]
fn a_chart_that_connects_to_karmada_brings_what_the_components_patch() {
    for (component, values) in [
        ("karmada/cluster", &["karmada.enabled=true"][..]),
        ("karmada/cluster-bound", &["karmada.enabled=true", "karmada.boundTokens=true"]),
    ] {
        let mut patched = kustomized(None);
        apply_patches(&mut patched, &kustomization::component(component));
        let mut chart = rendered("sheave-system", values);
        // The configurations have the section `karmada`.
        for objects in [&mut chart, &mut patched] {
            objects.retain(|name, _| !name.starts_with("ConfigMap "));
        }
        expect_same(chart, patched);
    }
}

#[test]
#[ignore = "needs helm"]
fn a_chart_with_the_gateway_api_brings_the_objects_of_that_folder() {
    let mut kustomized = kustomized(None);
    let labels = kustomization::of(files::GATEWAY_API);
    for (name, mut object) in by_name(files::gateway_api().into_iter().map(|document| document.value)) {
        for (label, value) in labels.label_pairs() {
            object["metadata"]["labels"][label] = json!(value);
        }
        kustomized.insert(name, object);
    }
    expect_same(rendered("sheave-system", &["gatewayAPI.enabled=true"]), kustomized);
    let name = "gatewayAPI.controllerName=example.com/gateway";
    let objects = rendered("sheave-system", &["gatewayAPI.enabled=true", name]);
    for config in ["ConfigMap sheave-gateway-config", "ConfigMap sheave-controller-config"] {
        assert!(text(&objects[config]["data"]["config.yaml"]).contains("example.com/gateway"), "{config}");
    }
    for policy in ["sheave-controller-routes", "sheave-controller-gateways", "sheave-controller-parents"] {
        let policy = objects[&format!("ValidatingAdmissionPolicy {policy}")].to_string();
        assert!(
            policy.contains("== 'example.com/gateway'") && !policy.contains("sheave.dev/gateway"),
            "{policy}"
        );
    }
}

#[test]
#[ignore = "needs helm"]
fn every_name_of_the_namespace_follows_the_release() {
    let frr = rendered("elsewhere", &["announce=bgp", "frr.config=router bgp 1"]);
    let objects = rendered("elsewhere", &[&EVERYTHING[..], &["openshift=true"]].concat());
    for (name, object) in objects.iter().chain(&frr) {
        assert!(!object.to_string().contains("sheave-system"), "{name}: {object}");
    }
    let policy = objects["ValidatingAdmissionPolicy sheave-controller"].to_string();
    assert!(policy.contains("system:serviceaccount:elsewhere:sheave-controller"), "{policy}");
    let config = objects["ConfigMap sheave-controller-config"].to_string();
    assert!(config.contains("elsewhere/sheave-gateways") && config.contains("elsewhere/sheave-controller"));
}

/// Values that bring every object that does not depend on how addresses are announced.
const EVERYTHING: [&str; 8] = [
    "admission=true",
    "gatewayAPI.enabled=true",
    "karmada.enabled=true",
    "metrics.enabled=true",
    "metrics.prometheus.serviceAccount=prometheus",
    "metrics.prometheus.namespace=monitoring",
    "metrics.prometheusRule.enabled=true",
    "metrics.dashboards.enabled=true",
];

#[test]
#[ignore = "needs helm"]
fn every_object_of_the_chart_is_what_its_kind_allows() {
    let values = [
        "image.pullPolicy=Always",
        "imagePullSecrets[0].name=registry",
        "commonAnnotations.a=b",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.a=b",
        "networkPolicy.apiServer.cidrs={192.0.2.0/24}",
        "gateway.seccompProfile.type=Localhost",
        "gateway.nodeSelector.a=b",
        "controller.podDisruptionBudget.minAvailable=1",
        "controller.updateStrategy.type=Recreate",
    ];
    for announce in [
        &["announce=l2", "metrics.serviceMonitor.enabled=true"][..],
        &["announce=bgp", "frr.config=router bgp 1", "metrics.podMonitor.enabled=true"],
    ] {
        for (name, value) in rendered("sheave-system", &[announce, &EVERYTHING, &values].concat()) {
            if !name.starts_with("ConfigMap ") {
                typed::check(&files::Document { file: CHART.to_owned(), value });
            }
        }
    }
}

#[test]
#[ignore = "needs helm"]
fn the_program_takes_the_configurations_of_the_chart() {
    takes_the_configurations(&[
        "gateway.config.limits.memory=2Gi",
        "gateway.config.announce.holdDown=7s",
        "announce=l2",
    ]);
    takes_the_configurations(&["gateway.config.announce.bgp.drain=7s", "announce=bgp", "frr.enabled=false"]);
    takes_the_configurations(&[
        "metrics.enabled=true",
        "loadBalancerClass=example.com/lb",
        "handleUnclassified=true",
    ]);
    takes_the_configurations(&[
        "karmada.enabled=true",
        "karmada.cluster=member1",
        "karmada.exportServices=true",
    ]);
}

fn takes_the_configurations(values: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, object) in rendered("sheave-system", values) {
        let Some(name) = name.strip_prefix("ConfigMap ") else { continue };
        let file = folder.path().join(name);
        fs::write(&file, text(&object["data"]["config.yaml"])).expect("it is written");
        let arguments = ["validate", "--node", "gw-1", "--config"];
        let output = Command::new(sheave_test_support::program::path())
            .args(arguments)
            .arg(&file)
            .env("NODE_IP", "192.0.2.7")
            .output()
            .expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{name}: {output:?}");
    }
}

#[test]
#[ignore = "needs helm"]
fn values_that_cannot_be_are_refused() {
    for (value, named) in [
        ("announce=ospf", "announce"),
        ("frr.config=frr.conf", "config"),
        ("annonce=l2", "annonce"),
        ("fullnameOverride=A", "fullnameOverride"),
        ("global.imageRegistry=1", "imageRegistry"),
        ("image.digest=sha256:1", "digest"),
        ("imagePullSecrets=registry", "imagePullSecrets"),
        ("crds.enabled=maybe", "enabled"),
        ("rbac=true", "rbac"),
        ("loadBalancerClass=a'b", "loadBalancerClass"),
        ("l2.secretName=", "secretName"),
        ("gateway.config.stateDir=/tmp", "stateDir"),
        ("gateway.config.announce.mode=l2", "mode"),
        ("gateway.config.loadBalancerClass=a", "loadBalancerClass"),
        ("gateway.nodeSelectr.a=b", "nodeSelectr"),
        ("gateway.affinity.nodeAfinity.a=b", "nodeAfinity"),
        ("gateway.tolerations=a", "tolerations"),
        ("gateway.capabilities[0]=SYS_ADMIN", "capabilities"),
        ("gateway.securityContext.privileged=true", "privileged"),
        ("gateway.livenessProbe.httpGet.path=/", "httpGet"),
        ("gateway.extraArgs=--help", "extraArgs"),
        ("controller.config.leaderElection.lease=a/b", "lease"),
        ("controller.replicas=two", "replicas"),
        ("controller.podAnnotations.a=true", "podAnnotations"),
        ("controller.podDisruptionBudget.minAvailable=a", "minAvailable"),
        ("controller.updateStrategy.typ=a", "typ"),
        ("networkPolicy.apiServer.ports={https}", "ports"),
        ("networkPolicy.apiServer.cidrs={192.0.2.1}", "cidrs"),
        ("karmada.port={1}", "port"),
        ("gatewayAPI.controllerName=sheave", "controllerName"),
        ("metrics.port=0", "port"),
        ("metrics.podMonitor.enabled=true", "metrics.enabled"),
        ("metrics.enabled=true,metrics.prometheus.serviceAccount=a", "metrics.prometheus.namespace"),
        (
            "metrics.enabled=true,metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true",
            "enable one",
        ),
        ("metrics.prometheusRule.enabled=true,metrics.prometheusRule.disabled={SheaveNone}", "SheaveNone"),
    ] {
        let output = helm("sheave-system", &[value]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{value}: {said}");
    }
}

/// A tool that does not follow links gives Helm an empty file, or none.
#[test]
#[ignore = "needs helm"]
fn a_chart_without_the_kustomizations_is_refused() {
    let chart = tempfile::tempdir().expect("a folder");
    copy_with(chart.path(), "files/base/gateway.yaml", |_| String::new());
    let output = helm_of(chart.path(), "sheave-system", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no files/base/gateway.yaml"), "{said}");
}

#[test]
fn the_chart_is_of_this_version_and_needs_the_same_kubernetes() {
    let chart = &files::documents(&format!("{CHART}/Chart.yaml"))[0].value;
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((text(&chart["version"]), text(&chart["appVersion"])), (version, version));
    assert!(files::text("README.md").contains("Kubernetes 1.31 or newer"));
    assert_eq!(text(&chart["kubeVersion"]), ">=1.31.0-0");
    // Artifact Hub looks for vulnerabilities in these.
    let values = &files::documents(&format!("{CHART}/values.yaml"))[0].value;
    let frr = &values["frr"]["image"];
    let frr = format!("{}/{}:{}", text(&frr["registry"]), text(&frr["repository"]), text(&frr["tag"]));
    let images = text(&chart["annotations"]["artifacthub.io/images"]);
    assert!(images.contains(&format!("image: {frr}\n")), "{images}");
    assert!(
        images.contains(&format!("image: {}:{version}\n", text(&values["image"]["repository"]))),
        "{images}"
    );
}

#[test]
fn every_value_has_its_place_in_the_schema() {
    let schema: Value = serde_json::from_str(&files::text(format!("{CHART}/values.schema.json"))).unwrap();
    let values = &files::documents(&format!("{CHART}/values.yaml"))[0].value;
    let mut missing = BTreeSet::new();
    collect_missing(&schema, &schema, values, "", &mut missing);
    assert!(missing.is_empty(), "{missing:?}");
}

fn collect_missing(root: &Value, schema: &Value, value: &Value, path: &str, missing: &mut BTreeSet<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(place) => root.pointer(place.trim_start_matches('#')).expect("a definition"),
        None => schema,
    };
    // A schema that is not closed accepts additional properties.
    if schema["additionalProperties"] != false {
        return;
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        match schema["properties"].get(key) {
            Some(schema) => collect_missing(root, schema, value, &path, missing),
            None => drop(missing.insert(path)),
        }
    }
}
