//! Tests of the optional admission policies, which refuse what Sheave reports as a Problem. The cases are data, `admission.yaml`, and
//! are checked by the API server of `SHEAVE_TEST_KUBECONFIG`, or otherwise by the program.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{files, kustomization};

/// Path below `deploy`.
const POLICY: &str = "admission/policy.yaml";
/// Variable with an administrator's kubeconfig.
const KUBECONFIG: &str = "SHEAVE_TEST_KUBECONFIG";
/// Variable with the program, if it is not the `kubectl` in the path.
const KUBECTL: &str = "SHEAVE_TEST_KUBECTL";

/// File of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    annotations: Vec<Case>,
    services: Vec<Case>,
    pools: Vec<Case>,
}

/// Object, given by its special fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: String,
    /// Whether it is a MultiClusterService.
    #[serde(default)]
    mcs: bool,
    #[serde(default)]
    spec: Value,
    /// Text of the refusal; `None` if it is admitted.
    refused: Option<String>,
    /// Whether it is admitted although it is a Problem.
    #[serde(default)]
    left: bool,
}

/// Each case with its object and a part of the name of the affected field.
fn cases() -> Vec<(Case, Value, String)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/admission.yaml"))
        .expect("the file of cases");
    let cases: Cases = serde_saphyr::from_str(&text).expect("cases");
    let annotated = cases.annotations.into_iter().map(|case| {
        let annotations = json!({&case.name: &case.value});
        let object =
            if case.mcs { multi_cluster_service(&annotations) } else { service(&annotations, &json!({})) };
        let field = format!("metadata.annotations[{}]", case.name);
        (case, object, field)
    });
    let services = cases.services.into_iter().map(|case| {
        let object = service(&json!({}), &case.spec);
        (case, object, "loadBalancerSourceRanges".to_owned())
    });
    let pools = cases.pools.into_iter().map(|case| {
        let object = json!({"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "p"}, "spec": case.spec});
        (case, object, "AddressPool p: ".to_owned())
    });
    annotated.chain(services).chain(pools).collect()
}

fn service(annotations: &Value, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "sheave.dev/l4", "ports": [{"port": 80}]},
    });
    for (name, value) in spec.as_object().into_iter().flatten() {
        object["spec"][name] = value.clone();
    }
    object
}

fn multi_cluster_service(annotations: &Value) -> Value {
    json!({
        "apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
        "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
        "spec": {"types": ["LoadBalancer"], "providerClusters": [{"name": "m1"}]},
    })
}

/// Report of `sheave validate`.
fn problems(object: &Value, mcs: bool) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, objects: &[&Value]| {
        let path = folder.path().join(name);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(&path, list.to_string()).expect("it can be written");
        path
    };
    let mut command = Command::new(sheave_test_support::program::path());
    let config = folder.path().join("config.yaml");
    // The policy does not know which peers a configuration trusts.
    std::fs::write(&config, "acceptProxy: {allow: [\"0.0.0.0/0\", \"::/0\"]}\n").expect("it can be written");
    command.args(["validate", "--node", "gw-1", "--config"]).arg(config);
    if mcs {
        let template = service(&json!({}), &json!({}));
        command.arg("--karmada-manifests").arg(file("karmada.json", &[&template, object]));
    } else {
        command.arg("--manifests").arg(file("local.json", &[object]));
    }
    String::from_utf8(command.output().expect("sheave starts").stdout).expect("a text")
}

#[test]
fn the_policy_knows_the_annotations_that_there_are() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/control/src/projection/annotations.rs");
    let source = std::fs::read_to_string(source).unwrap();
    let names = |text: &str, pattern: &str| -> BTreeSet<String> {
        Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect()
    };
    let declared = names(&source, r#"const \w+: &str =\s+"(sheave\.dev/[a-z-]+)";"#);
    assert!(declared.len() >= 23, "{declared:?}");
    let policy = &files::documents(POLICY)[0].value;
    let variables = policy["spec"]["variables"].as_array().unwrap();
    let known = variables.iter().find(|it| it["name"] == "known").unwrap()["expression"].as_str().unwrap();
    assert_eq!(names(known, r"'(sheave\.dev/[a-z-]+)'"), declared);
    // Each is checked, or accepts any value.
    let judged = names(&files::text(POLICY).replace(known, ""), r"'(sheave\.dev/[a-z-]+)'");
    let any: BTreeSet<String> = ["sheave.dev/address-pool".to_owned()].into();
    assert_eq!(judged.union(&any).cloned().collect::<BTreeSet<_>>(), declared);
}

#[test]
fn what_is_refused_is_a_problem_and_what_is_admitted_is_none() {
    let mut differing = Vec::new();
    for (case, object, field) in cases() {
        let report = problems(&object, case.mcs);
        let is_meant = |line: &str| line.contains("InvalidValue") || line.contains("SourceRangesOneFamily");
        let found = report.lines().any(|line| line.contains(&field) && is_meant(line));
        if found != (case.refused.is_some() || case.left) {
            differing.push(format!("{} {:?} {}: {report}", case.name, case.value, case.spec));
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn they_are_all_optional_and_let_through_what_they_cannot_judge() {
    for document in
        files::documents(POLICY).iter().filter(|it| it.value["kind"] == "ValidatingAdmissionPolicy")
    {
        let spec = &document.value["spec"];
        assert_eq!(spec["failurePolicy"], "Ignore");
        for rule in spec["matchConstraints"]["resourceRules"].as_array().unwrap() {
            assert_eq!(rule["operations"], json!(["CREATE", "UPDATE"]));
        }
        assert!(spec["matchConditions"].to_string().contains("deletionTimestamp"));
        for validation in spec["validations"].as_array().unwrap() {
            assert_eq!(validation["reason"], "Invalid");
        }
    }
    assert_eq!(kustomization::of("admission").resources, ["policy.yaml"]);
}

/// Runs kubectl with an object on its standard input.
fn kubectl(arguments: &[&str], object: Option<&Value>) -> Output {
    let kubeconfig = std::env::var_os(KUBECONFIG).unwrap_or_else(|| panic!("{KUBECONFIG} is not set"));
    let program = std::env::var_os(KUBECTL).unwrap_or_else(|| OsString::from("kubectl"));
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig).args(arguments).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    if let Some(object) = object {
        stdin.write_all(object.to_string().as_bytes()).expect("kubectl reads");
    }
    drop(stdin);
    child.wait_with_output().expect("kubectl ends")
}

fn apply(object: &Value) -> Result<(), String> {
    judged(&kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(object)))
}

fn judged(output: &Output) -> Result<(), String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[track_caller]
fn assert_refused(judged: Result<(), String>, part: &str) {
    let said = judged.expect_err("it is refused");
    assert!(said.contains("denied request: ") && said.contains(part), "{said}");
}

/// Installs the policies and waits, since they take effect a moment after they are written.
fn install() {
    for file in ["base/crd.yaml", POLICY] {
        let path = files::place(file);
        judged(&kubectl(&["apply", "--server-side", "-f", path.to_str().expect("a text")], None))
            .expect("it is applied");
    }
    let wrong = service(&json!({"sheave.dev/balanse": "x"}), &json!({}));
    let (pool, mut waited) = (
        json!({"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "p"},
                                     "spec": {"addresses": ["224.0.0.1"]}}),
        Instant::now(),
    );
    for object in [wrong, pool] {
        while dry(&object).is_ok() {
            assert!(waited.elapsed() < Duration::from_secs(60), "the policies take no effect");
        }
        waited = Instant::now();
    }
}

fn dry(object: &Value) -> Result<(), String> {
    judged(&kubectl(&["apply", "--server-side", "--dry-run=server", "-f", "-"], Some(object)))
}

#[test]
#[ignore = "needs an API server"]
fn an_api_server_refuses_what_the_cases_say() {
    install();
    let karmada =
        kubectl(&["get", "crd", "multiclusterservices.networking.karmada.io"], None).status.success();
    for (case, object, _) in cases().into_iter().filter(|(case, ..)| karmada || !case.mcs) {
        match &case.refused {
            Some(part) => assert_refused(dry(&object), part),
            None => assert_eq!(dry(&object), Ok(()), "{object}"),
        }
    }
}

#[test]
#[ignore = "needs an API server"]
fn what_was_wrong_before_can_be_changed_mended_and_deleted() {
    install();
    let named = |mut object: Value, labels: Value| {
        object["metadata"]["name"] = json!("wrong-before");
        object["metadata"]["labels"] = labels;
        object
    };
    let internal = |annotations: Value| {
        let mut object = named(service(&annotations, &json!({"type": "ClusterIP"})), json!({}));
        object["spec"].as_object_mut().unwrap().remove("loadBalancerClass");
        object
    };
    let wrong = json!({"sheave.dev/balanse": "maglev", "sheave.dev/idle-timeout": "30"});
    // Not of our class, so it is not checked.
    apply(&internal(wrong.clone())).unwrap();
    // It becomes ours unchanged, and other parts of it change, including its status and finalizers.
    apply(&named(service(&wrong, &json!({})), json!({}))).unwrap();
    apply(&named(service(&wrong, &json!({"externalTrafficPolicy": "Local"})), json!({"a": "b"}))).unwrap();
    let mut held = named(service(&wrong, &json!({})), json!({}));
    held["metadata"]["finalizers"] = json!(["sheave.dev/load-balancer-cleanup"]);
    apply(&held).unwrap();
    let other = json!({"sheave.dev/balanse": "maglev", "sheave.dev/idle-timeout": "31"});
    assert_refused(apply(&named(service(&other, &json!({})), json!({}))), "\"31\" is not a duration");
    // It is fixed in part, and deleted while it is invalid.
    let mended = json!({"sheave.dev/balanse": "maglev", "sheave.dev/idle-timeout": "31s"});
    let mut held = named(service(&mended, &json!({})), json!({}));
    held["metadata"]["finalizers"] = json!(["sheave.dev/load-balancer-cleanup"]);
    apply(&held).unwrap();
    judged(&kubectl(&["delete", "service", "wrong-before", "--wait=false"], None)).unwrap();
    let mut released = named(service(&mended, &json!({})), json!({}));
    released["metadata"]["finalizers"] = json!([]);
    apply(&released).unwrap();
    let gone = judged(&kubectl(&["get", "service", "wrong-before"], None)).expect_err("it is gone");
    assert!(gone.contains("not found"), "{gone}");
    // Other classes, and Services without one.
    let foreign = json!({"loadBalancerClass": "example.com/lb"});
    assert_eq!(dry(&service(&wrong, &foreign)), Ok(()));
    let mut unclassified = service(&wrong, &json!({}));
    unclassified["spec"].as_object_mut().unwrap().remove("loadBalancerClass");
    assert_eq!(dry(&unclassified), Ok(()));
}
