//! Tests of batches through real sockets: boundaries, bundles, truncation, errors.

use std::net::UdpSocket;

use super::*;

fn pair(ip: &str) -> (UdpSocket, UdpSocket) {
    let [sender, receiver] = [(); 2].map(|()| UdpSocket::bind((ip, 0)).unwrap());
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    (sender, receiver)
}

/// Receives `count` messages, waiting for the socket between batches.
fn receive(receiver: &mut Receiver, socket: &UdpSocket, count: usize) -> Vec<(Vec<u8>, Option<u16>)> {
    let mut all = Vec::new();
    while all.len() < count {
        socket.peek(&mut [0]).unwrap();
        let received = receiver.receive(socket).unwrap();
        all.extend((0..received).map(|index| receiver.get(index)).map(|message| {
            assert!(!message.truncated);
            (message.bytes.to_vec(), message.segment.map(NonZeroU16::get))
        }));
    }
    all
}

#[test]
fn boundaries_order_and_sender_are_kept_for_both_families() {
    for ip in ["127.0.0.1", "::1"] {
        let (from, to) = pair(ip);
        let datagrams = [b"".as_slice(), b"a", b"bcd", b"", &[7; 65_507]];
        let mut sender = Sender::new();
        let mut batch = sender.batch();
        for datagram in datagrams {
            batch.push(datagram);
            batch.end_message(None);
        }
        assert_eq!(batch.send(&from, None).unwrap(), datagrams.len());

        let mut receiver = Receiver::new();
        let received = receive(&mut receiver, &to, datagrams.len());
        assert!(received.iter().zip(datagrams).all(|(got, sent)| got.0 == sent && got.1.is_none()));
        assert_eq!(receiver.get(0).from, Some(from.local_addr().unwrap()));
    }
}

#[test]
fn slices_gathered_into_a_bundle_arrive_as_one_bundle() {
    for ip in ["127.0.0.1", "::1"] {
        let (from, to) = pair(ip);
        enable_gro(&to).unwrap();
        assert!(segmentation_supported(&from));
        let mut sender = Sender::new();
        let mut batch = sender.batch();
        for slice in [[1; 100].as_slice(), &[2; 200], &[3; 40]] {
            batch.push(slice);
        }
        batch.end_message(NonZeroU16::new(100));
        assert_eq!(batch.send(&from, None).unwrap(), 1);

        let whole = [[1; 100].as_slice(), &[2; 200], &[3; 40]].concat();
        assert_eq!(receive(&mut Receiver::new(), &to, 1), [(whole, Some(100))]);
    }
}

#[test]
fn a_bundle_is_cut_into_datagrams_for_a_peer_that_knows_no_bundles() {
    let (from, to) = pair("127.0.0.1");
    let mut sender = Sender::new();
    let mut batch = sender.batch();
    batch.push(&[9; 250]);
    batch.end_message(NonZeroU16::new(100));
    assert_eq!(batch.send(&from, None).unwrap(), 1);
    let lengths: Vec<usize> =
        receive(&mut Receiver::new(), &to, 3).iter().map(|message| message.0.len()).collect();
    assert_eq!(lengths, [100, 100, 50]);
}

#[test]
fn what_does_not_fit_the_buffer_is_marked_as_cut() {
    let (from, to) = pair("127.0.0.1");
    let mut receiver = Receiver::with_room(64);
    for length in [64, 65] {
        from.send(&vec![5; length]).unwrap();
        to.peek(&mut [0]).unwrap();
        assert_eq!(receiver.receive(&to).unwrap(), 1);
        let message = receiver.get(0);
        assert_eq!((message.bytes.len(), message.truncated), (64, length > 64));
    }
}

#[test]
fn an_empty_socket_says_so_instead_of_waiting() {
    let (_from, to) = pair("127.0.0.1");
    assert_eq!(Receiver::new().receive(&to).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn the_first_message_that_fails_is_reported_and_earlier_ones_are_out() {
    let (from, to) = pair("127.0.0.1");
    let mut sender = Sender::new();
    let mut batch = sender.batch();
    for datagram in [[1; 10].as_slice(), &[2; 65_508], &[3; 10]] {
        batch.push(datagram);
        batch.end_message(None);
    }
    assert_eq!(batch.send(&from, None).unwrap(), 1);
    assert_eq!(receive(&mut Receiver::new(), &to, 1), [(vec![1; 10], None)]);

    let mut batch = sender.batch();
    batch.push(&[2; 65_508]);
    batch.end_message(None);
    assert!(refuses_bundle(&batch.send(&from, None).unwrap_err()), "EMSGSIZE");
}

#[test]
fn where_a_datagram_was_sent_to_is_told_beside_what_it_is_a_bundle_of() {
    for (ip, domain) in [("127.0.0.1", Domain::IPV4), ("::1", Domain::IPV6)] {
        let (from, to) = pair(ip);
        enable_gro(&to).unwrap();
        let mut receiver = Receiver::new();
        for asked in [false, true] {
            if asked {
                report_destination(&to, domain).unwrap();
            }
            let mut sender = Sender::new();
            let mut batch = sender.batch();
            batch.push(&[7; 300]);
            batch.end_message(NonZeroU16::new(100));
            batch.push(b"");
            batch.end_message(None);
            assert_eq!(batch.send(&from, None).unwrap(), 2);
            let mut told = Vec::new();
            while told.len() < 2 {
                to.peek(&mut [0]).unwrap();
                let count = receiver.receive(&to).unwrap();
                told.extend(
                    (0..count).map(|index| (receiver.get(index).segment, receiver.destination(index))),
                );
            }
            let destination = asked.then(|| to.local_addr().unwrap());
            assert_eq!(told, [(NonZeroU16::new(100), destination), (None, destination)], "{ip}");
        }
    }
}
