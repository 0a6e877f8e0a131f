//! Captures.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use sheave_model::Protocol;
use sheave_trace::capture::{Bounds, Captured, Conversation, EndedBy, Listener};

use crate::network::{addr, connect, on, soon};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::patience;
use crate::support::world::Family;

for_both_families!(the_packets_of_a_conversation_and_no_others_are_written, reports_of_icmp_are_part_of_it);

fn pair() -> [Host; 2] {
    let [gateway, client] = ["gateway", "client"].map(Host::new);
    connect(&gateway, "client", &client, "eth0", 1);
    [gateway, client]
}

/// Captures what happens meanwhile, and returns the lengths of the packets without the cooked header.
fn captured(
    host: &Host,
    of: &[Conversation],
    bounds: &Bounds,
    action: impl FnOnce(),
) -> (Captured, Vec<Vec<u8>>) {
    let listener = host.run(|| Listener::open(of, bounds)).unwrap();
    let mut file = Vec::new();
    let stop = AtomicBool::new(false);
    let captured = std::thread::scope(|scope| {
        let running = scope.spawn(|| listener.run(of, bounds, &stop, &mut file));
        action();
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    let packets = packets(&file);
    let captured = captured.unwrap();
    assert_eq!((captured.bytes, captured.packets), (file.len() as u64, packets.len() as u64));
    (captured, packets)
}

fn packets(file: &[u8]) -> Vec<Vec<u8>> {
    let number = |bytes: &[u8]| u32::from_ne_bytes(*bytes.first_chunk().unwrap()) as usize;
    assert_eq!((number(file), number(&file[20..])), (0xa1b2_c3d4, 276));
    let mut rest = &file[24..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let kept = number(&rest[8..]);
        assert!(kept <= number(&rest[12..]) && number(rest) > 1_700_000_000);
        found.push(rest[16..16 + kept].to_vec());
        rest = &rest[16 + kept..];
    }
    found
}

fn bounds() -> Bounds {
    Bounds { time: soon(), ..Bounds::default() }
}

fn the_packets_of_a_conversation_and_no_others_are_written(family: Family) {
    let [gateway, client] = pair();
    let bind = || TcpListener::bind(addr(on(family, 1, 1), 0)).unwrap();
    let [listener, other] = gateway.run(|| [bind(), bind()]);
    let server = listener.local_addr().unwrap();
    let of = Conversation { protocol: Protocol::Tcp, server, peer: Some(on(family, 1, 2)), peer_port: None };
    let (result, packets) = captured(&gateway, &[of], &bounds(), || {
        client.run(|| {
            drop(TcpStream::connect(other.local_addr().unwrap()).unwrap());
            let stream = TcpStream::connect(server).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            drop(stream);
            // What is still on its way is in the file once the end has arrived.
            assert_eq!(std::io::Read::read(&mut &accepted, &mut [0; 1]).unwrap(), 0);
        });
    });
    assert_eq!(result.ended_by, EndedBy::Stopped);
    // SYN, SYN ACK, ACK, FIN and its ACK.
    assert!((4..=6).contains(&packets.len()), "{}", packets.len());
    let interface = crate::network::link_of(&gateway, "client").index;
    for packet in &packets {
        let protocol = if family == Family::V4 { [8, 0] } else { [0x86, 0xdd] };
        assert_eq!((&packet[..2], &packet[4..8]), (&protocol[..], &interface.to_be_bytes()[..]));
        assert_eq!(packet[20] >> 4, if family == Family::V4 { 4 } else { 6 });
    }
    // Incoming and outgoing packets.
    assert_eq!((packets[0][10], packets[1][10]), (0, 4));
    let elsewhere = Conversation { peer: Some(on(family, 1, 3)), ..of };
    let (_, packets) = captured(&gateway, &[elsewhere], &bounds(), || {
        client.run(|| drop(TcpStream::connect(server).unwrap()));
    });
    assert_eq!(packets, [] as [Vec<u8>; 0]);
}

fn reports_of_icmp_are_part_of_it(family: Family) {
    let [gateway, client] = pair();
    let server = addr(on(family, 1, 1), 9);
    let of = Conversation { protocol: Protocol::Udp, server, peer: None, peer_port: None };
    let (_, packets) = captured(&gateway, &[of], &bounds(), || {
        client.run(|| {
            let socket = UdpSocket::bind(addr(on(family, 1, 2), 0)).unwrap();
            socket.connect(server).unwrap();
            socket.send(b"?").unwrap();
            assert!(socket.recv(&mut [0; 1]).is_err());
        });
    });
    let protocols = packets.iter().map(|packet| packet[if family == Family::V4 { 29 } else { 26 }]);
    assert_eq!(Vec::from_iter(protocols), [17, if family == Family::V4 { 1 } else { 58 }]);
}

#[test]
fn bounds_end_a_capture() {
    let [gateway, client] = pair();
    let receiver = gateway.run(|| UdpSocket::bind("10.9.1.1:0").unwrap());
    let server = receiver.local_addr().unwrap();
    let of = Conversation { protocol: Protocol::Udp, server, peer: None, peer_port: None };
    let send = || {
        client.run(|| {
            let socket = UdpSocket::bind("10.9.1.2:0").unwrap();
            for _ in 0..20 {
                socket.send_to(&[7; 1000], server).unwrap();
            }
        });
    };
    let (result, found) = captured(&gateway, &[of], &Bounds { packets: 5, ..bounds() }, send);
    assert_eq!((result.ended_by, found.len()), (EndedBy::Packets, 5));
    // The record's header, the cooked header and the kept bytes.
    assert!(found.iter().all(|packet| packet.len() == 20 + 96));
    let (result, found) = captured(&gateway, &[of], &Bounds { bytes: 24 + 3 * 132 + 10, ..bounds() }, send);
    assert_eq!((result.ended_by, found.len()), (EndedBy::Bytes, 3));
    let whole = Bounds { snap_length: 65535, packets: 1, ..bounds() };
    assert_eq!(captured(&gateway, &[of], &whole, send).1[0].len(), 20 + 28 + 1000);
    let begun = Instant::now();
    let short = Bounds { time: patience(0.3), ..bounds() };
    let (result, _) = captured(&gateway, &[of], &short, || while begun.elapsed() < patience(0.6) {});
    assert_eq!(result.ended_by, EndedBy::Time);
}
