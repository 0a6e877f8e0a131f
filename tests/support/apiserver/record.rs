//! Record of requests.

/// Request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// User; `system:anonymous` without a token, empty for an unknown token.
    pub user: String,
    /// RBAC verb, such as `deletecollection`.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural; empty for requests that are not about resources.
    pub resource: String,
    pub subresource: Option<String>,
    pub namespace: Option<String>,
    /// Name from the URL; for `create` from the body.
    pub name: Option<String>,
    /// Path and query as sent.
    pub line: String,
    pub user_agent: String,
    /// Status code; `None` if a fault suppressed the answer. Watches are recorded when they begin.
    pub status: Option<u16>,
}

impl Request {
    /// Whether it requested a change, successful or not.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}
