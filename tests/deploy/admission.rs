//! Tests of the optional admission policies, which refuse what Sheave reports as a Problem. The cases are data, `admission.yaml`, and
//! are checked by the API server of `SHEAVE_TEST_KUBECONFIG`, or otherwise by the program.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cel::{Context, Env};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::gateway_objects::{GATEWAY_API, of_gateway_api, with_neighbours};
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
    gateway_api: Vec<Case>,
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
    /// Kind of the Gateway API, or ServiceImport.
    #[serde(default)]
    kind: String,
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
    let gateway_api = cases.gateway_api.into_iter().map(|case| {
        let object = of_gateway_api(&case.kind, &json!({&case.name: &case.value}));
        let field = format!("metadata.annotations[{}]", case.name);
        (case, object, field)
    });
    annotated.chain(services).chain(pools).chain(gateway_api).collect()
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
    let file = |name: &str, objects: &[Value]| {
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
        command.arg("--karmada-manifests").arg(file("karmada.json", &[template, object.clone()]));
    } else {
        command.arg("--manifests").arg(file("local.json", &with_neighbours(object)));
    }
    String::from_utf8(command.output().expect("sheave starts").stdout).expect("a text")
}

fn names(text: &str, pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).expect("a pattern");
    pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// Names in an expression.
fn quoted(text: &str) -> BTreeSet<String> {
    names(text, r"'(sheave\.dev/[a-z-]+)'")
}

/// Annotations that are declared in a file below `control/src/projection`.
fn declared(file: &str) -> BTreeSet<String> {
    let path = format!("{}/control/src/projection/{file}", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(path).expect("a source file");
    names(&source, r#"const \w+: &str =\s+"(sheave\.dev/[a-z-]+)";"#)
}

fn policy(name: &str) -> Value {
    let is_meant = |it: &Value| it["kind"] == "ValidatingAdmissionPolicy" && it["metadata"]["name"] == name;
    let documents = files::documents(POLICY).into_iter().map(|document| document.value);
    documents.into_iter().find(is_meant).unwrap_or_else(|| panic!("there is no {name}"))
}

/// Variables or validations of a policy.
fn list<'a>(policy: &'a Value, name: &str) -> &'a [Value] {
    policy["spec"][name].as_array().expect("a list")
}

fn expression(item: &Value) -> &str {
    item["expression"].as_str().expect("an expression")
}

fn variable(policy: &Value, name: &str) -> String {
    let found = list(policy, "variables").iter().find(|it| it["name"] == name);
    expression(found.unwrap_or_else(|| panic!("there is no {name}"))).to_owned()
}

/// Annotations that the policy checks, apart from these expressions.
fn checked_names(policy: &Value, but: &[&str]) -> BTreeSet<String> {
    let expressions = ["matchConditions", "variables", "validations"]
        .into_iter()
        .flat_map(|name| list(policy, name))
        .map(expression);
    expressions.filter(|it| !but.contains(it)).flat_map(quoted).collect()
}

/// Each is checked, or accepts any value.
fn assert_checked(policy: &Value, but: &[&str], known: &BTreeSet<String>) {
    let any = BTreeSet::from(["sheave.dev/address-pool".to_owned()]);
    assert_eq!(&checked_names(policy, but) | &any, *known);
}

#[test]
fn the_policy_knows_the_annotations_that_there_are() {
    let declared = declared("annotations.rs");
    assert!(declared.len() >= 23, "{declared:?}");
    let policy = policy("sheave-services");
    let known = variable(&policy, "known");
    assert_eq!(quoted(&known), declared);
    assert_checked(&policy, &[&known], &declared);
}

/// Those that the program reads on each kind of object are those that the policy knows there.
#[test]
fn the_policy_knows_the_annotations_of_each_kind_of_the_gateway_api() {
    let declared = &declared("annotations.rs") | &declared("annotations/gateway_api.rs");
    assert!(declared.len() >= 31, "{declared:?}");
    let policy = policy("sheave-gateway-api");
    let shared = ["ofSockets", "ofBackends"].map(|name| (name, variable(&policy, name)));
    let known = variable(&policy, "known");
    // Variables in variables are left to the API server.
    let whole = shared.iter().fold(known.clone(), |text, (name, value)| {
        text.replace(&format!("variables.{name}"), &format!("({value})"))
    });
    let mut all = BTreeSet::new();
    for (kind, plural) in GATEWAY_API {
        let annotations: serde_json::Map<String, Value> =
            declared.iter().map(|name| (name.clone(), json!("x"))).collect();
        let report = problems(&of_gateway_api(kind, &json!(annotations)), false);
        let unknown =
            names(&report, r"metadata\.annotations\[(sheave\.dev/[a-z-]+)\].*no such annotation here");
        let read = &declared - &unknown;
        let is_known = |name: &&String| {
            let environment = Arc::new(Env::stdlib());
            let program = environment.compile(&format!("'{name}' in ({whole})")).expect("an expression");
            let mut context = Context::with_env(environment);
            context.add_variable("request", json!({"resource": {"resource": plural}})).expect("a value");
            program.execute(&context).expect("a result") == true.into()
        };
        assert_eq!(
            declared.iter().filter(is_known).cloned().collect::<BTreeSet<_>>(),
            read,
            "{kind}: {report}"
        );
        all.extend(read);
    }
    let but = [&shared[0].1, &shared[1].1, &known].map(String::as_str);
    assert_checked(&policy, &but, &all);
}

/// What both policies check they check with the same expressions. What differs has its own text in one of them.
#[test]
fn both_policies_judge_values_alike() {
    let (services, gateways) = (policy("sheave-services"), policy("sheave-gateway-api"));
    let mut shared = Vec::new();
    let own = ["annotations", "known", "words"].map(|name| json!(name));
    for (name, key) in [("variables", "name"), ("validations", "message")] {
        for item in list(&gateways, name).iter().filter(|item| !own.contains(&item[key])) {
            if let Some(same) = list(&services, name).iter().find(|other| other[key] == item[key]) {
                assert_eq!(same, item);
                shared.push(item[key].clone());
            }
        }
    }
    assert_eq!(shared.len(), 21, "{shared:?}");
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
    let pool = json!({"apiVersion": "sheave.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "p"},
                      "spec": {"addresses": ["224.0.0.1"]}});
    let gateway = of_gateway_api("Gateway", &json!({"sheave.dev/balanse": "x"}));
    for object in [wrong, pool, gateway].into_iter().filter(is_defined) {
        let waited = Instant::now();
        while dry(&object).is_ok() {
            assert!(waited.elapsed() < Duration::from_secs(60), "the policies take no effect");
        }
    }
}

/// Whether the API server knows the kind of the object.
fn is_defined(object: &Value) -> bool {
    let kind = object["kind"].as_str().expect("a kind");
    let plural = GATEWAY_API.iter().find(|(known, _)| *known == kind).map(|(_, plural)| *plural);
    let plural = plural.or((kind == "MultiClusterService").then_some("multiclusterservices"));
    let group =
        object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    let definition = plural.zip(group).map(|(plural, group)| format!("{plural}.{group}"));
    definition.is_none_or(|name| kubectl(&["get", "crd", &name], None).status.success())
}

fn dry(object: &Value) -> Result<(), String> {
    judged(&kubectl(&["apply", "--server-side", "--dry-run=server", "-f", "-"], Some(object)))
}

#[test]
#[ignore = "needs an API server"]
fn an_api_server_refuses_what_the_cases_say() {
    install();
    for (case, object, _) in cases().into_iter().filter(|(_, object, _)| is_defined(object)) {
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

/// Its controller can always write its status, whatever its annotations are.
#[test]
#[ignore = "needs an API server with the Gateway API"]
fn a_gateway_that_was_wrong_before_can_be_changed_and_its_status_written() {
    install();
    let named = |annotations: &Value, port: u16| {
        let mut object = of_gateway_api("Gateway", annotations);
        object["metadata"]["name"] = json!("wrong-before");
        object["spec"]["listeners"] = json!([{"name": "tcp", "port": port, "protocol": "TCP"}]);
        object
    };
    let wrong = json!({"sheave.dev/balanse": "x", "sheave.dev/idle-timeout": "30"});
    assert_refused(dry(&named(&wrong, 80)), "no such annotation on a Gateway");
    // Up to 256 annotations are looked at, and more are left to Sheave.
    let mut many = wrong.clone();
    for number in 0..254 {
        many[format!("example.com/a{number}")] = json!("");
    }
    assert_refused(dry(&named(&many, 80)), "no such annotation on a Gateway");
    many["example.com/more"] = json!("");
    apply(&named(&many, 80)).unwrap();
    apply(&named(&wrong, 81)).unwrap();
    let status = r#"{"status": {"addresses": [{"type": "IPAddress", "value": "203.0.113.7"}]}}"#;
    let patch = ["patch", "gateway", "wrong-before", "--subresource=status", "--type=merge", "-p", status];
    judged(&kubectl(&patch, None)).unwrap();
    let other = json!({"sheave.dev/balanse": "x", "sheave.dev/idle-timeout": "31"});
    assert_refused(apply(&named(&other, 81)), "\"31\" is not a duration");
    apply(&named(&json!({"sheave.dev/balanse": "x", "sheave.dev/idle-timeout": "31s"}), 81)).unwrap();
    judged(&kubectl(&["delete", "gateway", "wrong-before"], None)).unwrap();
}
