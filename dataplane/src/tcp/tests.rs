//! Tests of relays between real loopback sockets, on the copy path and on the splice path.

mod clients;
pub(super) mod rig;
mod segments;
mod server_names;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use sheave_model::{ClientAddr, EndpointAddr};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::rig::{TableRig, accepted, connecting, table_towards};
use super::splice::Direction;
use crate::counters::{CloseReason, TcpCounters};
use crate::worker::context::{Shared, Timeouts};
use crate::worker_port::Accepted;

const LONG: Duration = Duration::from_secs(3600);
/// Enough to fill every socket buffer on the path many times.
const BULK: usize = 24 << 20;

/// A client, and the gateway's side of its connection.
async fn client() -> (TcpStream, Socket) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, accepted(&listener).unwrap())
}

/// The close reason of the only connection that was counted.
fn reason(counters: &TcpCounters) -> CloseReason {
    CloseReason::ALL.into_iter().find(|reason| counters.closed(*reason) == 1).unwrap()
}

/// Relays between a client and an endpoint; the relay begins with the bytes of `begin` for the endpoint. Returns the close
/// reason with the results of the parties.
async fn relayed_after<C, E>(
    pipes: usize,
    idle: Duration,
    begin: Direction,
    parties: impl AsyncFnOnce(TcpStream, TcpStream) -> (C, E),
) -> (CloseReason, C, E, Arc<TcpCounters>) {
    let (client, client_side) = client().await;
    let endpoints = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let rig = TableRig::new(idle, pipes);
    let relay = async {
        let counters = rig.relay(client_side, connecting(endpoints.local_addr().unwrap()), begin, idle);
        let (endpoint, _) = endpoints.accept().await.unwrap();
        let ((), (client, endpoint)) = tokio::join!(rig.all_closed(), parties(client, endpoint));
        (reason(&counters), client, endpoint, counters)
    };
    tokio::select! {
        answer = relay => answer,
        () = rig.drive(None) => unreachable!(),
    }
}

async fn relayed<C, E>(
    pipes: usize,
    idle: Duration,
    parties: impl AsyncFnOnce(TcpStream, TcpStream) -> (C, E),
) -> (CloseReason, C, E, Arc<TcpCounters>) {
    relayed_after(pipes, idle, Direction::new(), parties).await
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BULK).map(|at| (at as u64).wrapping_mul(0x9e37_79b9).to_le_bytes()[2] ^ seed).collect()
}

/// Writes all bytes and FIN, and returns what the other side sent until its FIN.
async fn exchange(mut stream: TcpStream, bytes: Vec<u8>) -> Vec<u8> {
    let (mut read, mut write) = stream.split();
    let send = async {
        write.write_all(&bytes).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, count) = tokio::join!(send, read.read_to_end(&mut received));
    count.unwrap();
    received
}

#[tokio::test]
async fn bulk_passes_both_ways_whether_copied_or_spliced() {
    for pipes in [0, 1, 8] {
        let (reason, client, endpoint, counters) = relayed(pipes, LONG, async |client, endpoint| {
            tokio::join!(exchange(client, pattern(1)), exchange(endpoint, pattern(2)))
        })
        .await;
        assert_eq!(reason, CloseReason::Finished);
        assert!(client == pattern(2) && endpoint == pattern(1), "{pipes} pipes");
        assert_eq!((counters.client_bytes.get(), counters.endpoint_bytes.get()), (BULK as u64, BULK as u64));
    }
}

#[tokio::test]
async fn half_close_leaves_the_other_direction_open() {
    let (reason, answer, (), _) = relayed(8, LONG, async |mut client, mut endpoint| {
        let asking = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answering = async {
            let mut question = String::new();
            endpoint.read_to_string(&mut question).await.unwrap();
            endpoint.write_all(format!("{question}!").as_bytes()).await.unwrap();
            drop(endpoint);
        };
        tokio::join!(asking, answering)
    })
    .await;
    assert_eq!((reason, answer.as_str()), (CloseReason::Finished, "question!"));
}

async fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

async fn error_of(mut stream: TcpStream) -> ErrorKind {
    stream.read_to_end(&mut Vec::new()).await.unwrap_err().kind()
}

#[tokio::test]
async fn a_reset_on_one_side_is_a_reset_on_the_other() {
    let (reason, (), seen, _) =
        relayed(8, LONG, async |client, endpoint| tokio::join!(reset(client), error_of(endpoint))).await;
    assert_eq!((reason, seen), (CloseReason::ClientReset, ErrorKind::ConnectionReset));
    let (reason, seen, (), _) =
        relayed(8, LONG, async |client, endpoint| tokio::join!(error_of(client), reset(endpoint))).await;
    assert_eq!((reason, seen), (CloseReason::EndpointReset, ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_writer_but_hears_its_reset() {
    const ENDLESS: usize = 256 << 20;
    let (reason, written, (), _) = relayed(1, LONG, async |mut client, endpoint| {
        let (stalled, until_stalled) = oneshot::channel();
        let writing = async {
            let (chunk, mut written) = (vec![0; 1 << 20], 0);
            let patience = Duration::from_millis(300);
            while written < ENDLESS && timeout(patience, client.write_all(&chunk)).await.is_ok() {
                written += chunk.len();
            }
            stalled.send(()).unwrap();
            reset(client).await;
            written
        };
        let not_reading = async {
            until_stalled.await.unwrap();
            endpoint.ready(Interest::ERROR).await.unwrap();
        };
        tokio::join!(writing, not_reading)
    })
    .await;
    assert!(written < ENDLESS, "nothing held the writer back");
    assert_eq!(reason, CloseReason::ClientReset, "a reset is heard although nobody reads");
}

#[tokio::test]
async fn a_reset_after_a_half_close_is_handed_on() {
    let (reason, (), (), _) = relayed(8, LONG, async |mut client, mut endpoint| {
        let (ended, until_ended) = oneshot::channel();
        let asking = async {
            client.shutdown().await.unwrap();
            until_ended.await.unwrap();
            reset(client).await;
        };
        let answering = async {
            assert_eq!(endpoint.read(&mut [0]).await.unwrap(), 0);
            ended.send(()).unwrap();
            endpoint.ready(Interest::ERROR).await.unwrap();
        };
        tokio::join!(asking, answering)
    })
    .await;
    assert_eq!(reason, CloseReason::ClientReset);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_connection_is_closed_after_the_idle_timeout() {
    let idle = Duration::from_secs(100);
    let (mut client, client_side) = client().await;
    let endpoints = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let rig = TableRig::new(idle, 8);
    let to = connecting(endpoints.local_addr().unwrap());
    let counters = rig.relay(client_side, to, Direction::new(), idle);
    let started = tokio::time::Instant::now();
    tokio::select! {
        end = client.read_u8() => assert_eq!(end.unwrap_err().kind(), ErrorKind::UnexpectedEof),
        () = rig.drive(Some(Duration::from_millis(100))) => unreachable!(),
    }
    assert_eq!(reason(&counters), CloseReason::Idle);
    assert!(started.elapsed() >= idle && started.elapsed() < idle * 3 / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn what_a_direction_begins_with_goes_first_and_its_own_part_is_not_counted() {
    // More than any socket accepts at once, so that it is sent in several parts.
    let begin = pattern(3);
    let upload = Direction::beginning_with(begin.clone(), 1000);
    let (reason, (), received, counters) =
        relayed_after(8, LONG, upload, async |mut client, mut endpoint| {
            let asking = async {
                client.write_all(b"end").await.unwrap();
                client.shutdown().await.unwrap();
                assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
            };
            let taking = async {
                let mut received = Vec::new();
                endpoint.read_to_end(&mut received).await.unwrap();
                endpoint.shutdown().await.unwrap();
                received
            };
            tokio::join!(asking, taking)
        })
        .await;
    assert_eq!(reason, CloseReason::Finished);
    assert!(received == [&begin[..], b"end"].concat());
    assert_eq!(counters.client_bytes.get(), (BULK - 1000 + 3) as u64);
}

#[tokio::test]
async fn bytes_behind_urgent_ones_are_not_lost_with_the_end() {
    let (_, (), received, _) = relayed(8, LONG, async |mut client, mut endpoint| {
        let asking = async {
            client.write_all(b"before").await.unwrap();
            SockRef::from(&client).send_out_of_band(b"!").unwrap();
            client.write_all(b"behind").await.unwrap();
            client.shutdown().await.unwrap();
        };
        let taking = async {
            let mut received = Vec::new();
            endpoint.read_to_end(&mut received).await.unwrap();
            drop(endpoint);
            received
        };
        tokio::join!(asking, taking)
    })
    .await;
    assert_eq!(received, b"beforebehind");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_does_not_answer_is_given_up_after_the_connect_timeout() {
    // A full queue drops SYNs (tcp(7)): one connection waits already, and the backlog admits one more (listen(2)).
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    silent.listen(0).unwrap();
    let to = silent.local_addr().unwrap().as_socket().unwrap();
    let _waiting = [connecting(to), connecting(to)];
    let patience = Duration::from_secs(7);
    let shared = Shared::for_tests(Timeouts { connect: patience, ..Timeouts::all(LONG) });
    let (addr, table) = table_towards(EndpointAddr::new(to.ip(), to.port()));
    shared.table.store(Arc::new(table));
    let rig = TableRig::with(shared, 0);
    let (mut client, socket) = client().await;
    let counters = Arc::<TcpCounters>::default();
    let accepted = Accepted {
        frontend: addr,
        peer: ClientAddr(client.local_addr().unwrap()),
        socket,
        counters: Arc::clone(&counters),
    };
    let active = rig.worker.table().get(addr).cloned();
    rig.table.borrow_mut().admit(accepted, active.as_ref());
    let started = tokio::time::Instant::now();
    tokio::select! {
        end = client.read_u8() => assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset),
        () = rig.drive(Some(Duration::from_millis(100))) => unreachable!(),
    }
    assert_eq!(reason(&counters), CloseReason::ConnectFailed);
    assert_eq!(started.elapsed().as_secs(), patience.as_secs());
}
