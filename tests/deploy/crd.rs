//! Test that the definition of AddressPool, which is generated from the Rust types, is up to date.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sheave_control::api::address_pool;

use crate::files;

const FILE: &str = "base/crd.yaml";
/// Same for Helm, which cannot use files outside of a chart.
const OF_CHART: &str = "helm/sheave/crds/addresspools.yaml";
/// Variable that makes the test write the file instead of comparing it.
const WRITE: &str = "UPDATE_DOCS";

fn generated() -> String {
    let heading = "# Generated from control/src/api/address_pool.rs by `UPDATE_DOCS=1 cargo test --test deploy`; edit that.\n";
    heading.to_owned() + &serde_saphyr::to_string(&address_pool::definition()).expect("YAML can say it")
}

#[test]
fn the_definition_is_what_the_types_give() {
    let generated = generated();
    for file in [FILE, OF_CHART] {
        if std::env::var_os(WRITE).is_some_and(|value| !value.is_empty()) {
            std::fs::write(files::place(file), &generated).unwrap();
        }
        assert!(
            files::text(file) == generated,
            "deploy/{file} is not what control/src/api/address_pool.rs gives: run `{WRITE}=1 cargo test --test deploy`"
        );
    }
}

/// Cilium, Calico, MetalLB and storage operators may use `pool` as a short name, and kubectl takes the first that it
/// finds.
#[test]
fn the_short_name_is_ours_alone() {
    let names = address_pool::definition().spec.names;
    assert_eq!(names.short_names, Some(vec!["sheavepool".to_owned()]));
}

#[test]
fn the_text_says_what_the_types_say() {
    let read: CustomResourceDefinition = serde_saphyr::from_str(&files::text(FILE)).unwrap();
    assert_eq!(read, address_pool::definition());
}
