//! Live TCP sockets.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use sheave_trace::socket::{TcpState, listening, of_client};

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
    let stream = client.run(|| TcpStream::connect(frontend).unwrap());
    let (_accepted, _) = listener.accept().unwrap();
    let found = gateway.run(|| of_client(on(family, 1, 2), frontend, soon())).unwrap();
    let [socket] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((socket.local, socket.remote), (frontend, stream.local_addr().unwrap()));
    assert_eq!(socket.state, TcpState::Established);
    let info = socket.info.unwrap();
    assert_eq!((info.retransmits, info.unacked, socket.send_queue), (0, 0, 0));
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
    let listener = gateway.run(|| TcpListener::bind(addr(on(family, 1, 1), 0)).unwrap());
    let frontend = listener.local_addr().unwrap();
    let _connected = client.run(|| TcpStream::connect(frontend).unwrap());
    let (mut stream, from) = listener.accept().unwrap();
    client.ip(&["link set eth0 down".into()]);
    stream.write_all(b"lost").unwrap();
    let more_than = |count: u8| {
        eventually("it is sent again", || {
            let found = gateway.run(|| of_client(from.ip(), frontend, soon())).unwrap();
            let info = found[0].info.unwrap();
            let again = info.retransmits > count && info.unacked == 1 && found[0].send_queue == 4;
            if again { Ok(info.retransmits) } else { Err(format!("{found:?}")) }
        })
    };
    more_than(more_than(0));
}
