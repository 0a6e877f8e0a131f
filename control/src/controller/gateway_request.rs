//! A single request to one gateway's `report.listen`, on its own connection.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::InvalidUri;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::api::gateway_report::{GatewayReport, KINDS_HEADER, PATH};

/// Timeout of a report, from the first SYN to the last byte: the gateway has the report ready.
const REPORT_PATIENCE: Duration = Duration::from_secs(2);
/// Timeout of a connection. The second and third SYN would follow after 1 s and 3 s (RFC 6298, section 2): a live gateway answers
/// the first.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// Larger than any report: the number of failures and addresses and the length of texts are bounded.
pub(super) const MAX_REPORT_BYTES: usize = 1 << 21;

/// Reason for the lack of an answer.
#[derive(Debug, Error)]
pub enum GatewayRequestError {
    /// The gateway is unreachable.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The gateway answered with an error status.
    #[error("it answers {0}")]
    Refused(StatusCode),
    /// The answer is too large or incomplete.
    #[error("the answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not a report.
    #[error("this is no report: {0}")]
    Format(#[from] serde_json::Error),
    /// The path is not a valid URI.
    #[error("{0}")]
    Question(#[from] InvalidUri),
    /// The answer took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Silent(Duration),
}

/// The gateway's current report. `token` is sent as `Authorization`, and `kinds` are those that the controller reads.
pub(super) async fn report(
    gateway: SocketAddr,
    token: Option<HeaderValue>,
    kinds: Option<HeaderValue>,
) -> Result<GatewayReport, GatewayRequestError> {
    let mut headers = authorization(token);
    headers.extend(kinds.map(|kinds| (HeaderName::from_static(KINDS_HEADER), kinds)));
    let (status, body) = get(gateway, PATH, headers, MAX_REPORT_BYTES, REPORT_PATIENCE).await?;
    if status != StatusCode::OK {
        return Err(GatewayRequestError::Refused(status));
    }
    Ok(GatewayReport::read(&body)?)
}

/// Headers that show the token, if there is one.
pub(super) fn authorization(token: Option<HeaderValue>) -> HeaderMap {
    token.map(|token| (AUTHORIZATION, token)).into_iter().collect()
}

/// The gateway's answer to a path with a query string, at most `longest` bytes, within `patience` from the first SYN to the last
/// byte.
pub(super) async fn get(
    gateway: SocketAddr,
    path: &str,
    headers: HeaderMap,
    longest: usize,
    patience: Duration,
) -> Result<(StatusCode, Bytes), GatewayRequestError> {
    let path = path.parse()?;
    timeout(patience, exchange(gateway, path, headers, longest))
        .await
        .map_err(|_| GatewayRequestError::Silent(patience))?
}

async fn exchange(
    gateway: SocketAddr,
    path: Uri,
    headers: HeaderMap,
    longest: usize,
) -> Result<(StatusCode, Bytes), GatewayRequestError> {
    let stream = TokioIo::new(within(CONNECT_PATIENCE, TcpStream::connect(gateway)).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let _driver = Driver(tokio::spawn(connection).abort_handle());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = path;
    let host = HeaderValue::from_str(&gateway.to_string());
    request.headers_mut().insert(HOST, host.map_err(|error| GatewayRequestError::Body(error.into()))?);
    request.headers_mut().extend(headers);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, longest).collect().await.map_err(GatewayRequestError::Body)?;
    Ok((head.status, body.to_bytes()))
}

/// The connection, if it is established in time. A connection attempt to an address that drops SYNs never ends on its own.
async fn within<T>(
    patience: Duration,
    connection: impl Future<Output = io::Result<T>>,
) -> Result<T, GatewayRequestError> {
    let late = || io::Error::new(ErrorKind::TimedOut, format!("none within {} s", patience.as_secs()));
    Ok(timeout(patience, connection).await.unwrap_or_else(|_| Err(late()))?)
}

/// The task that drives the connection. It is aborted on drop, so that an abandoned request does not keep a descriptor.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_come_has_failed_so_that_another_address_is_tried() {
        let never = std::future::pending::<io::Result<()>>();
        let error = within(CONNECT_PATIENCE, never).await.unwrap_err();
        assert!(matches!(error, GatewayRequestError::Connect(_)), "{error:?}");
        assert_eq!(error.to_string(), "no connection: none within 1 s");
    }
}
