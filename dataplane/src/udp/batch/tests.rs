//! Tests of packing: datagrams keep their boundaries and order, whatever the path refuses.

use std::net::UdpSocket;

use proptest::prelude::*;

use super::*;

/// Packs `payloads` under `limit` and checks every rule on bundles; returns the resulting datagrams.
fn packed(header: &[u8], payloads: &[Payload<'_>], limit: BundleLimit) -> Vec<Vec<u8>> {
    let mut position = Position::default();
    let mut datagrams = Vec::new();
    while position.payload < payloads.len() {
        let before = datagrams_from(payloads, position);
        let mut slices = Vec::new();
        let message = next_message(header, payloads, position, limit, |slice| slices.push(slice));
        let bytes = slices.concat();
        assert_eq!(bytes.len(), message.bytes + message.datagrams * header.len());
        assert!(slices.len() <= BATCH);
        if let Some(segment) = message.segment {
            assert!(segment.get() <= limit.0 && message.datagrams > 1 && message.datagrams <= MAX_SEGMENTS);
            assert!(bytes.len() <= MAX_BUNDLE);
            datagrams.extend(bytes.chunks(usize::from(segment.get())).map(<[u8]>::to_vec));
        } else {
            assert_eq!(message.datagrams, 1);
            datagrams.push(bytes);
        }
        assert_eq!(before - message.datagrams, datagrams_from(payloads, message.end));
        position = message.end;
    }
    datagrams
}

fn received() -> impl Strategy<Value = Vec<(Vec<u8>, Option<u16>)>> {
    let length = prop_oneof![Just(0usize), Just(1), Just(100), Just(1200), 0usize..2000];
    let single = (length, any::<u8>()).prop_map(|(length, fill)| (vec![fill; length], None));
    let segment = prop_oneof![Just(100u16), Just(1200), 1u16..1500];
    let bundle =
        (segment, 1usize..30, any::<u8>(), 0usize..1500).prop_map(|(segment, count, fill, short)| {
            let length = (usize::from(segment) * count).saturating_sub(short % usize::from(segment)).max(1);
            (vec![fill; length], Some(segment))
        });
    prop::collection::vec(prop_oneof![4 => single, 1 => bundle], 0..=BATCH)
}

fn payloads(messages: &[(Vec<u8>, Option<u16>)]) -> Vec<Payload<'_>> {
    messages
        .iter()
        .map(|(bytes, segment)| {
            let segment = segment.and_then(NonZeroU16::new);
            Payload::new(&Received { bytes, from: None, segment, truncated: false })
        })
        .collect()
}

proptest! {
    #[test]
    fn every_datagram_leaves_whole_and_in_order_with_its_header_if_any(
        messages in received(),
        limit in prop_oneof![Just(0u16), Just(u16::MAX), 50u16..1500],
        header in prop_oneof![Just(Vec::new()), Just(vec![0xaa; 28]), Just(vec![0xbb; 52])],
    ) {
        let expected: Vec<Vec<u8>> = messages
            .iter()
            .flat_map(|(bytes, segment)| match segment {
                Some(segment) => bytes.chunks(usize::from(*segment)).map(<[u8]>::to_vec).collect(),
                None => vec![bytes.clone()],
            })
            .collect();
        let headed: Vec<_> = expected.iter().map(|datagram| [&header, datagram.as_slice()].concat()).collect();
        prop_assert_eq!(packed(&header, &payloads(&messages), BundleLimit(limit)), headed);
    }
}

#[test]
fn equal_datagrams_and_a_shorter_last_one_are_gathered_into_one_message() {
    let messages: Vec<_> = [1200, 1200, 1200, 300, 1200].map(|length| (vec![0; length], None)).into();
    let payloads = payloads(&messages);
    let first = next_message(&[], &payloads, Position::default(), BundleLimit::UNKNOWN, |_| {});
    assert_eq!((first.datagrams, first.segment), (4, NonZeroU16::new(1200)));
    let second = next_message(&[], &payloads, first.end, BundleLimit::UNKNOWN, |_| {});
    assert_eq!((second.datagrams, second.segment), (1, None));
}

#[test]
fn equal_datagrams_with_headers_are_gathered_and_bundles_cut_where_the_slices_end() {
    let header = [0; 28];
    let messages = [(vec![0; 20 * 1200 + 300], Some(1200)), (vec![0; 300], None), (Vec::new(), None)];
    let (payloads, mut position) = (payloads(&messages), Position::default());
    // First as many of the bundle as the limit allows, then its rest, then two equal shorter ones.
    for expected in
        [(MAX_HEADED, NonZeroU16::new(1228)), (5, NonZeroU16::new(1228)), (2, NonZeroU16::new(328))]
    {
        let message = next_message(&header, &payloads, position, BundleLimit::UNKNOWN, |_| {});
        assert_eq!((message.datagrams, message.segment), expected);
        position = message.end;
    }
    assert_eq!(datagrams_from(&payloads, position), 0);
}

#[test]
fn headers_count_for_the_length_of_a_bundle() {
    let messages: Vec<_> = (0..7).map(|_| (vec![0; 9340], None)).collect();
    let payloads = payloads(&messages);
    for (header, datagrams) in [(0, 7), (28, 6)] {
        let header = &[0; 28][..header];
        let message = next_message(header, &payloads, Position::default(), BundleLimit::UNKNOWN, |_| {});
        assert_eq!(message.datagrams, datagrams);
    }
}

#[test]
fn what_the_path_takes_is_measured_with_the_header() {
    let messages = [(vec![0; 2000], Some(1000))];
    let payloads = payloads(&messages);
    for (header, datagrams) in [(0, 2), (28, 1)] {
        let message =
            next_message(&[0; 28][..header], &payloads, Position::default(), BundleLimit(1027), |_| {});
        assert_eq!(message.datagrams, datagrams, "{header} bytes of header");
    }
}

#[test]
fn a_refused_bundle_is_sent_datagram_by_datagram_and_not_tried_again() {
    // Port 0 is refused with EINVAL for any message, like a bundle beyond the path's MTU.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = "127.0.0.1:0".parse().unwrap();
    let messages = [(vec![1; 1000], Some(100)), (vec![2; 100], None), (vec![3; 0], None)];
    let payloads = payloads(&messages);
    let mut limit = BundleLimit::UNKNOWN;
    let start = Position::default();
    let target = SendTarget { socket: &socket, to: Some(nobody), header: &[], limit: &mut limit };
    let Sent::All(stats) = send(&mut Sender::new(), target, &payloads, start) else {
        panic!("an unconnected socket is not refused by a peer");
    };
    assert_eq!(stats, SendStats { datagrams: 0, bytes: 0, lost: 12 });
    assert_eq!(limit, BundleLimit(99));
}

#[test]
fn one_datagram_that_cannot_go_does_not_hold_up_the_others() {
    let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let messages = [(vec![1; 10], None), (vec![2; 65_508], None), (vec![3; 10], None)];
    let start = Position::default();
    let to_addr = Some(to.local_addr().unwrap());
    let target =
        SendTarget { socket: &from, to: to_addr, header: &[], limit: &mut BundleLimit::UNKNOWN.clone() };
    let sent = send(&mut Sender::new(), target, &payloads(&messages), start);
    assert!(matches!(sent, Sent::All(SendStats { datagrams: 2, bytes: 20, lost: 1 })), "{sent:?}");
    for expected in [1, 3] {
        let mut buffer = [0; 64];
        assert_eq!(to.recv(&mut buffer).unwrap(), 10);
        assert_eq!(buffer[0], expected);
    }
}

#[test]
fn a_peer_that_refuses_leaves_the_rest_to_be_sent_elsewhere() {
    let [from, gone] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    // Connected to itself, it receives from no other socket.
    gone.connect(gone.local_addr().unwrap()).unwrap();
    from.connect(gone.local_addr().unwrap()).unwrap();
    from.send(b"the answer to this is an ICMP error").unwrap();
    let messages = [(vec![1; 10], None), (vec![2; 20], None)];
    let (payloads, start) = (payloads(&messages), Position::default());
    let target =
        SendTarget { socket: &from, to: None, header: &[], limit: &mut BundleLimit::UNKNOWN.clone() };
    let sent = send(&mut Sender::new(), target, &payloads, start);
    let Sent::Refused(stats, position) = sent else { panic!("{sent:?}") };
    assert_eq!(stats, SendStats::default());
    assert_eq!(datagrams_from(&payloads, position), 2);
}
