//! Event stream of a gateway. The gateway ends it now and then, and it is then reopened where it ended.

use std::fmt::Display;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Incoming};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::messages::LiveMessage;
use crate::admin_client;
use crate::arguments::TopRows;

/// A gateway that sends nothing for this long does not answer; it normally sends each second.
const SILENCE: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(1);
/// Messages that wait to be shown. The gateway holds back further ones.
const QUEUED: usize = 16;
/// Limit of a line in bytes. All rows are one line, and this is more than those of the largest gateway.
const LONGEST_LINE: usize = 1 << 28;

/// Message for a line beyond the limit.
const TOO_LONG: &str = "it sends a line that is too long for any gateway";

/// Events of a stream.
#[derive(Debug)]
pub(super) enum FeedEvent {
    Message(LiveMessage),
    /// The gateway does not answer, with the reason. The feed keeps retrying.
    Lost(String),
}

/// The `traffic` parameter that selects the counters of these rows.
pub(super) fn traffic(rows: TopRows) -> &'static str {
    match rows {
        TopRows::Services => "services",
        TopRows::Endpoints | TopRows::Clusters => "endpoints",
        TopRows::Clients => "clients",
    }
}

/// Event stream of one gateway, which ends when dropped.
#[derive(Debug)]
pub(super) struct Feed {
    events: mpsc::Receiver<FeedEvent>,
    task: AbortHandle,
}

impl Feed {
    /// Opens the stream with the counters of these rows.
    pub(super) fn open(authority: &str, rows: TopRows) -> Self {
        let (out, events) = mpsc::channel(QUEUED);
        let stream =
            Stream { authority: authority.to_owned(), traffic: traffic(rows), last_event: None, out };
        Self { events, task: tokio::spawn(stream.run()).abort_handle() }
    }

    /// Waits for the next event. Cancel safe.
    pub(super) async fn next(&mut self) -> FeedEvent {
        self.events.recv().await.unwrap_or_else(|| FeedEvent::Lost("it is not asked any more".to_owned()))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Stream {
    authority: String,
    traffic: &'static str,
    last_event: Option<String>,
    out: mpsc::Sender<FeedEvent>,
}

/// An event of which some lines have been read.
#[derive(Default)]
struct PartialEvent {
    name: String,
    id: Option<String>,
    data: String,
}

impl Stream {
    async fn run(mut self) {
        loop {
            if let Err(why) = self.follow().await {
                if self.out.send(FeedEvent::Lost(why)).await.is_err() {
                    return;
                }
                sleep(RETRY).await;
            }
        }
    }

    /// Follows one stream to its end. An error if it ends before any event.
    async fn follow(&mut self) -> Result<(), String> {
        let mut lines = self.connect().await?;
        let (mut partial, mut any) = (PartialEvent::default(), false);
        while let Some(line) = lines.next().await? {
            if line.is_empty() {
                any = true;
                self.take(std::mem::take(&mut partial)).await?;
            } else {
                partial.add(&line);
                if partial.data.len() > LONGEST_LINE {
                    return Err(TOO_LONG.to_owned());
                }
            }
        }
        if any { Ok(()) } else { Err("it closed the connection".to_owned()) }
    }

    async fn connect(&self) -> Result<Lines<Incoming>, String> {
        let Self { authority, traffic, last_event, .. } = self;
        let last = last_event.as_ref().map(|id| format!("&lastEvent={id}")).unwrap_or_default();
        let path = format!("/api/live?traffic={traffic}{last}");
        let response = in_time(admin_client::send(authority, &path)).await?;
        match response.status().as_u16() {
            200 => Ok(Lines { body: response.into_body(), unread: Vec::new() }),
            404 => Err("it forwards nothing; ask a gateway".to_owned()),
            _ => Err(in_time(admin_client::collect(response)).await?.refusal()),
        }
    }

    async fn take(&mut self, event: PartialEvent) -> Result<(), String> {
        let PartialEvent { name, id, data } = event;
        let message = LiveMessage::parse(&name, &data)
            .map_err(|error| format!("this is no event {name:?} of a gateway: {error}"))?;
        if let Some(message) = message {
            let sent = self.out.send(FeedEvent::Message(message)).await;
            sent.map_err(|_| "nobody looks any more".to_owned())?;
        }
        // The ID goes into the next request unescaped, so only a plain one is taken. An event without an ID leaves the last one
        // unchanged (HTML standard, 9.2.6).
        let plain = id.filter(|id| id.chars().all(|char| char.is_ascii_alphanumeric() || char == '-'));
        self.last_event = plain.or(self.last_event.take());
        Ok(())
    }
}

impl PartialEvent {
    fn add(&mut self, line: &str) {
        if let Some(data) = line.strip_prefix("data: ") {
            self.data.push_str(data);
        } else if let Some(name) = line.strip_prefix("event: ") {
            name.clone_into(&mut self.name);
        } else if let Some(id) = line.strip_prefix("id: ") {
            self.id = Some(id.to_owned());
        }
    }
}

/// Lines of a response.
struct Lines<B> {
    body: B,
    unread: Vec<u8>,
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> Lines<B> {
    /// Waits for the next line, without its end; `None` at the end of the stream. The time limit is for silence, not for a line: all rows
    /// of a large gateway are one line of megabytes.
    async fn next(&mut self) -> Result<Option<String>, String> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.unread[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(searched + end + 1);
                let mut line = std::mem::replace(&mut self.unread, rest);
                line.pop();
                return String::from_utf8(line).map(Some).map_err(|error| error.to_string());
            }
            searched = self.unread.len();
            if searched > LONGEST_LINE {
                return Err(TOO_LONG.to_owned());
            }
            match in_time(async { self.body.frame().await.transpose() }).await? {
                Some(frame) => self.unread.extend(frame.into_data().unwrap_or_default()),
                None if self.unread.is_empty() => return Ok(None),
                None => self.unread.push(b'\n'),
            }
        }
    }
}

async fn in_time<T, E: Display>(work: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    match timeout(SILENCE, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("nothing came for {} s", SILENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    /// Body whose parts come one by one.
    struct Parts(mpsc::Receiver<&'static str>);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part.into()))))
        }
    }

    fn gateway() -> (mpsc::Sender<&'static str>, Lines<Parts>) {
        let (gateway, parts) = mpsc::channel(1);
        (gateway, Lines { body: Parts(parts), unread: Vec::new() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_may_take_longer_than_a_gateway_may_be_silent() {
        let (gateway, mut lines) = gateway();
        tokio::spawn(async move {
            for part in ["data: ", "of a", " slow link\n\nlast"] {
                sleep(SILENCE * 3 / 4).await;
                gateway.send(part).await.unwrap();
            }
            sleep(SILENCE * 2).await;
        });
        assert_eq!(lines.next().await, Ok(Some("data: of a slow link".to_owned())));
        assert_eq!(lines.next().await, Ok(Some(String::new())));
        assert_eq!(lines.next().await, Err("nothing came for 4 s".to_owned()));
    }

    #[tokio::test]
    async fn lines_end_with_the_stream() {
        let (gateway, mut lines) = gateway();
        gateway.send("one\ntwo").await.unwrap();
        drop(gateway);
        assert_eq!(lines.next().await, Ok(Some("one".to_owned())));
        assert_eq!(lines.next().await, Ok(Some("two".to_owned())));
        assert_eq!(lines.next().await, Ok(None));
    }

    #[tokio::test]
    async fn a_stream_is_opened_again_after_the_last_event_that_has_an_id() {
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _feed = Feed::open(&gateway.local_addr().unwrap().to_string(), TopRows::Services);
        let mut requests = Vec::new();
        for _ in 0..2 {
            let (stream, _) = gateway.accept().await.unwrap();
            let mut lines = BufReader::new(stream).lines();
            requests.push(lines.next_line().await.unwrap().unwrap());
            while lines.next_line().await.unwrap().is_some_and(|line| !line.is_empty()) {}
            let events =
                "HTTP/1.0 200 OK\r\n\r\nid: 5f-7\nevent: unknown\ndata: 1\n\nevent: unknown\ndata: 2\n\n";
            lines.into_inner().write_all(events.as_bytes()).await.unwrap();
        }
        let expected = ["traffic=services HTTP/1.1", "traffic=services&lastEvent=5f-7 HTTP/1.1"];
        assert_eq!(requests, expected.map(|query| format!("GET /api/live?{query}")));
    }
}
