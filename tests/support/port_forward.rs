//! API server with Pods, whose port-forwards all lead to one address: the protocol of the kubelet over a WebSocket
//! (`v4.channel.k8s.io`; channel 0 has the bytes of the first port, channel 1 its errors).

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::{Value, json};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::{Role, WebSocket};

use super::host::Host;

/// Running server. Its thread ends with the process.
pub struct PodForwards {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    /// Pods that it lists, by name, and whether each is ready.
    pods: Mutex<Vec<(&'static str, bool)>>,
    /// First lines of the requests since the last look.
    requests: Mutex<Vec<String>>,
    refused: Mutex<bool>,
}

impl PodForwards {
    /// Starts a server on this host.
    pub fn start(host: &Host, target: SocketAddr, pods: &[(&'static str, bool)]) -> Self {
        let shared = Arc::new(Shared {
            target,
            pods: Mutex::new(pods.to_vec()),
            requests: Mutex::default(),
            refused: Mutex::default(),
        });
        let listener = host.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
        let address = listener.local_addr().expect("an address");
        let serving = Arc::clone(&shared);
        drop(host.spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // A client that has gone is no error.
                thread::spawn(move || drop(answer(stream, &shared)));
            }
        }));
        Self { address, shared }
    }

    /// A kubeconfig with the context `prod`, and another one that leads nowhere.
    pub fn kubeconfig(&self) -> String {
        let cluster = |name: &str, server: String| json!({"name": name, "cluster": {"server": server}});
        let context = |name: &str| json!({"name": name, "context": {"cluster": name, "user": ""}});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "nowhere", "users": [],
            "clusters": [cluster("nowhere", "http://127.0.0.1:1".to_owned()), cluster("prod", format!("http://{}", self.address))],
            "contexts": [context("nowhere"), context("prod")],
        });
        config.to_string()
    }

    /// Sets the Pods.
    pub fn set_pods(&self, pods: &[(&'static str, bool)]) {
        *lock(&self.shared.pods) = pods.to_vec();
    }

    /// Refuses port-forwards, or allows them.
    pub fn refuse(&self, refused: bool) {
        *lock(&self.shared.refused) = refused;
    }

    /// First lines of the requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.requests))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut head = Vec::new();
    for line in BufReader::new(&stream).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let first = head.first().cloned().unwrap_or_default();
    lock(&shared.requests).push(first.trim_end_matches(" HTTP/1.1").to_owned());
    if !first.contains("/portforward?") {
        return stream.write_all(json_response("200 OK", &pod_list(&lock(&shared.pods))).as_bytes());
    }
    if *lock(&shared.refused) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "pods/portforward is forbidden"});
        return stream.write_all(json_response("403 Forbidden", &status).as_bytes());
    }
    let key = head
        .iter()
        .find_map(|line| line.to_ascii_lowercase().starts_with("sec-websocket-key:").then(|| &line[18..]));
    let accept = derive_accept_key(key.unwrap_or_default().trim().as_bytes());
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
         Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    )?;
    let port = first.split("ports=").nth(1).and_then(|rest| rest.split([' ', '&']).next()?.parse().ok());
    forward(WebSocket::from_raw_socket(stream, Role::Server, None), port.unwrap_or(0), shared.target)
        .map_err(io::Error::other)
}

/// Forwards one request, and its answer until the server closes.
fn forward(
    mut socket: WebSocket<TcpStream>,
    port: u16,
    target: SocketAddr,
) -> Result<(), tungstenite::Error> {
    for channel in [0, 1] {
        let [low, high] = port.to_le_bytes();
        socket.send(vec![channel, low, high].into())?;
    }
    let (mut server, mut request) = (TcpStream::connect(target)?, Vec::new());
    while !request.ends_with(b"\r\n\r\n") {
        request.extend_from_slice(socket.read()?.into_data().get(1..).unwrap_or_default());
    }
    server.write_all(&request)?;
    let mut part = [0; 1 << 14];
    loop {
        match server.read(&mut part)? {
            0 => break,
            length => socket.send([&[0], &part[..length]].concat().into())?,
        }
    }
    socket.close(None)?;
    // Until the client closes, too.
    loop {
        socket.read()?;
    }
}

fn pod_list(pods: &[(&str, bool)]) -> Value {
    let pod = |(name, ready): &(&str, bool)| {
        let status = if *ready { "True" } else { "False" };
        json!({"metadata": {"name": name, "namespace": "sheave-system"}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": status}]}})
    };
    let items: Vec<Value> = pods.iter().map(pod).collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

fn json_response(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
