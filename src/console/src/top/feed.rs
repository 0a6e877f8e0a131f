//! Event stream of a gateway. The gateway ends it now and then, and it is then reopened where it ended.

use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::messages::LiveMessage;
use crate::arguments::TopRows;

/// A gateway that sends nothing for this long does not answer; it normally sends each second.
const SILENCE: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(1);
/// Messages that wait to be shown. The gateway holds back further ones.
const QUEUED: usize = 16;
/// Limit of a line in bytes. All rows are one line, and this is more than those of the largest gateway.
const LONGEST_LINE: usize = 1 << 28;
/// Limit of header lines in a response.
const MOST_HEADERS: usize = 100;
/// How many bytes of an error response are read.
const LONGEST_REFUSAL: u64 = 1024;

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
        let mut reader = self.connect().await?;
        let (mut partial, mut any) = (PartialEvent::default(), false);
        while let Some(line) = next_line(&mut reader).await? {
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

    async fn connect(&self) -> Result<BufReader<TcpStream>, String> {
        let Self { authority, traffic, last_event, .. } = self;
        let mut stream = in_time(TcpStream::connect(authority)).await?;
        let last = last_event.as_ref().map(|id| format!("&lastEvent={id}")).unwrap_or_default();
        let request = format!("GET /api/live?traffic={traffic}{last} HTTP/1.0\r\nHost: {authority}\r\n\r\n");
        in_time(stream.write_all(request.as_bytes())).await?;
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        let status = next_line(&mut reader).await?.unwrap_or_default();
        for _ in 0..MOST_HEADERS {
            if next_line(&mut reader).await?.is_none_or(|line| line.trim_end().is_empty()) {
                break;
            }
        }
        match status.split(' ').nth(1) {
            Some("200") => Ok(reader),
            Some("404") => Err("it forwards nothing; ask a gateway".to_owned()),
            Some(_) => {
                let mut body = String::new();
                in_time(reader.take(LONGEST_REFUSAL).read_to_string(&mut body)).await?;
                Err(format!("{}: {}", status.trim_end(), body.trim_end()))
            }
            None => Err("this is no HTTP".to_owned()),
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

/// Reads the next line without its end; `None` at the end of the stream. The time limit is for silence, not for a line: all rows of a
/// large gateway are one line of megabytes.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<String>, String> {
    let mut line = Vec::new();
    loop {
        let available = in_time(reader.fill_buf()).await?;
        if line.len() + available.len() > LONGEST_LINE {
            return Err(TOO_LONG.to_owned());
        }
        if available.is_empty() && line.is_empty() {
            return Ok(None);
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let ended = end.is_some() || available.is_empty();
        line.extend_from_slice(&available[..end.unwrap_or(available.len())]);
        let taken = end.map_or(available.len(), |end| end + 1);
        reader.consume(taken);
        if ended {
            return String::from_utf8(line).map(Some).map_err(|error| error.to_string());
        }
    }
}

async fn in_time<T>(work: impl Future<Output = std::io::Result<T>>) -> Result<T, String> {
    match timeout(SILENCE, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("nothing came for {} s", SILENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_may_take_longer_than_a_gateway_may_be_silent() {
        let (mut gateway, client) = duplex(16);
        tokio::spawn(async move {
            for part in ["data: ", "of a", " slow link\n\nlast"] {
                sleep(SILENCE * 3 / 4).await;
                gateway.write_all(part.as_bytes()).await.unwrap();
            }
            sleep(SILENCE * 2).await;
        });
        let mut reader = BufReader::new(client);
        assert_eq!(next_line(&mut reader).await, Ok(Some("data: of a slow link".to_owned())));
        assert_eq!(next_line(&mut reader).await, Ok(Some(String::new())));
        assert_eq!(next_line(&mut reader).await, Err("nothing came for 4 s".to_owned()));
    }

    #[tokio::test]
    async fn lines_end_with_the_stream() {
        let mut reader = BufReader::new(&b"one\ntwo"[..]);
        assert_eq!(next_line(&mut reader).await, Ok(Some("one".to_owned())));
        assert_eq!(next_line(&mut reader).await, Ok(Some("two".to_owned())));
        assert_eq!(next_line(&mut reader).await, Ok(None));
    }

    #[tokio::test]
    async fn a_stream_is_opened_again_after_the_last_event_that_has_an_id() {
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _feed = Feed::open(&gateway.local_addr().unwrap().to_string(), TopRows::Services);
        let mut requests = Vec::new();
        for _ in 0..2 {
            let (stream, _) = gateway.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            requests.push(next_line(&mut stream).await.unwrap().unwrap());
            while next_line(&mut stream).await.unwrap().is_some_and(|line| line != "\r") {}
            let events =
                "HTTP/1.0 200 OK\r\n\r\nid: 5f-7\nevent: unknown\ndata: 1\n\nevent: unknown\ndata: 2\n\n";
            stream.write_all(events.as_bytes()).await.unwrap();
        }
        let expected = ["traffic=services HTTP/1.0", "traffic=services&lastEvent=5f-7 HTTP/1.0"];
        assert_eq!(requests, expected.map(|query| format!("GET /api/live?{query}\r")));
    }
}
