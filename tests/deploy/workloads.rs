//! Tests of the Pods of both roles: programs, users, privileges and probes.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use sheave_control::api::gateway_report;

use crate::config::{BGP_GATEWAY, CONTROLLER, Config, GATEWAY, L2_GATEWAY, OVERLAY_GATEWAY};
use crate::typed::{object, object_of};
use crate::{files, kustomization, systemd};

pub(crate) fn gateway() -> DaemonSet {
    object("sheave-gateway")
}

pub(crate) fn controller() -> Deployment {
    object("sheave-controller")
}

/// Pods by role.
pub(crate) fn pods() -> [(&'static str, PodSpec); 2] {
    let gateway = gateway().spec.template.spec.expect("gateways have Pods");
    let controller = controller().spec.template.spec.expect("controllers have Pods");
    [("gateway", gateway), ("controller", controller)]
}

/// The only container.
pub(crate) fn container(pod: &PodSpec) -> &Container {
    assert!(pod.init_containers.is_none(), "{pod:?}");
    let [container] = &pod.containers[..] else { panic!("one container is expected: {pod:?}") };
    container
}

/// Mount path of the volume.
fn mount<'a>(pod: &'a PodSpec, volume: &str) -> &'a str {
    let mounts = container(pod).volume_mounts.as_deref().unwrap_or_default();
    &mounts.iter().find(|mount| mount.name == volume).expect("the volume is mounted").mount_path
}

#[test]
fn each_runs_its_role_with_the_configuration_made_for_it() {
    let base = kustomization::of(files::BASE);
    for (role, pod) in pods() {
        let config = format!("{}/config.yaml", mount(&pod, "config"));
        let args = container(&pod).args.as_deref().unwrap();
        assert_eq!(args[..3], [role, "--config", &config].map(str::to_owned));
        let takes_over = ["--takeover".to_owned()];
        assert_eq!(args[3..], if role == "gateway" { takes_over.to_vec() } else { Vec::new() });
        let volumes = pod.volumes.unwrap();
        let volume = volumes.iter().find(|volume| volume.name == "config").unwrap();
        let name = &volume.config_map.as_ref().unwrap().name;
        let made = base.config_map_generator.iter().find(|map| map.name == *name).unwrap();
        assert_eq!(made.files, [format!("config.yaml=config/{role}.yaml")]);
    }
}

#[test]
fn each_knows_its_node_and_its_own_name() {
    for (role, pod) in pods() {
        let env = container(&pod).env.clone().unwrap_or_default();
        let sources: Vec<_> = env
            .iter()
            .map(|it| {
                let source = it.value_from.as_ref().unwrap().field_ref.as_ref().unwrap();
                (it.name.as_str(), source.field_path.as_str())
            })
            .collect();
        let mut expected = vec![
            ("NODE_NAME", "spec.nodeName"),
            ("POD_NAME", "metadata.name"),
            ("POD_NAMESPACE", "metadata.namespace"),
        ];
        // Gateways are on the host network, so an address for metrics must be chosen.
        if role == "gateway" {
            expected.insert(1, ("NODE_IP", "status.hostIP"));
        }
        assert_eq!(sources, expected, "{role}");
    }
}

#[test]
fn connections_may_end_by_themselves_before_the_pod_is_killed() {
    let grace = |pod: &PodSpec| pod.termination_grace_period_seconds.unwrap();
    let [(_, gateway), _] = pods();
    assert!(grace(&gateway) > Config::read(GATEWAY).longest_end().as_secs());

    let overlay = kustomization::of("examples/overlay");
    let [patch] = &overlay.patches[..] else { panic!("one patch is expected: {overlay:?}") };
    assert_eq!(patch.target["name"], "sheave-gateway");
    let operations: Vec<Value> = serde_saphyr::from_str(&patch.patch).unwrap();
    let [operation] = &operations[..] else { panic!("one operation is expected: {operations:?}") };
    assert_eq!(operation["path"], "/spec/template/spec/terminationGracePeriodSeconds");
    assert!(operation["value"].as_i64().unwrap() > Config::read(OVERLAY_GATEWAY).longest_end().as_secs());
}

/// A gateway that does not answer does not drain either.
#[test]
fn a_gateway_that_hangs_is_killed_at_once() {
    let [(_, gateway), _] = pods();
    let probe = container(&gateway).liveness_probe.as_ref().unwrap();
    assert_eq!(probe.termination_grace_period_seconds, Some(5));
}

#[test]
fn controllers_of_one_revision_keep_to_different_nodes() {
    let [_, (_, controller)] = pods();
    let affinity = controller.affinity.unwrap().pod_anti_affinity.unwrap();
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.unwrap();
    let [term] = &preferred[..] else { panic!("one term is expected: {preferred:?}") };
    assert_eq!(term.pod_affinity_term.match_label_keys, Some(vec!["pod-template-hash".to_owned()]));
}

/// With exactly the privileges that the configuration of the overlay needs.
#[test]
fn gateways_that_announce_have_what_that_takes() {
    let overlay = kustomization::of("examples/l2");
    let [patch, rights] = &overlay.patches[..] else { panic!("two patches are expected: {overlay:?}") };
    assert_eq!((&*patch.target["kind"], &*patch.target["name"]), ("DaemonSet", "sheave-gateway"));
    assert_eq!((&*rights.target["kind"], &*rights.target["name"]), ("ClusterRole", "sheave-gateway"));
    let operations: Vec<Value> = serde_saphyr::from_str(&rights.patch).unwrap();
    let rule =
        json!({"apiGroups": ["sheave.dev"], "resources": ["addresspools"], "verbs": ["list", "watch"]});
    assert_eq!(operations, [json!({"op": "add", "path": "/rules/-", "value": rule})]);
    let operations: Vec<Value> = serde_saphyr::from_str(&patch.patch).unwrap();
    assert!(operations.iter().all(|operation| operation["op"] == "add"), "{operations:?}");
    let [capability, volume, mount] = &operations[..] else { panic!("three are expected: {operations:?}") };
    let container = "/spec/template/spec/containers/0";
    assert_eq!(capability["path"], format!("{container}/securityContext/capabilities/add/-"));
    assert_eq!(capability["value"], "NET_RAW");
    assert_eq!(volume["path"], "/spec/template/spec/volumes/-");
    assert_eq!(mount["path"], format!("{container}/volumeMounts/-"));
    assert_eq!(volume["value"]["name"], mount["value"]["name"]);
    assert_eq!(mount["value"]["mountPath"], Config::read(L2_GATEWAY).value("announce")["heartbeat"]["keys"]);
}

/// FRR has a Pod of its own on the same nodes, with the files that the tests of `announce` use.
#[test]
fn gateways_that_announce_by_bgp_have_what_that_takes() {
    let overlay = kustomization::of("examples/bgp-frr");
    assert_eq!(overlay.resources, ["../../base", "frr.yaml"]);
    let [gateway, frr] = &overlay.config_map_generator[..] else { panic!("two are expected: {overlay:?}") };
    assert_eq!((gateway.behavior.as_deref(), frr.behavior.as_deref()), (Some("replace"), None));
    assert_eq!(gateway.files, ["config.yaml=gateway.yaml"]);
    let mut named: Vec<&str> = frr.files.iter().map(String::as_str).collect();
    named.extend(["frr.yaml", "gateway.yaml", "kustomization.yaml", "router.conf"]);
    named.sort_unstable();
    assert_eq!(named, files::all("examples/bgp-frr"));
    let [devices, rights] = &overlay.patches[..] else { panic!("two patches are expected: {overlay:?}") };
    assert_eq!(rights.patch.lines().last(), kustomization::of("examples/l2").patches[1].patch.lines().last());
    let operations: Vec<Value> = serde_saphyr::from_str(&devices.patch).unwrap();
    let [volume, mount] = &operations[..] else { panic!("two are expected: {operations:?}") };
    assert_eq!(volume["value"]["hostPath"], json!({"path": "/dev/net/tun", "type": "CharDevice"}));
    assert_eq!(mount["value"], json!({"name": volume["value"]["name"], "mountPath": "/dev/net/tun"}));

    let daemons: DaemonSet = object_of(&files::documents("examples/bgp-frr/frr.yaml"), "sheave-frr");
    let pod = daemons.spec.template.spec.unwrap();
    let [(_, gateways), _] = pods();
    assert_eq!((&pod.affinity, &pod.node_selector), (&gateways.affinity, &gateways.node_selector));
    assert_eq!((&pod.tolerations, pod.host_network), (&gateways.tolerations, Some(true)));
    let maps: Vec<_> =
        pod.volumes.iter().flatten().filter_map(|it| it.config_map.as_ref().map(|map| &map.name)).collect();
    assert_eq!(maps, [&frr.name]);
    // The names of the interfaces are the defaults.
    let config = files::text("examples/bgp-frr/frr.conf");
    for interface in ["sheave0", "sheave0-gshut"] {
        assert!(config.contains(&format!("match interface {interface}\n")), "{interface}");
    }
    assert_eq!(Config::read(BGP_GATEWAY).value("announce")["mode"], "bgp");
}

/// The systemd unit runs the same program.
#[test]
fn each_has_the_least_privileges_that_its_role_can_do_with() {
    let unit = systemd::service();
    let of_unit = unit["CapabilityBoundingSet"].split(' ').map(|it| it.trim_start_matches("CAP_").to_owned());
    let added = [of_unit.collect::<Vec<_>>(), Vec::new()];
    for ((role, pod), added) in pods().iter().zip(added) {
        let security = container(pod).security_context.clone().unwrap();
        assert_eq!(security.allow_privilege_escalation, Some(false), "{role}");
        assert_eq!(security.read_only_root_filesystem, Some(true), "{role}");
        assert_eq!(security.privileged, None, "{role}");
        let capabilities = security.capabilities.unwrap();
        assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]), "{role}");
        assert_eq!(capabilities.add.unwrap_or_default(), added, "{role}");
        let profile = pod.security_context.as_ref().unwrap().seccomp_profile.as_ref().unwrap();
        assert_eq!(profile.type_, "RuntimeDefault", "{role}");
        assert!(pod.host_pid.is_none() && pod.host_ipc.is_none(), "{role}");
    }
    let [_, (_, controller)] = pods();
    assert_eq!(controller.security_context.unwrap().run_as_non_root, Some(true));
    assert_eq!(controller.host_network, None);
}

#[test]
fn the_kubelet_asks_where_the_program_listens() {
    let [(_, gateway), (_, controller)] = pods();
    let admin = Config::read(GATEWAY).listen("admin");
    assert!(admin.ip().is_loopback(), "the host's network is no place for {admin}");
    let gateway = container(&gateway);
    assert_probes(gateway, Some(&admin.ip().to_string()), &IntOrString::Int(admin.port().into()));

    let admin = Config::read(CONTROLLER).listen("admin");
    assert!(admin.ip().is_unspecified(), "the kubelet asks by the Pod's address, not {admin}");
    let controller = container(&controller);
    assert_probes(controller, None, &IntOrString::String("admin".to_owned()));
    let port = controller.ports.iter().flatten().find(|port| port.name.as_deref() == Some("admin")).unwrap();
    assert_eq!(port.container_port, i32::from(admin.port()));
}

fn assert_probes(container: &Container, host: Option<&str>, port: &IntOrString) {
    let assert_probe = |probe: &Option<Probe>, path: &str| {
        let get = probe.as_ref().and_then(|probe| probe.http_get.as_ref()).expect("the probe asks over HTTP");
        assert_eq!((get.host.as_deref(), &get.port, get.path.as_deref()), (host, port, Some(path)));
    };
    assert_probe(&container.liveness_probe, "/livez");
    assert_probe(&container.readiness_probe, "/readyz");
}

#[test]
fn the_controller_shows_gateways_a_token_that_is_for_them_alone() {
    let [_, (_, controller)] = pods();
    let folder = mount(&controller, "gateways").to_owned();
    let volumes = controller.volumes.unwrap();
    let volume = volumes.iter().find(|volume| volume.name == "gateways").unwrap();
    let sources = volume.projected.as_ref().unwrap().sources.as_deref().unwrap();
    let [source] = sources else { panic!("one source is expected: {sources:?}") };
    let token = source.service_account_token.as_ref().unwrap();
    assert_eq!(token.audience.as_deref(), Some(gateway_report::AUDIENCE));
    assert_eq!(Config::read(CONTROLLER).text("gateways", "tokenFile"), format!("{folder}/{}", token.path));
    for file in [GATEWAY, OVERLAY_GATEWAY] {
        assert_eq!(Config::read(file).text("report", "authorization"), "kubernetes", "{file}");
    }
    let paths = [gateway_report::PATH, gateway_report::TRACE_PATH].map(str::to_owned);
    let role: ClusterRole = object("sheave-controller");
    let rules = role.rules.unwrap();
    assert!(rules.iter().any(|rule| rule.non_resource_urls.as_deref() == Some(&paths[..])), "{rules:?}");
}

#[test]
fn the_certificate_for_metrics_is_where_the_configuration_says_if_it_exists() {
    for ((_, pod), config) in pods().into_iter().zip([GATEWAY, CONTROLLER]) {
        let folder = mount(&pod, "metrics").to_owned();
        let volumes = pod.volumes.unwrap();
        let secret = volumes.iter().find_map(|volume| volume.secret.as_ref()).unwrap();
        assert_eq!((secret.secret_name.as_deref(), secret.optional), (Some("sheave-metrics"), Some(true)));
        let tls = format!("tls: {{certificate: {folder}/tls.crt, key: {folder}/tls.key}}}}");
        assert!(files::text(config).contains(&tls), "{config}: {tls}");
    }
}

#[test]
fn what_a_gateway_remembers_outlives_its_pod() {
    let [(_, gateway), _] = pods();
    let state_dir = Config::read(GATEWAY).state_dir().to_owned();
    assert_eq!(mount(&gateway, "state"), state_dir);
    let volumes = gateway.volumes.unwrap();
    let state = volumes.iter().find(|volume| volume.name == "state").unwrap();
    assert_eq!(state.host_path.as_ref().unwrap().path, state_dir);
}

#[test]
fn gateways_run_on_gateway_nodes_whatever_else_they_are_kept_free_of() {
    const LABEL: &str = "node-role.kubernetes.io/gateway";
    let [(_, gateway), _] = pods();
    let affinity = gateway.affinity.unwrap().node_affinity.unwrap();
    let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
    let expressions: Vec<_> = terms.iter().flat_map(|term| term.match_expressions.iter().flatten()).collect();
    let [expression] = expressions[..] else { panic!("one expression is expected: {expressions:?}") };
    assert_eq!((expression.key.as_str(), expression.operator.as_str()), (LABEL, "Exists"));
    let tolerations = gateway.tolerations.unwrap();
    let tolerated = |key: &str, effect: &str| {
        tolerations.iter().any(|it| {
            assert_eq!(
                (it.operator.as_deref(), &it.value, it.toleration_seconds),
                (Some("Exists"), &None, None)
            );
            it.key.as_deref().is_none_or(|own| own == key)
                && it.effect.as_deref().is_none_or(|own| own == effect)
        })
    };
    for effect in ["NoSchedule", "PreferNoSchedule", "NoExecute"] {
        assert!(tolerated(LABEL, effect), "{effect}");
    }
    for key in ["node-role.kubernetes.io/control-plane", "dedicated", "CriticalAddonsOnly"] {
        assert!(tolerated(key, "NoSchedule"), "{key}");
    }
    // These taints empty a node for good, and make Kubernetes release a node that is out of service.
    for key in ["maintenance", "node.kubernetes.io/out-of-service"] {
        assert!(!tolerated(key, "NoExecute"), "{key}");
    }
}

/// Both are on the host network for a while, so neither may declare ports, since the scheduler would then separate
/// them.
#[test]
fn the_next_gateway_of_a_node_comes_before_the_one_that_it_takes_over_from_goes() {
    let [(_, pod), _] = pods();
    assert_eq!(pod.host_network, Some(true));
    assert_eq!(container(&pod).ports, None);
    let update = gateway().spec.update_strategy.unwrap().rolling_update.unwrap();
    assert_eq!(update.max_unavailable, Some(IntOrString::Int(0)));
    assert_eq!(update.max_surge, Some(IntOrString::Int(1)), "node by node");
    // They meet in a folder of the node.
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == "state").unwrap();
    assert_eq!(mount(&pod, "state"), volume.host_path.as_ref().unwrap().path);
}
