//! Tests of all permissions in the manifests, for either API server. Tests with an API server that knows these roles show
//! that each is used and none is missing (tests/cluster: `rights`, `fleet_rest` and `fleet_export`).

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, RoleRef, Subject,
};

use sheave_control::api::kinds::KINDS;

use crate::files::{self, Document};
use crate::typed::{object, object_of, strictly};

const NAMESPACE: &str = "sheave-system";

/// Verbs without changes.
const READING: [&str; 3] = ["get", "list", "watch"];
/// Resources that grant the permissions of other accounts, or contain secrets of others.
const FOREIGN: [&str; 5] = ["secrets", "configmaps", "pods", "serviceaccounts", "certificatesigningrequests"];
/// Queries in the form of objects, which are not stored.
const REVIEWS: [&str; 2] = ["tokenreviews", "subjectaccessreviews"];
/// Verbs with which an account can extend its permissions.
const GROWING: [&str; 4] = ["escalate", "bind", "impersonate", "deletecollection"];
/// Resources that others write, and that direct traffic.
const READ_ONLY: [&str; 15] = [
    "endpointslices",
    "nodes",
    "namespaces",
    "addresspools",
    "works",
    "resourcebindings",
    "clusters",
    "customresourcedefinitions",
    "gateways",
    "listenersets",
    "tcproutes",
    "udproutes",
    "tlsroutes",
    "referencegrants",
    "serviceimports",
];

/// Rules of every role, with its name.
fn rules() -> Vec<(String, PolicyRule)> {
    let documents = [files::base(), files::gateway_api(), files::karmada(), files::exports(), files::bound()]
        .into_iter()
        .flatten();
    let roles = documents.filter(|it| it.value["kind"] == "ClusterRole" || it.value["kind"] == "Role");
    let rules: Vec<_> = roles
        .flat_map(|Document { file, value }| {
            let name = value["metadata"]["name"].as_str().expect("a role has a name").to_owned();
            let rules: Vec<PolicyRule> = strictly(&file, &value["rules"]);
            rules.into_iter().map(move |rule| (name.clone(), rule))
        })
        .collect();
    assert!(rules.len() > 10, "the folders have roles: {rules:?}");
    rules
}

/// Resources of a rule; empty if it is about paths.
fn resources(rule: &PolicyRule) -> &[String] {
    assert_ne!(rule.resources.is_some(), rule.non_resource_urls.is_some(), "{rule:?}");
    rule.resources.as_deref().unwrap_or_default()
}

#[test]
fn no_right_leads_to_others() {
    for (role, rule) in rules() {
        let urls = rule.non_resource_urls.as_deref().unwrap_or_default();
        assert!(
            urls.iter().all(|url| matches!(url.as_str(), "/api/report" | "/api/trace")),
            "{role}: {rule:?}"
        );
        let groups = rule.api_groups.as_deref().unwrap_or_default();
        let names = groups.iter().chain(resources(&rule)).chain(&rule.verbs);
        assert!(
            names.into_iter().all(|name| !name.contains('*')),
            "{role} is open to what is yet to come: {rule:?}"
        );
        assert!(!rule.verbs.iter().any(|verb| GROWING.contains(&verb.as_str())), "{role}: {rule:?}");
        assert!(!resources(&rule).iter().any(|it| FOREIGN.contains(&it.as_str())), "{role}: {rule:?}");
    }
}

/// A compromised node must not grant any write permission.
#[test]
fn gateways_only_read() {
    let of_gateways: Vec<_> = rules().into_iter().filter(|(role, _)| role.contains("gateway")).collect();
    assert!(!of_gateways.is_empty());
    for (role, rule) in of_gateways {
        let asks = resources(&rule).iter().all(|resource| REVIEWS.contains(&resource.as_str()));
        let harmless = |verb: &String| READING.contains(&verb.as_str()) || (asks && verb == "create");
        assert!(rule.verbs.iter().all(harmless), "{role}: {rule:?}");
    }
}

#[test]
fn nobody_writes_what_traffic_follows_or_takes_services_away() {
    for (role, rule) in rules() {
        let writes: Vec<&str> =
            rule.verbs.iter().map(String::as_str).filter(|verb| !READING.contains(verb)).collect();
        for resource in resources(&rule) {
            let allowed: &[&str] = match resource.as_str() {
                read_only if READ_ONLY.contains(&read_only) => &[],
                "services" | "multiclusterservices" | "gatewayclasses" => &["patch"],
                status if status.ends_with("/status") => &["patch"],
                _ => continue,
            };
            assert!(writes.iter().all(|verb| allowed.contains(verb)), "{role} may {writes:?} {resource}");
        }
    }
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

/// The kinds of the Gateway API are those that the program watches, and it writes the status of those that have one.
#[test]
fn the_gateway_api_is_read_by_both_and_its_status_written_by_the_controller() {
    let documents = files::gateway_api();
    let mut kinds: Vec<(&str, &str)> = KINDS
        .iter()
        .filter(|row| row.definition.is_some() && row.resource.group != "discovery.k8s.io")
        .map(|row| (row.resource.group, row.resource.plural))
        .collect();
    kinds.sort_unstable();
    let mut of_gateways = vec![("", "namespaces")];
    of_gateways.extend(&kinds);
    let status = [
        "gatewayclasses/status",
        "gateways/status",
        "listenersets/status",
        "tcproutes/status",
        "tlsroutes/status",
        "udproutes/status",
    ];
    for (name, account, read, patched) in [
        ("sheave-gateway-routes", "sheave-gateway", &of_gateways, &[][..]),
        ("sheave-controller-routes", "sheave-controller", &kinds, &status[..]),
    ] {
        let role: ClusterRole = object_of(&documents, name);
        let rules = role.rules.unwrap_or_default();
        let with = |verb: &str| {
            let with_it = rules.iter().filter(move |rule| rule.verbs.iter().any(|it| it == verb));
            let mut found: Vec<_> = with_it
                .flat_map(|rule| {
                    let [group] = rule.api_groups.as_deref().unwrap_or_default() else { panic!("{rule:?}") };
                    resources(rule).iter().map(move |resource| (group.as_str(), resource.as_str()))
                })
                .collect();
            found.sort_unstable();
            found
        };
        assert_eq!((&with("list"), &with("watch")), (read, read), "{name}");
        let class = with("patch").into_iter().filter(|(_, resource)| !resource.contains('/'));
        assert_eq!(class.count(), usize::from(!patched.is_empty()), "{name}");
        let written: Vec<_> =
            with("patch").into_iter().map(|it| it.1).filter(|it| it.contains('/')).collect();
        assert_eq!(written, patched, "{name}");
        let binding: ClusterRoleBinding = object_of(&documents, name);
        assert_bound(account, ("ClusterRole", name), &binding.role_ref, binding.subjects.as_deref());
    }
}

/// Asserts that the role of this kind and name is bound only to the account `name`.
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
