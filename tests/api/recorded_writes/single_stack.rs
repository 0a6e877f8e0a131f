//! Replays on a cluster with only IPv4, which the test API server otherwise is not.

use serde_json::Value;

use super::replay::steps;
use crate::support::apiserver::kind::Kind;
use crate::support::apiserver::status::Status;
use crate::support::apiserver::write::{
    Allocations, FieldValidation, Operation, WriteRequest, Written, write,
};

fn services() -> Kind {
    Kind {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Service".to_owned(),
        plural: "services".to_owned(),
        namespaced: true,
        subresources: vec!["status".to_owned()],
        custom: false,
        schema: None,
    }
}

fn created(kind: &Kind, body: Value, allocations: &mut Allocations) -> Result<Written, Status> {
    let request = WriteRequest {
        kind,
        namespace: Some("rec"),
        name: None,
        subresource: None,
        operation: Operation::Create,
        body,
        field_manager: "lbctl".to_owned(),
        field_validation: FieldValidation::Warn,
        dry_run: false,
        now: "2026-01-01T00:00:00Z".to_owned(),
        mutation: None,
    };
    write(&request, None, allocations)
}

#[test]
fn a_cluster_with_one_family_degrades_wishes_and_refuses_demands() {
    let kind = services();
    let mut allocations = Allocations::single_stack();
    let mut creations = 0;
    for step in steps("02-service-create/single-stack-server") {
        if !step["request"]["line"].as_str().is_some_and(|line| line.starts_with("POST")) {
            continue;
        }
        creations += 1;
        let recorded = &step["response"]["body"];
        match created(&kind, step["request"]["body"].clone(), &mut allocations) {
            Ok(written) => {
                assert_eq!(step["response"]["status"], 201, "{recorded}");
                for field in ["ipFamilies", "ipFamilyPolicy", "loadBalancerSourceRanges"] {
                    assert_eq!(written.object["spec"][field], recorded["spec"][field], "{field}");
                }
                let addresses = written.object["spec"]["clusterIPs"].as_array().map(Vec::len);
                assert_eq!(addresses, Some(1));
            }
            Err(status) => assert_eq!(status.to_json(), *recorded),
        }
    }
    assert_eq!(creations, 5);
}
