//! Addresses that other load balancers publish: who gets them, and when they are free.

use sheave_model::FrontendKind;

use super::super::Options;
use super::pools::{POOL, all, managed, status};
use super::support::{add, ips, objects, problems, service, web};
use crate::api::gateway_api::{Gateway, GatewayClass};
use crate::api::kinds::{GatewayClasses, Gateways};
use crate::api::store::{Dirty, Objects, ServiceKey};

/// The order of a migration: pools are applied while the former load balancer still gives addresses of the same range.
#[test]
fn what_another_load_balancer_publishes_goes_only_to_those_who_ask_for_it() {
    let of_others = |class: &str| {
        let given = service("shop", "old", "ports: [{port: 80}]", &status(&["203.0.113.0"]));
        given.replace("loadBalancerClass: sheave.dev/l4, ", class)
    };
    for class in ["", "loadBalancerClass: example.com/lb, "] {
        for other_kinds in [&[][..], &[FrontendKind::ClusterIp]] {
            let frontends = other_kinds.iter().copied().chain([FrontendKind::LoadBalancer]).collect();
            let mut objects = objects(&[POOL, &of_others(class), &web("", "")]);
            let mut projector = managed();
            let options = projector.options.clone();
            projector.set_options(Options { frontends, ..options });
            assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.1"], "{class}");
            assert_eq!(projector.pool_usage().next().unwrap(), (&"main".into(), 2, 2));

            let by_value = service("shop", "moved", "ports: [{port: 80}], loadBalancerIP: 203.0.113.0", "");
            add(&mut objects, &[&by_value]);
            let moved = all(&mut projector, &objects);
            assert_eq!(ips(&moved, "shop/moved"), ["203.0.113.0"], "{:?}", moved.problems);
            assert!(moved.problems.is_empty(), "{:?}", moved.problems);

            let moved = ServiceKey::new("shop", "moved");
            objects.services.remove(&moved);
            projector.project(&objects, &Dirty::Services([moved].into()));
            add(&mut objects, &[&service("shop", "next", "ports: [{port: 80}]", "")]);
            let next = ServiceKey::new("shop", "next");
            let given = projector.project(&objects, &Dirty::Services([next].into()));
            assert_eq!(ips(&given, "shop/next"), ["203.0.113.2"], "{class}");
        }
    }
}

#[test]
fn a_waiting_service_gets_what_another_load_balancer_no_longer_publishes() {
    let pool = POOL.replace("203.0.113.0/30", "203.0.113.0");
    let published = service("other", "web", "ports: [{port: 80}]", &status(&["203.0.113.0"]));
    let published = published.replace("sheave.dev/l4", "example.com/lb");
    let mut objects = objects(&[&pool, &published, &web("", "")]);
    let mut projector = managed();
    assert_eq!(problems(&all(&mut projector, &objects)), ["Service shop/web NoAddress "]);
    add(&mut objects, &[&published.replace("203.0.113.0", "198.51.100.1")]);
    let other = ServiceKey::new("other", "web");
    let given = projector.project(&objects, &Dirty::Services([other].into()));
    assert_eq!((ips(&given, "shop/web"), problems(&given).len()), (vec!["203.0.113.0".to_owned()], 0));
}

#[test]
fn what_another_load_balancer_publishes_for_another_namespace_is_refused() {
    let asking = service("shop", "web", "ports: [{port: 80}], loadBalancerIP: 203.0.113.0", "");
    let of_others = service("other", "web", "ports: [{port: 80}]", &status(&["203.0.113.0"]));
    let of_others = of_others.replace("sheave.dev/l4", "example.com/lb");
    let mut objects = objects(&[POOL, &of_others, &asking]);
    let mut projector = managed();
    let refused = all(&mut projector, &objects);
    assert!(ips(&refused, "shop/web").is_empty());
    assert_eq!(problems(&refused), ["Service shop/web NoAddress spec.loadBalancerIP"]);
    let message = &refused.problems[0].message;
    for part in ["203.0.113.0 is published by another load balancer", "AddressPool main", "it is not served"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert!(!message.contains("other/web"), "it is told that another namespace has it, not which: {message}");

    let mut consenting = objects.clone();
    add(&mut consenting, &[&POOL.replace("/30]", "/30], sharing: Cluster")]);
    assert_eq!(ips(&all(&mut managed(), &consenting), "shop/web"), ["203.0.113.0"]);

    add(&mut objects, &[&of_others.replace("203.0.113.0", "198.51.100.1")]);
    let other = ServiceKey::new("other", "web");
    let given = projector.project(&objects, &Dirty::Services([other].into()));
    assert_eq!((ips(&given, "shop/web"), problems(&given).len()), (vec!["203.0.113.0".to_owned()], 0));
}

/// Adds Gateway `edge/g` of another controller, which publishes this address.
fn put_gateway(objects: &mut Objects, ip: &str) -> ServiceKey {
    let class = "metadata: {name: other}\nspec: {controllerName: example.com/gateway}";
    objects.put::<GatewayClasses>(serde_saphyr::from_str::<GatewayClass>(class).unwrap());
    let gateway = format!(
        "metadata: {{namespace: edge, name: g}}\nspec: {{gatewayClassName: other, listeners: [{{name: a, port: 80, protocol: \
         TCP}}]}}\nstatus: {{addresses: [{{value: {ip}}}]}}"
    );
    objects.put::<Gateways>(serde_saphyr::from_str::<Gateway>(&gateway).unwrap());
    ServiceKey::gateway("edge", "g")
}

/// The Service that a controller of Gateways creates for one may be ours, and the Gateway publishes the address of the Service.
#[test]
fn a_gateway_that_copies_the_address_of_a_service_keeps_it_from_nobody() {
    for restarted in [false, true] {
        let pool = POOL.replace("203.0.113.0/30", "203.0.113.0");
        let mut objects = objects(&[&pool, &web("", "")]);
        let mut projector = managed();
        assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.0"]);
        let gateway = put_gateway(&mut objects, "203.0.113.0");
        projector.project(&objects, &Dirty::Services([gateway.clone()].into()));
        if restarted {
            add(&mut objects, &[&web("", &status(&["203.0.113.0"]))]);
            projector = managed();
            all(&mut projector, &objects);
        }

        let key = ServiceKey::new("shop", "web");
        objects.services.remove(&key);
        projector.project(&objects, &Dirty::Services([key.clone(), gateway].into()));
        assert_eq!(projector.pool_usage().next().unwrap(), (&"main".into(), 0, 1));
        add(&mut objects, &[&web("", "")]);
        let again = projector.project(&objects, &Dirty::Services([key].into()));
        assert_eq!((ips(&again, "shop/web"), problems(&again).len()), (vec!["203.0.113.0".to_owned()], 0));
    }
}

/// A Service of its namespace that asks for the address is a move, and not what the Gateway copies.
#[test]
fn what_a_gateway_publishes_of_its_own_stays_in_use() {
    let mut objects = objects(&[POOL, &web("", "")]);
    put_gateway(&mut objects, "203.0.113.0");
    let mut projector = managed();
    assert_eq!(ips(&all(&mut projector, &objects), "shop/web"), ["203.0.113.1"]);
    let key = ServiceKey::new("edge", "moved");
    add(&mut objects, &[&service("edge", "moved", "ports: [{port: 80}], loadBalancerIP: 203.0.113.0", "")]);
    let moved = projector.project(&objects, &Dirty::Services([key.clone()].into()));
    assert_eq!(ips(&moved, "edge/moved"), ["203.0.113.0"]);
    all(&mut projector, &objects);

    objects.services.remove(&key);
    projector.project(&objects, &Dirty::Services([key].into()));
    add(&mut objects, &[&service("shop", "next", "ports: [{port: 80}]", "")]);
    let next = ServiceKey::new("shop", "next");
    let given = projector.project(&objects, &Dirty::Services([next].into()));
    assert_eq!(ips(&given, "shop/next"), ["203.0.113.2"]);
}
