//! An API server without sockets, so that time can be simulated: it has Nodes, serves lists, streams and watches of them, and
//! injects any fault at any point.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use super::{event, node};

/// Number of objects in a page.
pub(super) const PAGE: u32 = 2;

/// Point at which a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    FirstPage,
    SecondPage,
    StreamStart,
    MidStream,
    WatchStart,
    MidWatch,
    /// At the start of every request.
    Everywhere,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An HTTP status, or an `ERROR` event if an answer has started.
    Status(u16),
    Cut,
    Silence,
    Garbage,
}

impl Point {
    fn is_of_pages(self) -> bool {
        matches!(self, Self::FirstPage | Self::SecondPage)
    }
}

/// A fault and its point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) point: Point,
    pub(super) fault: Fault,
    /// Number of requests that it still affects.
    pub(super) times: usize,
}

/// Number of requests of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    pub(super) pages: usize,
    pub(super) streams: usize,
    pub(super) watches: usize,
}

/// The server; clones share their state.
#[derive(Clone)]
pub(super) struct MemoryServer {
    state: Arc<Mutex<State>>,
    version: watch::Sender<usize>,
}

struct State {
    /// The change of each version: a name, and whether the object exists since then.
    changes: Vec<(&'static str, bool)>,
    plan: Option<Plan>,
    requests: Requests,
    /// Whether to send bookmarks like kube-apiserver: once a minute, and 2 s before the end.
    bookmarks: bool,
    /// How often it has forgotten all versions and ended all watches because of that.
    forgotten: usize,
}

/// Reaction to a request.
enum Answer {
    Begun(u16, mpsc::UnboundedReceiver<Piece>),
    /// The connection is reset.
    Reset,
    Never,
}

type Piece = io::Result<Bytes>;

impl MemoryServer {
    pub(super) fn new(names: &[&'static str]) -> Self {
        let changes: Vec<_> = names.iter().map(|name| (*name, true)).collect();
        let version = watch::Sender::new(changes.len());
        let state =
            State { changes, plan: None, requests: Requests::default(), bookmarks: false, forgotten: 0 };
        Self { state: Arc::new(Mutex::new(state)), version }
    }

    pub(super) fn with_bookmarks(self) -> Self {
        self.state.lock().unwrap().bookmarks = true;
        self
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub(super) fn plan(&self, plan: Option<Plan>) {
        self.state.lock().unwrap().plan = plan;
    }

    /// Sets whether the object exists.
    pub(super) fn set(&self, name: &'static str, there: bool) {
        self.state.lock().unwrap().changes.push((name, there));
        self.version.send_modify(|version| *version += 1);
    }

    /// Ends all watches, because the history is gone.
    pub(super) fn forget(&self) {
        self.state.lock().unwrap().forgotten += 1;
        self.version.send_modify(|_| ());
    }

    /// Names of the existing objects.
    pub(super) fn names(&self) -> BTreeSet<&'static str> {
        self.state.lock().unwrap().at(usize::MAX).into_keys().collect()
    }

    pub(super) fn requests(&self) -> Requests {
        self.state.lock().unwrap().requests
    }

    fn answer(&self, query: &BTreeMap<String, String>) -> Answer {
        if query.contains_key("sendInitialEvents") {
            self.state.lock().unwrap().requests.streams += 1;
            self.lines(Point::StreamStart, Point::MidStream, query)
        } else if query.contains_key("watch") {
            self.state.lock().unwrap().requests.watches += 1;
            self.lines(Point::WatchStart, Point::MidWatch, query)
        } else {
            self.page(query)
        }
    }

    /// Serves a page; the token contains the version and the number of earlier objects.
    fn page(&self, query: &BTreeMap<String, String>) -> Answer {
        let mut state = self.state.lock().unwrap();
        let token = query.get("continue").and_then(|token| token.split_once('.'));
        let (version, before) = match token {
            Some((version, before)) => (version.parse().unwrap(), before.parse().unwrap()),
            None => (state.changes.len(), 0),
        };
        let limit: usize = query.get("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        // A request for one object is a request for the version.
        if limit == 1 && state.plan.is_some_and(|plan| plan.point == Point::Everywhere) {
            return Answer::Reset;
        }
        if limit > 1 {
            state.requests.pages += 1;
            let point = if before == 0 { Point::FirstPage } else { Point::SecondPage };
            if let Some(fault) = state.befalls(point) {
                return fault.instead();
            }
        }
        let all = state.at(version);
        let items: Vec<Value> = all
            .iter()
            .skip(before)
            .take(limit)
            .map(|(name, version)| node(name, &version.to_string()))
            .collect();
        let next = before + items.len();
        let token = if next < all.len() { format!("{version}.{next}") } else { String::new() };
        let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
        Answer::whole(200, &json!({"metadata": metadata, "items": items}).to_string())
    }

    /// Serves a watch, or a stream followed by a watch.
    fn lines(&self, start: Point, amid: Point, query: &BTreeMap<String, String>) -> Answer {
        let mut state = self.state.lock().unwrap();
        // For faults of pages, streams are refused, so that pages are requested.
        if start == Point::StreamStart && state.plan.is_some_and(|plan| plan.point.is_of_pages()) {
            return Answer::whole(422, "no streams here");
        }
        if let Some(fault) = state.befalls(start) {
            return fault.instead();
        }
        let (pieces, answer) = mpsc::unbounded_channel();
        let mut from = 0;
        if start == Point::StreamStart {
            for (name, version) in state.at(usize::MAX) {
                send(&pieces, "ADDED", &node(name, &version.to_string()));
            }
            from = state.changes.len();
        } else if let Some(version) = query.get("resourceVersion") {
            from = version.parse().unwrap();
        }
        if let Some(fault) = state.befalls(amid) {
            state.send_changes(&pieces, &mut from);
            fault.amid(pieces);
        } else {
            if start == Point::StreamStart {
                let annotations = json!({"k8s.io/initial-events-end": "true"});
                let metadata = json!({"resourceVersion": from.to_string(), "annotations": annotations});
                send(&pieces, "BOOKMARK", &json!({"metadata": metadata}));
            }
            let seconds: u64 = query["timeoutSeconds"].parse().unwrap();
            tokio::spawn(self.clone().go_on(pieces, from, Instant::now() + Duration::from_secs(seconds)));
        }
        Answer::Begun(200, answer)
    }

    async fn go_on(self, pieces: mpsc::UnboundedSender<Piece>, mut from: usize, until: Instant) {
        let mut version = self.version.subscribe();
        let State { bookmarks, forgotten, .. } = *self.state.lock().unwrap();
        let mut bookmark = Instant::now();
        loop {
            bookmark = (bookmark + Duration::from_secs(60)).min(until - Duration::from_secs(2));
            let is_forgotten = {
                let state = self.state.lock().unwrap();
                state.send_changes(&pieces, &mut from);
                state.forgotten != forgotten
            };
            if is_forgotten {
                return Fault::Status(410).amid(pieces);
            }
            tokio::select! {
                changed = version.changed() => changed.unwrap(),
                () = sleep_until(bookmark), if bookmarks && bookmark > Instant::now() => {
                    send(&pieces, "BOOKMARK", &json!({"metadata": {"resourceVersion": from.to_string()}}));
                }
                () = sleep_until(until) => return,
                () = pieces.closed() => return,
            }
        }
    }
}

impl State {
    /// The objects that exist in a version, with the version of their creation.
    fn at(&self, version: usize) -> BTreeMap<&'static str, usize> {
        let mut there = BTreeMap::new();
        for (index, (name, is_there)) in self.changes.iter().take(version).enumerate() {
            if *is_there {
                there.insert(*name, index + 1);
            } else {
                there.remove(name);
            }
        }
        there
    }

    fn befalls(&mut self, point: Point) -> Option<Fault> {
        let here = |plan: &&mut Plan| [point, Point::Everywhere].contains(&plan.point) && plan.times > 0;
        let plan = self.plan.as_mut().filter(here)?;
        plan.times -= 1;
        Some(plan.fault)
    }

    fn send_changes(&self, pieces: &mpsc::UnboundedSender<Piece>, from: &mut usize) {
        for (index, (name, there)) in self.changes.iter().enumerate().skip(*from) {
            let kind = if *there { "ADDED" } else { "DELETED" };
            send(pieces, kind, &node(name, &(index + 1).to_string()));
        }
        *from = self.changes.len();
    }
}

/// The receiver may be gone.
fn send(pieces: &mpsc::UnboundedSender<Piece>, kind: &str, object: &Value) {
    pieces.send(Ok(format!("{}\n", event(kind, object)).into())).unwrap_or_default();
}

impl Fault {
    /// The fault in place of an answer.
    fn instead(self) -> Answer {
        match self {
            Self::Status(code) => Answer::whole(code, "a test wants it"),
            Self::Cut => Answer::Reset,
            Self::Silence => Answer::Never,
            Self::Garbage => Answer::whole(200, "<html>\n"),
        }
    }

    /// The fault after an answer has started.
    fn amid(self, pieces: mpsc::UnboundedSender<Piece>) {
        match self {
            Self::Status(code) => {
                send(&pieces, "ERROR", &json!({"code": code, "message": "a test wants it"}));
            }
            Self::Cut => pieces.send(Err(io::ErrorKind::ConnectionReset.into())).unwrap_or_default(),
            Self::Garbage => pieces.send(Ok("<html>\n".into())).unwrap_or_default(),
            Self::Silence => {
                tokio::spawn(async move { pieces.closed().await });
            }
        }
    }
}

impl Answer {
    fn whole(code: u16, text: &str) -> Self {
        let (pieces, answer) = mpsc::unbounded_channel();
        pieces.send(Ok(text.to_owned().into())).unwrap();
        Self::Begun(code, answer)
    }
}

/// Body of an answer.
pub(super) struct Pieces(mpsc::UnboundedReceiver<Piece>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

impl Service<Request<Body>> for MemoryServer {
    type Response = Response<Pieces>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<Pieces>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let answer = self.answer(&query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        Box::pin(async move {
            match answer {
                Answer::Begun(code, pieces) => {
                    Ok(Response::builder().status(code).body(Pieces(pieces)).unwrap())
                }
                Answer::Reset => Err(io::ErrorKind::ConnectionReset.into()),
                Answer::Never => pending().await,
            }
        })
    }
}
