//! The relay between real loopback sockets, on the copy path and on the splice path alike.

mod clients;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::counters::{CloseReason, TcpCounters};
use super::direction::Direction;
use super::{Connection, PipePool, RelayBuffers, relay};

const LONG: Duration = Duration::from_secs(3600);
/// Enough to fill every socket buffer on the way many times over.
const BULK: usize = 24 << 20;

async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
    Ok((near?, far?.0))
}

/// A client and an endpoint with a relay between them; the relay's answer comes with theirs.
async fn relayed<C, E>(
    pipes: usize,
    idle: Duration,
    parties: impl AsyncFnOnce(TcpStream, TcpStream) -> (C, E),
) -> (CloseReason, C, E, TcpCounters) {
    let (client, client_side) = pair().await.unwrap();
    let (endpoint_side, endpoint) = pair().await.unwrap();
    let buffers = RelayBuffers::new(64 << 10, PipePool::new(pipes));
    let counters = TcpCounters::default();
    let between = async {
        let timer = pin!(tokio::time::sleep(idle));
        let mut upload = Direction::new();
        let reason =
            relay::relay(&client_side, &endpoint_side, &mut upload, &buffers, &counters, timer, idle).await;
        drop((client_side, endpoint_side));
        reason
    };
    let (reason, (client, endpoint)) = tokio::join!(between, parties(client, endpoint));
    (reason, client, endpoint, counters)
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BULK).map(|at| (at as u64).wrapping_mul(0x9e37_79b9).to_le_bytes()[2] ^ seed).collect()
}

/// Writes all, says FIN, and gives what came back until the other side's FIN.
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
        assert_eq!((counters.client_bytes(), counters.endpoint_bytes()), (BULK as u64, BULK as u64));
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
    let started = tokio::time::Instant::now();
    let idle = Duration::from_secs(100);
    let (reason, client, endpoint, _) = relayed(8, idle, async |mut client, mut endpoint| {
        let (mut at_client, mut at_endpoint) = ([0], [0]);
        tokio::join!(client.read(&mut at_client), endpoint.read(&mut at_endpoint))
    })
    .await;
    assert_eq!((client.unwrap(), endpoint.unwrap()), (0, 0));
    assert_eq!(reason, CloseReason::Idle);
    assert!(started.elapsed() >= idle && started.elapsed() < idle * 3 / 2, "{:?}", started.elapsed());
}

#[test]
fn the_task_of_a_connection_is_small() {
    fn returned<'a, S, F>(_: fn(&'a Connection, S) -> F) -> usize {
        size_of::<F>()
    }
    let task = size_of::<Connection>() + returned(Connection::serve);
    assert!(task <= 1024, "{task}");
}

#[tokio::test]
async fn what_a_direction_begins_with_goes_first_and_its_own_part_is_not_counted() {
    let (client, client_side) = pair().await.unwrap();
    let (endpoint_side, mut endpoint) = pair().await.unwrap();
    let buffers = RelayBuffers::new(64 << 10, PipePool::new(8));
    let counters = TcpCounters::default();
    // More than any socket takes at once, so that it goes out in several parts.
    let begin = pattern(3);
    let between = async {
        let mut upload = Direction::beginning_with(begin.clone(), 1000);
        let timer = pin!(tokio::time::sleep(LONG));
        relay::relay(&client_side, &endpoint_side, &mut upload, &buffers, &counters, timer, LONG).await
    };
    let parties = async {
        let mut client = client;
        client.write_all(b"end").await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        endpoint.read_to_end(&mut received).await.unwrap();
        endpoint.shutdown().await.unwrap();
        received
    };
    let (reason, received) = tokio::join!(between, parties);
    assert_eq!(reason, CloseReason::Finished);
    assert!(received == [&begin[..], b"end"].concat());
    assert_eq!(counters.client_bytes(), (BULK - 1000 + 3) as u64);
}
