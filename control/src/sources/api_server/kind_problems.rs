//! Problems of a whole kind: what the server lacks, and how to fix it.

use std::sync::Arc;
use std::time::Duration;

use crate::api::kinds::{Need, Row};
use crate::api::object::Resource;
use crate::api::problem::{ObjectRef, Problem, reason};

/// The server does not know the kind.
pub(super) fn missing(resource: &Resource, remedy: &str) -> Problem {
    let plural = if resource.kind.ends_with('s') { "es" } else { "s" };
    let message = format!(
        "is not installed, so there are no {}{plural}; {remedy}; it is looked for all the time",
        resource.kind
    );
    about("CustomResourceDefinition", resource.full_name().into(), reason::DEFINITION_MISSING, message)
}

/// The server has only an older version of the kind.
pub(super) fn outdated(resource: &Resource, found: &str) -> Problem {
    let message = format!(
        "has only the version {found}, and Sheave reads {}, so no {} is used; upgrade the Gateway API CRDs to 1.6 or later",
        resource.api_version, resource.kind
    );
    about("CustomResourceDefinition", resource.full_name().into(), reason::DEFINITION_MISSING, message)
}

/// RBAC denies reading the kind.
pub(super) fn denied(row: &Row, said: &str) -> Problem {
    let instead = if row.need == Need::Required {
        "what was known of them stays in use, and nothing is served before they can be read"
    } else {
        "what was known of them stays in use; everything else works"
    };
    refused(&row.resource, &format!("does not let us list and watch them; {instead}"), said)
}

/// RBAC permits listing the kind, but not watching it.
pub(super) fn unwatched(row: &Row, poll: Duration, said: &str) -> Problem {
    let seconds = poll.as_secs();
    let instead = format!(
        "lets us list them but not watch them; they are listed every {seconds} to {} s, so changes take effect late",
        2 * seconds
    );
    refused(&row.resource, &instead, said)
}

fn refused(resource: &Resource, what: &str, said: &str) -> Problem {
    let Resource { group, plural, .. } = resource;
    let message = format!(
        "the API server {what}. Sheave's ClusterRole needs a rule with apiGroups [{group:?}], resources [{plural:?}], \
         verbs [\"list\", \"watch\"]. The server says: {said}"
    );
    about("Resource", resource.full_name().into(), reason::ACCESS_DENIED, message)
}

fn about(kind: &'static str, name: Arc<str>, reason: &'static str, message: String) -> Problem {
    let object = ObjectRef { kind, namespace: "".into(), name };
    Problem { object, reason, field: String::new(), message, port: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::{Kind as _, Pools, Slices};

    #[test]
    fn a_missing_definition_comes_with_how_to_install_it() {
        let problem = missing(&Pools::ROW.resource, Pools::ROW.remedy.unwrap()).to_string();
        assert!(
            problem.starts_with(
                "CustomResourceDefinition addresspools.sheave.dev: DefinitionMissing: is not installed"
            ),
            "{problem}"
        );
        assert!(problem.contains("kubectl apply -k deploy/base"), "{problem}");
    }

    #[test]
    fn missing_rights_are_named_as_a_rule_is_written() {
        let problem = denied(&Slices::ROW, "no").to_string();
        assert!(problem.starts_with("Resource endpointslices.discovery.k8s.io: AccessDenied: "), "{problem}");
        let rule = r#"apiGroups ["discovery.k8s.io"], resources ["endpointslices"], verbs ["list", "watch"]"#;
        assert!(problem.contains(rule), "{problem}");
        let problem = unwatched(&Slices::ROW, Duration::from_secs(15), "no").to_string();
        assert!(
            problem.contains("lets us list them but not watch them; they are listed every 15 to 30 s"),
            "{problem}"
        );
        assert!(problem.contains(rule), "{problem}");
    }
}
