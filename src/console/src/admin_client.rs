//! Client of the admin server: one request on a connection of its own.

use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sheave_control::text::one_line;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a running process may take to answer. A controller first queries all gateways, twice if
/// necessary.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Limit of an answer in bytes, larger than the routing table of any gateway.
const LONGEST: usize = 1 << 28;
/// How many bytes of an error response are shown.
const LONGEST_REFUSAL: usize = 1024;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Response of the admin server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code.
    pub(crate) status: u16,
    /// The status, for people.
    line: String,
    pub(crate) body: String,
}

/// Gets a path with its query. Blocks this thread until the answer is there, or the time is over.
///
/// # Errors
/// If the server does not answer, with the reason as text.
pub(crate) fn get_within(patience: Duration, authority: &str, path: &str) -> Result<Reply, String> {
    within(patience, request(authority, path))
}

/// Like [`get_within`], without blocking the thread.
///
/// # Errors
/// If the server does not answer, with the reason as text.
pub(crate) async fn reply_within(patience: Duration, authority: &str, path: &str) -> Result<Reply, String> {
    in_time(patience, request(authority, path)).await
}

/// Gets a file.
///
/// # Errors
/// If the server does not answer, or refuses, with the reason as text.
pub(crate) fn download(authority: &str, path: &str) -> Result<Bytes, String> {
    let file = async {
        let answer = send(authority, path).await?;
        if !answer.status().is_success() {
            return Err(collect(answer).await?.refusal().into());
        }
        Ok(Limited::new(answer.into_body(), LONGEST).collect().await?.to_bytes())
    };
    within(PATIENCE, file)
}

/// Blocks this thread until the answer is there, or the time is over.
fn within<T>(patience: Duration, answer: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(in_time(patience, answer))
}

async fn in_time<T>(patience: Duration, answer: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    match timeout(patience, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("timed out after {} s", patience.as_secs())),
    }
}

/// The limit is for the whole answer, so that a server that sends a byte now and then cannot extend it.
async fn request(authority: &str, path: &str) -> Result<Reply, Error> {
    collect(send(authority, path).await?).await
}

/// Sends a request for a path with its query. Its connection lasts as long as the answer is read.
pub(crate) async fn send(authority: &str, path: &str) -> Result<Response<Incoming>, Error> {
    let stream = TcpStream::connect(authority).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header(HOST, authority).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    // A connection whose sender is gone may end before its answer does.
    tokio::spawn(async move {
        connection.await.ok();
        drop(sender);
    });
    Ok(answer)
}

/// Waits for the whole answer.
pub(crate) async fn collect(answer: Response<Incoming>) -> Result<Reply, Error> {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, LONGEST).collect().await?.to_bytes();
    let (status, line) = (head.status.as_u16(), head.status.to_string());
    Ok(Reply { status, line, body: String::from_utf8(body.into())? })
}

impl Reply {
    /// Error message for an unexpected status code.
    pub(crate) fn refusal(&self) -> String {
        let mut text = format!("{}: {}", self.line, self.body.trim_end());
        one_line(&mut text, LONGEST_REFUSAL);
        text
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn whoever_sends_on_without_an_end_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        // Writes until the client has gone.
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // An answer that comes before its request is refused.
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").unwrap();
            while stream.write_all(b"x").is_ok() {}
        });
        let answer = get_within(Duration::from_millis(200), &authority, "/");
        assert_eq!(answer.unwrap_err(), "timed out after 0 s");
        server.join().unwrap();
    }

    #[test]
    fn a_refusal_is_one_line_that_people_can_read() {
        let body = "\u{1b}[31m\nsheave: all is well".to_owned() + &"x".repeat(5000);
        let reply = Reply { status: 500, line: "500 No".to_owned(), body };
        let text = reply.refusal();
        assert!(text.starts_with("500 No:  [31m sheave: all is well") && text.len() <= 1024, "{text}");
    }
}
