//! Tests of the definition of AddressPool as it is deployed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::files;

const FILE: &str = "base/crd.yaml";
/// Copy for Helm, which cannot use files outside of a chart.
const OF_CHART: &str = "helm/sheave/crds/addresspools.yaml";

#[test]
fn the_chart_has_the_same_definition() {
    assert!(files::text(OF_CHART) == files::text(FILE), "copy deploy/{FILE} to deploy/{OF_CHART}");
}

/// Cilium, Calico, MetalLB and storage operators may use `pool` as a short name, and kubectl takes the first that it
/// finds.
#[test]
fn the_short_name_is_ours_alone() {
    let read: CustomResourceDefinition = serde_saphyr::from_str(&files::text(FILE)).unwrap();
    assert_eq!(read.spec.names.short_names, Some(vec!["sheavepool".to_owned()]));
}
