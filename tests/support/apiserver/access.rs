//! Who may do what: bearer tokens, and RBAC rules as real Role and ClusterRole objects state them.
//!
//! It also knows which grants were never used, and what was refused: a role is right when both lists are empty.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::route::Target;

/// One permission: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The user who has it, or lacked it.
    pub user: String,
    /// Such as `list`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, such as `services/status`, or a path that is none, such as `/metrics`.
    pub resource: String,
    /// The namespace that a Role holds in, or that a refused request was about; `None` for all.
    pub namespace: Option<String>,
}

impl Permission {
    fn of_url(user: &str, verb: &str, url: &str) -> Self {
        let [user, verb, resource] = [user, verb, url].map(str::to_owned);
        Self { user, verb, group: String::new(), resource, namespace: None }
    }
}

/// Whose request it is.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A user with a known token.
    User(String),
    /// No token was sent.
    Anonymous,
    /// The token is not one of ours.
    Unknown,
}

/// All users and their rights.
#[derive(Debug, Default)]
pub struct Access {
    /// Users by token, and whom the token is for.
    tokens: HashMap<String, (String, String)>,
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
    /// `nonResourceURLs`.
    urls: Vec<String>,
}

/// The audience of tokens for the API server itself (`--api-audiences`).
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

impl Access {
    /// The token of a user, who is known from now on.
    pub fn token(&mut self, user: &str) -> String {
        self.token_for(user, API_AUDIENCE)
    }

    /// A token of a user for this audience.
    pub fn token_for(&mut self, user: &str, audience: &str) -> String {
        let place = if audience == API_AUDIENCE { String::new() } else { format!("-for-{audience}") };
        let token = format!("token-of-{user}{place}");
        self.tokens.insert(token.clone(), (user.to_owned(), audience.to_owned()));
        token
    }

    /// Nobody is known by the token any more.
    pub fn revoke(&mut self, token: &str) {
        self.tokens.remove(token);
    }

    /// Whose a token is, and whom it is for.
    pub fn bearer(&self, token: &str) -> Option<(&str, &str)> {
        self.tokens.get(token).map(|(user, audience)| (user.as_str(), audience.as_str()))
    }

    /// Whose the value of the header `Authorization` is.
    pub fn caller(&self, authorization: Option<&str>) -> Caller {
        let Some(authorization) = authorization else { return Caller::Anonymous };
        let bearer = authorization.strip_prefix("Bearer ").and_then(|token| self.bearer(token));
        match bearer {
            Some((user, API_AUDIENCE)) => Caller::User(user.to_owned()),
            Some(_) | None => Caller::Unknown,
        }
    }

    /// Restricts a user to the rules of these Roles and ClusterRoles, in place of earlier ones.
    pub fn authorize(&mut self, user: &str, roles: &[Value]) {
        let grants = roles.iter().flat_map(grants_of).collect();
        self.grants.insert(user.to_owned(), grants);
        self.used.retain(|permission| permission.user != user);
        self.refused.retain(|permission| permission.user != user);
    }

    /// Whether the user may do this; remembers the answer.
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

    /// Whether the user may do this with a path that is no resource; remembers the answer.
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

    /// The user's permissions that no request needed.
    pub fn unused(&self, user: &str) -> Vec<Permission> {
        let grants = self.grants.get(user).map(Vec::as_slice).unwrap_or_default();
        let all: BTreeSet<_> = grants.iter().flat_map(|grant| grant.permissions(user)).collect();
        all.difference(&self.used).cloned().collect()
    }

    /// What users tried without permission.
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
