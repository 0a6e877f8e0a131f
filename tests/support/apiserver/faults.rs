//! Faults that tests can enable, as they happen in networks and API servers.

use std::collections::HashMap;
use std::time::Duration;

use super::record::Request;
use super::status::Status;
use super::store::shelf::Entries;

/// Filter of the requests that a fault applies to. Fields that are not set match everything.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    verb: Option<String>,
    resource: Option<String>,
    user: Option<String>,
    streamed_lists: bool,
}

impl Matching {
    /// Matches an RBAC verb on a resource such as `services` or `services/status`; `*` matches any.
    pub fn new(verb: &str, resource: &str) -> Self {
        let unless_any = |word: &str| (word != "*").then(|| word.to_owned());
        Self { verb: unless_any(verb), resource: unless_any(resource), ..Self::default() }
    }

    /// Matches only requests of this user.
    pub fn by(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// Matches only watches that begin with a list.
    pub fn of_streamed_lists(mut self) -> Self {
        self.streamed_lists = true;
        self
    }

    fn matches(&self, request: &Request) -> bool {
        let resource = match &request.subresource {
            Some(subresource) => format!("{}/{subresource}", request.resource),
            None => request.resource.clone(),
        };
        self.verb.as_ref().is_none_or(|verb| *verb == request.verb)
            && self.resource.as_ref().is_none_or(|wanted| *wanted == resource)
            && (!self.streamed_lists || request.line.contains("sendInitialEvents=true"))
            && self.user.as_ref().is_none_or(|user| *user == request.user)
    }
}

/// Fault of a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The request is served normally. Counts requests before the one that fails.
    Pass,
    /// The request is not carried out and gets this answer.
    Answer(Status),
    /// The request is not carried out and gets no answer.
    Swallow,
    /// The request is carried out, but the connection is reset before the answer.
    LoseAnswer,
}

impl Fault {
    /// 429 with `Retry-After`.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let text = "the server has received too many requests and has asked us to try again later";
        Self::Answer(Status::new(429, "TooManyRequests", text).retry_after(retry_after))
    }

    /// 500.
    pub fn internal_error() -> Self {
        let text = "Internal error occurred: etcdserver: request timed out";
        Self::Answer(Status::new(500, "InternalError", text))
    }

    /// 503.
    pub fn unavailable() -> Self {
        let text = "the server is currently unable to handle the request";
        Self::Answer(Status::new(503, "ServiceUnavailable", text))
    }

    /// 409, as after a concurrent write.
    pub fn conflict() -> Self {
        let text = "Operation cannot be fulfilled: the object has been modified; \
                    please apply your changes to the latest version and try again";
        Self::Answer(Status::new(409, "Conflict", text))
    }
}

/// Past state that reads are served from.
#[derive(Debug)]
pub struct Past {
    pub revision: u64,
    pub shelves: HashMap<String, Entries>,
}

/// Enabled faults.
#[derive(Debug, Default)]
pub struct Faults {
    /// Additional delay of each answer.
    pub delay: Option<Duration>,
    /// Whether new watches are refused with 503.
    pub refuse_watches: bool,
    /// Whether the server of aggregated kinds is away.
    pub aggregated_away: bool,
    /// Whether the first list or watch of a new custom kind gets 429, as while its storage is initialized.
    pub slow_definitions: bool,
    /// State that reads at resourceVersion 0 see instead of the current one.
    pub past: Option<Past>,
    planned: Vec<(Matching, usize, Fault)>,
}

impl Faults {
    /// Plans a fault for the next `times` requests that match.
    pub fn plan(&mut self, matching: Matching, times: usize, fault: Fault) {
        self.planned.push((matching, times, fault));
    }

    /// Resets all faults.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes the planned fault of this request, if there is one.
    pub fn take(&mut self, request: &Request) -> Option<Fault> {
        let planned =
            self.planned.iter_mut().find(|(matching, left, _)| *left > 0 && matching.matches(request))?;
        planned.1 -= 1;
        Some(planned.2.clone())
    }

    /// Number of planned faults that are still to happen.
    pub fn outstanding(&self) -> usize {
        self.planned.iter().map(|(_, left, _)| left).sum()
    }
}
