//! What was asked of the server.

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The user; `system:anonymous` without a token, empty with an unknown one.
    pub user: String,
    /// As RBAC names it, such as `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural; empty for requests that are not about resources.
    pub resource: String,
    pub subresource: Option<String>,
    pub namespace: Option<String>,
    /// From the URL; for `create` from the body.
    pub name: Option<String>,
    /// Path and query as sent.
    pub line: String,
    pub user_agent: String,
    /// What was answered; `None` if the answer was swallowed or lost on purpose. Watches count when they begin.
    pub status: Option<u16>,
}

impl Request {
    /// Whether it asked for a change, whatever came of it.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}
