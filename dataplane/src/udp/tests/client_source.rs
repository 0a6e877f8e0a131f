//! What endpoints see of clients. Binding to an address that is not this machine's takes CAP_NET_ADMIN or CAP_NET_RAW.

use super::*;
use crate::model::ClientAddr;
use crate::udp::flows::{Links, Way};
use crate::udp::link::Opener;

/// Addresses of this machine, all of loopback, and of nobody.
const ENDPOINT: &str = "127.0.0.3";
const CLIENT: &str = "127.0.0.2";
const STRANGER: &str = "198.51.100.1";
const STRANGER_V6: &str = "2001:db8::1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A socket that plays an endpoint by hand.
async fn plain_endpoint(address: &str) -> (AsyncSocket, EndpointAddr) {
    let socket = AsyncSocket::bind((address, 0)).await.unwrap();
    let bound = socket.local_addr().unwrap();
    (socket, EndpointAddr { ip: bound.ip(), port: bound.port() })
}

#[test]
fn the_socket_towards_an_endpoint_has_the_clients_address_where_that_can_work() {
    let cases = [
        ("of a stranger", V4, STRANGER, ENDPOINT, true),
        ("of a stranger", V6, STRANGER_V6, V6, true),
        ("of a client that is on this machine", V4, CLIENT, ENDPOINT, true),
        ("of another family", V6, STRANGER_V6, ENDPOINT, false),
        ("of another family", V4, STRANGER, V6, false),
        ("of the endpoint itself", V4, ENDPOINT, ENDPOINT, false),
        ("of the frontend", CLIENT, CLIENT, ENDPOINT, false),
        ("of a link, which is not said", V6, "fe80::1", V6, false),
    ];
    on_a_worker(async {
        for (whose, frontend, client, to, own) in cases {
            let (_socket, endpoint) = plain_endpoint(to).await;
            let gateway = Gateway::start(frontend, &[endpoint], 10);
            let client = ip(client);
            let mut opener = Opener { state: &gateway.listener.state };
            let way =
                Way { client: ClientAddr((client, 9).into()), endpoint, source: ClientSource::Transparent };
            for available in [true, false] {
                gateway.context.transparency.set(available);
                let lost_before = gateway.counters().source_lost.get();
                let link = opener.open(&way, None).unwrap();
                let bound = link.upstream.get_ref().local_addr().unwrap().as_socket().unwrap();
                let lost = gateway.counters().source_lost.get() - lost_before;
                assert_eq!(
                    (bound.ip() == client, lost == 0),
                    (own && available, own && available),
                    "{whose} {way:?}"
                );
            }
        }
    });
}

#[test]
fn an_endpoint_sees_a_transparent_clients_address_and_its_answers_arrive() {
    on_a_worker(async {
        let (socket, endpoint) = plain_endpoint(ENDPOINT).await;
        let gateway = Gateway::start(V4, &[], 10);
        gateway.context.transparency.set(true);
        gateway.swap_with_source(&[endpoint], ClientSource::Transparent);
        let clients = [gateway.client_from(ip(CLIENT)), gateway.client_from(ip(CLIENT))];
        let mut peers = Vec::new();
        for client in &clients {
            client.send(b"question");
            let mut buffer = [0; 64];
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            assert_eq!((&buffer[..length], peer.ip()), (b"question".as_slice(), ip(CLIENT)));
            peers.push(peer);
        }
        assert_ne!(peers[0], peers[1], "flows are told apart by their ports");
        for (client, peer) in clients.iter().zip(peers) {
            socket.send_to(peer.to_string().as_bytes(), peer).await.unwrap();
            assert_eq!(client.answer().await.unwrap(), peer.to_string().as_bytes());
        }
        assert_eq!(gateway.counters().source_lost.get(), 0);
    });
}

#[test]
fn a_client_whose_address_cannot_be_kept_is_served_from_the_gateways() {
    on_a_worker(async {
        let (socket, endpoint) = plain_endpoint(ENDPOINT).await;
        let gateway = Gateway::start(V4, &[], 10);
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
