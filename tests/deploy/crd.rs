//! Tests of the definition of AddressPool as it is deployed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::files;

const FILE: &str = "base/crd.yaml";

/// Cilium, Calico, MetalLB and storage operators may use `pool` as a short name, and kubectl takes the first that it
/// finds.
#[test]
fn the_short_name_is_ours_alone() {
    let read: CustomResourceDefinition = serde_saphyr::from_str(&files::text(FILE)).unwrap();
    assert_eq!(read.spec.names.short_names, Some(vec!["sheavepool".to_owned()]));
}
