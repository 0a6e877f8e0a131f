//! A server that gives scripted answers to each request. It has no knowledge of Kubernetes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// Last segment of the path.
    pub(crate) plural: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) bearer: String,
    pub(crate) method: String,
    pub(crate) body: String,
    length: usize,
}

impl Asked {
    /// A request without a query.
    pub(crate) fn of(path: &str) -> Self {
        asked(&format!("GET {path} "))
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }

    pub(crate) fn streams(&self) -> bool {
        self.query.contains_key("sendInitialEvents")
    }

    pub(crate) fn version(&self) -> &str {
        self.query.get("resourceVersion").map_or("", String::as_str)
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// Whether the body never ends.
    pub(crate) hangs: bool,
}

impl Reply {
    pub(crate) fn of(status: u16, body: &(impl ToString + ?Sized)) -> Self {
        Self { status, body: body.to_string(), hangs: false }
    }

    /// Lines of a watch that never ends.
    pub(crate) fn lines(lines: impl IntoIterator<Item = serde_json::Value>) -> Self {
        let body = lines.into_iter().map(|line| format!("{line}\n")).collect();
        Self { status: 200, body, hangs: true }
    }

    pub(crate) fn ending(self) -> Self {
        Self { hangs: false, ..self }
    }
}

/// Serves until it is dropped.
pub(crate) struct Stub {
    pub(crate) url: String,
    _server: JoinSet<()>,
}

impl Stub {
    pub(crate) async fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(answer);
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, answer.clone()));
            }
        });
        Self { url, _server: server }
    }
}

/// Serves one request on a connection. Errors do not matter, as the client may be gone.
async fn serve(mut stream: TcpStream, answer: Arc<impl Fn(&Asked) -> Reply>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let mut asked = asked(&String::from_utf8(head).unwrap());
    let mut body = vec![0; asked.length];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    asked.body = String::from_utf8(body).unwrap();
    let reply = answer(&asked);
    let text = format!("HTTP/1.1 {} -\r\nconnection: close\r\n\r\n{}", reply.status, reply.body);
    if stream.write_all(text.as_bytes()).await.is_ok() && reply.hangs {
        // Until the client closes the connection.
        let _gone = stream.read_u8().await;
    }
}

fn asked(head: &str) -> Asked {
    let mut line = head.split(' ');
    let (method, target) = (line.next().unwrap(), line.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let bearer = header("authorization: Bearer ");
    Asked {
        path: path.to_owned(),
        plural: path.rsplit('/').next().unwrap().to_owned(),
        query: query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        bearer: bearer.to_owned(),
        method: method.to_owned(),
        body: String::new(),
        length: header("content-length: ").parse().unwrap_or_default(),
    }
}
