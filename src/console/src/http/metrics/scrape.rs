//! Scrapes, one at a time and outside the event loop. A thread renders the counters and sends the text in chunks, so that neither a
//! large table nor a slow reader delays anything else or uses much memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use metrics_exporter_prometheus::PrometheusHandle;
use sheave_dataplane::Observer;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::{LoopFacts, of_gateway};
use crate::http::metrics::exposition::Exposition;

/// How long a scrape waits for the previous one, and for its reader to take the next chunk.
const PATIENCE: Duration = Duration::from_secs(5);
/// Chunks that may wait for the reader.
const CHUNKS: usize = 2;

/// Content type of Prometheus text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers scrapes of a gateway. Clones share the queue.
#[derive(Clone)]
pub struct ScrapeQueue {
    observer: Observer,
    own: PrometheusHandle,
    turn: Arc<Semaphore>,
    patience: Duration,
}

impl ScrapeQueue {
    /// Serves metrics of a data plane and of the process's recorder.
    pub fn new(observer: Observer, own: PrometheusHandle) -> Self {
        Self { observer, own, turn: Arc::new(Semaphore::new(1)), patience: PATIENCE }
    }

    /// Answers with `facts` and the counters of the data plane; `None` if there are no facts. Waits for the previous scrape.
    pub(crate) async fn answer(&self, facts: impl Future<Output = Option<LoopFacts>>) -> Option<Response> {
        let Ok(Ok(turn)) = timeout(self.patience, Arc::clone(&self.turn).acquire_owned()).await else {
            let busy = "another scrape is still being read\n";
            return Some((StatusCode::SERVICE_UNAVAILABLE, busy).into_response());
        };
        let facts = facts.await?;
        let (reader, chunks) = mpsc::channel(CHUNKS);
        let Self { observer, own, patience, .. } = self.clone();
        let handle = Handle::current();
        tokio::task::spawn_blocking(move || {
            let send = move |chunk| {
                let sent = handle.block_on(timeout(patience, reader.send(chunk)));
                sent.is_ok_and(|sent| sent.is_ok())
            };
            render(&facts, &observer, &own, send);
            drop(turn);
        });
        let body = Body::new(Chunks { chunks, ended: false });
        Some(([(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response())
    }
}

fn render(
    facts: &LoopFacts,
    observer: &Observer,
    own: &PrometheusHandle,
    send: impl Fn(Chunk) -> bool + Clone + 'static,
) {
    let send_text = send.clone();
    let mut text = Exposition::sent_by(move |text| send_text(Chunk::Text(text)));
    of_gateway(&mut text, facts, observer);
    own.run_upkeep();
    text.append(&own.render());
    if let Some(rest) = text.finish()
        && send(Chunk::Text(rest))
    {
        send(Chunk::End);
    }
}

/// Piece of an answer.
enum Chunk {
    Text(String),
    /// End of the answer. If it is missing, the answer was cut off and must not look complete.
    End,
}

/// Body of an answer, as a stream of chunks.
struct Chunks {
    chunks: mpsc::Receiver<Chunk>,
    ended: bool,
}

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let chunk = ready!(self.chunks.poll_recv(cx));
        self.ended = !matches!(chunk, Some(Chunk::Text(_)));
        Poll::Ready(match chunk {
            Some(Chunk::Text(text)) => Some(Ok(Frame::data(text.into()))),
            Some(Chunk::End) => None,
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }
}

#[cfg(test)]
mod tests;
