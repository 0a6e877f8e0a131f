//! Replies of the server.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::Value;
use tokio::sync::mpsc;

use super::status::Status;

/// Content-Type of nearly all replies.
pub(super) const JSON: &str = "application/json";

const TEXT: &str = "text/plain; charset=utf-8";

/// Reply to a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub code: u16,
    pub content_type: &'static str,
    /// Additional headers.
    pub headers: Vec<(&'static str, String)>,
    pub body: ReplyBody,
}

/// Body of a reply.
#[derive(Debug)]
pub(super) enum ReplyBody {
    /// Complete body; `None` once it is being sent.
    Whole(Option<Bytes>),
    /// Lines of a watch.
    Lines(mpsc::Receiver<Bytes>),
}

impl Reply {
    /// Compact JSON with a line feed, as from a Go encoder.
    pub(super) fn json(code: u16, value: &Value) -> Self {
        let mut bytes = serde_json::to_vec(value).expect("JSON serialises");
        bytes.push(b'\n');
        Self::bytes(code, JSON, bytes)
    }

    /// Plain text.
    pub(super) fn text(code: u16, text: &str) -> Self {
        let mut reply = Self::bytes(code, TEXT, text.as_bytes().to_vec());
        reply.headers.push(("X-Content-Type-Options", "nosniff".to_owned()));
        reply
    }

    /// Raw bytes.
    pub(super) fn bytes(code: u16, content_type: &'static str, bytes: Vec<u8>) -> Self {
        Self { code, content_type, headers: Vec::new(), body: ReplyBody::Whole(Some(bytes.into())) }
    }

    /// Watch.
    pub(super) fn lines(lines: mpsc::Receiver<Bytes>) -> Self {
        Self { code: 200, content_type: JSON, headers: Vec::new(), body: ReplyBody::Lines(lines) }
    }

    /// Reply for unknown paths.
    pub(super) fn page_not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// Reply of kube-aggregator if the server of a kind is away (`proxyError` of its `handler_proxy.go`).
    pub(super) fn service_unavailable() -> Self {
        Self::text(503, "service unavailable\n")
    }

    /// Adds `Warning` headers.
    pub(super) fn with_warnings(mut self, warnings: &[String]) -> Self {
        let quoted = |text: &String| text.replace('\\', "\\\\").replace('"', "\\\"");
        self.headers.extend(warnings.iter().map(|text| ("Warning", format!("299 - \"{}\"", quoted(text)))));
        self
    }

    /// Indents a JSON body by two spaces, without a line feed at the end.
    pub(super) fn pretty(mut self) -> Self {
        if let ReplyBody::Whole(Some(bytes)) = &self.body
            && let Ok(value) = serde_json::from_slice::<Value>(bytes)
        {
            let bytes = serde_json::to_vec_pretty(&value).expect("JSON serialises");
            self.body = ReplyBody::Whole(Some(bytes.into()));
        }
        self
    }
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        let mut reply = Self::json(status.code, &status.to_json());
        if let Some(seconds) = status.details.as_ref().and_then(|details| details.get("retryAfterSeconds")) {
            reply.headers.push(("Retry-After", seconds.to_string()));
        }
        // Only the authorization filter answers without the code that sets the content type.
        if status.code == 403 && status.message.contains(" is forbidden: User ") {
            reply.headers.push(("X-Content-Type-Options", "nosniff".to_owned()));
        }
        reply
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Lines(lines) => {
                lines.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Lines(_) => SizeHint::default(),
        }
    }
}
