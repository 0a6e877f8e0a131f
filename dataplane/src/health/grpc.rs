//! gRPC health check (<https://github.com/grpc/grpc-proto/blob/master/grpc/health/v1/health.proto>): one call over HTTP/2 without TLS,
//! whose two messages have one field each. Limits bound the memory that any server's answer can take.

use std::pin::pin;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode, header};
use sheave_model::EndpointAddr;
use thiserror::Error;
use tokio::net::TcpStream;

/// Path of the method.
const METHOD: &str = "/grpc.health.v1.Health/Check";
/// Maximum length of the answer; a usual one has 7 bytes.
const ANSWER: usize = 1024;
/// Maximum size of the answer's headers, as RFC 9113 counts it (section 6.5.2).
const HEADERS: u32 = 8 << 10;
/// Names of call statuses by number (<https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>).
const STATUSES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
const SERVING: u64 = 1;
/// Names of `HealthCheckResponse.ServingStatus` by number.
const HEALTH: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

/// Reason why a check failed.
#[derive(Debug, Error)]
pub(super) enum GrpcError {
    /// The server does not speak HTTP/2, or ended the call.
    #[error("HTTP/2: {0}")]
    Http2(#[from] h2::Error),
    /// The HTTP status is not 200.
    #[error("HTTP status {}", .0.as_u16())]
    Http(StatusCode),
    /// The call failed. The server may not know the service (`NOT_FOUND`), or not implement the health check (`UNIMPLEMENTED`).
    #[error("gRPC status {0}")]
    Status(String),
    /// The service does not serve.
    #[error("gRPC health {0}")]
    Health(&'static str),
    /// The answer is not a valid answer to this call.
    #[error("the answer is not of gRPC's health check")]
    Answer,
}

/// Asks the server at `endpoint`, to which `stream` is connected, whether `service` serves; the empty name stands for the whole server.
///
/// # Errors
/// Returns an error if the service does not serve, or if the server does not answer the call correctly.
pub(super) async fn check(stream: TcpStream, endpoint: EndpointAddr, service: &str) -> Result<(), GrpcError> {
    let mut client = h2::client::Builder::new();
    client.enable_push(false).max_header_list_size(HEADERS);
    let (calls, connection) = client.handshake(stream).await?;
    let mut call = pin!(call(calls, endpoint, service));
    tokio::select! {
        biased;
        answer = &mut call => answer,
        // When the connection ends, an answered call has its answer already, and every other call fails.
        _ = connection => call.await,
    }
}

async fn call(calls: SendRequest<Bytes>, endpoint: EndpointAddr, service: &str) -> Result<(), GrpcError> {
    let request = Request::post(format!("http://{endpoint}{METHOD}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, "sheave");
    let request = request.body(()).map_err(|_| GrpcError::Answer)?;
    let (answer, mut message) = calls.ready().await?.send_request(request, false)?;
    message.send_data(encode(service), true)?;
    let (head, mut body) = answer.await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(GrpcError::Http(head.status));
    }
    // A call that fails at once has no message, and its status is among the headers.
    succeeded(&head.headers)?;
    let mut message = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        if message.len() + part.len() > ANSWER {
            return Err(GrpcError::Answer);
        }
        message.extend_from_slice(&part);
    }
    let trailers = body.trailers().await?.ok_or(GrpcError::Answer)?;
    if !succeeded(&trailers)? {
        return Err(GrpcError::Answer);
    }
    match decode(&message).ok_or(GrpcError::Answer)? {
        SERVING => Ok(()),
        other => Err(GrpcError::Health(name(&HEALTH, other).unwrap_or(HEALTH[0]))),
    }
}

/// Whether these headers contain the status of a successful call.
fn succeeded(headers: &HeaderMap) -> Result<bool, GrpcError> {
    let Some(status) = headers.get("grpc-status") else { return Ok(false) };
    let number = status.to_str().ok().and_then(|text| text.parse::<u64>().ok()).ok_or(GrpcError::Answer)?;
    match (number, name(&STATUSES, number)) {
        (0, _) => Ok(true),
        (_, Some(name)) => Err(GrpcError::Status(format!("{number} ({name})"))),
        (_, None) => Err(GrpcError::Status(number.to_string())),
    }
}

fn name(names: &[&'static str], number: u64) -> Option<&'static str> {
    names.get(usize::try_from(number).ok()?).copied()
}

/// Encodes a `HealthCheckRequest` with its length, uncompressed (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
/// Field 1 is the service; an empty one is omitted (<https://protobuf.dev/programming-guides/encoding/>).
fn encode(service: &str) -> Bytes {
    let mut request = BytesMut::new();
    if !service.is_empty() {
        request.put_u8(1 << 3 | 2);
        let mut length = service.len();
        while length > 0x7f {
            request.put_u8(length as u8 & 0x7f | 0x80);
            length >>= 7;
        }
        request.put_u8(length as u8);
        request.put_slice(service.as_bytes());
    }
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(request.len() as u32);
    message.put_slice(&request);
    message.freeze()
}

/// Decodes the status in a `HealthCheckResponse`, which is field 1; an omitted one is 0. `None` if the message is invalid.
fn decode(message: &[u8]) -> Option<u64> {
    let (length, mut fields) = message.strip_prefix(&[0])?.split_first_chunk()?;
    if u32::from_be_bytes(*length) as usize != fields.len() {
        return None;
    }
    let mut status = 0;
    while !fields.is_empty() {
        let tag = varint(&mut fields)?;
        let skipped = match (tag >> 3, tag & 7) {
            (0, _) => return None,
            (field, 0) => {
                let value = varint(&mut fields)?;
                if field == 1 {
                    status = value;
                }
                0
            }
            (_, 1) => 8,
            (_, 2) => usize::try_from(varint(&mut fields)?).ok()?,
            (_, 5) => 4,
            _ => return None,
        };
        fields = fields.get(skipped..)?;
    }
    Some(status)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_protoc_makes_of_it() {
        assert_eq!(&encode("")[..], [0, 0, 0, 0, 0]);
        assert_eq!(&encode("a.B")[..], b"\0\0\0\0\x05\x0a\x03a.B");
        let long = encode(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(long.len(), 5 + 3 + 300);
    }

    #[test]
    fn the_status_is_found_among_other_fields() {
        let read = |fields: &[u8]| {
            let mut message = vec![0, 0, 0, 0, fields.len() as u8];
            message.extend_from_slice(fields);
            decode(&message)
        };
        assert_eq!(read(b""), Some(0));
        assert_eq!(read(b"\x08\x01"), Some(1));
        assert_eq!(read(b"\x08\x02\x12\x02ab\x08\x01\x1d1234\x21\x31\x32\x33\x34\x35\x36\x37\x38"), Some(1));
        for broken in [
            &b"\x08"[..],
            b"\x08\x81",
            b"\x0a\x05a",
            b"\x0b",
            b"\0\0",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert_eq!(read(broken), None, "{broken:?}");
        }
        for other in [&b""[..], b"\x01\0\0\0\0", b"\0\0\0\0\x01", b"\0\0\0", b"\0\0\0\0\0\x08\x01"] {
            assert_eq!(decode(other), None, "{other:?}");
        }
    }
}
