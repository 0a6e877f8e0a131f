//! Access control: bearer tokens, and the RBAC rules of real Role and ClusterRole objects.
//!
//! Records which grants were never used and which requests were refused. A role is right if both lists are
//! empty.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::route::Target;

/// Permission: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// User who has the permission, or lacked it.
    pub user: String,
    /// Verb, such as `list`.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource, such as `services/status`, or a non-resource path, such as `/metrics`.
    pub resource: String,
    /// Namespace of the Role or of the refused request; `None` for all.
    pub namespace: Option<String>,
}

impl Permission {
    fn of_url(user: &str, verb: &str, url: &str) -> Self {
        let [user, verb, resource] = [user, verb, url].map(str::to_owned);
        Self { user, verb, group: String::new(), resource, namespace: None }
    }
}

/// Origin of a request.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A user with a known token.
    User(String),
    /// A request without a token.
    Anonymous,
    /// A request with an unknown token.
    Unknown,
}

/// All users and their permissions.
#[derive(Debug, Default)]
pub struct Access {
    /// User and audience of each token.
    tokens: HashMap<String, (String, String)>,
    /// Rules by user. A user without an entry may do everything.
    grants: HashMap<String, Vec<Grant>>,
    used: BTreeSet<Permission>,
    refused: BTreeSet<Permission>,
}

/// Rule of a role.
#[derive(Debug)]
struct Grant {
    namespace: Option<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
    names: Vec<String>,
    /// `nonResourceURLs` of the rule.
    urls: Vec<String>,
}

/// Audience of tokens for the API server itself (`--api-audiences`).
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

impl Access {
    /// Registers a user, and returns the token.
    pub fn token(&mut self, user: &str) -> String {
        self.token_for(user, API_AUDIENCE)
    }

    /// Registers a user, and returns a token for this audience.
    pub fn token_for(&mut self, user: &str, audience: &str) -> String {
        let place = if audience == API_AUDIENCE { String::new() } else { format!("-for-{audience}") };
        let token = format!("token-of-{user}{place}");
        self.tokens.insert(token.clone(), (user.to_owned(), audience.to_owned()));
        token
    }

    /// Makes a token invalid.
    pub fn revoke(&mut self, token: &str) {
        self.tokens.remove(token);
    }

    /// User and audience of a token.
    pub fn bearer(&self, token: &str) -> Option<(&str, &str)> {
        self.tokens.get(token).map(|(user, audience)| (user.as_str(), audience.as_str()))
    }

    /// Caller for the value of an `Authorization` header.
    pub fn caller(&self, authorization: Option<&str>) -> Caller {
        let Some(authorization) = authorization else { return Caller::Anonymous };
        let bearer = authorization.strip_prefix("Bearer ").and_then(|token| self.bearer(token));
        match bearer {
            Some((user, API_AUDIENCE)) => Caller::User(user.to_owned()),
            Some(_) | None => Caller::Unknown,
        }
    }

    /// Restricts a user to the rules of these Roles and ClusterRoles, replacing earlier ones.
    pub fn authorize(&mut self, user: &str, roles: &[Value]) {
        let grants = roles.iter().flat_map(grants_of).collect();
        self.grants.insert(user.to_owned(), grants);
        self.used.retain(|permission| permission.user != user);
        self.refused.retain(|permission| permission.user != user);
    }

    /// Whether the user may do this. Records the result.
    pub fn allows(&mut self, user: &str, verb: &str, target: &Target) -> bool {
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

    /// Whether the user may do this with a non-resource path. Records the result.
    pub fn allows_url(&mut self, user: &str, verb: &str, path: &str) -> bool {
        let Some(grants) = self.grants.get(user) else { return true };
        let used = grants.iter().find_map(|grant| {
            let url = grant.urls.iter().find(|url| match url.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => *url == path,
            })?;
            let verb = grant.verbs.iter().find(|word| [verb, "*"].contains(&word.as_str()))?;
            Some(Permission::of_url(user, verb, url))
        });
        let allowed = used.is_some();
        self.used.extend(used);
        if !allowed {
            self.refused.insert(Permission::of_url(user, verb, path));
        }
        allowed
    }

    /// Permissions of the user that no request has used.
    pub fn unused(&self, user: &str) -> Vec<Permission> {
        let grants = self.grants.get(user).map(Vec::as_slice).unwrap_or_default();
        let all: BTreeSet<_> = grants.iter().flat_map(|grant| grant.permissions(user)).collect();
        all.difference(&self.used).cloned().collect()
    }

    /// Requests that lacked permission.
    pub fn refused(&self) -> Vec<Permission> {
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
            urls: words("nonResourceURLs"),
        }
    };
    rules.iter().map(grant).collect()
}

impl Grant {
    /// The rule's permission that covers a request.
    fn matching(&self, user: &str, verb: &str, target: &Target) -> Option<Permission> {
        // For RBAC, a namespace object is in the namespace of its name.
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
        let resources = pairs.flat_map(move |(group, resource)| {
            self.verbs.iter().map(move |verb| Permission {
                user: user.to_owned(),
                verb: verb.clone(),
                group: group.clone(),
                resource: resource.clone(),
                namespace: self.namespace.clone(),
            })
        });
        let urls = self.urls.iter();
        resources.chain(
            urls.flat_map(move |url| self.verbs.iter().map(move |verb| Permission::of_url(user, verb, url))),
        )
    }
}
