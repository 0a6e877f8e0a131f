//! Tests of data that leaves in one segment.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use socket2::SockRef;

use super::LONG;
use super::rig::{TableRig, accepted, connecting};
use crate::sys::stream::received_segments;
use crate::tcp::splice::Direction;

/// A client and an endpoint with a relay between them, which has not had a turn yet.
fn relayed(rig: &TableRig, upload: Direction) -> (TcpStream, TcpStream) {
    let [clients, endpoints] = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let client = TcpStream::connect(clients.local_addr().unwrap()).unwrap();
    let endpoint_side = connecting(endpoints.local_addr().unwrap());
    rig.relay(accepted(&clients).unwrap(), endpoint_side, upload, LONG);
    (client, endpoints.accept().unwrap().0)
}

/// Relays what `send` writes; returns the number of segments in which the other peer receives it, and the data.
fn segments(rig: &TableRig, to: &TcpStream, send: impl FnOnce()) -> (u32, Vec<u8>) {
    let count = || received_segments(&SockRef::from(to));
    let before = count();
    send();
    for _ in 0..4 {
        rig.turn();
    }
    let mut received = vec![0; 64];
    to.set_nonblocking(true).unwrap();
    let length = (&*to).read(&mut received).unwrap();
    received.truncate(length);
    (count() - before, received)
}

#[test]
fn the_last_bytes_leave_together_with_the_end() {
    let rig = TableRig::new(LONG, 8);
    // If the client has finished before, the whole connection is closed.
    for finishes in [false, true] {
        let (client, mut endpoint) = relayed(&rig, Direction::new());
        if finishes {
            client.shutdown(Shutdown::Write).unwrap();
        }
        rig.turn();
        let (count, received) = segments(&rig, &client, || {
            endpoint.write_all(b"answer").unwrap();
            endpoint.shutdown(Shutdown::Write).unwrap();
        });
        assert_eq!((count, &received[..]), (1, &b"answer"[..]));
        assert_eq!((&client).read(&mut [0]).unwrap(), 0, "FIN");
    }
}

#[test]
fn bytes_that_are_not_the_last_do_not_wait() {
    let rig = TableRig::new(LONG, 8);
    let (client, mut endpoint) = relayed(&rig, Direction::new());
    rig.turn();
    let (count, received) = segments(&rig, &client, || endpoint.write_all(b"answer").unwrap());
    assert_eq!((count, &received[..]), (1, &b"answer"[..]));
}

#[test]
fn a_header_leaves_together_with_the_first_bytes_if_those_are_there() {
    let rig = TableRig::new(LONG, 8);
    let header = || Direction::beginning_with(b"header ".to_vec(), 7);
    let (mut client, endpoint) = relayed(&rig, header());
    let (count, received) = segments(&rig, &endpoint, || client.write_all(b"request").unwrap());
    assert_eq!((count, &received[..]), (1, &b"header request"[..]));
    let (_client, endpoint) = relayed(&rig, header());
    let (count, received) = segments(&rig, &endpoint, || ());
    assert_eq!((count, &received[..]), (1, &b"header "[..]), "a client that waits is announced");
}
