//! A request for a list or a watch, and its possible outcomes.

use std::time::Duration;

use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, RETRY_AFTER};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::response::Status;
use thiserror::Error;
use tokio::time::{Instant, timeout, timeout_at};

/// Largest part of an error answer that is read.
const LONGEST_REFUSAL: usize = 64 * 1024;
/// Largest length of a line. etcd accepts objects of up to 1.5 MiB, so no server sends a longer one.
const LONGEST_LINE: usize = 16 * 1024 * 1024;

/// Reason why there is no answer, or why it ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum RequestFailure {
    /// 410: the requested version is too old.
    #[error("what was asked for is too long ago: {0}")]
    Expired(String),
    /// 404: the kind does not exist.
    #[error("the API server does not know the kind: {0}")]
    Missing(String),
    /// 403: RBAC denies the request.
    #[error("the API server refuses it: {0}")]
    Forbidden(String),
    /// 401: the credentials are not valid.
    #[error("the API server does not accept the credentials: {0}")]
    Unauthorized(String),
    /// Any other error status.
    #[error("the API server answers {code}: {message}")]
    Status {
        /// The HTTP status.
        code: u16,
        /// Message of the server.
        message: String,
        /// Value of `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// There is no connection, or it broke.
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    /// The answer, or the next piece of it, took too long.
    #[error("the API server does not answer in time")]
    Silent,
    /// The answer is malformed.
    #[error("the API server's answer makes no sense: {0}")]
    Garbled(String),
}

/// Timeouts of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerTimeouts {
    /// Timeout for its head.
    pub(super) head: Duration,
    /// Timeout for each piece of its body.
    pub(super) piece: Duration,
    /// Timeout for all of it.
    pub(super) whole: Duration,
}

/// An answer whose body is not read yet.
pub(super) struct Answer {
    body: Body,
    piece: Duration,
    deadline: Instant,
    buffer: Vec<u8>,
    /// Start of the next line in the buffer.
    start: usize,
}

/// Sends `request`. An answer that exceeds its timeout is a [`RequestFailure::Silent`].
pub(super) async fn get(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    patience: AnswerTimeouts,
) -> Result<Answer, RequestFailure> {
    let request = request.map_err(|error| RequestFailure::Garbled(error.to_string()))?;
    let deadline = Instant::now() + patience.whole;
    let response = timeout(patience.head, client.send(request.map(Body::from)))
        .await
        .map_err(|_| RequestFailure::Silent)?
        .map_err(|error| unreachable(&error))?;
    let code = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = response.into_body();
    let mut answer = Answer { body, piece: patience.piece, deadline, buffer: Vec::new(), start: 0 };
    if code.is_success() {
        return Ok(answer);
    }
    let text = answer.refusal().await;
    Err(RequestFailure::of(code.as_u16(), retry_after.map(Duration::from_secs), &text))
}

/// Requests an uncompressed watch: some servers make each event a gzip member of its own (Kubernetes 1.37), of which the client
/// would read only the first.
pub(super) fn uncompressed<E>(
    request: Result<http::Request<Vec<u8>>, E>,
) -> Result<http::Request<Vec<u8>>, E> {
    request.map(|mut request| {
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        request
    })
}

/// Sets the requested duration of a watch. `kube` limits it to 294 s, because proxies close connections that are silent for
/// longer, but bookmarks prevent silence.
pub(super) fn lasting<E>(
    request: Result<http::Request<Vec<u8>>, E>,
    seconds: u64,
) -> Result<http::Request<Vec<u8>>, E> {
    request.map(|mut request| {
        let query = request.uri().query().unwrap_or_default();
        let others = query.split('&').filter(|pair| !pair.starts_with("timeoutSeconds="));
        let query: String = others.map(|pair| format!("{pair}&")).collect();
        let text = format!("{}?{query}timeoutSeconds={seconds}", request.uri().path());
        if let Ok(uri) = text.parse() {
            *request.uri_mut() = uri;
        }
        request
    })
}

impl RequestFailure {
    /// The failure for an HTTP status with this body.
    fn of(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status = serde_json::from_slice::<Status>(body).ok();
        let message = match &status {
            Some(status) if !status.message.is_empty() => status.message.clone(),
            _ => String::from_utf8_lossy(body).trim().chars().take(200).collect(),
        };
        let detail = status.and_then(|status| status.details).map(|details| details.retry_after_seconds);
        let detail = detail.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into()));
        match code {
            401 => Self::Unauthorized(message),
            403 => Self::Forbidden(message),
            404 => Self::Missing(message),
            410 => Self::Expired(message),
            _ => Self::Status { code, message, retry_after: retry_after.or(detail) },
        }
    }

    /// The failure for an `ERROR` line of a watch, whose object is a Status.
    pub(super) fn of_event(object: &serde_json::Value) -> Self {
        let code = object.get("code").and_then(serde_json::Value::as_u64).unwrap_or_default();
        Self::of(u16::try_from(code).unwrap_or_default(), None, object.to_string().as_bytes())
    }

    /// Value of `Retry-After`, if the server sent one.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl Answer {
    /// Reads the whole body.
    pub(super) async fn whole(mut self) -> Result<Vec<u8>, RequestFailure> {
        while self.read().await? {}
        Ok(self.buffer)
    }

    /// The next line without its end; `None` at the end of the body. Text after the last line end is dropped, because the
    /// connection was interrupted there. Cancel safe.
    pub(super) async fn line(&mut self) -> Result<Option<&[u8]>, RequestFailure> {
        let mut scanned = self.start;
        loop {
            if let Some(length) = self.buffer[scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.start..scanned + length;
                self.start = line.end + 1;
                return Ok(Some(&self.buffer[line]));
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            scanned = self.buffer.len();
            if scanned > LONGEST_LINE {
                return Err(RequestFailure::Garbled(format!("a line of more than {LONGEST_LINE} bytes")));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// Reads the next piece; false at the end of the body.
    async fn read(&mut self) -> Result<bool, RequestFailure> {
        let until = self.deadline.min(Instant::now() + self.piece);
        loop {
            let frame = timeout_at(until, self.body.frame()).await.map_err(|_| RequestFailure::Silent)?;
            match frame {
                None => return Ok(false),
                Some(Err(error)) => return Err(unreachable(&error)),
                Some(Ok(frame)) => {
                    let Some(data) = frame.data_ref() else { continue };
                    self.buffer.extend_from_slice(data);
                    return Ok(true);
                }
            }
        }
    }

    /// The body of an error answer, up to the limit.
    async fn refusal(&mut self) -> Vec<u8> {
        while self.buffer.len() < LONGEST_REFUSAL && self.read().await.unwrap_or(false) {}
        std::mem::take(&mut self.buffer)
    }
}

/// Includes all causes: the outermost error only states that a request failed.
fn unreachable(error: &dyn std::error::Error) -> RequestFailure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let inner = error.to_string();
        if !text.contains(&inner) {
            text = format!("{text}: {inner}");
        }
        cause = error.source();
    }
    RequestFailure::Unreachable(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_the_matter_is() {
        let status = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
            "message":"storage is (re)initializing","reason":"TooManyRequests",
            "details":{"retryAfterSeconds":3},"code":429}"#;
        let message = "storage is (re)initializing".to_owned();
        let retry_after = Some(Duration::from_secs(3));
        assert_eq!(
            RequestFailure::of(429, None, status),
            RequestFailure::Status { code: 429, message, retry_after }
        );
        let header = Some(Duration::from_secs(1));
        assert_eq!(RequestFailure::of(429, header, status).retry_after(), header);
    }

    #[test]
    fn text_that_is_no_status_is_passed_on() {
        let missing = RequestFailure::of(404, None, b"404 page not found\n");
        assert_eq!(missing, RequestFailure::Missing("404 page not found".to_owned()));
    }

    #[test]
    fn the_error_line_of_a_watch_is_like_a_status() {
        let object = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version: 1 (600)", "reason": "Expired", "code": 410});
        let expired = RequestFailure::Expired("too old resource version: 1 (600)".to_owned());
        assert_eq!(RequestFailure::of_event(&object), expired);
    }
}
