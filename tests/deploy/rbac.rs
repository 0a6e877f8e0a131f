//! The rights that the base gives: exactly these, each with what it is for. Whether the program uses each and no other is
//! tested where it speaks with an API server.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};

use crate::typed::object;

const NAMESPACE: &str = "sheave-system";

/// One right: group, resource, verb, and the only name it holds for.
pub(crate) type Right = (String, String, String, Option<String>);

/// Every single right that the rules add up to.
pub(crate) fn rights(rules: Option<Vec<PolicyRule>>) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in rules.unwrap_or_default() {
        assert!(rule.non_resource_urls.is_none(), "{rule:?}");
        let names = rule.resource_names.unwrap_or_default();
        let names = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for group in rule.api_groups.unwrap_or_default() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let with =
                        |name: &Option<String>| (group.clone(), resource.clone(), verb.clone(), name.clone());
                    rights.extend(names.iter().map(with));
                }
            }
        }
    }
    rights.sort();
    rights
}

/// The same of a table: group, resource, verbs, name.
pub(crate) fn expected(table: &[(&str, &str, &[&str], Option<&str>)]) -> Vec<Right> {
    let each = table.iter().flat_map(|(group, resource, verbs, name)| {
        verbs.iter().map(move |verb| {
            ((*group).to_owned(), (*resource).to_owned(), (*verb).to_owned(), name.map(str::to_owned))
        })
    });
    let mut rights: Vec<Right> = each.collect();
    rights.sort();
    rights
}

#[test]
fn a_gateway_only_reads() {
    let role: ClusterRole = object("sheave-gateway");
    assert_eq!(
        rights(role.rules),
        expected(&[
            ("", "services", &["list", "watch"], None),
            ("", "nodes", &["list", "watch"], None),
            ("discovery.k8s.io", "endpointslices", &["list", "watch"], None),
        ])
    );
}

#[test]
fn the_controller_writes_what_it_publishes() {
    let role: ClusterRole = object("sheave-controller");
    assert_eq!(
        rights(role.rules),
        expected(&[
            ("", "services", &["list", "watch", "patch"], None),
            ("", "services/status", &["patch"], None),
            ("", "nodes", &["list", "watch"], None),
            ("", "namespaces", &["list", "watch"], None),
            ("discovery.k8s.io", "endpointslices", &["list", "watch"], None),
            ("sheave.dev", "addresspools", &["list", "watch"], None),
            ("sheave.dev", "addresspools/status", &["patch"], None),
            ("events.k8s.io", "events", &["create"], None),
        ])
    );
    let role: Role = object("sheave-controller");
    assert_eq!(role.metadata.namespace.as_deref(), Some(NAMESPACE));
    assert_eq!(
        rights(role.rules),
        expected(&[
            ("coordination.k8s.io", "leases", &["create"], None),
            ("coordination.k8s.io", "leases", &["get", "update"], Some("sheave-controller")),
        ])
    );
}

#[test]
fn each_role_is_bound_to_the_account_of_its_name() {
    for name in ["sheave-gateway", "sheave-controller"] {
        let binding: ClusterRoleBinding = object(name);
        assert_bound(name, ("ClusterRole", name), &binding.role_ref, binding.subjects.as_deref());
    }
    let binding: RoleBinding = object("sheave-controller");
    assert_eq!(binding.metadata.namespace.as_deref(), Some(NAMESPACE));
    assert_bound(
        "sheave-controller",
        ("Role", "sheave-controller"),
        &binding.role_ref,
        binding.subjects.as_deref(),
    );
}

/// Asserts that the role of this kind and name is bound to the account `name` alone.
pub(crate) fn assert_bound(
    name: &str,
    (kind, role): (&str, &str),
    bound: &RoleRef,
    subjects: Option<&[Subject]>,
) {
    let api_group = Some("rbac.authorization.k8s.io".to_owned());
    assert_eq!(*bound, RoleRef { api_group, kind: kind.to_owned(), name: role.to_owned() });
    let account = Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
    };
    assert_eq!(subjects, Some(&[account][..]), "{name}");
}
