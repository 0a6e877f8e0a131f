//! Tests of headers as peers send them: at once, in pieces, late, or not at all.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::proxy_protocol::{Transport, write_v1, write_v2};
use crate::sys::epoll::{Events, Poller, Watch};
use crate::tcp::tests::rig::accepted;

fn addresses() -> Addresses {
    Addresses {
        client: SocketAddr::from(([192, 0, 2, 1], 1234)),
        destination: SocketAddr::from(([198, 51, 100, 7], 443)),
    }
}

/// Runs a peer, and reads its header.
async fn introduced<P>(
    peer: impl AsyncFnOnce(TcpStream) -> P,
) -> (Result<(TcpStream, ProxyHeader), ProxyHeaderError>, P) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let client = Stream::accepted(accepted(&listener).unwrap());
    let poller = Poller::new().unwrap();
    poller.add(client.socket(), Watch::Stream, 0).unwrap();
    tokio::join!(read_all(client, &poller), peer(connecting))
}

/// Reads a header as the worker does.
async fn read_all(mut client: Stream, poller: &Poller) -> Result<(TcpStream, ProxyHeader), ProxyHeaderError> {
    let (mut reader, mut events) = (HeaderReader::default(), Events::new());
    loop {
        match reader.read(&mut client) {
            HeaderRead::Whole(header) => {
                let socket = client.socket().try_clone().unwrap();
                return Ok((TcpStream::from_std(socket.into()).unwrap(), header));
            }
            HeaderRead::Failed(error) => {
                client.reset_on_close();
                return Err(error);
            }
            HeaderRead::Incomplete => tokio::task::yield_now().await,
        }
        poller.wait(&mut events, false).unwrap();
        events.iter().for_each(|(_, readiness)| client.on_ready(readiness));
    }
}

async fn refused(bytes: &[u8]) -> (CloseReason, Result<usize, ErrorKind>) {
    let (outcome, seen) = introduced(async |mut peer| {
        peer.write_all(bytes).await.unwrap();
        peer.read(&mut [0]).await.map_err(|error| error.kind())
    })
    .await;
    (outcome.unwrap_err().reason(), seen)
}

#[tokio::test]
async fn what_comes_with_the_header_is_kept_and_the_rest_is_left_in_the_socket() {
    let headers = [write_v1(&addresses()), write_v2(Transport::Stream, &addresses())];
    for header in headers {
        for sent in [&b""[..], b"GET /"] {
            let begin = [&header, sent].concat();
            let (outcome, mut peer) = introduced(async |mut peer| {
                peer.write_all(&begin).await.unwrap();
                peer
            })
            .await;
            let (mut stream, introduction) = outcome.unwrap();
            assert_eq!((introduction.addresses, &introduction.sent[..]), (Some(addresses()), sent));
            peer.write_all(b"more").await.unwrap();
            let mut rest = [0; 4];
            stream.read_exact(&mut rest).await.unwrap();
            assert_eq!(&rest, b"more");
        }
    }
}

#[tokio::test]
async fn a_header_may_come_byte_by_byte() {
    for header in [write_v1(&addresses()), write_v2(Transport::Stream, &addresses())] {
        let (outcome, ()) = introduced(async |mut peer| {
            peer.set_nodelay(true).unwrap();
            for byte in &header {
                peer.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        })
        .await;
        let (_, introduction) = outcome.unwrap();
        assert_eq!((introduction.addresses, introduction.sent.len()), (Some(addresses()), 0));
    }
}

#[tokio::test]
async fn the_longest_header_is_taken_whole() {
    let mut header = write_v2(Transport::Stream, &addresses());
    header[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    header.resize(LONGEST, 7);
    let (outcome, ()) = introduced(async |mut peer| {
        peer.write_all(&header).await.unwrap();
        peer.write_all(b"sent").await.unwrap();
    })
    .await;
    let (mut stream, introduction) = outcome.unwrap();
    assert_eq!(introduction.addresses, Some(addresses()));
    let mut sent = introduction.sent;
    stream.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent, b"sent");
}

#[tokio::test]
async fn who_sends_something_else_is_reset() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY TCP4 nonsense\r\n", &[b'P'; 200], &[b'\r'; 5_000]] {
        assert_eq!(refused(bytes).await, (CloseReason::BadProxyHeader, Err(ErrorKind::ConnectionReset)));
    }
}

#[tokio::test]
async fn who_leaves_in_the_middle_of_the_header_is_told_from_who_breaks() {
    let (outcome, ()) = introduced(async |mut peer| peer.write_all(b"PROXY TCP4 ").await.unwrap()).await;
    assert_eq!(outcome.unwrap_err().reason(), CloseReason::BadProxyHeader);
    let (outcome, ()) = introduced(async |peer| peer.set_zero_linger().unwrap()).await;
    assert_eq!(outcome.unwrap_err().reason(), CloseReason::ClientReset);
}
