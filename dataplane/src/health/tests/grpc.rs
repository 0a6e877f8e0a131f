//! Tests of the gRPC health check, with a server of the same crate that answers as configured.

use bytes::Bytes;
use http::{HeaderMap, Response};

use super::super::probe;
use super::*;
use crate::paths::Paths;

/// Reaction of the server to each call.
#[derive(Clone, Debug)]
enum Answer {
    /// A message followed by a status.
    Message(&'static [u8], &'static str),
    /// A status without a message.
    Status(&'static str),
    /// An HTTP status.
    Http(u16),
    /// A message that never ends.
    Endless,
    Nothing,
}

const SERVING: Answer = Answer::Message(b"\0\0\0\0\x02\x08\x01", "0");

/// A server that answers calls for the service `a.B` this way.
fn server(answer: Answer) -> EndpointAddr {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve_calls(stream, answer.clone()));
            }
        });
    });
    EndpointAddr::new(addr.ip(), addr.port())
}

async fn serve_calls(stream: TcpStream, answer: Answer) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, mut reply) = call?;
        let answer = answer.clone();
        tokio::spawn(async move {
            assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
            assert_eq!(
                (&request.headers()["te"], request.method().as_str()),
                (&"trailers".parse().unwrap(), "POST")
            );
            let mut body = request.into_body();
            let asked = body.data().await.unwrap().unwrap();
            assert_eq!(&asked[..], b"\0\0\0\0\x05\x0a\x03a.B");
            let head =
                |status: u16| Response::builder().status(status).header("content-type", "application/grpc");
            match answer {
                Answer::Message(message, status) => {
                    let mut body = reply.send_response(head(200).body(()).unwrap(), false).unwrap();
                    body.send_data(Bytes::from_static(message), false).unwrap();
                    let status =
                        HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
                    body.send_trailers(status).unwrap();
                }
                Answer::Status(status) => {
                    let head = head(200).header("grpc-status", status);
                    reply.send_response(head.body(()).unwrap(), true).unwrap();
                }
                Answer::Http(status) => drop(reply.send_response(head(status).body(()).unwrap(), true)),
                Answer::Endless => {
                    let mut body = reply.send_response(head(200).body(()).unwrap(), false).unwrap();
                    while body.send_data(Bytes::from_static(&[0; 600]), false).is_ok() {
                        tokio::task::yield_now().await;
                    }
                }
                Answer::Nothing => std::future::pending().await,
            }
        });
    }
    Ok(())
}

/// Result of a check.
async fn found(endpoint: EndpointAddr) -> Result<(), String> {
    let kind = CheckKind::Grpc { service: "a.B".into() };
    let (interval, timeout) = (PATIENCE, PATIENCE);
    let check = Check { kind, port: None, interval, timeout, failures: 1, successes: 1 };
    probe::run(endpoint, &check, &Paths::default()).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_service_is_healthy_if_it_says_that_it_serves() {
    assert_eq!(found(server(SERVING)).await, Ok(()));
    for (answer, why) in [
        (Answer::Message(b"\0\0\0\0\x02\x08\x02", "0"), "gRPC health NOT_SERVING"),
        (Answer::Message(b"\0\0\0\0\0", "0"), "gRPC health UNKNOWN"),
        (Answer::Message(b"\0\0\0\0\x02\x08\x01", "14"), "gRPC status 14 (UNAVAILABLE)"),
        (Answer::Message(b"\x01\0\0\0\x02\x08\x01", "0"), "the answer is not of gRPC's health check"),
        (Answer::Status("5"), "gRPC status 5 (NOT_FOUND)"),
        (Answer::Status("12"), "gRPC status 12 (UNIMPLEMENTED)"),
        (Answer::Status("99"), "gRPC status 99"),
        (Answer::Status("no"), "the answer is not of gRPC's health check"),
        (Answer::Status("0"), "the answer is not of gRPC's health check"),
        (Answer::Http(503), "HTTP status 503"),
        (Answer::Endless, "the answer is not of gRPC's health check"),
    ] {
        assert_eq!(found(server(answer.clone())).await, Err(why.to_owned()), "{answer:?}");
    }
}

#[tokio::test]
async fn other_servers_are_told_from_those_of_grpc_in_time() {
    // One server closes, one speaks HTTP/1, and one never answers.
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let mut stream = stream;
            let mut preface = [0; 24];
            stream.read_exact(&mut preface).unwrap();
            if number == 1 {
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        }
    });
    let endpoint = EndpointAddr::new(addr.ip(), addr.port());
    for _ in 0..2 {
        let why = found(endpoint).await.unwrap_err();
        assert!(why.starts_with("HTTP/2: ") || why == "the answer is not of gRPC's health check", "{why}");
    }
    let silent = server(Answer::Nothing);
    let kind = CheckKind::Grpc { service: "a.B".into() };
    let time = Duration::from_millis(50);
    let check = Check { kind, port: None, interval: time, timeout: time, failures: 1, successes: 1 };
    let why = probe::run(silent, &check, &Paths::default()).await.unwrap_err();
    assert_eq!(why.to_string(), "no answer within 50ms");
}
