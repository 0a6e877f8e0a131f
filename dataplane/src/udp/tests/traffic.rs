//! Tests of datagrams of all sizes and many clients, in both directions.

use std::os::fd::AsFd;

use super::*;

#[test]
fn datagrams_of_every_length_pass_both_ways_unchanged() {
    for ip in [V4, V6] {
        on_a_worker(async move {
            let gateway = UdpGateway::start(ip, &[endpoint(ip, b"").await], 10);
            let client = gateway.client();
            let lengths = [0, 1, 64, 1200, 1472, 1473, 9000, 65_000, 65_507];
            for length in lengths {
                let sent = content(length, length);
                assert!(client.exchange(&sent).await == sent, "{length} bytes over {ip}");
            }
            let counters = gateway.counters();
            for traffic in [&counters.to_endpoints, &counters.to_clients] {
                assert_eq!(traffic.datagrams.get(), lengths.len() as u64);
                assert_eq!(traffic.bytes.get(), lengths.iter().sum::<usize>() as u64);
            }
            assert_eq!((counters.flows_opened.get(), gateway.flows()), (1, 1));
        });
    }
}

/// Sends all bytes as one bundle.
pub(super) fn send_bundle(socket: impl AsFd, bytes: &[u8], segment: u16) {
    let mut sender = Sender::new();
    let mut batch = sender.batch();
    batch.push(bytes);
    batch.end_message(NonZeroU16::new(segment));
    assert_eq!(batch.send(socket, None).unwrap(), 1);
}

#[test]
fn a_bundle_stays_whole_on_its_way_and_reaches_plain_sockets_as_datagrams() {
    for ip in [V4, V6] {
        on_a_worker(async move {
            let plain = AsyncSocket::bind((ip, 0)).await.unwrap();
            let bound = plain.local_addr().unwrap();
            let gateway = UdpGateway::start(ip, &[EndpointAddr::new(bound.ip(), bound.port())], 10);
            let client = gateway.client();
            let sent = content(40 * 1200 + 77, 5);

            send_bundle(&client.0, &sent, 1200);
            let mut buffer = vec![0; 65_536];
            let mut peer = bound;
            for expected in sent.chunks(1200) {
                let (length, from) = plain.recv_from(&mut buffer).await.unwrap();
                assert!(buffer[..length] == *expected);
                peer = from;
            }
            plain.connect(peer).await.unwrap();
            send_bundle(&plain, &sent, 1200);
            for expected in sent.chunks(1200) {
                assert!(client.answer().await.unwrap() == expected);
            }
            assert_eq!(gateway.counters().to_endpoints.datagrams.get(), 41);
            assert_eq!(gateway.counters().to_clients.datagrams.get(), 41);
        });
    }
}

#[test]
fn bundles_reach_sockets_that_want_them_as_bundles() {
    on_a_worker(async {
        let end = AsyncSocket::bind((V4, 0)).await.unwrap();
        crate::sys::mmsg::enable_gro(&end).unwrap();
        let bound = end.local_addr().unwrap();
        let gateway = UdpGateway::start(V4, &[EndpointAddr::new(bound.ip(), bound.port())], 10);
        let client = gateway.client();
        send_bundle(&client.0, &content(5 * 1000, 1), 1000);
        let mut buffer = vec![0; 65_536];
        assert_eq!(end.recv(&mut buffer).await.unwrap(), 5000);
        // Datagrams that wait in the gateway's socket together are sent together.
        for seed in 0..5 {
            client.send(&content(1000, seed));
        }
        assert_eq!(end.recv(&mut buffer).await.unwrap(), 5000);
    });
}

#[test]
fn interleaved_clients_get_their_own_answers_in_order() {
    on_a_worker(async {
        let endpoints = [endpoint(V4, b"").await, endpoint(V4, b"").await, endpoint(V4, b"").await];
        let gateway = UdpGateway::start(V4, &endpoints, 100);
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(gateway.client());
        }
        for round in 0..40 {
            let datagram = |client: usize, place: usize| {
                content([0, 1, 100, 100, 1400][(client + place + round) % 5], client * 1000 + place + round)
            };
            for place in 0..4 {
                for (number, client) in clients.iter().enumerate() {
                    client.send(&datagram(number, place));
                }
            }
            for (number, client) in clients.iter().enumerate() {
                for place in 0..4 {
                    assert!(client.answer().await.unwrap() == datagram(number, place));
                }
            }
        }
        assert_eq!(gateway.counters().to_clients.datagrams.get(), 40 * 4 * 20);
        assert_eq!(gateway.counters().flows_opened.get(), 20);
    });
}

#[test]
fn beyond_the_limit_new_clients_are_dropped_and_the_others_go_on() {
    on_a_worker(async {
        let gateway = UdpGateway::start(V4, &[endpoint(V4, b"").await], 2);
        let clients = [gateway.client(), gateway.client(), gateway.client()];
        assert_eq!(clients[0].exchange(b"a").await, b"a");
        assert_eq!(clients[1].exchange(b"b").await, b"b");
        clients[2].send(b"c");
        let counters = gateway.counters();
        until("the third is refused", || counters.dropped(DropReason::FlowLimit) == 1).await;
        assert_eq!(clients[0].exchange(b"d").await, b"d");
        assert_eq!((counters.flows_active.get(), counters.flows_opened.get()), (2, 2));
    });
}

#[test]
fn a_refusing_endpoint_is_left_on_the_next_datagram_and_others_do_not_notice() {
    for ip in [V4, V6] {
        on_a_worker(async move {
            let ((dead, _reserved), alive) = (nobody(ip), endpoint(ip, b"").await);
            let gateway = UdpGateway::start(ip, &[alive], 10);
            let bystander = gateway.client();
            assert_eq!(bystander.exchange(b"x").await, b"x");

            gateway.swap(&[dead]);
            let client = gateway.client();
            client.send(b"lost");
            until("the ICMP error is seen", || gateway.counters().endpoint_errors.get() == 1).await;
            gateway.swap(&[dead, alive]);
            for datagram in [b"1", b"2"] {
                client.send(datagram);
                bystander.send(datagram);
            }
            for datagram in [b"1", b"2"] {
                assert_eq!(client.answer().await.unwrap(), datagram);
                assert_eq!(bystander.answer().await.unwrap(), datagram);
            }
            assert_eq!(gateway.counters().flows_repicked.get(), 1);
        });
    }
}

#[test]
fn strangers_of_a_frontend_without_endpoints_are_dropped_and_counted() {
    on_a_worker(async {
        let gateway = UdpGateway::start(V4, &[], 10);
        let client = gateway.client();
        client.send(b"a");
        until("the drop", || gateway.counters().dropped(DropReason::NoEndpoint) == 1).await;
        assert_eq!(gateway.counters().flows_active.get(), 0);
    });
}

#[test]
fn datagrams_of_a_refused_part_are_dropped_silently_and_other_clients_are_served() {
    on_a_worker(async {
        let serving = endpoint(V4, b"").await;
        let gateway = UdpGateway::start(V4, &[serving], 100);
        gateway.split_off(1, 1);
        let (mut served, mut refused) = (0, 0);
        // A port that one leaves may be the next one's, and then its flow, too.
        let clients: Vec<Client> = (0..40).map(|_| gateway.client()).collect();
        for client in &clients {
            let before = gateway.counters().dropped(DropReason::InvalidBackend);
            client.send(b"a");
            let dropped = || gateway.counters().dropped(DropReason::InvalidBackend) - before;
            until("an outcome", || dropped() > 0 || gateway.counters().to_clients.datagrams.get() > served)
                .await;
            if dropped() > 0 {
                client.send(b"b");
                until("the next drop", || dropped() == 2).await;
                // ICMP would show as an error of the connected socket (udp(7)).
                let nothing = client.0.recv(&mut [0; 8]).unwrap_err();
                assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
                refused += 1;
            } else {
                assert_eq!(client.answer().await.unwrap(), b"a");
                served += 1;
            }
        }
        assert!(served >= 5 && refused >= 5, "{served} {refused}");
        assert_eq!(gateway.flows() as u64, served);
    });
}

#[test]
fn bursts_of_equal_datagrams_pass_whether_or_not_the_path_takes_them_as_bundles() {
    for ip in [V4, V6] {
        on_a_worker(async move {
            let gateway = UdpGateway::start(ip, &[endpoint(ip, b"").await], 10);
            // The longest ones do not fit one bundle, and on a path with a common MTU none of the last three may be one.
            for (length, count) in [(0, 5), (1, 5), (1200, 5), (1600, 5), (9000, 5), (30_000, 3)] {
                let client = gateway.client();
                for seed in 0..count {
                    client.send(&content(length, seed));
                }
                for seed in 0..count {
                    assert!(client.answer().await.unwrap() == content(length, seed), "{length} over {ip}");
                }
            }
            assert_eq!(gateway.counters().dropped(DropReason::SendToEndpoint), 0);
            assert_eq!(gateway.counters().dropped(DropReason::SendToClient), 0);
        });
    }
}

#[test]
fn a_flood_of_new_clients_does_not_hold_up_others_for_longer_than_a_turn() {
    on_a_worker(async {
        let endpoints = [endpoint(V4, b"").await];
        let gateway = UdpGateway::start(V4, &[], 200);
        let (other, other_counters) = gateway.listen_on_another(&endpoints);
        let flood: Vec<Client> = (0..100).map(|_| gateway.client()).collect();
        flood.iter().for_each(|client| client.send(b"a"));
        let client = UdpSocket::bind((V4, 0)).unwrap();
        client.send_to(b"b", other.socket_addr()).unwrap();
        let opened = || (gateway.counters().flows_opened.get(), other_counters.flows_opened.get());
        gateway.turn();
        assert!(opened() == (32, 0) && gateway.execute(|udp| udp.has_work()), "{:?}", opened());
        gateway.turn();
        assert!(opened().0 < 100 && opened().1 == 1, "{:?}", opened());
        for client in &flood {
            assert_eq!(client.answer().await.unwrap(), b"a");
        }
        assert!(!gateway.execute(|udp| udp.has_work()));
    });
}
