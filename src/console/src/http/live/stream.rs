//! Stream of one page: first what it is missing, then live events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Events for a page.
#[derive(Debug)]
pub(super) struct Subscription {
    /// Events that the page is missing.
    pub(super) first: VecDeque<Bytes>,
    /// Live events. The channel closes when the page should reopen the stream.
    pub(super) next: mpsc::Receiver<Bytes>,
}

/// Sends a subscription at the pace of the page.
#[derive(Debug)]
pub(super) struct EventStream {
    subscription: Subscription,
    _place: OwnedSemaphorePermit,
}

impl EventStream {
    pub(super) fn new(subscription: Subscription, place: OwnedSemaphorePermit) -> Self {
        Self { subscription, _place: place }
    }
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")], Body::new(self))
            .into_response()
    }
}

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Subscription { first, next } = &mut self.subscription;
        match first.pop_front() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => next.poll_recv(cx).map(|bytes| Some(Ok(Frame::data(bytes?)))),
        }
    }
}
