//! Fleets with clusters or objects that leave, are missing or are invalid.

use sheave_model::{AddressSet, Path};

use super::super::{Authority, KarmadaOptions, NoEndpoints, Options, Projection, Projector, Role};
use super::fleet::{
    TEMPLATE, annotated, binding, cluster, fleet, fleet_options, key, mcs, project, put, spread, work,
    work_of,
};
use super::support::{NODE, add, problems, service};
use crate::api::karmada::Work;
use crate::api::owners::unreadable_owner;
use crate::api::problem::reason;
use crate::api::store::{Dirty, ServiceKey};

const POOL: &str = "kind: AddressPool\nmetadata: {name: main}\nspec: {addresses: [203.0.113.10/32]}\n";
const LEAVING: &str =
    "deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [sheave.dev/load-balancer-cleanup]";

fn messages(projection: &Projection) -> Vec<&str> {
    projection.problems.iter().map(|problem| problem.message.as_str()).collect()
}

fn managed() -> Options {
    let gateways = ServiceKey::new("sheave-system", "sheave-gateways");
    Options { role: Role::Controller { gateways, own_gateway: None }, ..fleet_options() }
}

#[test]
fn one_that_is_being_deleted_is_gone_whoever_decides_about_addresses() {
    let objects = fleet(&[TEMPLATE, &mcs("", LEAVING), &work("m1", "a", &["10.1.0.7"])]);
    for role in [Role::Standalone, Role::Gateway, managed().role] {
        let mut projector = Projector::new(Options { role, ..fleet_options() });
        let projection = projector.project(&objects, &Dirty::Everything);
        assert!(projection.table.frontends().is_empty() && projection.problems.is_empty());
        assert!(projector.status(&key()).is_none() && projector.fleet_status(&key()).is_none());
    }
}

#[test]
fn what_it_published_is_nobody_elses_until_its_status_is_empty() {
    let other = mcs("", "").replace("web", "other").replace("ingress: [{ip: 203.0.113.10}]", "ingress: []");
    let mut objects = fleet(&[TEMPLATE, &TEMPLATE.replace("web", "other"), &mcs("", LEAVING), &other]);
    add(&mut objects, &[POOL]);
    let mut projector = Projector::new(managed());
    let waits = projector.project(&objects, &Dirty::Everything);
    let told = "AddressPool main has no free IPv4 address; the MultiClusterService waits until one is free";
    assert_eq!(messages(&waits), [told]);
    let empty = mcs("", LEAVING).replace("ingress: [{ip: 203.0.113.10}]", "ingress: []");
    put(&mut objects, &[&empty]);
    let given = projector.project(&objects, &Dirty::Services([key()].into()));
    assert!(given.problems.is_empty(), "{:?}", given.problems);
    let other = projector.status(&ServiceKey::multi_cluster("shop", "other")).unwrap();
    assert_eq!(other.ingress[0].ip.to_string(), "203.0.113.10");
}

fn addresses(projector: &Projector, key: &ServiceKey) -> Vec<String> {
    let ingress = projector.status(key).into_iter().flat_map(|status| &status.ingress);
    ingress.map(|ingress| ingress.ip.to_string()).collect()
}

#[test]
fn who_replaces_its_service_leaves_it_the_address() {
    let other = mcs("", "").replace("web", "other").replace("ingress: [{ip: 203.0.113.10}]", "ingress: []");
    let mut objects = fleet(&[&TEMPLATE.replace("web", "other"), &mcs("", ""), &other]);
    add(&mut objects, &[POOL]);
    let mut projector = Projector::new(managed());
    let without = projector.project(&objects, &Dirty::Everything);
    assert!(without.table.frontends().is_empty());
    assert_eq!(addresses(&projector, &key()), ["203.0.113.10"]);
    assert_eq!(addresses(&projector, &ServiceKey::multi_cluster("shop", "other")), [] as [&str; 0]);
    put(&mut objects, &[TEMPLATE]);
    let with = projector.project(&objects, &Dirty::Services([key()].into()));
    assert_eq!(
        (with.table.frontends().len(), addresses(&projector, &key())),
        (2, vec!["203.0.113.10".to_owned()])
    );
}

/// Both for a controller that lost the Lease, and for one that never had it.
#[test]
fn what_one_has_stays_its_own_while_nobody_here_may_write_it() {
    let created = |day: u8| format!("creationTimestamp: '2026-01-0{day}T00:00:00Z'");
    let taken = format!("{}, finalizers: [sheave.dev/load-balancer-cleanup]", created(2));
    let mut objects = fleet(&[TEMPLATE, &mcs("", &taken), &work("m1", "a", &["10.1.0.7"])]);
    add(&mut objects, &[POOL]);
    let mut running = Projector::new(managed());
    let served = running.project(&objects, &Dirty::Everything);
    // Older, and in the same namespace, so that it may share the address but not the port.
    let asks = "ports: [{name: a, port: 80}, {name: b, port: 443}], loadBalancerIP: 203.0.113.10";
    let older = service("shop", "db", asks, &format!("metadata: {}", created(1)));
    add(&mut objects, &[&older]);
    let db = ServiceKey::new("shop", "db");
    for mut projector in [running, Projector::new(managed())] {
        projector.set_authority(Authority::NONE);
        let suspended = projector.project(&objects, &Dirty::Everything);
        let ports = |projector: &Projector| -> Vec<_> {
            let status = projector.status(&db).unwrap();
            status.ingress[0].ports.iter().map(|port| (port.port, port.error)).collect()
        };
        let own = [(80, Some(reason::ADDRESS_IN_USE)), (443, None)];
        assert_eq!(ports(&projector), own);
        assert_eq!(problems(&suspended), ["Service shop/db AddressInUse spec.ports[0]"]);
        assert_eq!(suspended.table.frontends().len(), 1, "what others decide about is not served from here");
        assert!(projector.status(&key()).is_none() && projector.fleet_status(&key()).is_none());
        projector.set_authority(Authority::ALL);
        let again = projector.project(&objects, &Dirty::Nothing);
        assert_eq!(
            (ports(&projector), addresses(&projector, &key())),
            (own.to_vec(), vec!["203.0.113.10".to_owned()])
        );
        assert_eq!(spread(&again)[..1], spread(&served));
    }
}

/// An allocated address may be written but not visible yet; once another installation writes one, that counts.
#[test]
fn what_was_given_is_held_until_the_status_says_something_else() {
    let classified = annotated("sheave.dev/load-balancer-class: sheave.dev/l4");
    let without = classified.replace("ingress: [{ip: 203.0.113.10}]", "ingress: []");
    let mut objects = fleet(&[TEMPLATE, &without]);
    add(&mut objects, &[POOL]);
    let db = ServiceKey::new("shop", "db");
    let mut projector = Projector::new(managed());
    let _ = projector.project(&objects, &Dirty::Everything);
    assert_eq!(addresses(&projector, &key()), ["203.0.113.10"]);
    projector.set_authority(Authority::NONE);
    add(&mut objects, &[&service("shop", "db", "ports: [{port: 80}], ipFamilies: [IPv4]", "")]);
    let _ = projector.project(&objects, &Dirty::Services([db.clone()].into()));
    assert_eq!(addresses(&projector, &db), [""; 0]);
    // A changed request in the meantime does not matter either.
    put(&mut objects, &[&classified]);
    let _ = projector.project(&objects, &Dirty::Services([key()].into()));
    put(&mut objects, &[&TEMPLATE.replace("ports:", "ipFamilies: [IPv6], ports:")]);
    let _ = projector.project(&objects, &Dirty::Services([key()].into()));
    assert_eq!(addresses(&projector, &db), [""; 0]);
    put(&mut objects, &[&classified.replace("203.0.113.10", "198.51.100.7")]);
    let _ = projector.project(&objects, &Dirty::Services([key()].into()));
    assert_eq!(addresses(&projector, &db), ["203.0.113.10"]);
}

#[test]
fn what_cannot_be_a_host_name_is_told_and_not_published_again() {
    for name in ["Shop_Example", "198.51.100.1"] {
        let status = format!("ip: 203.0.113.10, hostname: '{name}'");
        let (projector, projection) = project(&[&mcs("", "").replace("ip: 203.0.113.10", &status)]);
        let told = "MultiClusterService shop/web InvalidValue status.loadBalancer.ingress[0].hostname";
        assert_eq!(problems(&projection), [told]);
        assert_eq!(projector.status(&key()).unwrap().ingress[0].hostname, None);
    }
}

#[test]
fn host_names_in_the_status_of_the_template_say_whose_an_address_is() {
    let entries = "{ip: 198.51.100.1, hostname: m1}, {ip: 198.51.100.2, hostname: m2}, {ip: 198.51.100.3, hostname: m9}, \
                   {ip: 198.51.100.4}";
    let template = format!("{TEMPLATE}status: {{loadBalancer: {{ingress: [{entries}]}}}}\n");
    let [m1, m2] = ["m1", "m2"].map(|name| cluster(name, "", true));
    let (_, projection) = project(&[&template, &mcs("", ""), &m1, &m2]);
    assert_eq!(spread(&projection)[1], "80: m1*100@0 198.51.100.1:80 of 1 | m2*100@0 198.51.100.2:80 of 1");
    assert!(projection.problems.is_empty(), "{:?}", projection.problems);
    let (_, limited) = project(&[&template, &mcs("providerClusters: [{name: m2}]", ""), &m1, &m2]);
    assert_eq!(spread(&limited)[1], "80: m2*100@0 198.51.100.2:80 of 1");
}

#[test]
fn an_annotation_on_a_cluster_that_is_neither_true_nor_false_is_told() {
    let a = work("m1", "a", &["10.1.0.7"]);
    for (value, count) in [("yes", 1), ("m1", 1), ("'false'", 0), ("''", 0)] {
        let cluster = cluster("m1", "", true)
            .replace("{name: m1}", &format!("{{name: m1, annotations: {{sheave.dev/drain: {value}}}}}"));
        let (_, projection) = project(&[&mcs("", ""), &a, &cluster]);
        let told = ["Cluster m1 InvalidValue metadata.annotations[sheave.dev/drain]"];
        assert_eq!(problems(&projection), told[..count]);
        assert!(spread(&projection)[0].contains("10.1.0.7"));
    }
}

#[test]
fn a_collected_work_elsewhere_is_told() {
    let stray = work("m1", "a", &["10.1.0.7"]).replace("karmada-es-m1", "shop");
    let (_, projection) = project(&[&mcs("", ""), &stray]);
    assert_eq!(problems(&projection), ["Work shop/a-x InvalidValue metadata.namespace"]);
}

#[test]
fn a_work_that_is_about_nothing_readable_is_told_by_its_reader() {
    let broken = "metadata: {name: a-x, namespace: karmada-es-m1}\n\
                  spec: {workload: {manifests: [{kind: Pod}, {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, \
                  addressType: 7}]}}\n";
    let told = |text: &str| unreadable_owner(&serde_saphyr::from_str::<Work>(text).unwrap());
    let problem = told(broken).unwrap().to_string();
    let start =
        "Work karmada-es-m1/a-x: InvalidManifest: spec.workload.manifests[1]: EndpointSlice cannot be read: ";
    assert!(problem.starts_with(start), "{problem}");
    let labels =
        "labels: {multiclusterservice.karmada.io/name: web, multiclusterservice.karmada.io/namespace: shop}";
    assert_eq!(told(&broken.replace("name: a-x", &format!("name: a-x, {labels}"))), None);
    assert_eq!(told(&broken.replace("name: a-x", &format!("name: a-x, {LEAVING}"))), None);
    assert_eq!(
        told(&broken.replace(
            "addressType: 7",
            "metadata: {labels: {kubernetes.io/service-name: web}}, addressType: IPv4"
        )),
        None
    );
}

#[test]
fn addresses_of_each_machine_itself_are_no_endpoints_of_other_clusters() {
    let odd = work("m1", "a", &["127.0.0.1", "169.254.7.7", "10.1.0.7"]);
    let objects = fleet(&[TEMPLATE, &mcs("", ""), &odd]);
    let options = Options { role: Role::Gateway, ..fleet_options() };
    let projection = Projector::new(options).project(&objects, &Dirty::Everything);
    assert_eq!(spread(&projection), ["80: m1*100@0 10.1.0.7:8080 of 1"]);
    assert_eq!(projection.problems.len(), 2);
    assert!(messages(&projection)[0].starts_with("\"127.0.0.1\" means this machine or its own link"));
    let (_, by_hand) = project(&[&mcs("", ""), &odd]);
    assert!(by_hand.problems.is_empty() && spread(&by_hand)[0].contains("127.0.0.1:8080"));
}

#[test]
fn a_cluster_exposes_nothing_of_the_gateways_own_cluster_nor_what_is_not_allowed() {
    let mut objects = fleet(&[
        TEMPLATE,
        &mcs("", ""),
        &work("m2", "a", &["10.1.0.7", "192.0.2.1", "10.2.0.7", "10.3.0.7"]),
    ]);
    add(&mut objects, &[NODE]);
    let fleet = |options: KarmadaOptions| Options { role: Role::Gateway, fleet: options, ..fleet_options() };
    let mut projector = Projector::new(fleet(KarmadaOptions::default()));
    let projection = projector.project(&objects, &Dirty::Everything);
    assert_eq!(spread(&projection), ["80: m2*100@0 10.2.0.7:8080,10.3.0.7:8080 of 2"]);
    assert_eq!(projection.problems.len(), 2);
    let field = &projection.problems[0].field;
    assert!(field.ends_with("endpoints[0].addresses[0]"), "{field}");
    assert_eq!(
        messages(&projection)[0],
        "\"10.1.0.7\" is of a Pod or node of the gateways' own cluster, and the endpoint is in another cluster \
         (clusters.m2.allow in the configuration; or cluster: m2, if that is the gateways' own); the endpoint is left out"
    );
    // The controller reports the same.
    let gateways = ServiceKey::new("sheave-system", "sheave-gateways");
    let controller = Role::Controller { gateways, own_gateway: None };
    let mut told = Projector::new(Options { role: controller, ..fleet(KarmadaOptions::default()) });
    let told = told.project(&objects, &Dirty::Everything);
    assert!(messages(&told).contains(&messages(&projection)[0]), "{:?}", told.problems);
    // Nodes that are added later count as well.
    add(&mut objects, &[&NODE.replace("gw-1", "gw-2").replace("10.1.0.0/16", "10.3.0.0/16")]);
    let projection = projector.project(&objects, &Dirty::Shared([].into()));
    assert_eq!(spread(&projection), ["80: m2*100@0 10.2.0.7:8080 of 1"]);

    let allowed = AddressSet::from_cidrs(&["10.1.0.0/16".parse().unwrap()]);
    let options =
        KarmadaOptions { allowed: [("m2".into(), allowed.into())].into(), ..KarmadaOptions::default() };
    let projection = Projector::new(fleet(options)).project(&objects, &Dirty::Everything);
    assert_eq!(spread(&projection), ["80: m2*100@0 10.1.0.7:8080 of 1"]);
    assert!(
        messages(&projection)[0]
            .starts_with("\"192.0.2.1\" is not in the networks allowed for its cluster (clusters.m2")
    );

    // Where Pods are by the CNI's own address management.
    let internal_cidrs = vec!["10.2.0.0/15".parse().unwrap()];
    let of_cni = Options { internal_cidrs: internal_cidrs.clone(), ..fleet(KarmadaOptions::default()) };
    let projection = Projector::new(of_cni).project(&objects, &Dirty::Everything);
    assert!(spread(&projection).is_empty(), "{:?}", spread(&projection));
    assert!(messages(&projection).iter().any(|it| it.starts_with(
        "\"10.2.0.7\" is in internalCIDRs, networks of the gateways' own cluster, and the endpoint is in another cluster \
         (clusters.m2.allow in the configuration"
    )));
    let allowed = AddressSet::from_cidrs(&["10.2.0.0/16".parse().unwrap()]);
    let options =
        KarmadaOptions { allowed: [("m2".into(), allowed.into())].into(), ..KarmadaOptions::default() };
    let flat = Options { internal_cidrs, ..fleet(options) };
    let projection = Projector::new(flat).project(&objects, &Dirty::Everything);
    assert_eq!(spread(&projection), ["80: m2*100@0 10.2.0.7:8080 of 1"]);

    let by_interface = KarmadaOptions { paths: [("m2".into(), Path(1))].into(), ..KarmadaOptions::default() };
    let projection = Projector::new(fleet(by_interface)).project(&objects, &Dirty::Everything);
    assert!(projection.problems.is_empty(), "by an interface of its own these are other addresses");
}

#[test]
fn what_is_left_out_is_no_endpoint_of_a_cluster() {
    let counted = |port: &str, endpoints: &[&str]| {
        let objects = fleet(&[TEMPLATE, &mcs("", ""), &work_of("m2", "a", port, endpoints)]);
        let mut projector = Projector::new(managed());
        projector.project(&objects, &Dirty::Everything);
        let cluster = projector.fleet_status(&key()).unwrap().clusters[0].clone();
        (cluster.ready, cluster.total, cluster.lack.map(|lack| lack.to_string()))
    };
    let port = "http, port: 8080";
    let left_out = "each one is left out, the first because its address is of a Pod or node of the gateways' own cluster, and \
                    the endpoint is in another cluster";
    assert_eq!(counted(port, &["10.1.0.7", "!10.1.0.8"]), (0, 0, Some(left_out.to_owned())));
    assert_eq!(counted(port, &["10.1.0.7", "10.3.0.7", "!10.3.0.8"]), (1, 2, None));
    let circle = "each one is left out, the first because its address is a frontend of this gateway";
    assert_eq!(counted("http, port: 80", &["203.0.113.10"]), (0, 0, Some(circle.to_owned())));
}

#[test]
fn that_nothing_was_collected_is_known() {
    let nothing = |manifests: &[&str]| {
        let (projector, projection) = project(manifests);
        assert!(projection.problems.is_empty(), "{:?}", projection.problems);
        projector.fleet_status(&key()).unwrap().nothing_collected
    };
    let m1 = cluster("m1", "", true);
    assert!(nothing(&[&mcs("", "")]));
    assert!(nothing(&[&mcs("providerClusters: [{name: m1}]", ""), &m1]));
    assert!(!nothing(&[&mcs("", ""), &work("m1", "a", &["!10.1.0.7"])]));
    assert!(!nothing(&[&mcs("", ""), &work("m1", "a", &[])]));
    let elsewhere = work("m2", "a", &["10.2.0.7"]);
    let m2 = cluster("m2", "", true);
    assert!(!nothing(&[&mcs("providerClusters: [{name: m1}]", ""), &m1, &m2, &elsewhere]));
    assert!(!nothing(&[&annotated("sheave.dev/cluster-endpoints: ingress")]));
}

#[test]
fn why_a_cluster_has_no_endpoints_is_known() {
    let lacks = |manifests: &[&str]| -> Vec<Option<NoEndpoints>> {
        let (projector, _) = project(manifests);
        let clusters = &projector.fleet_status(&key()).unwrap().clusters;
        clusters.iter().map(|cluster| cluster.lack.clone()).collect()
    };
    let asked = mcs("providerClusters: [{name: m1}, {name: m2}]", "");
    let (m1, m2) = (cluster("m1", "", true), cluster("m2", "", true));
    let complete = "{type: CompleteAPIEnablements, status: 'True', reason: X, message: '', lastTransitionTime: \
                    '2026-01-01T00:00:00Z'}, ";
    let without = m2.replace("conditions: [", &format!("conditions: [{complete}"));
    let exporting = without.replace(
        "status: {",
        "status: {apiEnablements: [{groupVersion: multicluster.x-k8s.io/v1alpha1, resources: [{kind: ServiceExport}]}], ",
    );
    let served = work("m1", "a", &["10.1.0.7"]);
    for (more, lack) in [
        (vec![&m2], NoEndpoints::NotCollected),
        (vec![&without], NoEndpoints::NoExports),
        (vec![&exporting], NoEndpoints::NotCollected),
        (vec![&without, &work("m2", "b", &[])], NoEndpoints::Empty),
    ] {
        let all: Vec<&str> = [&asked, &m1, &served].into_iter().chain(more).map(String::as_str).collect();
        assert_eq!(lacks(&all), [None, Some(lack)], "{all:?}");
    }
    let by_ingress =
        mcs("providerClusters: [{name: m2}]", "annotations: {sheave.dev/cluster-endpoints: ingress}");
    assert_eq!(lacks(&[&by_ingress, &without]), [Some(NoEndpoints::NoIngress)]);
    let scheduled = "conditions: [{type: Scheduled, status: 'False', reason: NoClusterFit, message: 0/2 clusters are available, \
                     lastTransitionTime: '2026-01-01T00:00:00Z'}]";
    let bound = binding("{name: m1}", "", scheduled);
    let told = NoEndpoints::NotScheduled("0/2 clusters are available".into());
    assert_eq!(lacks(&[&asked, &m1, &m2, &served, &bound]), [None, Some(told)]);
    let none_ready = [asked.as_str(), &m1, &m2, &served, &work("m2", "b", &["!10.2.0.7"])];
    assert_eq!(lacks(&none_ready), [None, None], "it has one that is not ready");
}
