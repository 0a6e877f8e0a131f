//! One request to one gateway's `report.listen`, on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::http::uri::InvalidUri;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::api::gateway_report::{GatewayReport, PATH};

/// From the first SYN to the last byte.
const PATIENCE: Duration = Duration::from_secs(2);
/// Larger than any report: the number of failures and addresses and the length of texts are bounded.
pub(super) const LONGEST_REPORT: usize = 1 << 21;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum GatewayRequestError {
    /// The gateway cannot be reached.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// It broke off.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// It answered with another status.
    #[error("it answers {0}")]
    Refused(StatusCode),
    /// The answer is too large, or breaks off.
    #[error("the answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is no report.
    #[error("this is no report: {0}")]
    Format(#[from] serde_json::Error),
    /// This cannot be asked.
    #[error("{0}")]
    Question(#[from] InvalidUri),
    /// It takes too long.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// The gateway's report now. `token` is what it is shown as `Authorization`.
pub(super) async fn report(
    gateway: SocketAddr,
    token: Option<HeaderValue>,
) -> Result<GatewayReport, GatewayRequestError> {
    let (status, body) = get(gateway, PATH, token, LONGEST_REPORT).await?;
    if status != StatusCode::OK {
        return Err(GatewayRequestError::Refused(status));
    }
    Ok(GatewayReport::read(&body)?)
}

/// What the gateway answers to a path with its query, at most `longest` bytes of it.
pub(super) async fn get(
    gateway: SocketAddr,
    path: &str,
    token: Option<HeaderValue>,
    longest: usize,
) -> Result<(StatusCode, Bytes), GatewayRequestError> {
    let path = path.parse()?;
    timeout(PATIENCE, exchange(gateway, path, token, longest))
        .await
        .map_err(|_| GatewayRequestError::Silent)?
}

async fn exchange(
    gateway: SocketAddr,
    path: Uri,
    token: Option<HeaderValue>,
    longest: usize,
) -> Result<(StatusCode, Bytes), GatewayRequestError> {
    let stream = TokioIo::new(TcpStream::connect(gateway).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let _driver = Driver(tokio::spawn(connection).abort_handle());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = path;
    let host = HeaderValue::from_str(&gateway.to_string());
    request.headers_mut().insert(HOST, host.map_err(|error| GatewayRequestError::Body(error.into()))?);
    request.headers_mut().extend(token.map(|token| (AUTHORIZATION, token)));
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, longest).collect().await.map_err(GatewayRequestError::Body)?;
    Ok((head.status, body.to_bytes()))
}

/// What reads and writes on the connection; whoever is not waited for any longer must not keep a descriptor.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}
