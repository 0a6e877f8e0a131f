//! Tests of the client source that endpoints see. The client's own address needs a network, which the end-to-end tests
//! have.

use sheave_model::{AddressSet, ClientAddr};

use super::traffic::send_bundle;
use super::*;
use crate::proxy_protocol::{self, Addresses, Parsed};
use crate::udp::flow_table::{Links, Way};
use crate::udp::link::Opener;

/// Addresses of this machine's loopback interface, and addresses that no host has.
const ENDPOINT: &str = "127.0.0.3";
const CLIENT: &str = "127.0.0.2";
const STRANGER: &str = "198.51.100.1";
const STRANGER_V6: &str = "2001:db8::1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A socket that the test uses as an endpoint.
async fn plain_endpoint(address: &str) -> (AsyncSocket, EndpointAddr) {
    let socket = AsyncSocket::bind((address, 0)).await.unwrap();
    let bound = socket.local_addr().unwrap();
    (socket, EndpointAddr::new(bound.ip(), bound.port()))
}

#[test]
fn the_socket_towards_an_endpoint_has_the_gateways_address_where_the_clients_cannot_work() {
    let cases = [
        ("the endpoint is on this machine", V4, STRANGER, ENDPOINT),
        ("the endpoint is on this machine", V6, STRANGER_V6, V6),
        ("the client is on this machine", V4, CLIENT, ENDPOINT),
        ("of another family", V6, STRANGER_V6, ENDPOINT),
        ("of another family", V4, STRANGER, V6),
        ("of the endpoint itself", V4, ENDPOINT, ENDPOINT),
        ("of the frontend", CLIENT, CLIENT, ENDPOINT),
    ];
    on_a_worker(async {
        for (whose, own_address, client, to) in cases {
            let (_socket, endpoint) = plain_endpoint(to).await;
            let gateway = UdpGateway::start(own_address, &[endpoint], 10);
            gateway.worker.shared.transparency.set(Some(AddressSet::default()));
            let client = ip(client);
            let frontend = gateway.frontend();
            let mut opener = Opener::new(&frontend);
            let way =
                Way { client: ClientAddr((client, 9).into()), endpoint, source: ClientSource::Transparent };
            let link = opener.open(&way, None).unwrap();
            let bound = link.upstream.socket().local_addr().unwrap().as_socket().unwrap();
            let own = ip(if endpoint.ip.is_ipv4() { V4 } else { V6 });
            assert_eq!((bound.ip(), gateway.counters().source_lost.get()), (own, 1), "{whose} {way:?}");
        }
    });
}

#[test]
fn a_client_whose_address_cannot_be_kept_is_served_from_the_gateways() {
    on_a_worker(async {
        let (socket, endpoint) = plain_endpoint(ENDPOINT).await;
        let gateway = UdpGateway::start(V4, &[], 10);
        gateway.swap_with_source(&[endpoint], ClientSource::Transparent);
        let client = gateway.client_from(ip(CLIENT));
        client.send(b"question");
        let (_, peer) = socket.recv_from(&mut [0; 64]).await.unwrap();
        assert_eq!(peer.ip(), ip(V4), "nobody has said that transparency works");
        socket.send_to(b"answer", peer).await.unwrap();
        assert_eq!(client.answer().await.unwrap(), b"answer");
        assert_eq!(gateway.counters().source_lost.get(), 1);
    });
}

/// Checks the header of a datagram from `client` to the gateway; returns the header's length and the payload.
fn payload<'b>(datagram: &'b [u8], client: &Client, gateway: &UdpGateway) -> (usize, &'b [u8]) {
    let Parsed::Header { length, addresses } = proxy_protocol::parse(datagram) else {
        panic!("no header: {}", datagram.escape_ascii());
    };
    let expected = Addresses { client: client.addr(), destination: gateway.addr.socket_addr() };
    assert_eq!(addresses, Some(expected));
    (length, &datagram[length..])
}

#[test]
fn each_datagram_tells_of_its_client_and_answers_come_back_bare() {
    for (address, header) in [(V4, 28), (V6, 52)] {
        on_a_worker(async move {
            let (socket, endpoint) = plain_endpoint(address).await;
            let gateway = UdpGateway::start(address, &[], 10);
            gateway.swap_with_source(&[endpoint], ClientSource::ProxyV2);
            let clients = [gateway.client(), gateway.client()];
            let mut buffer = vec![0; 65_536];
            for length in [0, 1, 1200, 0, 9000, 65_507 - header] {
                for (seed, client) in clients.iter().enumerate() {
                    let sent = content(length, seed);
                    client.send(&sent);
                    let (received, peer) = socket.recv_from(&mut buffer).await.unwrap();
                    assert!(
                        payload(&buffer[..received], client, &gateway) == (header, &sent),
                        "{length} bytes"
                    );
                    socket.send_to(&sent, peer).await.unwrap();
                    assert!(client.answer().await.unwrap() == sent, "{length} bytes back");
                }
            }
            let payload = 2 * (1 + 1200 + 9000 + 65_507 - header as u64);
            assert_eq!(gateway.counters().to_endpoints.bytes.get(), payload, "headers are not the client's");
        });
    }
}

#[test]
fn every_datagram_of_a_bundle_has_the_header_and_they_may_arrive_as_bundles() {
    for (address, header, gro) in [(V4, 28, false), (V4, 28, true), (V6, 52, false), (V6, 52, true)] {
        on_a_worker(async move {
            let (socket, endpoint) = plain_endpoint(address).await;
            if gro {
                crate::sys::mmsg::enable_gro(&socket).unwrap();
            }
            let gateway = UdpGateway::start(address, &[], 10);
            gateway.swap_with_source(&[endpoint], ClientSource::ProxyV2);
            let client = gateway.client();
            let sent = content(40 * 1200 + 77, 5);
            send_bundle(&client.0, &sent, 1200);
            let mut expected = sent.chunks(1200);
            let (mut buffer, mut messages) = (vec![0; 65_536], 0);
            while expected.len() > 0 {
                let received = socket.recv(&mut buffer).await.unwrap();
                messages += 1;
                for datagram in buffer[..received].chunks(1200 + header) {
                    assert!(payload(datagram, &client, &gateway) == (header, expected.next().unwrap()));
                }
            }
            assert_eq!(messages, if gro { 3 } else { 41 }, "bundles of 16, 16 and 9");
            assert_eq!(gateway.counters().to_endpoints.datagrams.get(), 41);
        });
    }
}

#[test]
fn a_datagram_that_the_header_makes_too_long_is_lost_and_counted_and_others_pass() {
    on_a_worker(async {
        let (socket, endpoint) = plain_endpoint(V4).await;
        let gateway = UdpGateway::start(V4, &[], 10);
        gateway.swap_with_source(&[endpoint], ClientSource::ProxyV2);
        let client = gateway.client();
        client.send(&content(65_507 - 27, 1));
        client.send(b"short");
        let mut buffer = vec![0; 65_536];
        let received = socket.recv(&mut buffer).await.unwrap();
        assert_eq!(payload(&buffer[..received], &client, &gateway), (28, b"short".as_slice()));
        assert_eq!(gateway.counters().dropped(DropReason::SendToEndpoint), 1);
        assert_eq!(gateway.counters().to_endpoints.datagrams.get(), 1);
    });
}

#[test]
fn a_flow_tells_its_endpoint_as_the_frontend_says_by_then() {
    on_a_worker(async {
        let [(first, one), (second, other)] = [plain_endpoint(V4).await, plain_endpoint(V4).await];
        let gateway = UdpGateway::start(V4, &[one], 10);
        let (client, mut buffer) = (gateway.client(), vec![0; 100]);
        client.send(b"a");
        assert_eq!(first.recv(&mut buffer).await.unwrap(), 1);
        gateway.swap_with_source(&[one], ClientSource::ProxyV2);
        client.send(b"b");
        let received = first.recv(&mut buffer).await.unwrap();
        assert_eq!(payload(&buffer[..received], &client, &gateway), (28, b"b".as_slice()));
        gateway.swap_with_source(&[other], ClientSource::ProxyV2);
        client.send(b"c");
        let received = second.recv(&mut buffer).await.unwrap();
        assert_eq!(payload(&buffer[..received], &client, &gateway), (28, b"c".as_slice()));
    });
}
