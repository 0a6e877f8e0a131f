//! Who may do what: bearer tokens, and RBAC rules as real Role and ClusterRole objects state them.
//!
//! It also knows which grants were never used, and what was refused: a role is right when both lists are empty.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::route::Target;

/// One permission: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Permission {
    /// The user who has it, or lacked it.
    pub(crate) user: String,
    /// Such as `list`.
    pub(crate) verb: String,
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The resource, such as `services/status`.
    pub(crate) resource: String,
    /// The namespace that a Role holds in, or that a refused request was about; `None` for all.
    pub(crate) namespace: Option<String>,
}

/// Whose request it is.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A user with a known token.
    User(String),
    /// No token was sent.
    Anonymous,
    /// The token is not one of ours.
    Unknown,
}

/// All users and their rights.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// Users by token.
    tokens: HashMap<String, String>,
    /// Rules by user; a user without an entry may do everything.
    grants: HashMap<String, Vec<Grant>>,
    used: BTreeSet<Permission>,
    refused: BTreeSet<Permission>,
}

/// One rule of a role.
#[derive(Debug)]
struct Grant {
    namespace: Option<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    names: Vec<String>,
}

impl Access {
    /// The token of a user, who is known from now on.
    pub(crate) fn token(&mut self, user: &str) -> String {
        let token = format!("token-of-{user}");
        self.tokens.insert(token.clone(), user.to_owned());
        token
    }

    /// Whose the value of the header `Authorization` is.
    pub(crate) fn caller(&self, authorization: Option<&str>) -> Caller {
        let Some(authorization) = authorization else { return Caller::Anonymous };
        let user = authorization.strip_prefix("Bearer ").and_then(|token| self.tokens.get(token));
        user.map_or(Caller::Unknown, |user| Caller::User(user.clone()))
    }

    /// Restricts a user to the rules of these Roles and ClusterRoles, in place of earlier ones.
    pub(crate) fn authorize(&mut self, user: &str, roles: &[Value]) {
        let grants = roles.iter().flat_map(grants_of).collect();
        self.grants.insert(user.to_owned(), grants);
        self.used.retain(|permission| permission.user != user);
        self.refused.retain(|permission| permission.user != user);
    }

    /// Whether the user may do this; remembers the answer.
    pub(crate) fn allows(&mut self, user: &str, verb: &str, target: &Target) -> bool {
        let Some(grants) = self.grants.get(user) else { return true };
        let mut allowed = false;
        for grant in grants {
            if let Some(permission) = grant.matching(user, verb, target) {
                self.used.insert(permission);
                allowed = true;
            }
        }
        if !allowed {
            self.refused.insert(Permission {
                user: user.to_owned(),
                verb: verb.to_owned(),
                group: target.group.clone(),
                resource: target.resource_with_subresource(),
                namespace: target.namespace.clone(),
            });
        }
        allowed
    }

    /// The user's permissions that no request needed.
    pub(crate) fn unused(&self, user: &str) -> Vec<Permission> {
        let grants = self.grants.get(user).map(Vec::as_slice).unwrap_or_default();
        let all: BTreeSet<_> = grants.iter().flat_map(|grant| grant.permissions(user)).collect();
        all.difference(&self.used).cloned().collect()
    }

    /// What users tried without permission.
    pub(crate) fn refused(&self) -> Vec<Permission> {
        self.refused.iter().cloned().collect()
    }
}

fn grants_of(role: &Value) -> Vec<Grant> {
    let namespace = match role["kind"].as_str() {
        Some("ClusterRole") => None,
        Some("Role") => Some(role["metadata"]["namespace"].as_str().unwrap_or("default").to_owned()),
        kind => panic!("{kind:?} is neither a Role nor a ClusterRole"),
    };
    let rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let grant = |rule: &Value| {
        let words = |key: &str| {
            let words = rule[key].as_array().map(Vec::as_slice).unwrap_or_default();
            words.iter().map(|word| word.as_str().expect("rules hold words").to_owned()).collect()
        };
        Grant {
            namespace: namespace.clone(),
            groups: words("apiGroups"),
            resources: words("resources"),
            verbs: words("verbs"),
            names: words("resourceNames"),
        }
    };
    rules.iter().map(grant).collect()
}

impl Grant {
    /// The permission of this rule that covers a request, in the rule's own words.
    fn matching(&self, user: &str, verb: &str, target: &Target) -> Option<Permission> {
        // A namespace itself is "in" that namespace for RBAC.
        let own = (target.resource == "namespaces").then_some(()).and(target.name.as_deref());
        let namespace = target.namespace.as_deref().or(own);
        if self.namespace.is_some() && self.namespace.as_deref() != namespace {
            return None;
        }
        let named = target.name.as_ref().is_some_and(|name| self.names.contains(name));
        if !self.names.is_empty() && !named {
            return None;
        }
        let resource = target.resource_with_subresource();
        let any_parent = target.subresource.as_ref().map(|name| format!("*/{name}"));
        let resources = [Some(resource.as_str()), any_parent.as_deref(), Some("*")];
        Some(Permission {
            user: user.to_owned(),
            verb: self.verbs.iter().find(|word| [verb, "*"].contains(&word.as_str()))?.clone(),
            group: self
                .groups
                .iter()
                .find(|word| [target.group.as_str(), "*"].contains(&word.as_str()))?
                .clone(),
            resource: self.resources.iter().find(|word| resources.contains(&Some(word.as_str())))?.clone(),
            namespace: self.namespace.clone(),
        })
    }

    fn permissions<'a>(&'a self, user: &'a str) -> impl Iterator<Item = Permission> + 'a {
        let pairs =
            self.groups.iter().flat_map(|group| self.resources.iter().map(move |resource| (group, resource)));
        pairs.flat_map(move |(group, resource)| {
            self.verbs.iter().map(move |verb| Permission {
                user: user.to_owned(),
                verb: verb.clone(),
                group: group.clone(),
                resource: resource.clone(),
                namespace: self.namespace.clone(),
            })
        })
    }
}
