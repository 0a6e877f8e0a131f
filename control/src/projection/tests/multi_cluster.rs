//! MultiClusterServices: the clusters and endpoints that are used, and the Problems of others.

use std::time::Duration;

use sheave_model::{FrontendSource, Path, Route, Spread};

use super::super::explain::{ClientSide, Explanation};
use super::super::{ClusterState, KarmadaOptions, Options, Projector, ResolvedRefs};
use super::fleet::{
    TEMPLATE, annotated, binding, cluster, fleet, fleet_options, key, mcs, project, put, spread, work,
    work_of,
};
use super::support::{add, lines, objects, problems, service};
use crate::api::store::Dirty;

const MCS: &str = "MultiClusterService shop/web";

fn both() -> [String; 2] {
    [work("m1", "a", &["10.1.0.7", "!10.1.0.8"]), work("m2", "b", &["10.2.0.7"])]
}

fn with(manifest: &str) -> (Vec<String>, Vec<String>) {
    let [a, b] = both();
    let (_, projection) = project(&[manifest, &a, &b]);
    (spread(&projection), problems(&projection))
}

#[test]
fn every_cluster_is_a_backend_of_its_own() {
    let [a, b] = both();
    let (projector, projection) = project(&[&mcs("", ""), &a, &b]);
    assert_eq!(spread(&projection), ["80: m1*100@0 10.1.0.7:8080 of 2 | m2*100@0 10.2.0.7:8080 of 1"]);
    assert_eq!(problems(&projection), [""; 0]);
    let frontend = &projection.table.frontends()[1];
    assert_eq!(
        (frontend.addr.to_string().as_str(), frontend.service.source),
        ("203.0.113.10:80/TCP", FrontendSource::MultiClusterService)
    );
    assert_eq!(frontend.failover.as_ref().map(|it| it.spread), Some(Spread::Endpoints));
    let local: Vec<bool> = frontend.backends.iter().map(|it| it.endpoints[0].local).collect();
    assert_eq!(local, [true, false], "nodes of the same name are not the same");
    let status = projector.fleet_status(&key()).unwrap();
    let counts: Vec<(u32, u32)> = status.clusters.iter().map(|it| (it.ready, it.total)).collect();
    let resolved = ResolvedRefs { template: true, ..ResolvedRefs::default() };
    assert_eq!((counts, &status.resolved), (vec![(1, 2), (1, 1)], &resolved));
    assert_eq!(projector.status(&key()).unwrap().ingress.len(), 1);
}

/// A gateway sends nothing to an address of a family that the Service does not have.
#[test]
fn endpoints_of_another_family_do_not_count() {
    let v6 = |cluster: &str, slice: &str| {
        work(cluster, slice, &["'2001:db8::7'"]).replace("addressType: IPv4", "addressType: IPv6")
    };
    let [a, _] = both();
    let counts = |template: &str| {
        let objects = fleet(&[template, &mcs("", ""), &a, &v6("m1", "c"), &v6("m2", "b")]);
        let mut projector = Projector::new(fleet_options());
        projector.project(&objects, &Dirty::Everything);
        let status = projector.fleet_status(&key()).unwrap();
        status.clusters.iter().map(|it| (it.ready, it.total, it.lack.is_some())).collect::<Vec<_>>()
    };
    let of = |families: &str| TEMPLATE.replace("ports:", &format!("ipFamilies: [{families}], ports:"));
    assert_eq!(counts(&of("IPv4")), [(1, 2, false), (0, 0, true)]);
    assert_eq!(counts(&of("IPv4, IPv6")), [(2, 3, false), (1, 1, false)]);
}

#[test]
fn types_decide_whether_it_is_ours() {
    let of = |types: &str| with(&mcs("", "").replace("types: [LoadBalancer]", &format!("types: [{types}]")));
    assert_eq!(of("CrossCluster"), (vec![], vec![]));
    let (served, told) = of("LoadBalancer, CrossCluster");
    assert_eq!((served.len(), told), (1, vec![format!("{MCS} InvalidValue spec.types")]));
    assert_eq!(of(""), (vec![], vec![format!("{MCS} NotServed spec.types")]));
    let (served, told) = of("LoadBalancr");
    assert_eq!((served.len(), told.len()), (0, 2));
}

#[test]
fn without_a_usable_service_nothing_is_served() {
    let [a, b] = both();
    let refused = |template: &str| {
        let objects = fleet(&[template, &mcs("", ""), &a, &b]);
        let mut projector = Projector::new(fleet_options());
        let projection = projector.project(&objects, &Dirty::Everything);
        assert!(projection.table.frontends().is_empty());
        (problems(&projection), projector.fleet_status(&key()).unwrap().resolved.template)
    };
    let other = TEMPLATE.replace("name: web,", "name: other,");
    assert_eq!(refused(&other), (vec![format!("{MCS} ServiceNotFound metadata.name")], false));
    let leaving = TEMPLATE.replace("shop}", "shop, deletionTimestamp: '2026-01-01T00:00:00Z'}");
    assert_eq!(refused(&leaving).0, [format!("{MCS} ServiceNotFound metadata.name")]);
    let headless = TEMPLATE.replace("ports:", "clusterIP: None, ports:");
    assert_eq!(refused(&headless), (vec![format!("{MCS} NotServed Service.spec.clusterIP")], true));
    let name = TEMPLATE.replace("ClusterIP", "ExternalName");
    assert_eq!(refused(&name), (vec![format!("{MCS} NotServed Service.spec.type")], true));
}

#[test]
fn the_class_is_the_annotations_then_the_services() {
    assert_eq!(with(&annotated("sheave.dev/load-balancer-class: other")).0.len(), 0);
    assert_eq!(with(&annotated("sheave.dev/load-balancer-class: sheave.dev/l4")).0.len(), 1);
    let [a, b] = both();
    let template = TEMPLATE.replace("ports:", "loadBalancerClass: other, ports:");
    let (_, projection) = project(&[&template, &mcs("", ""), &a, &b]);
    assert!(projection.table.frontends().is_empty() && projection.problems.is_empty());
}

#[test]
fn ports_are_filtered_by_name_and_number() {
    let ports = |ports: &str| {
        let (projector, projection) = project(&[&mcs(&format!("ports: [{ports}]"), ""), &both()[0]]);
        let addrs: Vec<u16> = projection.table.frontends().iter().map(|it| it.addr.port).collect();
        let unmatched =
            projector.fleet_status(&key()).map(|it| it.resolved.unmatched_ports.clone()).unwrap_or_default();
        (addrs, problems(&projection), unmatched)
    };
    assert_eq!(ports("{port: 80}"), (vec![80], vec![], vec![]));
    let told = vec![format!("{MCS} PortNotFound spec.ports[1]")];
    assert_eq!(ports("{port: 53}, {name: http, port: 81}"), (vec![53], told, vec!["http:81".to_owned()]));
    let (served, told, _) = ports("{port: 9}");
    assert_eq!((served, told.len()), (vec![], 2));
    let template = TEMPLATE.replace("{name: http, port: 80}", "{name: http, port: 53}");
    let (_, projection) = project(&[&template, &mcs("ports: [{port: 53}]", "")]);
    assert_eq!(projection.table.frontends().len(), 2, "a number is for every protocol");
}

#[test]
fn problems_of_the_template_name_its_fields() {
    let template = TEMPLATE
        .replace("ports:", "sessionAffinity: Sticky, ports:")
        .replace("shop}", "shop, annotations: {sheave.dev/balance: fair}}");
    let (_, projection) = project(&[&template, &annotated("sheave.dev/panic-threshold: '101'")]);
    assert_eq!(
        problems(&projection),
        [
            format!("{MCS} InvalidValue Service.metadata.annotations[sheave.dev/balance]"),
            format!("{MCS} InvalidValue Service.spec.sessionAffinity"),
            format!("{MCS} InvalidValue metadata.annotations[sheave.dev/panic-threshold]"),
        ]
    );
}

#[test]
fn provider_clusters_limit_and_legacy_fields_do_not() {
    let only_2 = ["80: m2*100@0 10.2.0.7:8080 of 1".to_owned()];
    let (served, told) = with(&mcs("providerClusters: [{name: m2}]", ""));
    assert_eq!((served.as_slice(), told.len()), (only_2.as_slice(), 0));
    for (spec, field) in [
        ("range: {clusterNames: [m2]}", "spec.range.clusterNames"),
        ("serviceProvisionClusters: [m2]", "spec.serviceProvisionClusters"),
    ] {
        let (served, told) = with(&mcs(spec, ""));
        assert!(served[0].contains("m1*") && served[0].contains("m2*"), "{served:?}");
        assert_eq!(told, [format!("{MCS} LegacyField {field}")]);
        let (served, told) = with(&mcs(&format!("{spec}, providerClusters: [{{name: m1}}]"), ""));
        assert!(served[0].contains("m1*") && !served[0].contains("m2*") && told.len() == 1);
    }
}

#[test]
fn unknown_clusters_are_told_and_unregistered_ones_not_used() {
    let [a, b] = both();
    let mcs = mcs("providerClusters: [{name: m1}, {name: m2}, {name: m9}]", "");
    let (projector, projection) = project(&[&mcs, &a, &b, &cluster("m1", "", true)]);
    assert_eq!(spread(&projection), ["80: m1*100@0 10.1.0.7:8080 of 2"]);
    let told = [1, 2].map(|it| format!("{MCS} ClusterNotFound spec.providerClusters[{it}].name"));
    let work = "Work karmada-es-m2/b-x ClusterNotFound metadata.namespace".to_owned();
    assert_eq!(problems(&projection), [told.as_slice(), &[work]].concat());
    assert_eq!(projector.fleet_status(&key()).unwrap().resolved.unknown_clusters, ["m2", "m9"]);
    let (_, unknown) = project(&[&mcs, &a, &b]);
    assert!(unknown.problems.is_empty(), "while nothing is known of clusters, nobody is missing");
}

#[test]
fn a_cluster_that_the_binding_leaves_out_is_stale() {
    let [a, b] = both();
    let (projector, projection) = project(&[
        &mcs("providerClusters: [{name: m1}, {name: m2}]", ""),
        &a,
        &b,
        &binding("{name: m1}", "", ""),
    ]);
    assert_eq!(spread(&projection), ["80: m1*100@0 10.1.0.7:8080 of 2"]);
    assert!(projection.problems.is_empty());
    assert_eq!(projector.fleet_status(&key()).unwrap().clusters[1].state, ClusterState::NotBound);
    let required = binding("{name: m1}", "requiredBy: [{clusters: [{name: m2}]}]", "");
    assert!(spread(&project(&[&mcs("", ""), &a, &b, &required]).1)[0].contains("m2*"));
    assert!(spread(&project(&[&mcs("", ""), &a, &b, &binding("", "", "")]).1)[0].contains("m2*"));
}

#[test]
fn a_cluster_that_is_left_keeps_its_endpoints_and_gets_nothing_new() {
    let [a, b] = both();
    let drained = |more: &str, mcs: &str| {
        let (_, projection) = project(&[mcs, &a, &b, &cluster("m1", "", true), more]);
        let backend = projection.table.frontends()[1].backends[1].endpoints.len();
        (spread(&projection), backend)
    };
    let expected = (vec!["80: m1*100@0 10.1.0.7:8080 of 2 | m2*100@0  of 1".to_owned()], 1);
    let plain = mcs("", "");
    let m2 = cluster("m2", "", true);
    for more in [
        cluster("m2", "taints: [{key: k, effect: NoExecute}]", true),
        m2.replace("status: {", "status: {remedyActions: [TrafficControl], "),
        m2.replace("{name: m2}", "{name: m2, deletionTimestamp: '2026-01-01T00:00:00Z'}"),
        m2.replace("{name: m2}", "{name: m2, annotations: {sheave.dev/drain: 'true'}}"),
    ] {
        assert_eq!(drained(&more, &plain), expected, "{more}");
    }
    assert_eq!(drained(&m2, &annotated("sheave.dev/drain: m2")), expected);
    let evicted = binding("{name: m1}", "gracefulEvictionTasks: [{fromCluster: m2}]", "");
    let (_, projection) = project(&[&plain, &a, &b, &evicted]);
    assert_eq!(spread(&projection), expected.0);
    let taint = cluster("m2", "taints: [{key: k, effect: NoSchedule}]", true);
    assert!(drained(&taint, &plain).0[0].contains("10.2.0.7"), "NoSchedule is not about traffic");
    let (_, nowhere) = project(&[&annotated("sheave.dev/drain: 'm1,m2'"), &a, &b]);
    assert_eq!(nowhere.table.frontends()[1].external, Route::Reject);
}

#[test]
fn a_cluster_that_is_not_ready_is_held_off_after_its_time() {
    let [a, b] = both();
    let objects =
        fleet(&[TEMPLATE, &mcs("", ""), &a, &b, &cluster("m1", "", true), &cluster("m2", "", false)]);
    let hold = KarmadaOptions { not_ready_hold: Some(Duration::from_secs(60)), ..KarmadaOptions::default() };
    let mut projector = Projector::new(Options { fleet: hold, ..fleet_options() });
    projector.set_now("2026-01-01T00:00:59Z".parse().unwrap());
    let before = projector.project(&objects, &Dirty::Everything);
    assert!(spread(&before)[0].contains("10.2.0.7"));
    assert_eq!(projector.fleet_status(&key()).unwrap().clusters[1].state, ClusterState::NotReady);
    assert_eq!(before.due, Some("2026-01-01T00:01:00Z".parse().unwrap()));
    projector.set_now("2026-01-01T00:01:00Z".parse().unwrap());
    let after = projector.project(&objects, &Dirty::Nothing);
    assert!(after.changed && after.due.is_none() && !spread(&after)[0].contains("10.2.0.7"));
    assert_eq!(projector.fleet_status(&key()).unwrap().clusters[1].state, ClusterState::HeldOff);
    let mut patient = Projector::new(fleet_options());
    patient.set_now("2027-01-01T00:00:00Z".parse().unwrap());
    assert!(spread(&patient.project(&objects, &Dirty::Everything))[0].contains("10.2.0.7"));
}

#[test]
fn copies_for_consumers_are_told_from_originals() {
    let original = work("m2", "b", &["10.2.0.7"]);
    let name = "{name: b, namespace: shop, labels: {";
    let by =
        |who: &str| original.replace(name, &format!("{name}endpointslice.kubernetes.io/managed-by: {who}, "));
    let annotate = |work: &str, provider: &str| {
        work.replace(
            "{name: b-x,",
            &format!("{{name: b-x, annotations: {{endpointslice.karmada.io/provision-cluster: {provider}}},"),
        )
    };
    let collected = "endpointslice.karmada.io/managed-by: MultiClusterService";
    let served = |work: &str| spread(&project(&[&mcs("", ""), work]).1).len() == 1;
    assert!(served(&original));
    assert!(!served(&by("endpointslice-dispatch-controller.karmada.io")));
    assert!(!served(&by("endpointslice-controller.karmada.io")));
    assert!(!served(&annotate(&original.replace(collected, "x: y"), "m1")));
    assert!(!served(&original.replace(collected, "x: y")), "not collected");
    assert!(served(&annotate(&original, "m1")), "the manifest of a Work of two is the original");
    assert!(!served(&annotate(&original, "m1").replace(name, "{name: m1-b, namespace: shop, labels: {")));
    assert!(served(
        &annotate(&by("endpointslice-controller.k8s.io"), "b")
            .replace(name, "{name: b-b, namespace: shop, labels: {")
    ));
    let gone = original.replace("{name: b-x,", "{name: b-x, deletionTimestamp: '2026-01-01T00:00:00Z',");
    assert!(!served(&gone));
}

#[test]
fn bad_works_are_told_and_the_others_go_on() {
    let [a, _] = both();
    let broken = work("m2", "b", &["10.2.0.7"]).replace("addressType: IPv4", "addressType: [1]");
    let foreign = work("m2", "c", &["10.2.0.8"])
        .replace("kubernetes.io/service-name: web", "kubernetes.io/service-name: derived-web");
    let bad = work("m2", "d", &["10.2.0.999"]);
    let (_, projection) = project(&[&mcs("", ""), &a, &broken, &foreign, &bad]);
    assert_eq!(spread(&projection), ["80: m1*100@0 10.1.0.7:8080 of 2"]);
    let part = "spec.workload.manifests[0]";
    assert_eq!(
        problems(&projection),
        [
            format!("Work karmada-es-m2/b-x InvalidManifest {part}"),
            format!("Work karmada-es-m2/c-x InvalidValue {part}.metadata.labels[kubernetes.io/service-name]"),
            format!("Work karmada-es-m2/d-x InvalidValue {part}.endpoints[0].addresses[0]"),
        ]
    );
}

fn imported(name: &str, metadata: &str, ip: &str) -> String {
    format!(
        "kind: EndpointSlice\nmetadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: derived-web}}, {metadata}}}\n\
         addressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{{addresses: [{ip}]}}]\n"
    )
}

#[test]
fn imported_slices_fill_in_where_no_work_is() {
    let ns = "annotations: {work.karmada.io/namespace: karmada-es-m2, work.karmada.io/name: b-x}";
    let one = |slice: &str, more: &[&str]| {
        let mut all = vec![slice];
        let mcs = mcs("", "");
        all.push(&mcs);
        all.extend(more);
        let (_, projection) = project(&all);
        (spread(&projection).join(""), problems(&projection))
    };
    assert_eq!(one(&imported("x", ns, "10.2.0.9"), &[]).0, "80: m2*100@0 10.2.0.9:8080 of 1");
    let original = work("m2", "b", &["10.2.0.7"]);
    assert_eq!(one(&imported("x", ns, "10.2.0.9"), &[&original]).0, "80: m2*100@0 10.2.0.7:8080 of 1");
    assert_eq!(
        one(&imported("imported-m2-b", "", "10.2.0.9"), &[&original]).0,
        "80: m2*100@0 10.2.0.7:8080 of 1"
    );
    let clusters = ["m2", "m2-b"].map(|name| cluster(name, "", true));
    let (served, told) = one(&imported("imported-m2-b-c", "", "10.2.0.9"), &[&clusters[0], &clusters[1]]);
    assert_eq!((served.as_str(), told.len()), ("80: m2-b*100@0 10.2.0.9:8080 of 1", 0));
    let (served, told) = one(&imported("nobody", "", "10.2.0.9"), &[]);
    assert_eq!((served.as_str(), told.len()), ("", 1));
    let other = work("m2", "other", &["!10.2.0.9"]);
    let (_, projection) = project(&[&mcs("", ""), &other, &imported("imported-m2-b", "", "10.2.0.9")]);
    assert!(!projection.table.frontends()[1].has_endpoints(), "of one Pod the Work says what it is");
}

#[test]
fn ports_are_resolved_by_name_in_each_slice() {
    let a = work("m1", "a", &["10.1.0.7"]);
    let b = work_of("m2", "b", "http, port: 9090", &["10.2.0.7"]);
    let (_, projection) = project(&[&mcs("", ""), &a, &b]);
    assert_eq!(spread(&projection), ["80: m1*100@0 10.1.0.7:8080 of 1 | m2*100@0 10.2.0.7:9090 of 1"]);
}

#[test]
fn ingress_addresses_stand_for_pods_that_cannot_be_reached() {
    let service = "kind: Work\nmetadata: {name: web-s, namespace: karmada-es-m2}\nspec: {workload: {manifests: [{apiVersion: v1, \
                   kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{name: http, port: 8000}]}}]}}\n\
                   status: {manifestStatuses: [{identifier: {kind: Service, namespace: shop, name: web}, status: {loadBalancer: \
                   {ingress: [{ip: 198.51.100.4, hostname: m2}, {hostname: lb.example}, {hostname: m2}]}}}]}\n";
    let [a, b] = both();
    let (_, auto) = project(&[&mcs("", ""), &a, service]);
    assert_eq!(spread(&auto), ["80: m1*100@0 10.1.0.7:8080 of 2 | m2*100@0 198.51.100.4:8000 of 1"]);
    let told = "Work karmada-es-m2/web-s InvalidValue status.manifestStatuses[0].status.loadBalancer.ingress[1].hostname";
    assert_eq!(problems(&auto), [told]);
    let (_, pods) = project(&[&annotated("sheave.dev/cluster-endpoints: pods"), &a, service]);
    assert_eq!(spread(&pods), ["80: m1*100@0 10.1.0.7:8080 of 2"]);
    let aggregated = binding(
        "{name: m1}, {name: m2}",
        "",
        "aggregatedStatus: [{clusterName: m1, status: {loadBalancer: {ingress: [{ip: 198.51.100.9}]}}}]",
    );
    let (_, ingress) =
        project(&[&annotated("sheave.dev/cluster-endpoints: ingress"), &a, &b, service, &aggregated]);
    assert_eq!(
        spread(&ingress),
        [
            "80: m1*100@0 198.51.100.9:80 of 1 | m2*100@0 198.51.100.4:8000 of 1",
            "53: m1*100@0 198.51.100.9:53 of 1"
        ][..]
            .iter()
            .rev()
            .map(|it| (*it).to_owned())
            .collect::<Vec<_>>()
    );
}

#[test]
fn weights_and_tiers_follow_the_annotations() {
    let (served, told) =
        with(&annotated("sheave.dev/cluster-weights: 'm2=3', sheave.dev/cluster-priority: 'm2>m1'"));
    assert_eq!(served, ["80: m1*1@1 10.1.0.7:8080 of 2 | m2*3@0 10.2.0.7:8080 of 1"]);
    assert!(told.is_empty());
    let (served, _) = with(&annotated("sheave.dev/cluster-priority: locality"));
    assert_eq!(served, ["80: m1*100@0 10.1.0.7:8080 of 2 | m2*100@2 10.2.0.7:8080 of 1"]);
    for (name, value) in [
        ("cluster-weights", "m1=3,m1=1"),
        ("cluster-priority", "m1>m2,m1"),
        ("health-check", "tcp timeout=9s"),
        ("overprovisioning", "99"),
        ("cluster-endpoints", "nodes"),
    ] {
        let (served, told) = with(&annotated(&format!("sheave.dev/{name}: '{value}'")));
        assert_eq!(served, ["80: m1*100@0 10.1.0.7:8080 of 2 | m2*100@0 10.2.0.7:8080 of 1"]);
        assert_eq!(told, [format!("{MCS} InvalidValue metadata.annotations[sheave.dev/{name}]")]);
    }
    for name in ["cluster-weights: 'm7=1'", "cluster-priority: m7", "drain: m7"] {
        let (_, told) = with(&annotated(&format!("sheave.dev/{name}")));
        let annotation = name.split(':').next().unwrap();
        assert_eq!(told, [format!("{MCS} ClusterNotFound metadata.annotations[sheave.dev/{annotation}]")]);
    }
    let [a, b] = both();
    let regions =
        [("m1", "eu"), ("m2", "eu")].map(|(name, region)| cluster(name, &format!("region: {region}"), true));
    let (_, near) =
        project(&[&annotated("sheave.dev/cluster-priority: locality"), &a, &b, &regions[0], &regions[1]]);
    assert!(spread(&near)[0].contains("m2*100@1"));
}

#[test]
fn equal_addresses_are_told_unless_paths_tell_them_apart() {
    let (a, b) = (work("m1", "a", &["10.1.0.7"]), work("m2", "b", &["10.1.0.7"]));
    let (_, projection) = project(&[&mcs("", ""), &a, &b]);
    assert_eq!(problems(&projection), [format!("{MCS} OverlappingAddresses ")]);
    assert!(projection.problems[0].message.contains("m1 and m2"));
    let fleet_paths = KarmadaOptions { paths: [("m2".into(), Path(1))].into(), ..KarmadaOptions::default() };
    let mut projector = Projector::new(Options { fleet: fleet_paths, ..fleet_options() });
    let apart = projector.project(&fleet(&[TEMPLATE, &mcs("", ""), &a, &b]), &Dirty::Everything);
    assert!(apart.problems.is_empty());
    assert_eq!(apart.table.frontends()[1].backends[1].endpoints[0].addr.path, Path(1));
    let (_, drained) = project(&[&annotated("sheave.dev/drain: m2"), &a, &b]);
    assert!(drained.problems.is_empty());
}

#[test]
fn local_is_the_gateways_own_cluster_and_node() {
    let [a, b] = both();
    let template = TEMPLATE.replace("ports:", "externalTrafficPolicy: Local, ports:");
    let (_, projection) = project(&[&template, &mcs("", ""), &a, &b]);
    let line = &lines(&projection)[1];
    assert!(line.ends_with("10.1.0.7:8080 | 10.1.0.7:8080 10.2.0.7:8080"), "{line}");
    let told = [format!("{MCS} NotAcrossClusters Service.spec.externalTrafficPolicy")];
    assert_eq!(problems(&projection), told);
    let [m1, m2] = ["m1", "m2"].map(|name| cluster(name, "", true));
    let (_, elsewhere) = project(&[&template, &mcs("", ""), &b, &m1, &m2]);
    assert_eq!(elsewhere.table.frontends()[1].external, Route::Drop);
    assert_eq!(problems(&elsewhere), told);
    for foreign in [mcs("", ""), mcs("providerClusters: [{name: m2}]", "")] {
        let (_, foreign) = project(&[&template, &foreign, &b, &m2]);
        let line = &lines(&foreign)[1];
        assert!(
            line.ends_with("10.2.0.7:8080 | 10.2.0.7:8080"),
            "it cannot hold in a cluster that is none of them: {line}"
        );
        assert_eq!(problems(&foreign), told);
    }
}

#[test]
fn terminating_endpoints_wait_for_all_clusters() {
    let ends = |ready: &str| {
        work("m1", "a", &["!10.1.0.7"])
            .replace("{ready: false}", &format!("{{ready: {ready}, serving: true, terminating: true}}"))
    };
    let (_, projection) = project(&[&mcs("", ""), &ends("false"), &both()[1]]);
    assert_eq!(spread(&projection), ["80: m1*100@0  of 1 | m2*100@0 10.2.0.7:8080 of 1"]);
    let (_, alone) = project(&[&mcs("", ""), &ends("false")]);
    assert_eq!(spread(&alone), ["80: m1*100@0 10.1.0.7:8080 of 1"]);
}

#[test]
fn an_address_and_port_is_given_once_across_both_kinds() {
    let [a, _] = both();
    let mut objects = fleet(&[TEMPLATE, &mcs("", "creationTimestamp: '2026-01-01T00:00:00Z'"), &a]);
    let status = "status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}";
    add(&mut objects, &[&service("shop", "web", "ports: [{port: 80}]", status)]);
    let projection = Projector::new(fleet_options()).project(&objects, &Dirty::Everything);
    assert_eq!(projection.table.frontends().len(), 2);
    let message = &projection.problems.iter().find(|it| it.object.kind == "Service").unwrap().message;
    assert!(message.contains("belongs to MultiClusterService shop/web"), "{message}");
}

#[test]
fn an_endpoint_that_is_a_frontend_is_left_out() {
    let looping = work_of("m2", "b", "http, port: 80", &["203.0.113.10", "10.2.0.7"]);
    let (_, projection) = project(&[&mcs("", ""), &looping]);
    assert_eq!(spread(&projection), ["80: m2*100@0 10.2.0.7:80 of 1"]);
    assert_eq!(problems(&projection), [format!("{MCS} EndpointLoop ")]);
}

#[test]
fn slices_of_ordinary_services_may_name_their_cluster() {
    let slice = |name: &str, label: &str, ip: &str| {
        format!(
            "kind: EndpointSlice\nmetadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: web{label}}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{{addresses: [{ip}], nodeName: gw-1}}]\n"
        )
    };
    let manifest = service(
        "shop",
        "web",
        "ports: [{name: http, port: 80}]",
        "metadata: annotations: {sheave.dev/cluster-weights: 'm2=5'}",
    );
    let remote = slice("b", ", multicluster.kubernetes.io/source-cluster: m2", "10.2.0.7");
    let mut objects = objects(&[super::support::NODE, &manifest, &slice("a", "", "10.1.0.7"), &remote]);
    let mut projector = Projector::new(fleet_options());
    let projection = projector.project(&objects, &Dirty::Everything);
    assert_eq!(spread(&projection), ["80: m1*1@0 10.1.0.7:8080 of 1 | m2*5@0 10.2.0.7:8080 of 1"]);
    assert!(projection.table.frontends()[0].failover.is_some() && projection.problems.is_empty());
    let all = objects.slices.values_mut().next().unwrap();
    all.remove("b");
    let alone = projector.project(&objects, &Dirty::Everything);
    assert!(alone.table.frontends()[0].failover.is_none());
}

#[test]
fn explanations_say_of_each_endpoint_why() {
    let copy = work("m1", "c", &["10.3.0.9"]).replace("{name: c, namespace: shop, labels: {", "{name: c, namespace: shop, labels: {endpointslice.kubernetes.io/managed-by: endpointslice-dispatch-controller.karmada.io, ");
    let [a, b] = both();
    let stale = work("m3", "d", &["10.4.0.7"]);
    let bound = binding("{name: m1}, {name: m2}", "", "");
    let mut objects = fleet(&[TEMPLATE, &annotated("sheave.dev/drain: m2"), &a, &b, &stale, &bound]);
    put(&mut objects, &[&copy]);
    let mut projector = Projector::new(fleet_options());
    let projection = projector.project(&objects, &Dirty::Everything);
    let Explanation::Served(served) = projector.explain(&objects, &key()) else { panic!("not served") };
    let why = served.explain(&projection.table.frontends()[1], ClientSide::Outside).unwrap();
    let said: Vec<String> =
        why.endpoints.iter().map(|it| format!("{} {} {}", it.cluster, it.address, it.reason)).collect();
    assert_eq!(said.len(), 5, "{said:?}");
    for part in [
        "m1 10.1.0.7:8080 ",
        "draining: the annotation sheave.dev/drain names it",
        "it is stale",
        "a copy that Karmada made",
        "m1 10.1.0.8:8080 ",
    ] {
        assert!(said.iter().any(|it| it.contains(part)), "{part}: {said:?}");
    }
    assert!(why.reasons.iter().any(|it| it == "nothing new goes to m2"), "{why:?}");
    let unknown = crate::api::store::ServiceKey::multi_cluster("shop", "other");
    assert!(matches!(projector.explain(&objects, &unknown), Explanation::Unknown));
}
