//! Live TCP sockets.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use sheave_trace::socket::{TcpState, listening, of_client, to_endpoint};

use crate::network::{addr, connect, on, soon};
use crate::support::for_both_families;
use crate::support::host::Host;
use crate::support::patience::eventually;
use crate::support::world::Family;

for_both_families!(
    a_client_is_found_at_its_frontend,
    a_connection_that_waits_is_in_the_accept_queue,
    a_lost_peer_is_sent_to_again
);

fn pair() -> [Host; 2] {
    let [gateway, client] = ["gateway", "client"].map(Host::new);
    connect(&gateway, "client", &client, "eth0", 1);
    [gateway, client]
}

fn a_client_is_found_at_its_frontend(family: Family) {
    let [gateway, client] = pair();
    // IPv4 clients are also served by sockets of IPv6.
    let bind = if family == Family::V4 { "[::]:0".parse().unwrap() } else { addr(on(family, 1, 1), 0) };
    let listener = gateway.run(|| TcpListener::bind(bind).unwrap());
    let frontend = addr(on(family, 1, 1), listener.local_addr().unwrap().port());
    let mut stream = client.run(|| TcpStream::connect(frontend).unwrap());
    let (_accepted, _) = listener.accept().unwrap();
    stream.write_all(b"hello").unwrap();
    let found = eventually("five bytes wait", || {
        let found = gateway.run(|| of_client(on(family, 1, 2), frontend, soon())).unwrap();
        if found.iter().any(|socket| socket.receive_queue == 5) {
            Ok(found)
        } else {
            Err(format!("{found:?}"))
        }
    });
    let [socket] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((socket.local, socket.remote), (frontend, stream.local_addr().unwrap()));
    assert_eq!(socket.state, TcpState::Established);
    let info = socket.info.unwrap();
    assert_eq!((info.retransmits, info.bytes_received, info.path_mtu), (0, 5, 1500));
    assert!(!info.rtt.is_zero() && info.rtt < soon() && info.send_mss > 1000, "{info:?}");
    let towards = client.run(|| to_endpoint(frontend, soon())).unwrap();
    assert_eq!(towards.len(), 1);
    assert_eq!(towards[0].info.unwrap().bytes_acked, 6);
    let (other_client, other_port) = (on(family, 1, 3), addr(frontend.ip(), frontend.port() ^ 1));
    assert_eq!(gateway.run(|| of_client(other_client, frontend, soon())), Ok(vec![]));
    assert_eq!(gateway.run(|| of_client(on(family, 1, 2), other_port, soon())), Ok(vec![]));
}

fn a_connection_that_waits_is_in_the_accept_queue(family: Family) {
    let [gateway, client] = pair();
    let listener = gateway.run(|| TcpListener::bind(addr(on(family, 1, 1), 0)).unwrap());
    let frontend = listener.local_addr().unwrap();
    let look = || gateway.run(|| listening(frontend, soon())).unwrap();
    assert_eq!(look()[0].accept_queue, 0);
    let _streams = client.run(|| [(); 2].map(|()| TcpStream::connect(frontend).unwrap()));
    let found = eventually("two wait", || match look() {
        found if found[0].accept_queue == 2 => Ok(found),
        found => Err(format!("{found:?}")),
    });
    assert_eq!((found.len(), found[0].local, found[0].accept_queue_limit), (1, frontend, 128));
    assert_eq!(gateway.run(|| listening(addr(on(family, 1, 2), frontend.port()), soon())), Ok(vec![]));
}

fn a_lost_peer_is_sent_to_again(family: Family) {
    let [gateway, client] = pair();
    let listener = client.run(|| TcpListener::bind(addr(on(family, 1, 2), 0)).unwrap());
    let endpoint = listener.local_addr().unwrap();
    let mut stream = gateway.run(|| TcpStream::connect(endpoint).unwrap());
    client.ip(&["link set eth0 down".into()]);
    stream.write_all(b"lost").unwrap();
    let more_than = |count: u8| {
        eventually("it is sent again", || {
            let found = gateway.run(|| to_endpoint(endpoint, soon())).unwrap();
            let info = found[0].info.unwrap();
            let again = info.retransmits > count && info.unacked == 1 && found[0].send_queue == 4;
            if again { Ok(info.retransmits) } else { Err(format!("{found:?}")) }
        })
    };
    more_than(more_than(0));
}
