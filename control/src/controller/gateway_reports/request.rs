//! Requests the report of one gateway, on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api::gateway_report::{GatewayReport, PATH};

/// From the first SYN to the last byte.
const PATIENCE: Duration = Duration::from_secs(2);
/// Larger than any report: the number of failures and addresses and the length of texts are bounded.
const LIMIT: usize = 1 << 21;

/// Why there is no report.
#[derive(Debug, Error)]
pub(super) enum ReportError {
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
    #[error("the report cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is no report.
    #[error("this is no report: {0}")]
    Format(#[from] serde_json::Error),
    /// It takes too long.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// The gateway's report now. `token` is what it is shown as `Authorization`.
pub(super) async fn get(
    gateway: SocketAddr,
    token: Option<HeaderValue>,
) -> Result<GatewayReport, ReportError> {
    timeout(PATIENCE, exchange(gateway, token)).await.map_err(|_| ReportError::Silent)?
}

async fn exchange(gateway: SocketAddr, token: Option<HeaderValue>) -> Result<GatewayReport, ReportError> {
    let stream = TokioIo::new(TcpStream::connect(gateway).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let driver = tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = hyper::Uri::from_static(PATH);
    let host = HeaderValue::from_str(&gateway.to_string());
    request.headers_mut().insert(HOST, host.map_err(|error| ReportError::Body(error.into()))?);
    request.headers_mut().extend(token.map(|token| (AUTHORIZATION, token)));
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(ReportError::Refused(response.status()));
    }
    let body = Limited::new(response.into_body(), LIMIT).collect().await.map_err(ReportError::Body)?;
    driver.abort();
    Ok(GatewayReport::read(&body.to_bytes())?)
}
