//! What was asked of the server.

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The user; `system:anonymous` without a token, empty with an unknown one.
    pub(crate) user: String,
    /// As RBAC names it, such as `deletecollection`.
    pub(crate) verb: String,
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The plural; empty for requests that are not about resources.
    pub(crate) resource: String,
    pub(crate) subresource: Option<String>,
    pub(crate) namespace: Option<String>,
    /// From the URL; for `create` from the body.
    pub(crate) name: Option<String>,
    /// Path and query as sent.
    pub(crate) line: String,
    pub(crate) user_agent: String,
    /// What was answered; `None` if the answer was swallowed or lost on purpose. Watches count when they begin.
    pub(crate) status: Option<u16>,
}

impl Request {
    /// Whether it asked for a change, whatever came of it.
    pub(crate) fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}
