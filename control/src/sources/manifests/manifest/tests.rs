//! Texts as users write them, and the Problems for mistakes in them.

use super::*;

fn read(text: &str) -> ManifestFile {
    parse(&"web.yaml".into(), text, ControlPlane::Local)
}

fn names(manifest: &ManifestFile) -> Vec<String> {
    manifest.objects.iter().map(|placed| placed.reference.to_string()).collect()
}

fn problems(manifest: &ManifestFile) -> Vec<String> {
    manifest.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn our_kinds_are_read_and_others_passed_over() {
    let manifest = read(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\n\
         apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: fn}\n---\n\
         apiVersion: v1\nkind: Node\nmetadata: {name: n1, namespace: odd}\n---\n\
         apiVersion: sheave.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: p}\nspec: {addresses: [192.0.2.1]}\n",
    );
    assert_eq!(names(&manifest), ["Service shop/web", "Node n1", "AddressPool p"]);
    assert_eq!((problems(&manifest), manifest.refused, manifest.passed_over), (vec![], false, 2));
    assert_eq!(manifest.objects[1].origin.document, Some(4));
}

#[test]
fn kinds_of_other_groups_are_foreign_whatever_their_name() {
    let manifest = read(
        "apiVersion: longhorn.io/v1beta2\nkind: Node\nmetadata: {name: n}\n---\n\
         apiVersion: metallb.io/v1beta1\nkind: AddressPool\nmetadata: {name: p}\n---\n\
         apiVersion: serving.knative.dev/v1\nkind: ServiceList\nitems: [{metadata: {name: fn}}]\n",
    );
    assert_eq!((names(&manifest).len(), problems(&manifest).len()), (0, 0));
    assert_eq!((manifest.refused, manifest.passed_over), (false, 3));
}

#[test]
fn other_versions_and_our_groups_mixed_up_are_told() {
    for (api_version, kind) in [
        ("v2", "Service"),
        ("sheave.dev/v9", "AddressPool"),
        ("discovery.k8s.io/v1beta1", "EndpointSlice"),
        ("v1", "EndpointSlice"),
        ("''", "Node"),
        ("1", "Node"),
    ] {
        let manifest = read(&format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\n"));
        assert!(manifest.refused && problems(&manifest)[0].contains("is not supported; a"), "{api_version}");
    }
}

#[test]
fn versions_of_the_gateway_api_with_the_same_fields_are_read_and_others_are_named() {
    for (api_version, kind) in [
        ("gateway.networking.k8s.io/v1", "TCPRoute"),
        ("gateway.networking.k8s.io/v1beta1", "Gateway"),
        ("gateway.networking.k8s.io/v1beta1", "GatewayClass"),
        ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"),
        ("multicluster.x-k8s.io/v1alpha1", "ServiceImport"),
        ("multicluster.x-k8s.io/v1beta1", "ServiceImport"),
    ] {
        let manifest = read(&format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\n"));
        assert_eq!((names(&manifest).len(), manifest.refused), (1, false), "{api_version} {kind}");
    }
    for (api_version, kind) in [
        ("gateway.networking.k8s.io/v1alpha2", "TCPRoute"),
        ("gateway.networking.k8s.io/v1alpha3", "TLSRoute"),
        ("gateway.networking.k8s.io/v1beta1", "UDPRoute"),
    ] {
        let manifest = read(&format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\n"));
        let problem = problems(&manifest).remove(0);
        assert!(manifest.refused && problem.ends_with("upgrade the manifest to that version"), "{problem}");
    }
}

#[test]
fn objects_of_the_gateway_api_come_in_lists_with_fields_that_sheave_does_not_read() {
    let manifest = read(
        "apiVersion: v1\nkind: List\nitems:\n\
         - apiVersion: gateway.networking.k8s.io/v1\n  kind: Gateway\n  metadata: {name: edge}\n  spec:\n    \
         gatewayClassName: sheave\n    listeners:\n    - name: a\n      protocol: TLS\n      port: 443\n      \
         tls: {mode: Passthrough, certificateRefs: [{name: c}]}\n    - {name: b, protocol: TCP, port: 70000}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: TCPRouteList\nitems:\n\
         - metadata: {name: web}\n  spec: {rules: [{name: all, backendRefs: [{name: web, port: 80}]}]}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web}\n",
    );
    assert_eq!(names(&manifest), ["Gateway default/edge", "TCPRoute default/web"]);
    assert_eq!(
        problems(&manifest),
        [
            "web.yaml:14: Gateway default/edge: InvalidValue: spec.listeners[1].port: 70000 is not a port (1 to 65535); the \
          listener is not used"
        ]
    );
    assert_eq!((manifest.refused, manifest.passed_over), (false, 1));
}

#[test]
fn of_a_huge_value_a_part_is_quoted() {
    let huge = "x".repeat(250_000);
    for text in [
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: [{huge}]}}\n"),
        format!("apiVersion: {huge}\nkind: Service\nmetadata: {{name: web}}\n"),
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: {huge}}}\n"),
        format!("kind: Service\nmetadata: {{name: web}}\nspec: [{huge}\n"),
    ] {
        let manifest = read(&text);
        assert!(!manifest.problems.is_empty(), "{:?}", text.get(..80));
        for FileProblem { problem, .. } in &manifest.problems {
            assert!(problem.message.len() <= MAX_MESSAGE_BYTES, "{} bytes", problem.message.len());
        }
    }
}

#[test]
fn lists_give_their_kind_to_items_that_leave_it_out() {
    let manifest = read(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n\
         - metadata: {name: s1, labels: {kubernetes.io/service-name: web}}\n  endpoints: null\n  ports: null\n---\n\
         apiVersion: v1\nkind: List\nitems:\n\
         - {apiVersion: v1, kind: Service, metadata: {name: a}}\n\
         - {apiVersion: v1, kind: ServiceList, items: [{metadata: {name: b}}]}\n\
         - {kind: Secret}\n---\n\
         {apiVersion: v1, kind: ServiceList}\n",
    );
    assert_eq!(names(&manifest), ["EndpointSlice default/s1", "Service default/a", "Service default/b"]);
    assert_eq!((problems(&manifest), manifest.passed_over), (vec![], 1));
}

#[test]
fn the_default_namespace_is_filled_in_and_that_of_a_cluster_scoped_object_removed() {
    let manifest = read(
        "{apiVersion: v1, kind: Service, metadata: {name: a}}\n---\n\
         {apiVersion: v1, kind: Node, metadata: {name: n1, namespace: x}}\n",
    );
    let (Change::Services(Delta::Put(service)), Change::Nodes(Delta::Put(node))) =
        (&manifest.objects[0].object, &manifest.objects[1].object)
    else {
        panic!("a Service and a Node");
    };
    assert_eq!(service.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(node.metadata.namespace, None);
}

#[test]
fn a_wrong_value_is_told_with_file_document_field_and_line_and_its_neighbours_are_used() {
    let manifest = read(
        "{apiVersion: v1, kind: Service, metadata: {name: a}}\n---\napiVersion: v1\nkind: Service\n\
         metadata:\n  name: web\n  namespace: shop\nspec:\n  ports:\n  - name: http\n    port: http\n",
    );
    assert_eq!(names(&manifest), ["Service default/a"]);
    assert!(manifest.refused);
    assert_eq!(
        problems(&manifest),
        ["web.yaml:11: Service shop/web: InvalidManifest: spec.ports[0].port: \
          invalid type: string \"http\", expected i32"]
    );
}

#[test]
fn an_unknown_field_is_told_and_the_object_used() {
    let manifest = read(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports: [{port: 80, protocl: UDP}]\n",
    );
    assert_eq!(names(&manifest), ["Service default/a"]);
    assert!(!manifest.refused);
    assert_eq!(
        problems(&manifest),
        ["web.yaml:5: Service default/a: InvalidManifest: spec.ports[0].protocl: \
          unknown field, which is ignored; did you mean protocol?"]
    );
}

#[test]
fn what_is_no_object_of_the_api_is_refused() {
    let refused = |text: &str| {
        let manifest = read(text);
        assert!(manifest.refused && manifest.objects.is_empty(), "{text}");
        problems(&manifest).remove(0)
    };
    assert_eq!(
        refused("just text\n"),
        "web.yaml:1: InvalidManifest: an object with apiVersion and kind is expected here"
    );
    assert_eq!(
        refused("a: 1\n"),
        "web.yaml:1: InvalidManifest: kind: is missing, so the document is not used"
    );
    assert_eq!(
        refused("kind: Service\napiVersion: v1\nspec: {}\n"),
        "web.yaml:1: InvalidManifest: metadata.name: is missing, so the Service is not used"
    );
    assert_eq!(
        refused("kind: EndpointSlice\napiVersion: discovery.k8s.io/v1beta1\nmetadata: {name: s}\n"),
        "web.yaml:2: EndpointSlice default/s: InvalidManifest: apiVersion: \
         \"discovery.k8s.io/v1beta1\" is not supported; an EndpointSlice has \"discovery.k8s.io/v1\""
    );
    assert_eq!(
        refused("kind: List\nitems:\n- kind: Service\n  metadata: {name: a}\n"),
        "web.yaml:3: Service default/a: InvalidManifest: apiVersion: is missing; a Service has \"v1\""
    );
    assert_eq!(
        refused("kind: Node\napiVersion: v1\nmetadata:\n  name: n\n"),
        "web.yaml:4: InvalidManifest: metadata.name: is false where a string is expected; put it in quotes"
    );
    assert_eq!(
        refused("a: b: c\n"),
        "web.yaml:1: InvalidManifest: the document cannot be read: \
         mapping values are not allowed in this context"
    );
}

#[test]
fn a_slice_without_its_label_is_told_and_not_kept() {
    let manifest = read("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s}\n");
    assert!(manifest.objects.is_empty() && !manifest.refused);
    assert_eq!(
        problems(&manifest),
        ["web.yaml:4: EndpointSlice default/s: InvalidValue: metadata.labels: label \
          kubernetes.io/service-name is missing, so no Service uses the slice"]
    );
}

#[test]
fn an_imported_slice_that_does_not_say_from_where_is_told_and_not_kept() {
    let manifest = read(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {name: s, labels: {multicluster.kubernetes.io/service-name: web}}\n",
    );
    assert!(manifest.objects.is_empty() && !manifest.refused);
    let told = &problems(&manifest)[0];
    assert!(
        told.contains("metadata.labels: label multicluster.kubernetes.io/source-cluster is missing"),
        "{told}"
    );
}

#[test]
fn conditions_without_a_time_are_read_as_the_api_server_reads_them() {
    let manifest = read(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nstatus:\n  conditions:\n\
         \x20 - {type: A, status: 'True', reason: R, message: '', lastTransitionTime: null}\n\
         \x20 - {type: B, status: 'True'}\n",
    );
    assert_eq!((names(&manifest), problems(&manifest)), (vec!["Service default/a".to_owned()], vec![]));
}

#[test]
fn a_byte_order_mark_and_carriage_returns_do_no_harm() {
    let text = "\u{feff}---\r\napiVersion: v1\r\nkind: Service\r\nmetadata: {name: a}\r\n---\r\n\
                apiVersion: v1\r\nkind: Node\r\nmetadata: {name: n1}\r\n";
    assert_eq!(names(&read(text)), ["Service default/a", "Node n1"]);
    let json = "\u{feff}{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {\"name\": \"a\"}}";
    assert_eq!(names(&parse(&"a.json".into(), json, ControlPlane::Local)), ["Service default/a"]);
}

#[test]
fn ten_thousand_objects_in_one_list_are_read() {
    let item = "- apiVersion: v1\n  kind: Service\n  metadata:\n    name: s{}\n    namespace: shop\n    annotations: \
                {note: \"PAD\"}\n  spec:\n    type: LoadBalancer\n    selector: {app: web}\n    ports:\n    - name: http\n      \
                port: 80\n      protocol: TCP\n      targetPort: 8080\n    - name: dns\n      port: 53\n      \
                protocol: UDP\n      targetPort: 5353\n"
        .replace("PAD", &"x".repeat(700));
    let mut text = "apiVersion: v1\nkind: List\nitems:\n".to_owned();
    for number in 0..10_000 {
        text += &item.replace("{}", &number.to_string());
    }
    assert!(text.len() > 10_000_000);
    let manifest = read(&text);
    assert_eq!((manifest.objects.len(), problems(&manifest)), (10_000, vec![]));
}

const FLEET: &str = "apiVersion: networking.karmada.io/v1alpha1
kind: MultiClusterService
metadata: {name: web, namespace: shop}
spec: {types: [LoadBalancer], newField: 1}
---
apiVersion: work.karmada.io/v1alpha1
kind: WorkList
items: [{metadata: {name: w, namespace: karmada-es-member1}}]
---
apiVersion: work.karmada.io/v1alpha1
kind: ResourceBinding
metadata: {name: web-service, namespace: shop}
spec: {resource: {apiVersion: v1, kind: Service, namespace: shop, name: web}}
---
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: member1, namespace: ignored}
status: {conditions: [{type: Ready, status: \"True\", reason: R, message: m, lastTransitionTime: null}]}
";

#[test]
fn what_karmada_writes_is_read_whatever_else_it_holds() {
    let manifest = super::parse(&"fleet.yaml".into(), FLEET, ControlPlane::Karmada);
    assert_eq!(manifest.problems, []);
    let names = [
        "MultiClusterService shop/web",
        "Work karmada-es-member1/w",
        "ResourceBinding shop/web-service",
        "Cluster member1",
    ];
    assert_eq!(self::names(&manifest), names);
}

#[test]
fn a_work_that_cannot_be_read_is_reported_once() {
    let work = "apiVersion: work.karmada.io/v1alpha1\nkind: Work\nmetadata: {name: web, labels: {a: 1}}\n";
    let manifest = super::parse(&"fleet.yaml".into(), work, ControlPlane::Karmada);
    assert!(manifest.refused && manifest.objects.is_empty());
    let told: Vec<String> = manifest.problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn an_object_in_the_wrong_folder_is_told_where_it_belongs() {
    let manifest = super::parse(&"web.yaml".into(), FLEET, ControlPlane::Local);
    assert!(manifest.objects.is_empty() && !manifest.refused);
    let told: Vec<String> = manifest.problems.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(
        told[0].contains(
            ": MultiClusterService shop/web: InvalidManifest: is not used here: a MultiClusterService belongs"
        ),
        "{told:?}"
    );
    assert!(told[0].contains("--karmada-manifests"), "{told:?}");
    let others = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: sheave.dev/v1alpha1\n\
                  kind: AddressPool\nmetadata: {name: p}\n";
    let manifest = super::parse(&"k.yaml".into(), others, ControlPlane::Karmada);
    assert_eq!((manifest.passed_over, manifest.problems.len()), (1, 1));
    assert!(
        manifest.problems[0].problem.message.contains("an AddressPool belongs in the folder of --manifests")
    );
}
