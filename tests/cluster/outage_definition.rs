//! Tests of a cluster without a definition of AddressPools: existing addresses are kept, the controller reports what to
//! install, and pools work once that is done.

use std::net::IpAddr;

use crate::outage_kit::{address, kind, published_service, wait_for_status};
use crate::stage::{
    Role, Stage, condition, pool, published, service, wait_for_addresses, wait_for_condition,
};
use crate::support::cluster::Cluster;

const MISSING: &str = "CustomResourceDefinition addresspools.sheave.dev: DefinitionMissing: is not installed, so there are no \
                       AddressPools; everything else works. `kubectl apply -k deploy/base` installs it";

#[test]
fn without_the_definition_of_pools_everything_else_works_until_it_is_there() {
    let cluster = Cluster::without_definition("undefined");
    let stage = Stage::new(&cluster);
    let road = stage.road();
    published_service(&cluster, "old", address(160));
    service(&cluster, "new", "");
    let controller = stage.start(&stage.home(Role::Controller, &road, ""));
    stage.gateway_is(true, None);
    controller.wait_for_log(MISSING);
    let status =
        wait_for_status(&controller, "it leads, knows everything else and tells what is missing", |status| {
            let told =
                status["controller"]["problems"].as_array().is_some_and(|problems| !problems.is_empty());
            status["controller"]["leading"] == true && status["source"]["synced"] == true && told
        });
    let error = kind(&status, "AddressPool")["error"].as_str().unwrap_or_default().to_owned();
    let told =
        "CustomResourceDefinition addresspools.sheave.dev is not installed, so there are no AddressPools; ";
    assert!(
        error.starts_with(told) && error.contains("`kubectl apply -k deploy/base` installs it"),
        "{status}"
    );
    let text = controller.status_text();
    let told =
        "AddressPools cannot be watched: CustomResourceDefinition addresspools.sheave.dev is not installed";
    assert!(text.contains(told) && text.contains("the controller reports "), "{text}");
    // Published addresses stay, and new Services wait.
    wait_for_condition(&cluster, ("Service", "old"), "sheave.dev/Programmed", "True");
    assert_eq!(published(&cluster.get("Service", "old").unwrap()), [address(160)] as [IpAddr; 1]);
    let (reason, message) = wait_for_condition(&cluster, ("Service", "new"), "sheave.dev/Allocated", "False");
    assert_eq!(reason, "NoAddress", "{message}");

    cluster.define();
    pool(&cluster, "undefined", "203.0.113.160-203.0.113.161");
    assert_eq!(wait_for_addresses(&cluster, "new"), [address(161)]);
    let old = cluster.get("Service", "old").unwrap();
    assert_eq!(published(&old), [address(160)] as [IpAddr; 1]);
    assert_eq!(condition(&old, "sheave.dev/Allocated").map(|it| it.0).as_deref(), Some("True"));
    wait_for_status(&controller, "nothing is missing", |status| {
        kind(status, "AddressPool")["error"].is_null()
    });
}
