//! Tests of connections whose end directly follows data: a reset after an answer, a reset after the first byte, and urgent
//! bytes in the stream. The result must be the same as without a gateway.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc::Receiver;

use nix::sys::socket::{MsgFlags, send};

use crate::support::gateway::Gateway;
use crate::support::manifest::{App, at, vip};
use crate::support::patience::{eventually_within, patience};
use crate::support::tcp::{self, Server};
use crate::support::world::{Family, World};

for_both_families!(
    an_answer_with_a_reset_behind_it_hangs_nobody,
    a_byte_with_a_reset_behind_it_leaves_nothing_open,
    an_urgent_byte_cuts_nothing_from_an_upload,
    an_urgent_byte_cuts_nothing_from_a_download,
    an_urgent_byte_arrives_as_urgent_and_in_its_place,
    an_urgent_byte_that_is_there_before_anybody_looks_arrives,
);

/// A gateway in front of one backend.
fn gateway<'w>(world: &'w World, family: Family) -> Gateway<'w> {
    let app = App::new("ends", &[family.vip(0)]).tcp(80, 9000).ready(family.backend(0));
    Gateway::start(world, &[app])
}

/// Number of clients, one after another, and length of the answer.
const ASKING: usize = 120;
const ANSWER: usize = 60;

/// A server that answers and closes without having read the whole request: the kernel sends the answer, directly followed
/// by a reset (RFC 1122, section 4.2.2.13).
fn an_answer_with_a_reset_behind_it_hangs_nobody(family: Family) {
    let world = World::new(1);
    let _server = Server::start(world.backend(0), at(family.backend(0), 9000), |mut stream| {
        stream.read_exact(&mut [0; 10])?;
        stream.write_all(&[7; ANSWER])
    });
    let gateway = gateway(&world, family);
    let before = gateway.open_files();
    for client in 0..ASKING {
        let mut stream = world.client.run(|| tcp::connect(vip(family))).unwrap();
        stream.write_all(&[1; 100]).unwrap();
        let (received, end) = read_to_end(&mut stream);
        assert!(received <= ANSWER, "client {client}: {received} bytes");
        match end {
            // The server had read the whole request when it closed.
            Ok(()) => assert_eq!(received, ANSWER, "client {client}: a clean end cuts the answer"),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "client {client}: {error}");
            }
        }
    }
    expect_let_go(&gateway, before);
}

const RESETTING: usize = 300;

fn a_byte_with_a_reset_behind_it_leaves_nothing_open(family: Family) {
    let world = World::new(1);
    // Silent, so that only the reset ends a connection.
    let _server = Server::start(world.backend(0), at(family.backend(0), 9000), |mut stream| {
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let gateway = gateway(&world, family);
    let before = gateway.open_files();
    world.client.run(|| {
        for _ in 0..RESETTING {
            let mut stream = tcp::connect(vip(family)).unwrap();
            stream.write_all(b"x").unwrap();
            tcp::reset(stream);
        }
    });
    expect_let_go(&gateway, before);
}

/// Waits until all connections are released. Only idle ones could be left, and the idle timeout is an hour.
fn expect_let_go(gateway: &Gateway<'_>, open_files: usize) {
    eventually_within(patience(5.0), "the gateway has let go of every connection", || {
        let (open, files) = (gateway.metric("sheave_tcp_connections", &[]), gateway.open_files());
        if open == 0.0 && files <= open_files {
            Ok(())
        } else {
            Err(format!("{open} connections, {files} files"))
        }
    });
}

/// Enough that the gateway detects a stream and splices.
const BULK: usize = 4 << 20;
const TAIL: usize = 1000;
const ROUNDS: usize = 32;
/// Value of urgent bytes, which no other byte has.
const URGENT: u8 = 0xff;

fn an_urgent_byte_cuts_nothing_from_an_upload(family: Family) {
    expect_tails(family, |client, server| (client, server));
}

fn an_urgent_byte_cuts_nothing_from_a_download(family: Family) {
    expect_tails(family, |client, server| (server, client));
}

/// Bulk data, an urgent byte and a tail. In every second round a FIN follows directly, in the others after the tail has
/// arrived.
fn expect_tails(family: Family, roles: fn(TcpStream, TcpStream) -> (TcpStream, TcpStream)) {
    let world = World::new(1);
    let (_server, connections) = Server::handing_over(world.backend(0), at(family.backend(0), 9000));
    let _gateway = gateway(&world, family);
    for round in 0..ROUNDS {
        let (mut sender, mut receiver) = joined(&world, family, &connections, roles);
        let fin_at_once = round % 2 == 0;
        let sending = std::thread::spawn(move || {
            sender.write_all(&vec![1; BULK])?;
            send_urgent(&sender)?;
            sender.write_all(&[2; TAIL])?;
            if fin_at_once {
                sender.shutdown(Shutdown::Write)?;
            }
            io::Result::Ok(sender)
        });
        let mut received = vec![0; BULK + TAIL];
        receiver.read_exact(&mut received).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(received[..BULK].iter().all(|&byte| byte == 1), "round {round}");
        assert!(received[BULK..].iter().all(|&byte| byte == 2), "round {round}");
        let sender = sending.join().unwrap().unwrap();
        if !fin_at_once {
            sender.shutdown(Shutdown::Write).unwrap();
        }
        assert_eq!(receiver.read(&mut [0]).unwrap(), 0, "round {round}");
    }
}

/// RFC 6093 tells applications to read urgent data inline, so that a lost or displaced byte is noticed.
fn an_urgent_byte_arrives_as_urgent_and_in_its_place(family: Family) {
    let world = World::new(1);
    let (_server, connections) = Server::handing_over(world.backend(0), at(family.backend(0), 9000));
    let _gateway = gateway(&world, family);
    for bulk in [0, 1, 1000, BULK] {
        let (mut client, mut server) =
            joined(&world, family, &connections, |client, server| (client, server));
        socket2::SockRef::from(&server).set_out_of_band_inline(true).unwrap();
        let sending = std::thread::spawn(move || {
            client.write_all(&vec![1; bulk])?;
            send_urgent(&client)?;
            client.write_all(&[2; TAIL])?;
            client.shutdown(Shutdown::Write)?;
            io::Result::Ok(client)
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), bulk + 1 + TAIL, "{bulk} bytes before it");
        assert_eq!(received.iter().position(|&byte| byte == URGENT), Some(bulk));
        drop(sending.join().unwrap().unwrap());
    }
}

fn an_urgent_byte_that_is_there_before_anybody_looks_arrives(family: Family) {
    let world = World::new(1);
    let (_server, connections) = Server::handing_over(world.backend(0), at(family.backend(0), 9000));
    let gateway = gateway(&world, family);
    for round in 0..4 {
        gateway.freeze();
        let mut client = world.client.run(|| tcp::connect(vip(family))).unwrap();
        send_urgent(&client).unwrap();
        client.write_all(&[2; TAIL]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        gateway.thaw();
        let mut server =
            connections.recv_timeout(patience(10.0)).expect("the gateway connects to the backend");
        socket2::SockRef::from(&server).set_out_of_band_inline(true).unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        assert_eq!((received.first(), received.len()), (Some(&URGENT), 1 + TAIL), "round {round}");
    }
}

/// A connection after one byte in each direction, as sender and receiver.
fn joined(
    world: &World,
    family: Family,
    connections: &Receiver<TcpStream>,
    roles: fn(TcpStream, TcpStream) -> (TcpStream, TcpStream),
) -> (TcpStream, TcpStream) {
    let mut client = world.client.run(|| tcp::connect(vip(family))).unwrap();
    client.write_all(b"a").unwrap();
    let mut server = connections.recv_timeout(patience(10.0)).expect("the gateway connects to the backend");
    server.read_exact(&mut [0]).unwrap();
    server.write_all(b"b").unwrap();
    client.read_exact(&mut [0]).unwrap();
    roles(client, server)
}

fn send_urgent(stream: &TcpStream) -> io::Result<()> {
    Ok(send(stream.as_raw_fd(), &[URGENT], MsgFlags::MSG_OOB).map(drop)?)
}

/// Number of received bytes, and how they ended.
fn read_to_end(stream: &mut TcpStream) -> (usize, io::Result<()>) {
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received).map(drop);
    (received.len(), end)
}
