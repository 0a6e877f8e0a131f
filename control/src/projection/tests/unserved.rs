//! Load balancers that are not for this installation: all are listed, with the class that they would need.

use std::sync::Arc;

use sheave_model::FrontendKind;

use super::super::{Options, Projector};
use super::support::{objects, options, web};
use crate::api::karmada::MultiClusterService;
use crate::api::store::{Objects, ServiceKey};

fn notes(options: Options, objects: &Objects) -> Vec<String> {
    Projector::new(options).unserved(objects).iter().map(ToString::to_string).collect()
}

/// `shop/NAME` of type LoadBalancer with this line in its spec.
fn load_balancer(name: &str, class: &str) -> String {
    web("", "")
        .replace("name: web", &format!("name: {name}"))
        .replace("loadBalancerClass: sheave.dev/l4", class)
}

#[test]
fn each_is_named_with_the_class_that_it_would_need_and_likely_mistakes_come_first() {
    let foreign = load_balancer("a", "loadBalancerClass: metallb.io/lb");
    let unclassified = load_balancer("b", "loadBalancerClass: null");
    let misspelled = load_balancer("c", "loadBalancerClass: sheave.dev/L4");
    let blank = load_balancer("d", "loadBalancerClass: 'sheave.dev/l4 '");
    let other_type =
        load_balancer("e", "loadBalancerClass: null").replace("type: LoadBalancer", "type: ClusterIP");
    let all = objects(&[&foreign, &unclassified, &misspelled, &blank, &other_type, &web("", "")]);
    let served = "the class that this gateway serves: upper and lower case and blanks count";
    assert_eq!(
        notes(options(), &all),
        [
            format!("Service shop/c: NotServed: spec.loadBalancerClass: \"sheave.dev/L4\" is not \"sheave.dev/l4\", {served}"),
            format!("Service shop/d: NotServed: spec.loadBalancerClass: \"sheave.dev/l4 \" is not \"sheave.dev/l4\", {served}"),
            "Service shop/b: NotServed: spec.loadBalancerClass: it names no class; set \"sheave.dev/l4\", or \
             handleUnclassified: true in the configuration"
                .to_owned(),
            "Service shop/a: NotServed: spec.loadBalancerClass: \"metallb.io/lb\" is the class of another load balancer; \
             this gateway serves \"sheave.dev/l4\""
                .to_owned(),
        ]
    );
}

#[test]
fn what_is_ours_is_not_named_and_without_load_balancers_all_are() {
    let all = objects(&[&web("", ""), &load_balancer("b", "loadBalancerClass: null")]);
    let unclassified = Options { handle_unclassified: true, ..options() };
    assert_eq!(notes(unclassified, &all), Vec::<String>::new());
    let others = Options { frontends: [FrontendKind::ClusterIp].into(), ..options() };
    let named = notes(others, &all);
    assert_eq!(named.len(), 2);
    assert!(
        named[0].contains("spec.type: this gateway makes no frontends of kind LoadBalancer"),
        "{named:?}"
    );
}

#[test]
fn multi_cluster_services_of_other_classes_are_named_too() {
    let service = |types: &str, class: &str| -> MultiClusterService {
        let text = format!(
            "metadata: {{namespace: shop, name: web, annotations: {{sheave.dev/load-balancer-class: {class}}}}}\n\
             spec: {{types: [{types}]}}"
        );
        serde_saphyr::from_str(&text).unwrap()
    };
    let named = |types: &str, class: &str| {
        let mut objects = Objects::default();
        let key = ServiceKey::multi_cluster("shop", "web");
        objects.fleet.services.insert(key, Arc::new(service(types, class)));
        notes(options(), &objects)
    };
    assert_eq!(
        named("LoadBalancer", "sheave.dev/L4"),
        [
            "MultiClusterService shop/web: NotServed: its class is \"sheave.dev/L4\"; this gateway serves class \"sheave.dev/l4\""
        ]
    );
    assert_eq!(named("LoadBalancer", "sheave.dev/l4"), Vec::<String>::new());
    assert_eq!(named("CrossCluster", "sheave.dev/L4"), Vec::<String>::new());
}
