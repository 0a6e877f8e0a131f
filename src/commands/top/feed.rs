//! The stream of events of a gateway: it ends every now and then, and is opened again where it ended.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::messages::LiveMessage;
use crate::cli::TopRows;

/// A gateway that says nothing for so long does not answer: it sends something each second.
const SILENCE: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(1);
/// Messages that wait to be shown. The gateway keeps further ones.
const QUEUED: usize = 16;
/// Of an answer that is none.
const LONGEST_REFUSAL: u64 = 1024;

/// What comes of a stream.
#[derive(Debug)]
pub(super) enum FeedEvent {
    Message(LiveMessage),
    /// The gateway does not answer, and why. It is asked again.
    Lost(String),
}

/// The stream of one gateway. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Feed {
    events: mpsc::Receiver<FeedEvent>,
    task: AbortHandle,
}

impl Feed {
    /// Opens the stream with the counters that these rows need.
    pub(super) fn open(authority: &str, rows: TopRows) -> Self {
        let (out, events) = mpsc::channel(QUEUED);
        let traffic = match rows {
            TopRows::Services => "services",
            TopRows::Endpoints | TopRows::Clusters => "endpoints",
        };
        let stream = Stream { authority: authority.to_owned(), traffic, last_event: None, out };
        Self { events, task: tokio::spawn(stream.run()).abort_handle() }
    }

    /// What comes next. It may be dropped while it waits.
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

/// One event as it is being read.
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

    /// Follows one stream to its end, which is an error if it comes before any event.
    async fn follow(&mut self) -> Result<(), String> {
        let mut reader = self.connect().await?;
        let (mut partial, mut line, mut any) = (PartialEvent::default(), String::new(), false);
        loop {
            line.clear();
            if in_time(reader.read_line(&mut line)).await? == 0 {
                return if any { Ok(()) } else { Err("it closed the connection".to_owned()) };
            }
            if line == "\n" {
                any = true;
                self.take(std::mem::take(&mut partial)).await?;
            } else {
                partial.add(line.trim_end_matches('\n'));
            }
        }
    }

    async fn connect(&self) -> Result<BufReader<TcpStream>, String> {
        let Self { authority, traffic, last_event, .. } = self;
        let mut stream = in_time(TcpStream::connect(authority)).await?;
        let last = last_event.as_ref().map(|id| format!("&lastEvent={id}")).unwrap_or_default();
        let request = format!("GET /api/live?traffic={traffic}{last} HTTP/1.0\r\nHost: {authority}\r\n\r\n");
        in_time(stream.write_all(request.as_bytes())).await?;
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        let mut status = String::new();
        in_time(reader.read_line(&mut status)).await?;
        loop {
            let mut line = String::new();
            if in_time(reader.read_line(&mut line)).await? == 0 || line.trim_end().is_empty() {
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
        // What is in it is not checked on the way back.
        self.last_event = id.filter(|id| id.chars().all(|char| char.is_ascii_alphanumeric() || char == '-'));
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

async fn in_time<T>(work: impl Future<Output = std::io::Result<T>>) -> Result<T, String> {
    match timeout(SILENCE, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("nothing came for {} s", SILENCE.as_secs())),
    }
}
